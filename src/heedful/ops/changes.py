"""Parts of a model that are not heedful's own: a class, method, function or hook that a user has put there.

Only torch computes such a model as it is. Fused operations, the native engine and exports know heedful's own
classes, so they ask here first, and leave alone what they do not know.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import FunctionType

import torch
from torch import nn

from heedful.model import attention, layers, positions, transformer, variants
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

_OF_THE_PAPER = (attention, layers, positions, transformer, variants)
_OF_TORCH = (
    nn.Dropout, nn.Dropout1d, nn.Embedding, nn.Identity, nn.LayerNorm, nn.Linear, nn.ModuleList, nn.RMSNorm,
)  # fmt: skip
_HOMES = {each.__name__ for each in _OF_THE_PAPER}
_OURS = {"heedful", "torch"}
# Subclasses from these packages compute what their base computes, faster or on several devices.
_EQUAL = ("heedful.ops.", "torch.distributed.")
_HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")

_USUAL = vars(nn.Module()).keys()  # attributes of every module
_WHOLE = "the model"

Changes = dict[str, str]  # what stands in a place, by the name of the place; empty: all is heedful's own


def class_of(module: nn.Module) -> type[nn.Module]:
    """Return the class of a module; for a fused or sharded one, the class that it stands for."""
    return next(each for each in type(module).__mro__ if not each.__module__.startswith(_EQUAL))


def is_exactly(module: nn.Module, kind: type[nn.Module]) -> bool:
    """Return whether a module is of that class, not of a subclass, and computes by the class's own code."""
    return class_of(module) is kind and change_of(module) is None


def change_of(module: nn.Module) -> str | None:
    """Return how a module, apart from its submodules, differs from heedful's own; None: it does not.

    A class that heedful does not use, a method assigned to a class or to the module, a function that the
    module calls, and a hook are differences.
    """
    return _change_of_class(type(module)) or _change_of_instance(module)


def is_changed(part: nn.Module) -> bool:
    """Return whether `change_of` finds a difference in a module or in one of its submodules."""
    modules = list(part.modules())
    return any(map(_change_of_class, {type(each) for each in modules})) or any(
        map(_change_of_instance, modules)
    )


def _change_of_class(kind: type[nn.Module]) -> str | None:
    plain = next(each for each in kind.__mro__ if not each.__module__.startswith(_EQUAL))
    if plain not in _OF_TORCH and plain.__module__ not in _HOMES:
        return _name(plain)
    return next(_patched_methods(kind), None)


def _change_of_instance(
    module: nn.Module, *, is_known: Callable[[object], bool] = lambda _: False
) -> str | None:
    attributes = vars(module)
    for name in attributes.keys() - _USUAL:
        value = attributes[name]
        is_method = isinstance(getattr(type(module), name, None), FunctionType)
        if callable(value) and (is_method or not (_is_ours(value) or is_known(value))):
            return f"{name} = {_name(value)}"
    for name in _HOOKS:
        for hook in attributes[name].values():
            if not _is_ours(hook):
                return f"a hook, {_name(hook)}"
    return None


def patched_functions() -> Changes:
    """Return functions and classes of `heedful.model` that something else has been assigned to."""
    return {
        f"{module.__name__}.{name}": _name(value)
        for module in _OF_THE_PAPER
        for name, value in vars(module).items()
        if (isinstance(value, FunctionType | type) and value.__name__ != name)
        or (callable(value) and not _is_ours(value, besides=sys.stdlib_module_names))
    }


def patched_code() -> Changes:
    """Return what has been assigned to names of `heedful.model`, and to methods of the classes used there."""
    kinds = {
        value
        for module in _OF_THE_PAPER
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, nn.Module) and value is not nn.Module
    }
    methods = (each.split(" = ", 1) for kind in (*kinds, *_OF_TORCH) for each in _patched_methods(kind))
    return patched_functions() | {name: value for name, value in sorted(methods)}


def changed_parts(model: Transformer) -> Changes:
    """Return what differs from the model that its configuration describes.

    Besides the differences of `change_of`: classes of heedful, settings and weights other than in the
    configuration, for example `RotaryPositions` where it says sinusoids. Adapters (LoRA) do not count, nor
    do the rates of dropout.

    Returns:
        By the name of a module, weight or function what stands there, `encoder.layers.0.feed_forward` ->
        `mine.SquaredReLU`.
    """
    expected = _described(model.config)
    changes = patched_functions() | model.config.plugged | dict(_differences(model, expected, ""))
    if _WHOLE in changes:
        return changes
    own, wanted = (dict(each.named_parameters()) for each in (model, expected))
    for name in sorted(own.keys() ^ wanted.keys()):
        owner = name.rpartition(".")[0]
        known = any(name.startswith(f"{each}.") for each in changes)
        if not known and not _has_more(model.get_submodule(owner)):
            changes[name] = "a weight of its own" if name in own else "shared, or missing"
    return changes


def changes_by_code(config: ModelConfig) -> Changes:
    """Return `changed_parts` of a model that is built from a configuration in this process."""
    return changed_parts(_described(config))


def only_in_this_process(model: Transformer) -> str | None:
    """Name a change that a process that imports modules, but not this one's script, cannot make; or None.

    It can import classes, but not what the script defines or has assigned to names of other modules.
    """
    if changes := patched_code():
        return in_words(changes)
    for name, module in model.named_modules():
        kind = type(module)
        if kind.__module__ == "__main__" or "<locals>" in kind.__qualname__:
            return f"{name or _WHOLE}: {_name(kind)}"
        if change := _change_of_instance(module, is_known=_is_importable):
            return f"{name or _WHOLE}: {change}"
    return None


def _is_importable(value: object) -> bool:
    """Return whether a value is a function of a module, which other processes import by its name."""
    return (
        isinstance(value, FunctionType) and value.__module__ != "__main__" and "<" not in value.__qualname__
    )


def in_words(changes: Mapping[str, str]) -> str:
    """Name the first of some changes, and say how many more there are."""
    (name, value), *others = changes.items()
    return f"{name}: {value}" + (f" (and {len(others):,} more)" if others else "")


def _described(config: ModelConfig) -> Transformer:
    with torch.device("meta"):
        return Transformer.from_config(config)


def _differences(module: nn.Module, expected: nn.Module, path: str) -> Iterator[tuple[str, str]]:
    name = path or _WHOLE
    if class_of(module) is not class_of(expected):
        yield name, _name(type(module))
        return
    if change := change_of(module):
        yield name, change
    settings = vars(module)
    for key, value in vars(expected).items():
        is_rate = isinstance(module, nn.Dropout | nn.Dropout1d)
        if not (key.startswith("_") or key == "training" or is_rate or _are_equal(settings.get(key), value)):
            yield name, f"{key} = {_name(settings.get(key))}"
    own, wanted = dict(module.named_children()), dict(expected.named_children())
    for child in wanted:
        place = f"{path}.{child}" if path else child
        if child in own:
            yield from _differences(own[child], wanted[child], place)
        else:
            yield place, "missing"
    if not _has_more(module):
        for child in own.keys() - wanted.keys():
            yield f"{path}.{child}" if path else child, _name(type(own[child]))


def _has_more(module: nn.Module) -> bool:
    """Return whether a module has weights and parts that the class that it stands for does not have."""
    return type(module).__module__.startswith("heedful.ops.")


def _are_equal(one: object, other: object) -> bool:
    if isinstance(one, partial) and isinstance(other, partial):  # copies differ
        return (one.func, one.args, one.keywords) == (other.func, other.args, other.keywords)
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):  # one of them without values
        return one.shape == other.shape
    return one == other


def _patched_methods(kind: type) -> Iterator[str]:
    """Yield the methods of a class and its bases that were not defined with it."""
    for base in kind.__mro__[: kind.__mro__.index(nn.Module)]:
        for name, value in vars(base).items():
            function = getattr(value, "__func__", getattr(value, "fget", value))
            if callable(function) and not isinstance(function, type) and _home(function) != base.__module__:
                yield f"{base.__qualname__}.{name} = {_name(function)}"


def _is_ours(value: object, *, besides: frozenset[str] = frozenset()) -> bool:
    root = _home(value).partition(".")[0]
    return root in _OURS or root in besides or root in ("", "typing_extensions")


def _home(value: object) -> str:
    """Return the module in which a function or class was written, which a decorator does not hide."""
    if isinstance(value, partial):
        return _home(value.func)
    value = getattr(value, "__func__", value)
    names: Mapping[str, str] = getattr(value, "__globals__", {})
    return names.get("__name__") or getattr(value, "__module__", None) or ""


def _name(value: object) -> str:
    value = getattr(value, "__func__", value)
    name = getattr(value, "__qualname__", None)
    return f"{_home(value)}.{name}" if name else repr(value)
