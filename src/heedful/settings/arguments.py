"""Types of the arguments of public functions: a wrong one is an error of one line that names it."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from functools import wraps
from inspect import Parameter, formatannotation, signature
from numbers import Integral, Real
from os import PathLike
from types import UnionType
from typing import Annotated, Any, Literal, ParamSpec, TypeVar, Union, cast, get_args, get_origin

from annotated_types import Ge

from heedful.errors import OptionError, suggestion

_Function = TypeVar("_Function", bound=Callable[..., Any])
_Parameters = ParamSpec("_Parameters")
_Task = TypeVar("_Task")
_Result = TypeVar("_Result")


def taking(
    task: Callable[_Parameters, _Task],
) -> Callable[[Callable[[_Task], _Result]], Callable[_Parameters, _Result]]:
    """Return a decorator: a function of a task, a dataclass, takes the fields of the task as arguments.

    Names, types and defaults stand at the fields alone: editors and type checkers find them there, too.
    """

    def decorate(function: Callable[[_Task], _Result]) -> Callable[_Parameters, _Result]:
        @wraps(function)
        def call(*positional: _Parameters.args, **keywords: _Parameters.kwargs) -> _Result:
            return function(task(*positional, **keywords))

        returned = signature(function).return_annotation
        call.__signature__ = signature(task).replace(return_annotation=returned)  # type: ignore[attr-defined]
        return checked(call)

    return decorate


def checked(function: _Function) -> _Function:
    """Return a function that checks the names and types of its arguments, by its signature.

    Where it takes a list, it may be given whatever can be read once, such as a generator or a column.

    Raises:
        OptionError: naming an argument that does not exist, or the first one of another type.
    """
    of_function = signature(function)
    hints: dict[str, Any] = {}

    @wraps(function)
    def call(*positional: Any, **keywords: Any) -> Any:  # noqa: ANN401
        if not hints:
            hints.update({name: _hint(each, function) for name, each in of_function.parameters.items()})
        try:
            bound = of_function.bind(*positional, **keywords)
        except TypeError:
            names = of_function.parameters
            for name in keywords.keys() - names.keys():
                raise OptionError(f"unknown option {name!r}{suggestion(name, [*names])}") from None
            return function(*positional, **keywords)  # which says it with the function's name
        given = bound.arguments
        for name, value in given.items():
            given[name] = value = _listed(value, hints[name])
            if not fits(value, hints[name]):
                raise OptionError(f"{_given(name, value, hints[name])}: must be {name_of(hints[name])}")
        return function(*bound.args, **bound.kwargs)

    return cast(_Function, call)


def is_stream(value: object) -> bool:
    """Return whether a value is a series of items, in order, and no sequence, such as a text."""
    return isinstance(value, Iterable) and not isinstance(value, _NO_STREAMS)


def _listed(value: Any, hint: Any) -> Any:  # noqa: ANN401
    """Return a value; as a list, if it is a stream and its type is a list, perhaps of several types."""
    kinds = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    takes_list = any(get_origin(kind) is Sequence for kind in kinds)
    return [*value] if takes_list and is_stream(value) else value


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
    if hint in _LEAVES:
        return _LEAVES[hint](value)
    if type(hint) is type:  # most items of a long list
        return isinstance(value, hint)
    origin, inner = get_origin(hint), get_args(hint)
    if origin in _FORMS:
        return _FORMS[origin](value, inner)
    if isinstance(origin, type) and issubclass(origin, Iterable):
        return _fits_items(value, origin, inner[0])
    if getattr(hint, "_is_protocol", False):
        members = [name for name in vars(hint) if name == "__call__" or not name.startswith("_")]
        return all(hasattr(value, name) for name in members)
    return not isinstance(hint, type) or isinstance(value, hint)


def _is_number(value: object, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _fits_annotated(value: Any, inner: Sequence[Any]) -> bool:  # noqa: ANN401
    kind, *marks = inner
    return fits(value, kind) and all(value >= mark.ge for mark in marks if isinstance(mark, Ge))


def _fits_tuple(value: object, inner: Sequence[Any]) -> bool:
    if inner[-1] is Ellipsis:
        return _fits_items(value, tuple, inner[0])
    return isinstance(value, list | tuple) and len(value) == len(inner)


def _fits_items(value: object, kind: type, of_item: Any) -> bool:  # noqa: ANN401
    """Return whether a value is of a kind of iterable; what can be read again has only items of a type."""
    if isinstance(value, str | bytes) or not isinstance(value, (list, tuple) if kind in _LISTS else kind):
        return False
    is_read = issubclass(kind, Collection) and not issubclass(kind, Mapping)
    return not is_read or all(fits(item, of_item) for item in cast(Collection[object], value))


_LISTS = (list, tuple)
_NO_STREAMS = (Sequence, Mapping, Set, PathLike)
_LEAVES: dict[Any, Callable[[object], bool]] = {
    Any: lambda value: True,
    None: lambda value: value is None,
    int: lambda value: _is_number(value, Integral),  # of numpy too
    float: lambda value: _is_number(value, Real),
}
_FORMS: dict[Any, Callable[[Any, Sequence[Any]], bool]] = {
    Annotated: _fits_annotated,
    **dict.fromkeys((Union, UnionType), lambda value, inner: any(fits(value, kind) for kind in inner)),
    Literal: lambda value, inner: isinstance(value, str) and value in inner,
    Callable: lambda value, inner: callable(value),
    tuple: _fits_tuple,
}


def name_of(hint: Any) -> str:  # noqa: ANN401
    """Return a type as it is written, without modules; of a literal type, its values."""
    if get_origin(hint) in (Union, UnionType):
        return " | ".join(map(name_of, get_args(hint)))
    if get_origin(hint) is Annotated:
        kind, *marks = get_args(hint)
        return name_of(kind) + "".join(f" (at least {mark.ge})" for mark in marks if isinstance(mark, Ge))
    if get_origin(hint) is Literal:
        return f"one of {', '.join(map(repr, get_args(hint)))}"
    return re.sub(r"[\w.]+\.(\w+)", r"\1", formatannotation(hint)).replace("NoneType", "None")


def _given(name: str, value: object, hint: Any) -> str:  # noqa: ANN401
    if value is None or isinstance(value, str | int | float):
        return f"{name}={value!r}"
    items = value if isinstance(value, list | tuple) and fits([], hint) else ()
    for number, item in enumerate(items, start=1):
        if not fits([item], hint):
            return f"{name}: number {number:,} is {type(item).__name__}"
    return f"{name}: {type(value).__name__} given"
