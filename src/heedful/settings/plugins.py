"""Plugins: Python files with a user's own parts. A setting names a part as `PLUGIN:NAME`: `mine:Linear`.

A plugin is a Python file that the user names (`--plugin mine.py`, `load_plugin`), or a module of an installed
package, for which the package has an entry point in the group `heedful.plugins`. Names are looked up nowhere
else, so a configuration, a checkpoint or a bundle never decides which code is run.
"""

import hashlib
import math
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import update_wrapper
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from inspect import (
    isasyncgenfunction,
    iscoroutinefunction,
    isfunction,
    isgeneratorfunction,
    signature,
)
from itertools import chain, count
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from heedful.errors import ConfigError, HeedfulError, StopTraining, is_out_of_memory, suggestion
from heedful.settings.arguments import checked
from heedful.settings.parsing import shown

ENTRY_POINTS = "heedful.plugins"
_REFERENCE = re.compile(r"[^\W\d][\w.]{,200}:[^\W\d][\w.]{,200}")
_MAIN = "__main__"
_UNNAMED = "unnamed"  # the parts of `reference_here`
_ONLY_HERE = (_MAIN, _UNNAMED)  # plugins that other processes do not have


@dataclass(frozen=True)
class _Plugin:
    """A plugin of this process: its module, its version, and its file if `--plugin` names one."""

    module: ModuleType
    version: str  # the hash of the file, or the name and version of the package
    file: Path | None = None
    is_installed: bool = False


_LOADED: dict[str, _Plugin] = {}


@checked
def load_plugin(plugin: str | Path | ModuleType) -> ModuleType:
    """Load a Python file with your own parts, so that settings can name them: `--plugin`.

    >>> mine = heedful.load_plugin("mine.py")
    >>> config = heedful.load_config(overrides={"model.attention": "mine:Linear"})

    If you give a class or function itself, `ModelConfig(attention=mine.Linear)`, this call is not needed.

    Args:
        plugin: the file, which gives the plugin its name, or a module that is imported already.

    Raises:
        ConfigError: there is no such file, it cannot be run, or another module has its name.
    """
    if isinstance(plugin, ModuleType):
        source = Path(getattr(plugin, "__file__", None) or "")
        version = _hash(source) if source.is_file() and plugin.__name__ != _MAIN else ""
        return _LOADED.setdefault(plugin.__name__, _Plugin(plugin, version)).module
    file = Path(plugin).resolve()
    name = file.stem
    if not file.is_file():
        code = Path(f"{plugin}.py")
        remedy = f"did you mean {code}?" if code.is_file() else "check the path"
        raise ConfigError(f"{plugin}: no such file; {remedy}")
    if file.suffix != ".py" or not name.isidentifier():
        raise ConfigError(f"{plugin}: is no plugin; give a Python file with a plain name, such as mine.py")
    loaded = _LOADED.get(name)
    known = loaded.module if loaded else sys.modules.get(name)
    spec = known.__spec__ if known else find_spec(name)
    if spec is not None and Path(spec.origin or "").resolve() != file:
        raise ConfigError(f"{plugin}: {name} is the name of another module too; rename the file")
    if loaded is None or loaded.file is None:
        version = loaded.version if loaded else _hash(file)
        loaded = _LOADED[name] = _Plugin(known or _executed(name, file), version, file)
    return loaded.module


def _hash(file: Path) -> str:
    return f"sha256:{hashlib.sha256(file.read_bytes()).hexdigest()}"


def _executed(name: str, file: Path) -> ModuleType:
    spec = spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))  # for other files that it imports
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [1, *(frame.lineno for frame in frames if frame.filename == str(file))]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1]
        raise ConfigError(f"{file}: line {line}: {type(error).__name__}: {error}") from error
    return module


def loaded_plugins() -> tuple[str, ...]:
    """Name the plugins of this process for `load_again`: files by their paths, modules by their names."""
    return tuple(
        str(plugin.file or name)
        for name, plugin in _LOADED.items()
        if name not in _ONLY_HERE and not plugin.is_installed  # which every process finds by itself
    )


def load_again(plugins: Iterable[str]) -> None:
    """Load the plugins of the process that started this one."""
    for plugin in plugins:
        load_plugin(plugin if plugin.endswith(".py") else import_module(plugin))


def plugin_options(parts: Iterable[str]) -> list[str]:
    """Return the options of a command that needs these parts, `PLUGIN:NAME`; none for installed packages."""
    options: list[str] = []
    for name in dict.fromkeys(map(plugin_of, parts)):
        is_installed = name in _LOADED and _LOADED[name].is_installed
        if name.isidentifier() and not is_installed:
            options += ("--plugin", f"{name}.py")
    return options


def plugin_of(reference: str) -> str:
    """Return the plugin of a part, `PLUGIN:NAME`."""
    return reference.partition(":")[0]


def plugin_versions(parts: Iterable[str]) -> tuple[str, ...]:
    """Return the name and version of each plugin of some parts, for example `mine sha256:09ab...`."""
    plugins = {name: _find(name) for name in map(plugin_of, parts)}
    versions = {name: plugin.version for name, plugin in plugins.items() if plugin}
    return tuple(f"{name} {version}" for name, version in versions.items() if version)


def changed_plugins(parts: Iterable[str], versions: Sequence[str]) -> str | None:
    """Return a sentence about plugins that have changed since `versions`; None: no plugin has.

    Args:
        parts: parts that are used, `PLUGIN:NAME`.
        versions: as `plugin_versions` returned them when a model was trained; one that is missing is unknown.
    """
    before = dict(version.split(" ", 1) for version in versions)
    changed: list[str] = []
    for now in plugin_versions(parts):
        name, version = now.split(" ", 1)
        if before.get(name, version) != version:
            changed.append(f"{name} ({_short(before[name])} then, {_short(version)} here)")
    if not changed:
        return None
    names = ", ".join(changed)
    return f"the code of a plugin was changed after the training: {names}; results may differ"


def _short(version: str) -> str:
    return version[:15] if version.startswith("sha256:") else version


def plugin_part(reference: str, key: str) -> Any:  # noqa: ANN401
    """Return the class, function or object that `PLUGIN:NAME` names.

    Args:
        reference: a value of the configuration.
        key: its whole key, for messages.

    Raises:
        ConfigError: there is no such plugin in this process, or it has no such part.
    """
    name, _, path = reference.partition(":")
    plugin = _find(name)
    if plugin is None:
        raise ConfigError(
            f"{key}={reference}: no plugin {name!r} is loaded; give --plugin {name}.py (in Python "
            "heedful.load_plugin), or install the package that has it"
        )
    value: Any = plugin.module
    for part in path.split("."):
        inner = getattr(value, "__dict__", {})
        known = [name for name in inner if not (name[0] == "_" or isinstance(inner[name], ModuleType))]
        if part not in known:
            raise ConfigError(f"{key}={reference}: the plugin has no {path!r}{suggestion(part, known)}")
        value = inner[part]
    return value


def reference_to(value: Any, key: str) -> str:  # noqa: ANN401
    """Return the name `PLUGIN:NAME` of a class or function, and make its module a plugin.

    Raises:
        ConfigError: it has no name that others could find it by.
    """
    name, module = getattr(value, "__qualname__", "<"), sys.modules.get(getattr(value, "__module__", ""))
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if module is None or found is not value:
        raise ConfigError(f"{key}={value!r}: give a class or a function of a module (a file), or its name")
    names = (plugin for plugin, loaded in _LOADED.items() if loaded.module is module)
    return f"{next(names, None) or load_plugin(module).__name__}:{name}"


def reference_here(value: Any, key: str) -> Any:  # noqa: ANN401
    """Return a setting, with a name `PLUGIN:NAME` instead of a class, function or module.

    What has no name that others could find it by, such as a lambda, gets one that only this process knows.
    """
    if not callable(value):
        return value
    try:
        return reference_to(value, key)
    except ConfigError:
        parts = vars(_LOADED.setdefault(_UNNAMED, _Plugin(ModuleType(_UNNAMED), "")).module)
        kind = re.sub(r"\W", "", getattr(value, "__name__", type(value).__name__)).strip("_")
        names = chain([kind], (f"{kind}_{number}" for number in count(2)))
        name = next(name for name in names if parts.get(name, value) is value)
        parts[name] = value
        return f"{_UNNAMED}:{name}"


def unnamed_parts(parts: Mapping[str, str]) -> dict[str, str]:
    """Return those of some parts, `PLUGIN:NAME` by their keys, that `reference_here` has named."""
    return {key: reference for key, reference in parts.items() if plugin_of(reference) == _UNNAMED}


class PluginFunction:
    """A function of a user's: what it raises, and results that cannot be, are errors of one line."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        arguments: str,
        *,
        returns: str,
        is_right: Callable[[Any, Any], bool],
    ) -> None:
        update_wrapper(self, function)
        self._function, self._name, self._arguments = function, name, arguments
        self._returns, self._is_right = returns, is_right

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:  # noqa: ANN401
        """Call the function.

        Raises:
            ConfigError: it raised an error, or returned something else than it must.
        """
        try:
            result = self._function(*arguments, **keywords)
        except (HeedfulError, StopTraining):
            raise
        except Exception as error:
            if is_out_of_memory(error):
                raise
            what = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise ConfigError(
                f"{self._name}: fails with {what}{self._place_of(error)}; it gets ({self._arguments}), and "
                f"returns {self._returns}"
            ) from error
        if not self._is_right(result, next(iter(arguments), None)):
            raise ConfigError(f"{self._name}: returned {shown(result)}; return {self._returns}")
        return result

    def _place_of(self, error: Exception) -> str:
        """Return the line of the function's own file where an error comes from, as part of a message."""
        module = sys.modules.get(self._function.__module__)
        file = getattr(module, "__file__", None)
        frames = traceback.extract_tb(error.__traceback__)
        lines = [frame.lineno for frame in frames if frame.filename == file]
        return f" ({Path(file).name}, line {lines[-1]})" if file and lines else ""


def is_number(value: object, _: object) -> bool:
    """Return whether a result is a finite number: Python's or numpy's."""
    return isinstance(value, Real) and math.isfinite(value)


def check_arguments(value: Any, name: str, arguments: str) -> None:  # noqa: ANN401
    """Check that a part is a function, neither async nor a generator, and that it takes these arguments.

    Args:
        value: the part.
        name: the setting and the part, for the message.
        arguments: as in a definition, such as "model, batch", or "lengths, *, seed".

    Raises:
        ConfigError: it is something else.
    """
    positional, _, keywords = arguments.partition(", *, ")
    names = positional.split(", ") if positional else []
    problem = ""
    try:
        signature(value).bind(*names, **dict.fromkeys(filter(None, keywords.split(", "))))
    except ValueError:  # a builtin without a signature
        return
    except TypeError as error:
        problem = str(error)
    called = value if isfunction(value) else getattr(value, "__call__", None)  # noqa: B004 (an object's own)
    if iscoroutinefunction(called) or isasyncgenfunction(called) or isgeneratorfunction(called):
        problem = "it is async, or has a yield"
    if problem:
        kind = "a class that is called with" if isinstance(value, type) else "a function of"
        raise ConfigError(f"{name}: must be {kind} ({arguments}): {problem}")


def checked_function(
    value: Any,  # noqa: ANN401
    name: str,
    arguments: str,
    *,
    returns: str,
    is_right: Callable[[Any, Any], bool],
) -> PluginFunction:
    """Return a function of a user's; each call checks what it returns.

    Args:
        value: the function, or a class of settings with defaults, whose objects can be called.
        name: the setting and the part, for messages.
        arguments: the arguments, as `check_arguments` takes them.
        returns: what it must return, in words.
        is_right: whether it did: a function of the result and of the first argument.

    Raises:
        ConfigError: it takes other arguments.
    """
    if isinstance(value, type):
        value = made_by(value, name)
    check_arguments(value, name, arguments)
    return PluginFunction(value, name, arguments, returns=returns, is_right=is_right)


def made_by(kind: type, name: str, **arguments: object) -> Any:  # noqa: ANN401
    """Return an object of a user's class, which is used as a function.

    Raises:
        ConfigError: the class takes other arguments, or fails.
    """
    names = ", ".join(arguments)
    check_arguments(kind, name, names)
    make = PluginFunction(
        kind, name, names, returns="an object to call", is_right=lambda made, _: callable(made)
    )
    return make(*arguments.values())


def function_part(
    reference: str, key: str, arguments: str, *, returns: str, is_right: Callable[[Any, Any], bool]
) -> PluginFunction:
    """Return the function that `PLUGIN:NAME` names, as `checked_function` does; `key` is the whole setting.

    Raises:
        ConfigError: there is no such plugin or part, or it takes other arguments.
    """
    part, name = plugin_part(reference, key), f"{key}={reference}"
    return checked_function(part, name, arguments, returns=returns, is_right=is_right)


def part_name(key: str, parts: Mapping[str, str], part: object) -> str:
    """Return a setting and its part for messages: PLUGIN:NAME, or the name of what was given in Python."""
    return f"{key}={parts.get(key) or getattr(part, '__qualname__', None) or shown(part)}"


def _find(name: str) -> _Plugin | None:
    """Return a plugin that is loaded, or load the one of an installed package; None: there is none.

    Raises:
        ConfigError: it cannot be imported.
    """
    if name in _LOADED:
        return _LOADED[name]
    from importlib.metadata import entry_points  # slow to import, and needed for plugins alone

    for entry in entry_points(group=ENTRY_POINTS, name=name):
        try:
            version = f"{entry.dist.name} {entry.dist.version}" if entry.dist else ""
            return _LOADED.setdefault(name, _Plugin(entry.load(), version, is_installed=True))
        except Exception as error:
            raise ConfigError(f"plugin {name!r}: cannot import {entry.value}: {error}") from error
    return None


def _name_of(value: object, info: ValidationInfo) -> object:
    return reference_to(value, info.field_name or "") if callable(value) else value


def _check_form(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        form = _written_out(value)
        raise PydanticCustomError("plugin", "input should name a part of a plugin, {form}", {"form": form})
    return value


def _written_out(name: str) -> str:
    """Return how a part is named whose plugin was left out: `mine:loss` if a plugin that is loaded has it."""
    of_plugins = [plugin for plugin, loaded in _LOADED.items() if hasattr(loaded.module, name)]
    if of_plugins:
        return " or ".join(f"{plugin}:{name}" for plugin in of_plugins)
    return "PLUGIN:NAME, such as mine:{name} with --plugin mine.py".format(
        name=name if name.isidentifier() else "loss"
    )


# A setting with a part of a plugin, `PLUGIN:NAME`. In Python the class or function itself can be given.
PartName = Annotated[
    str,
    BeforeValidator(_name_of),
    AfterValidator(_check_form),
    WithJsonSchema({"type": "string", "format": "plugin"}),
]
# What `plugin_versions` returns for a plugin.
PluginVersion = Annotated[str, Field(pattern=r"^[^\W\d][\w.]* [\w.-]+[: ][\w.+!-]+$", max_length=300)]
