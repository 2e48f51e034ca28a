"""Commands that take groups of options, each group a dataclass whose fields are options of their own."""

import inspect
from collections.abc import Callable, Iterator
from dataclasses import Field, fields, is_dataclass
from functools import wraps
from inspect import Parameter
from typing import Annotated, Any, get_args, get_type_hints

import typer

from heedful.settings.options import Option, options_of


def with_option_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command as typer is to see it: with the fields of its groups in place of each group.

    Fields without an `Option` keep their defaults.
    """
    hints = get_type_hints(command, include_extras=True)
    groups = {name: hint for name, hint in hints.items() if isinstance(hint, type) and is_dataclass(hint)}
    if not groups:
        return command
    parameters: dict[str, Parameter] = {}
    members: dict[str, list[str]] = {}
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters[name] = parameter.replace(annotation=hints[name])
            continue
        options = list(_options_of(groups[name]))
        members[name] = [option.name for option in options]
        parameters |= {option.name: option for option in options}

    @wraps(command)
    def grouped(**values: Any) -> None:  # noqa: ANN401
        for name, fields_of_group in members.items():
            values[name] = groups[name](**{each: values.pop(each) for each in fields_of_group})
        command(**values)

    ordered = sorted(parameters.values(), key=lambda each: each.default is not Parameter.empty)
    keyword_only = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in ordered]
    grouped.__signature__ = inspect.Signature(keyword_only)  # type: ignore[attr-defined]
    grouped.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    return grouped


def _options_of(group: type) -> Iterator[Parameter]:
    """Yield a parameter for each field of a group that has an `Option`."""
    hints, options = get_type_hints(group, include_extras=True), options_of(group)
    for field in fields(group):
        if (option := options.get(field.name)) is not None:
            kind = get_args(hints[field.name])[0]
            yield Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=field.default,
                annotation=Annotated[kind, _as_typer_has_it(field, option)],
            )


def _as_typer_has_it(field: Field[Any], option: Option) -> Any:  # noqa: ANN401
    flag = f"--{field.name.replace('_', '-')}"
    default = f" [default: {option.default}]" if option.default is not None else ""
    return typer.Option(
        flag,
        min=option.minimum,
        max=option.maximum,
        metavar=option.metavar,
        help=option.help + default,
        rich_help_panel=option.heading,
    )
