"""Types of the arguments of public functions: a wrong one is an error of one line that names it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import wraps
from inspect import Parameter, formatannotation, signature
from numbers import Integral, Real
from types import UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from annotated_types import Ge

from heedful.errors import OptionError, suggestion

_Function = TypeVar("_Function", bound=Callable[..., Any])
_NUMBERS: dict[Any, type] = {int: Integral, float: Real}  # of numpy too


def checked(function: _Function) -> _Function:
    """Return a function that checks the names and types of its arguments, by its signature.

    Raises:
        OptionError: naming an argument that does not exist, or the first one of another type.
    """
    of_function = signature(function)
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*positional: Any, **keywords: Any) -> Any:  # noqa: ANN401
        if not hints:
            hints.update((name, _hint(each, function)) for name, each in of_function.parameters.items())
        try:
            given = of_function.bind(*positional, **keywords).arguments
        except TypeError:
            names = of_function.parameters
            for name in keywords.keys() - names.keys():
                raise OptionError(f"unknown option {name!r}{suggestion(name, [*names])}") from None
            return function(*positional, **keywords)  # which says it with the function's name
        for name, value in given.items():
            if not fits(value, hints[name]):
                raise OptionError(f"{_given(name, value, hints[name])}: must be {name_of(hints[name])}")
        return function(*positional, **keywords)

    return cast(_Function, call)


def _hint(parameter: Parameter, function: Callable[..., Any]) -> Any:  # noqa: ANN401
    """Return the type of a parameter; any, if it is imported for type checkers alone."""
    hint = parameter.annotation
    if hint is Parameter.empty or parameter.kind in (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL):
        return Any
    try:
        return eval(hint, function.__globals__) if isinstance(hint, str) else hint
    except (NameError, TypeError):
        return Any


def fits(value: object, hint: Any) -> bool:  # noqa: ANN401
    """Return whether a value is of a type; a text is no sequence of texts, and a bool is no number."""
    if type(hint) is type and hint not in _NUMBERS:  # most items of a long list
        return isinstance(value, hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return fits(value, inner[0]) and all(
            cast(Any, value) >= each.ge for each in inner[1:] if isinstance(each, Ge)
        )
    if hint in _NUMBERS:
        return isinstance(value, _NUMBERS[hint]) and not isinstance(value, bool)
    if origin in (Union, UnionType):
        return any(fits(value, each) for each in inner)
    if origin is Literal:
        return isinstance(value, str) and value in inner
    if origin is Callable:
        return callable(value)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        kind = (list, tuple) if issubclass(origin, list | tuple) else origin
        if isinstance(value, str | bytes) or not isinstance(value, kind):
            return False
        if origin is tuple and inner[-1] is not Ellipsis:
            return len(cast(tuple[Any, ...], value)) == len(inner)
        is_read = issubclass(origin, Collection) and not issubclass(origin, Mapping)
        return not is_read or all(fits(each, inner[0]) for each in value)
    if getattr(hint, "_is_protocol", False):
        members = [name for name in vars(hint) if name == "__call__" or not name.startswith("_")]
        return all(hasattr(value, name) for name in members)
    if hint is None or hint is Any or not isinstance(hint, type):
        return hint is not None or value is None
    return isinstance(value, hint)


def name_of(hint: Any) -> str:  # noqa: ANN401
    """Return a type as it is written, without modules; of a literal type, its values."""
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(map(name_of, get_args(hint)))
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        return name_of(kind) + "".join(f" (at least {each.ge})" for each in marks if isinstance(each, Ge))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return re.sub(r"[\w.]+\.(\w+)", r"\1", formatannotation(hint)).replace("NoneType", "None")


def _given(name: str, value: object, hint: Any) -> str:  # noqa: ANN401
    if value is None or isinstance(value, str | int | float):
        return f"{name}={value!r}"
    of_items = [get_args(each)[0] for each in (hint, *get_args(hint)) if get_origin(each) is Sequence]
    for number, each in enumerate(value if of_items and isinstance(value, list | tuple) else (), start=1):
        if not any(fits(each, item) for item in of_items):
            return f"{name}: number {number:,} is {type(each).__name__}"
    return f"{name}: {type(value).__name__} given"
