"""Help that lists options under headings; plain, for rich costs time and `--help` is to answer at once."""

from typing import TYPE_CHECKING

from typer.core import TyperCommand

if TYPE_CHECKING:
    from typer._click import Context, HelpFormatter


class GroupedCommand(TyperCommand):
    """A command whose options stand under the headings that they name as their `rich_help_panel`."""

    def format_options(self, ctx: "Context", formatter: "HelpFormatter") -> None:
        """Write arguments and options into the help, options without a heading first."""
        groups: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": []}
        for parameter in self.get_params(ctx):
            entry = parameter.get_help_record(ctx)
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            if entry is not None:
                groups.setdefault(getattr(parameter, "rich_help_panel", None) or kind, []).append(entry)
        for heading, entries in groups.items():
            if entries:
                with formatter.section(heading):
                    formatter.write_dl(entries)
