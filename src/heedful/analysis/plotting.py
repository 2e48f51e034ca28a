"""Figures with matplotlib, without a display."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#1f2430"
FAINT = "#8a90a0"
GRID = "#e4e7ee"
BLUE, ORANGE, GREEN = "#2f5fd0", "#e07b28", "#2b8a5e"
# For scripts that matplotlib's font lacks; those that are installed are used.
_FALLBACK_FONTS = ("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Arial Unicode MS", "PingFang SC")


def new_figure(width: float, height: float) -> "Figure":
    """Return a blank figure of this size in inches.

    Raises:
        MissingExtraError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError("plotting needs matplotlib: pip install 'heedful[plot]'") from None
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    margins = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.09)
    return Figure(figsize=(width, height), facecolor="white", layout=margins)


def save_png(figure: "Figure", path: Path) -> None:
    """Write a figure atomically; missing directories are created."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Glyph .* missing from")
            figure.savefig(unfinished, dpi=160, format="png")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def fonts() -> list[str]:
    """Return font families for text in any script, the preferred one first."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    return ["DejaVu Sans", *[font for font in _FALLBACK_FONTS if font in installed]]


def style_axes(axes: "Axes") -> None:
    """Set a light frame and grid."""
    axes.grid(visible=True, color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=8, length=3)
    for edge, spine in axes.spines.items():
        spine.set_visible(edge in {"left", "bottom"})
        spine.set_color(FAINT)


def readable_tokens(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels: the first token of a word plain, the others after a dot.

    >>> readable_tokens(["▁the", "▁green", "house", "</s>"])
    ['the', 'green', '·house', '</s>']
    """
    if not any(token.startswith("▁") for token in tokens):
        return list(tokens)
    labels = []
    for token in tokens:
        special = token.startswith("<") and token.endswith(">")
        if token == "▁":
            labels.append("␣")
        elif token.startswith("▁"):
            labels.append(token[1:])
        else:
            labels.append(token if special else f"·{token}")
    return labels
