"""Commands whose help has options under headings, and which say where a stray argument belongs.

Help is plain: importing rich would slow `--help` down.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from typer.core import TyperCommand

from heedful.settings.options import COMPUTING, OUTPUTS, SAMPLING, SEARCH

Context = Any  # click's in older versions of typer, of its own copy of click in newer ones
_ORDER = ("Arguments", "Options", SEARCH, OUTPUTS, SAMPLING, COMPUTING)  # others follow


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
