"""The help of a command, and what to write in place of an option that does not exist.

`--help` has the common options and an example, `--help-all` everything. Help is plain, because importing rich
would slow it down.
"""

import shlex
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args, get_origin

from typer.core import TyperCommand
from typing_extensions import override

from heedful.cli.options import HELP_ALL
from heedful.errors import likely_names
from heedful.settings.options import COMPUTING, KEEPING, OUTPUTS, SAMPLING, SEARCH, options_of

# Click's in older versions of typer, of its own copy of click in newer ones.
Context: TypeAlias = Any
HelpFormatter: TypeAlias = Any
_ORDER = ("Arguments", "Options", SEARCH, OUTPUTS, KEEPING, SAMPLING, COMPUTING)  # others follow
_VALUES = {int: "N", float: "X", Path: "PATH", str: "TEXT"}  # placeholders of values


class GroupedCommand(TyperCommand):
    """A command with help by headings: each option stands under its `rich_help_panel`; then examples."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the command line; for an extra argument, suggest the option that takes it.

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
            if " " not in argument:
                return f": give the text with -i {argument}, or < {argument}"
            return f": write echo {shlex.quote(argument)} | heedful {self.name} RUN, or give a file with -i"
        files = [name for name in ("--src", "--tgt", "--ref") if name in names]
        return f": give the text with {' and '.join(files)}" if files else ""

    @override
    def format_help(self, ctx: Context, formatter: HelpFormatter) -> None:
        """Write the short help if there is a longer one, unless --help-all asks for that."""
        names = {parameter.name for parameter in self.params}
        is_short = HELP_ALL in names and not ctx.meta.get(HELP_ALL)
        self.format_usage(ctx, formatter)
        text, _, examples = (self.help or "").partition("\n\nExamples:\n")
        paragraphs = text.split("\n\n")
        for paragraph in paragraphs[:1] if is_short else paragraphs:
            formatter.write_paragraph()
            formatter.write_text(f"  {' '.join(paragraph.split())}")
        self._write_options(ctx, formatter, is_short=is_short)
        if "settings" in names and not is_short:
            for heading, rows in _settings():
                with formatter.section(heading):
                    formatter.write_dl(rows)
        if examples:
            formatter.write_paragraph()
            formatter.write(
                "".join(["Examples:\n", *(f"  {line.strip()}\n" for line in examples.splitlines())])
            )
        if is_short:
            formatter.write_paragraph()
            everything = "options and settings" if "settings" in names else "options"
            formatter.write(f"All {everything}: {ctx.command_path} --help-all\n")

    def _write_options(self, ctx: Context, formatter: HelpFormatter, *, is_short: bool) -> None:
        """Write arguments and options, options without a heading first."""
        rare: set[str] = getattr(self.callback, "rare", set())
        kinds: dict[str, Any] = getattr(self.callback, "kinds", {})
        groups: dict[str, list[tuple[str, str]]] = {heading: [] for heading in _ORDER}
        for parameter in self.get_params(ctx):
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            heading = (not is_short and getattr(parameter, "rich_help_panel", None)) or kind
            if not (is_short and parameter.name in rare):
                groups.setdefault(heading, []).append(_row(parameter, kinds.get(parameter.name)))
        for heading, entries in groups.items():
            if entries:
                with formatter.section(heading):
                    formatter.write_dl(entries)


def _row(parameter: Any, kind: Any) -> tuple[str, str]:  # noqa: ANN401 (as Context)
    """Return how an option or argument of a type is written, and its help."""
    value = parameter.metavar or _value(kind)
    if parameter.param_type_name == "argument":
        return value, parameter.help
    names = ", ".join(sorted(parameter.opts, key=len)) + ("" if parameter.is_flag else f" {value}")
    return names, f"{parameter.help} [required]" if parameter.required else parameter.help


def _value(kind: Any) -> str:  # noqa: ANN401
    """Return the placeholder of a value of a type, also of an optional type or a list."""
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    if kind in _VALUES:
        return _VALUES[kind]
    return next((_value(inner) for inner in get_args(kind) if inner is not type(None)), "TEXT")


def _settings() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the sections of settings with their rows: the key, and its description with the default."""
    from heedful.settings.run import Config  # pydantic, which the other help does not need

    for section, group in Config.model_fields.items():
        kind: type = type(group.default)
        rows = list[tuple[str, str]]()
        for name, setting in type(group.default).model_fields.items():
            text = setting.description or options_of(kind)[name].help
            rows.append((f"{section}.{name}", f"{text} [default: {_shown(setting.default)}]"))
        yield f"Settings of [{section}], for --set or a recipe", rows


def _shown(default: object) -> str:
    if default is None or default == ():
        return "none"
    if isinstance(default, bool):
        return str(default).lower()
    return ",".join(map(str, default)) if isinstance(default, tuple) else str(default)


def hint_for_option(error: Any, arguments: Sequence[str]) -> str:  # noqa: ANN401 (as Context)
    """Return a message for an unknown option that says what to write; "" if nothing is likely.

    `--lr 0.1` of a command with `--set` becomes `--set schedule.peak=0.1`.

    Args:
        error: an error of click; other errors have no hint.
        arguments: the arguments of the program.
    """
    from heedful.settings.words import WORDS

    if not hasattr(error, "possibilities") or not error.option_name.startswith("--"):
        return ""
    name, parameters = error.option_name, error.ctx.command.params
    flags = [flag for parameter in parameters for flag in parameter.opts if flag.startswith("--")]
    keys = list[str]()
    if "--set" in flags:
        from heedful.settings.run import Config  # pydantic, which other usage errors do not need
        from heedful.settings.section import whole_keys

        keys = whole_keys(Config)
    value = _value_of(name, arguments)
    if "," in value and f"{name}s" in flags:  # --seed 1,2,3
        return f"no such option: {name}; write {name}s {value}"
    written = [
        likely_name if likely_name in flags else f"--set {shlex.quote(f'{likely_name}={value}')}"
        for likely_name in likely_names(name, [*flags, *keys], WORDS)
    ]
    return f"no such option: {name}; write {' or '.join(written)}" if written else ""


def _value_of(name: str, arguments: Sequence[str]) -> str:
    """Return the value that was given to the option, as `--name=value` or `--name value`."""
    for argument, following in pairwise([*arguments, "--"]):
        if argument.startswith(f"{name}="):
            return argument.removeprefix(f"{name}=")
        if argument == name and not following.startswith("--"):
            return following
    return "..."
