"""The command line of a task: the fields of a dataclass and of its groups are arguments and options."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from heedful.decoding.strategies.options import DiverseBeamOptions, MinimumBayesRiskOptions, SamplingOptions
from heedful.errors import InputError, refuse_if
from heedful.settings.options import BeamOptions, File, Option, Settings, SharedOptions, kinds_of, options_of

_PLUGIN = "plugin"
_OPTION = Option("A Python file with your own parts; settings name them as PLUGIN:NAME.", metavar="FILE.py")
# How the command line reads types that Python takes in several forms.
_READ_AS: dict[object, Any] = {
    Settings: list[str],
    Sequence[str]: list[str],
    Sequence[File]: list[Path],
    File: Path,
    File | None: Path | None,
}
_Shown = tuple[Any, object, Option]  # the type of an option, its default, and the option
HELP_ALL = "help_all"  # the parameter of --help-all


@dataclass(frozen=True)
class OptionsOf:
    """Marks a field that collects the search settings of a command line in a dict, by their names.

    Attributes:
        groups: the dataclasses with these settings.
        without: the names of settings that the command does not have.
    """

    groups: tuple[type, ...]
    without: tuple[str, ...] = ()

    def settings(self) -> dict[str, _Shown]:
        """Return type, default and option of each setting, by its name."""
        names = [(group, name) for group in self.groups for name in options_of(group)]
        return {name: _overriding(group, name) for group, name in names if name not in self.without}


# Settings that only a configuration has, or Python.
_INNER = ("n_best", "forced_first_id", "forced_last_id", "suppressed_ids", "renormalize")
SearchOverrides = Annotated[Mapping[str, Any], OptionsOf((SharedOptions, DiverseBeamOptions), _INNER)]
ScoreOverrides = Annotated[
    Mapping[str, Any], OptionsOf((SharedOptions,), (*_INNER, "repetition_penalty", "replace_unknown"))
]
SamplingOverrides = Annotated[Mapping[str, Any], OptionsOf((SamplingOptions, MinimumBayesRiskOptions))]
BeamOverrides = Annotated[Mapping[str, Any], OptionsOf((BeamOptions,), ("early_stopping",))]


def sampling_overrides(
    search: Mapping[str, Any],
    sampling: Mapping[str, Any],
    *,
    sample: bool = False,
    strategy: str | None = None,
) -> dict[str, Any]:
    """Return the strategy that replaces beam search, and its settings; nothing if none is chosen.

    Raises:
        BadParameter: contradictory options.
    """
    has_beam = not options_of(DiverseBeamOptions).keys().isdisjoint(search)
    samples = sample or "samples" in sampling
    *others, last = _flags(DiverseBeamOptions)
    refuse_if(
        (
            strategy is not None and (sampling or sample or has_beam),
            "--strategy excludes the options of other searches; its settings follow its name, as in "
            "--strategy beam:beam_size=8",
        ),
        (sampling and not samples, f"{', '.join(_flags(SamplingOptions))} need --sample or --mbr"),
        (
            samples and has_beam,
            f"--sample and --mbr exclude {', '.join(others)} and {last}; sampling needs no beam",
        ),
        error=typer.BadParameter,
    )
    if strategy is not None:
        return {"strategy": strategy}
    return {"sample": True, **sampling} if samples else {}


def _flags(group: type) -> list[str]:
    return [flag for name, option in options_of(group).items() for flag in option.flags_of(name)]


def command_of(run: Callable[[Any], None], *, has_options: bool = True) -> Callable[..., None]:
    """Return the function that typer makes a command of: with a parameter for each option of a task.

    Args:
        run: does the task, a dataclass; its docstring is the help. A field with an `Option` is an option. A
            field that is a dataclass or has `OptionsOf` is a group of options. Other fields keep their
            defaults.
        has_options: False for a command that is only listed.
    """
    [task] = [hint for name, hint in get_type_hints(run).items() if name != "return"]
    rare, parameters = set[str](), dict[str, Parameter]()
    make: Callable[[dict[str, Any]], Any] = dict
    if has_options:
        make = _add_parameters(task, parameters, rare)
        parameters[_PLUGIN] = _parameter(_PLUGIN, list[str] | None, None, _OPTION)
    if rare or "settings" in parameters:
        parameters[HELP_ALL] = _HELP_ALL
        rare.add(_PLUGIN)

    def command(**values: Any) -> None:  # noqa: ANN401
        if files := values.pop(_PLUGIN, None):
            from heedful.settings.plugins import load_plugin

            for file in files:
                load_plugin(file)
        run(make(values))

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
        context.exit()


_HELP_ALL = Parameter(
    HELP_ALL,
    Parameter.KEYWORD_ONLY,
    default=False,
    annotation=Annotated[
        bool, typer.Option("--help-all", callback=_show_all, is_eager=True, help="Show all options and exit.")
    ],
)


def _add_parameters(
    task: type, parameters: dict[str, Parameter], rare: set[str]
) -> Callable[[dict[str, Any]], Any]:
    """Add a parameter for each option of a task, groups expanded in place; return what makes it of values.

    Names that the short help leaves out are added to `rare`.
    """
    hints, options = get_type_hints(task, include_extras=True), options_of(task)
    groups: dict[str, Callable[[dict[str, Any]], Any]] = {}
    overrides: dict[str, Mapping[str, _Shown]] = {}
    for field in fields(task):
        hint = hints[field.name]
        shown: dict[str, _Shown] = {}
        if field.name in options:
            default = Parameter.empty if field.default is MISSING else field.default
            shown[field.name] = (get_args(hint)[0], default, options[field.name])
        elif is_dataclass(hint) and isinstance(hint, type):
            groups[field.name] = _add_parameters(hint, parameters, rare)
        for mark in get_args(hint):
            if isinstance(mark, OptionsOf):
                overrides[field.name] = shown = mark.settings()
        for name, (kind, default, option) in shown.items():
            parameters[name] = _parameter(name, kind, default, option)
            is_common = option.heading is None if option.is_common is None else option.is_common
            if not is_common and default is not Parameter.empty:
                rare.add(name)

    def make(values: dict[str, Any]) -> Any:  # noqa: ANN401
        made = {name: make_group(values) for name, make_group in groups.items()}
        for name, settings in overrides.items():  # the options that are set
            made[name] = {key: values[key] for key in settings if values[key] is not None}
        try:
            return task(**made, **{name: values[name] for name in options})
        except InputError as error:  # values that cannot go together
            raise typer.BadParameter(str(error)) from None

    return make


def _overriding(group: type, name: str) -> _Shown:
    """Return type, default and option of a setting that need not be set."""
    option, kinds, default = options_of(group)[name], kinds_of(group)[name], getattr(group, name)
    if bool in kinds:
        return bool, None, option
    if isinstance(kinds[0], str):
        option, kinds = replace(option, metavar="|".join(kinds)), (str,)
    if option.default is None and default is not None:
        option = replace(option, default=str(default).removesuffix(".0"))
    return kinds[0] | None, None, option


def _parameter(name: str, kind: Any, default: object, option: Option) -> Parameter:  # noqa: ANN401
    shown_default = default if option.default is None else option.default
    has_default = shown_default not in (None, False, "", (), Parameter.empty)
    text = f"{option.help} [default: {shown_default}]" if has_default else option.help
    parser = _setting if kind == Settings else _file if option.is_file else None
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
    return Parameter(
        name, Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[_READ_AS.get(kind, kind), shown]
    )


def _setting(text: str) -> tuple[str, Any]:
    from heedful.settings.loading import parse_override  # 0.1 s

    return parse_override(text)


def _file(name: str | Path) -> Path:
    if str(name).endswith(("/", os.sep)):  # which a path does not keep
        raise typer.BadParameter(f"{name}: is a directory; give the name of a file")
    return Path(name)
