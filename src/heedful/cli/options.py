"""The command line of a task: a dataclass whose fields, and those of its groups, are arguments and options.

Help is plain: importing rich would slow `--help` down.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, Protocol, get_args, get_type_hints

import typer
from typer.core import TyperCommand

from heedful.errors import InputError
from heedful.settings.options import COMPUTING, OUTPUTS, SAMPLING, SEARCH, Option, kinds_of, options_of

_PLUGIN = "plugin"
_OPTION = Option("A Python file with parts of your own, which settings name as FILE:NAME.", metavar="FILE.py")
Context = Any  # click's in older versions of typer, of its own copy of click in newer ones
_ORDER = ("Arguments", "Options", SEARCH, OUTPUTS, SAMPLING, COMPUTING)  # others follow


@dataclass(frozen=True)
class OptionsOf:
    """Marks a field of a task that maps names of settings to values: those that the command line sets.

    Attributes:
        classes: whose settings they are, as `module:Class`: imported when the command is called.
        without: names of settings that the command does not have.
    """

    classes: tuple[str, ...]
    without: tuple[str, ...] = ()

    def settings(self) -> Iterator[tuple[type, str]]:
        """Yield each setting, as its dataclass and its name."""
        seen = {*self.without}
        for module, _, name in (each.partition(":") for each in self.classes):
            group = getattr(import_module(module), name)
            yield from ((group, name) for name in options_of(group) if name not in seen)
            seen |= options_of(group).keys()


_SHARED, _STRATEGIES = "heedful.settings.options:SharedOptions", "heedful.decoding.strategies"
# Settings that only a configuration has, or Python.
_INNER = ("n_best", "forced_first_id", "forced_last_id", "suppressed_ids", "renormalize")
SearchOverrides = Annotated[
    Mapping[str, Any],
    OptionsOf((_SHARED, f"{_STRATEGIES}.beam:BeamSearch", f"{_STRATEGIES}.beam:DiverseBeamSearch"), _INNER),
]
ScoreOverrides = Annotated[
    Mapping[str, Any], OptionsOf((_SHARED,), (*_INNER, "repetition_penalty", "replace_unknown"))
]
SamplingOverrides = Annotated[
    Mapping[str, Any],
    OptionsOf((f"{_STRATEGIES}.sampling:Sampling", f"{_STRATEGIES}.sampling:MinimumBayesRisk")),
]
BeamOverrides = Annotated[
    Mapping[str, Any], OptionsOf(("heedful.settings.options:BeamOptions",), ("early_stopping",))
]


def sampling_overrides(
    search: Mapping[str, Any],
    sampling: Mapping[str, Any],
    *,
    sample: bool = False,
    strategy: str | None = None,
) -> dict[str, Any]:
    """Return the strategy in place of beam search and its settings; nothing where none is asked for.

    Raises:
        BadParameter: contradictory options.
    """
    from heedful.decoding.strategies.beam import DiverseBeamSearch
    from heedful.decoding.strategies.sampling import Sampling

    has_beam = not options_of(DiverseBeamSearch).keys().isdisjoint(search)
    if strategy is not None:
        if sampling or sample or has_beam:
            raise typer.BadParameter(
                "--strategy excludes the options of other searches; its settings follow its name, as in "
                "--strategy beam:beam_size=8"
            )
        return {"strategy": strategy}
    if not sample and "samples" not in sampling:
        if sampling:
            raise typer.BadParameter(f"{', '.join(_flags(Sampling))} need --sample or --mbr")
        return {}
    if has_beam:
        *others, last = _flags(DiverseBeamSearch)
        raise typer.BadParameter(
            f"--sample and --mbr exclude {', '.join(others)} and {last}; sampling needs no beam"
        )
    return {"sample": True, **sampling}


def _flags(strategy: type) -> list[str]:
    return [flag for name, option in options_of(strategy).items() for flag in option.flags_of(name)]


def command_of(run: Callable[[Any], None], *, has_options: bool = True) -> Callable[..., None]:
    """Return the function that typer makes a command of: with a parameter for each option of a task.

    Args:
        run: does the task, a dataclass. Its docstring is the help. A field with an `Option` is an option, one
            that is a dataclass or has `OptionsOf` a group of them; all others keep their defaults.
        has_options: not where the command is only listed: options of searches take time to import.
    """
    task = task_of(run)
    parameters = {each.name: each for each in (_parameters_of(task) if has_options else ())}
    if has_options:
        parameters[_PLUGIN] = _parameter(_PLUGIN, list[str] | None, None, _OPTION)

    def command(**values: Any) -> None:  # noqa: ANN401
        if files := values.pop(_PLUGIN, None):
            from heedful.settings.plugins import load_plugin

            for file in files:
                load_plugin(file)
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


def _made(task: type | OptionsOf, values: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return the task with these options."""
    if isinstance(task, OptionsOf):
        own = {name: values[name] for _, name in task.settings()}
        return {name: value for name, value in own.items() if value is not None and value is not False}
    groups = {name: _made(group, values) for name, group in _groups_of(task)}
    try:
        return task(**groups, **{name: values[name] for name in options_of(task)})
    except InputError as error:  # values that cannot go together
        raise typer.BadParameter(str(error)) from None


def _groups_of(task: type) -> Iterator[tuple[str, type | OptionsOf]]:
    for name, hint in get_type_hints(task, include_extras=True).items():
        yield from ((name, each) for each in get_args(hint) if isinstance(each, OptionsOf))
        if is_dataclass(hint) and isinstance(hint, type):
            yield name, hint


def _parameters_of(task: type | OptionsOf) -> Iterator[Parameter]:
    """Yield a parameter for each field that has an `Option`, those of a group where the group stands."""
    if isinstance(task, OptionsOf):
        yield from (_overriding(group, name) for group, name in task.settings())
        return
    hints, options = get_type_hints(task, include_extras=True), options_of(task)
    groups = dict(_groups_of(task))
    for field in fields(task):
        if field.name in groups:
            yield from _parameters_of(groups[field.name])
        elif (option := options.get(field.name)) is not None:
            default = Parameter.empty if field.default is MISSING else field.default
            yield _parameter(field.name, get_args(hints[field.name])[0], default, option)


def _overriding(group: type, name: str) -> Parameter:
    """Return the parameter of a setting that need not be set."""
    option, kinds, default = options_of(group)[name], kinds_of(group)[name], getattr(group, name)
    if bool in kinds:
        return _parameter(name, bool, False, option)
    if isinstance(kinds[0], str):
        option, kinds = replace(option, metavar="|".join(kinds)), (str,)
    if option.default is None and default is not None:
        option = replace(option, default=default if isinstance(default, str) else f"{default:g}")
    return _parameter(name, kinds[0] | None, None, option)


def _parameter(name: str, kind: Any, default: object, option: Option) -> Parameter:  # noqa: ANN401
    text = f"{option.help} [default: {option.default}]" if option.default is not None else option.help
    shown = typer.Option(
        *option.flags_of(name),
        min=option.minimum,
        max=option.outer_maximum or option.maximum,
        metavar=option.metavar or ("<path>" if option.is_file else None),
        parser=_file if option.is_file else None,
        help=text.strip(),
        rich_help_panel=option.heading,
    )
    if option.is_argument:
        shown = typer.Argument(metavar=option.metavar, help=text)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


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
