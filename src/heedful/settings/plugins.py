"""Plugins: Python files with a user's own parts. A setting names a part as `PLUGIN:NAME`: `mine:Linear`.

A plugin is a Python file that the user names (`--plugin mine.py`, `load_plugin`), or a module of an installed
package, for which the package has an entry point in the group `heedful.plugins`. Names are looked up nowhere
else, so a configuration, a checkpoint or a bundle never decides which code is run.
"""

import re
import sys
import traceback
from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ValidationInfo, WithJsonSchema
from pydantic_core import PydanticCustomError

from heedful.errors import ConfigError, suggestion

ENTRY_POINTS = "heedful.plugins"
_REFERENCE = re.compile(r"[^\W\d][\w.]*:[^\W\d][\w.]*")
_LOADED: dict[str, ModuleType] = {}
_FILES: dict[str, Path] = {}  # of the plugins that are files
_INSTALLED: set[str] = set()  # names of plugins from entry points


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
        return _LOADED.setdefault(plugin.__name__, plugin)
    file = Path(plugin).resolve()
    name = file.stem
    if file.suffix != ".py" or not name.isidentifier() or not file.is_file():
        raise ConfigError(f"{plugin}: is no plugin; give a Python file with a plain name, such as mine.py")
    known = _LOADED.get(name) or sys.modules.get(name)
    found = known.__spec__ if known else find_spec(name)
    if found is not None and (found.origin is None or Path(found.origin).resolve() != file):
        raise ConfigError(f"{plugin}: {name} is the name of another module too; rename the file")
    module = _LOADED.setdefault(name, known or _executed(name, file))
    _FILES[name] = file
    return module


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
        lines = [each.lineno for each in frames if each.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else (lines or [1])[-1]
        raise ConfigError(f"{file}: line {line}: {type(error).__name__}: {error}") from error
    return module


def loaded_plugins() -> tuple[str, ...]:
    """Name the plugins of this process for `load_again`: files by their paths, modules by their names."""
    return tuple(
        str(_FILES.get(name, module.__name__))
        for name, module in _LOADED.items()
        if name != "__main__"  # which other processes do not have
    )


def plugin_options(parts: Iterable[str]) -> list[str]:
    """Return the options of a command that needs these parts, `PLUGIN:NAME`; none for installed packages."""
    names = dict.fromkeys(each.partition(":")[0] for each in parts)
    files = [name for name in names if name.isidentifier() and name not in _INSTALLED]
    return [word for name in files for word in ("--plugin", f"{name}.py")]


def load_again(plugins: tuple[str, ...]) -> None:
    """Load the plugins of another process of this training."""
    for each in plugins:
        load_plugin(each if each.endswith(".py") else import_module(each))


def part(reference: str, key: str) -> Any:  # noqa: ANN401
    """Return the class, function or object that `PLUGIN:NAME` names.

    Args:
        reference: a value of the configuration.
        key: its whole key, for messages.

    Raises:
        ConfigError: there is no such plugin in this process, or it has no such part.
    """
    name, _, path = reference.partition(":")
    module = _LOADED.get(name) or _installed(name)
    if module is None:
        raise ConfigError(
            f"{key}={reference}: no plugin {name!r} is loaded; give --plugin {name}.py (in Python "
            "heedful.load_plugin), or install the package that has it"
        )
    value: Any = module
    for each in path.split("."):
        known = [other for other in getattr(value, "__dict__", {}) if not other.startswith("_")]
        if each not in known:
            raise ConfigError(f"{key}={reference}: the plugin has no {path!r}{suggestion(each, known)}")
        value = vars(value)[each]
        if isinstance(value, ModuleType):
            raise ConfigError(f"{key}={reference}: {each} is a module that the plugin imports; give a part")
    return value


def reference_to(value: Any, key: str) -> str:  # noqa: ANN401
    """Return the name `PLUGIN:NAME` of a class or function, and make its module a plugin.

    Raises:
        ConfigError: it has no name that others could find it by.
    """
    name = getattr(value, "__qualname__", "<")
    if "<" in name:
        raise ConfigError(f"{key}={value!r}: give a class or a function of a module (a file), or its name")
    module = sys.modules[value.__module__]
    names = [each for each, loaded in _LOADED.items() if loaded is module]
    reference = f"{names[0] if names else load_plugin(module).__name__}:{name}"
    if part(reference, key) is not value:
        raise ConfigError(f"{key}={value!r}: its module has another part of this name")
    return reference


def _installed(name: str) -> ModuleType | None:
    """Return the plugin of an installed package.

    Raises:
        ConfigError: it cannot be imported.
    """
    from importlib.metadata import entry_points  # slow to import, and needed for plugins alone

    for each in entry_points(group=ENTRY_POINTS, name=name):
        try:
            _LOADED[name] = each.load()
            _INSTALLED.add(name)
            return _LOADED[name]
        except (ImportError, AttributeError) as error:
            raise ConfigError(f"plugin {name!r}: cannot import {each.value}: {error}") from error
    return None


def _name_of(value: object, info: ValidationInfo) -> object:
    return reference_to(value, info.field_name or "") if callable(value) else value


def _check_form(value: str) -> str:
    if not _REFERENCE.fullmatch(value):
        raise PydanticCustomError("plugin", "input should name a part of a plugin, PLUGIN:NAME")
    return value


# A setting with a part of a plugin, `PLUGIN:NAME`. In Python the class or function itself can be given.
PartName = Annotated[
    str,
    BeforeValidator(_name_of),
    AfterValidator(_check_form),
    WithJsonSchema({"type": "string", "format": "plugin"}),
]
