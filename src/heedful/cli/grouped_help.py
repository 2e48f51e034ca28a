"""Help texts with options under headings; plain, because importing rich would slow `--help` down."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from typer.core import TyperCommand

from heedful.requests import COMPUTING, OUTPUTS, SAMPLING, SEARCH

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

    def format_options(self, ctx: Any, formatter: HelpFormatter) -> None:  # noqa: ANN401
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
