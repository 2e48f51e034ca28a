"""The command line of a task: a dataclass whose fields, and those of its groups, are arguments and options.

Help is plain: importing rich would slow `--help` down.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, Field, fields, is_dataclass
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Protocol, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from heedful.errors import InputError
from heedful.settings.options import COMPUTING, OUTPUTS, SAMPLING, SEARCH, Option, options_of

Context = Any  # click's in older versions of typer, of its own copy of click in newer ones
_ORDER = ("Arguments", "Options", SEARCH, OUTPUTS, SAMPLING, COMPUTING)  # others follow


def command_of(run: Callable[[Any], None]) -> Callable[..., None]:
    """Return the function that typer makes a command of: with a parameter for each option of a task.

    Args:
        run: does the task, a dataclass. Its docstring is the help. A field with an `Option` is an option, one
            that is a dataclass a group of them; all others keep their defaults.
    """
    task = task_of(run)
    parameters = {parameter.name: parameter for parameter in _parameters_of(task)}

    def command(**values: Any) -> None:  # noqa: ANN401
        run(_made(task, values))

    ordered = sorted(parameters.values(), key=lambda each: each.default is not Parameter.empty)
    command.__signature__ = Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {name: each.annotation for name, each in parameters.items()}
    command.__doc__ = task.__doc__
    return command


def task_of(run: Callable[[Any], None]) -> type:
    """Return the dataclass that a verb's function takes."""
    hints = get_type_hints(run)
    hints.pop("return")
    task: type
    [task] = hints.values()
    return task


def _made(task: type, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the task with these options."""
    groups = {name: _made(group, values) for name, group in _groups_of(task)}
    try:
        return task(**groups, **{name: values[name] for name in options_of(task)})
    except InputError as error:  # values that cannot go together
        raise typer.BadParameter(str(error)) from None


def _groups_of(task: type) -> Iterator[tuple[str, type]]:
    for name, hint in get_type_hints(task).items():
        if is_dataclass(hint) and isinstance(hint, type):
            yield name, hint


def _parameters_of(task: type) -> Iterator[Parameter]:
    """Yield a parameter for each field that has an `Option`, those of a group where the group stands."""
    hints, options, groups = (
        get_type_hints(task, include_extras=True),
        options_of(task),
        dict(_groups_of(task)),
    )
    for field in fields(task):
        if field.name in groups:
            yield from _parameters_of(groups[field.name])
        elif (option := options.get(field.name)) is not None:
            kind = get_args(hints[field.name])[0]
            yield Parameter(
                field.name,
                Parameter.KEYWORD_ONLY,
                default=Parameter.empty if field.default is MISSING else field.default,
                annotation=Annotated[kind, _as_typer_has_it(field, option)],
            )


def _as_typer_has_it(field: Field[Any], option: Option) -> Any:  # noqa: ANN401
    text = f"{option.help} [default: {option.default}]" if option.default is not None else option.help
    if option.is_argument:
        return typer.Argument(metavar=option.metavar, help=text)
    return typer.Option(
        *(option.flags or (f"--{field.name.replace('_', '-')}",)),
        min=option.minimum,
        max=option.maximum,
        metavar=option.metavar or ("<path>" if option.is_file else None),
        parser=_file if option.is_file else None,
        help=text.strip(),
        rich_help_panel=option.heading,
    )


def _file(name: str | Path) -> Path:
    if str(name).endswith(("/", os.sep)):  # which a path does not keep
        raise typer.BadParameter(f"{name}: is a directory; give the name of a file")
    return Path(name)


class HelpFormatter(Protocol):
    """A writer of help texts: sections of two columns."""

    def section(self, name: str) -> AbstractContextManager[None]:
        """Start a section with a heading."""
        ...

    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None:
        """Write rows of an option and its help."""
        ...


class GroupedCommand(TyperCommand):
    """A command whose options are listed under the headings of their `rich_help_panel`."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the command line; of an argument too many, say which option takes it.

        Raises:
            UsageError: options or arguments that the command does not have.
        """
        ctx.allow_extra_args = True  # they are refused below
        rest = super().parse_args(ctx, args)
        if ctx.args and not ctx.resilient_parsing:
            ctx.fail(f"unexpected argument {ctx.args[0]!r}{self._belonging(ctx.args[0])}")
        return rest

    def _belonging(self, argument: str) -> str:
        """Return the options that take the text of this command, as the end of a message."""
        names = {name for parameter in self.params for name in parameter.opts}
        if "--input" in names:
            return f": give the text with -i {argument}, or < {argument}"
        files = [name for name in ("--src", "--tgt", "--ref") if name in names]
        return f": give the text with {' and '.join(files)}" if files else ""

    def format_options(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write arguments and options into the help, options without a heading first."""
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _ORDER}
        for parameter in self.get_params(ctx):
            entry = parameter.get_help_record(ctx)
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if entry is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(entry)
        for heading, entries in groups.items():
            if entries:
                with formatter.section(heading):
                    formatter.write_dl(entries)
