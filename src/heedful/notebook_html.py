"""HTML of results for notebooks: small tables without scripts, all text escaped, in light and dark themes."""

from collections.abc import Iterable, Sequence
from html import escape

_CELL = "padding:.2em .7em;text-align:left"
_LABEL = "padding:0 .5em;font-weight:400;white-space:nowrap"
_SQUARE = "padding:0;min-width:1.6em"
_BLUE = "0,114,178"


def text_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table of texts.

    >>> text_table("a < b", ["name"], [["<b>"]]).count("&lt;")
    2
    """
    lines = [_row("th", header, _CELL), *(_row("td", row, _CELL) for row in rows)]
    return _table(caption, lines)


def weight_table(
    caption: str, rows: Sequence[str], columns: Sequence[str], weights: Sequence[Sequence[float]]
) -> str:
    """Return a table of weights (0 to 1), each a shade of blue whose tooltip has the number.

    Args:
        caption: above the table.
        rows: their labels.
        columns: their labels.
        weights: `weights[row][column]`.
    """
    above = "".join(
        f'<th style="{_LABEL};writing-mode:vertical-rl;padding:.5em 0">{escape(column)}</th>'
        for column in columns
    )
    lines = [f"<tr><th></th>{above}</tr>"]
    for label, values in zip(rows, weights, strict=True):
        cells = "".join(
            f'<td title="{value:.2f}" style="{_SQUARE};background:rgba({_BLUE},{value:.2f})"></td>'
            for value in values
        )
        lines.append(f'<tr><th style="{_LABEL};text-align:right">{escape(label)}</th>{cells}</tr>')
    return _table(caption, lines)


def _row(tag: str, texts: Sequence[str], style: str) -> str:
    cells = "".join(f'<{tag} dir="auto" style="{style}">{escape(text)}</{tag}>' for text in texts)
    return f"<tr>{cells}</tr>"


def _table(caption: str, lines: Iterable[str]) -> str:
    title = f'<caption dir="auto" style="text-align:left">{escape(caption)}</caption>'
    return f'<div style="overflow:auto"><table>{title}{"".join(lines)}</table></div>'
