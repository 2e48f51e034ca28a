"""The command line of a task: the fields of a dataclass and of its groups are arguments and options.

Help is plain: importing rich would slow `--help` down.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from importlib import import_module
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from heedful.errors import InputError
from heedful.settings.options import Option, Settings, kinds_of, options_of

_PLUGIN = "plugin"
_OPTION = Option("A Python file with your own parts; settings name them as PLUGIN:NAME.", metavar="FILE.py")
HELP_ALL = "help_all"  # the parameter of --help-all


@dataclass(frozen=True)
class OptionsOf:
    """Marks a field that collects search settings set on the command line, as a dict.

    Attributes:
        classes: the dataclasses with these settings, as `module:Class`; imported when the command is called.
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
    task, rare = task_of(run), set[str]()
    parameters = {each.name: each for each in (_parameters_of(task, rare) if has_options else ())}
    if has_options:
        parameters[_PLUGIN] = _parameter(_PLUGIN, list[str] | None, None, _OPTION)
    if rare or "settings" in parameters:
        parameters[HELP_ALL] = _HELP_ALL
        rare.add(_PLUGIN)

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
    command.rare = rare  # type: ignore[attr-defined]
    command.kinds = {name: get_args(each.annotation)[0] for name, each in parameters.items()}  # type: ignore[attr-defined]
    return command


def _show_all(context: typer.Context, requested: bool) -> None:
    if requested:
        context.meta[HELP_ALL] = True
        typer.echo(context.get_help())
        raise typer.Exit


_HELP_ALL = Parameter(
    HELP_ALL,
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool,
        typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options and exit."),
    ],
)


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


def _parameters_of(task: type | OptionsOf, rare: set[str]) -> Iterator[Parameter]:
    """Yield a parameter for each field with an `Option`, groups expanded in place.

    Names that the short help leaves out are added to `rare`.
    """
    if isinstance(task, OptionsOf):
        for group, name in task.settings():
            rare |= set() if _is_common(options_of(group)[name]) else {name}
            yield _overriding(group, name)
        return
    hints, options = get_type_hints(task, include_extras=True), options_of(task)
    groups = dict(_groups_of(task))
    for field in fields(task):
        if field.name in groups:
            yield from _parameters_of(groups[field.name], rare)
        elif (option := options.get(field.name)) is not None:
            default = Parameter.empty if field.default is MISSING else field.default
            if not (_is_common(option) or default is Parameter.empty):
                rare.add(field.name)
            yield _parameter(field.name, get_args(hints[field.name])[0], default, option)


def _is_common(option: Option) -> bool:
    return option.heading is None if option.is_common is None else option.is_common


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
    parser: Callable[[Any], Any] | None = _file if option.is_file else None
    if kind == Settings:
        kind, parser = list[str], _setting
    shown = typer.Option(
        *option.flags_of(name),
        min=option.minimum,
        max=option.outer_maximum or option.maximum,
        metavar=option.metavar or ("<path>" if option.is_file else None),
        parser=parser,
        help=text.strip(),
        rich_help_panel=option.heading,
    )
    if option.is_argument:
        shown = typer.Argument(metavar=option.metavar, help=text)
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, shown])


def _setting(text: str) -> tuple[str, Any]:
    from heedful.settings.loading import parse_override  # 0.1 s

    return parse_override(text)


def _file(name: str | Path) -> Path:
    if str(name).endswith(("/", os.sep)):  # which a path does not keep
        raise typer.BadParameter(f"{name}: is a directory; give the name of a file")
    return Path(name)
