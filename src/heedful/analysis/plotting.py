"""The style of all pictures: colours, fonts, figures without a display, files in PNG and SVG.

Lines have the colours of Okabe and Ito (2008, "Color Universal Design"), which people with any kind
of colour blindness can tell apart; the colours of weights only become darker, so their order needs no hue.
"""

import unicodedata
import warnings
from collections.abc import Sequence
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.errors import InputError, needing
from heedful.runtime.durable import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colorbar import Colorbar
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

INK = "#1f2430"
FAINT = "#6f7687"
GRID = "#e4e7ee"
BLUE, ORANGE, GREEN = "#0072b2", "#d55e00", "#009e73"
# For several lines in one set of axes, in this order: all of the eight but yellow, which is faint on white.
LINE_COLOURS = (BLUE, ORANGE, GREEN, "#cc79a7", "#e69f00", "#56b4e9", "#000000")
_WEIGHTS = ("#ffffff", "#d6e6f4", "#9cc4e4", "#4f96c8", "#0b62a0", "#06284f")  # from 0, white as the paper
_SIGNED = ("#06395f", "#0072b2", "#8fc3e3", "#ffffff", "#f3b48a", "#d55e00", "#6e2f00")  # 0 in the middle
FORMATS = (".png", ".svg")
_DPI = 160
# For scripts that matplotlib's font lacks; those that are installed are used.
_FALLBACK_FONTS = ("Noto Sans", "Noto Sans CJK SC", "Noto Sans CJK JP", "Arial Unicode MS", "PingFang SC")


def check_picture(path: Path, *, others: tuple[str, ...] = ()) -> None:
    """Check, before the work, that a picture of this name can be drawn; `others` are formats of no pictures.

    Raises:
        InputError: the name ends in neither .png nor .svg.
        MissingExtraError: matplotlib is not installed.
    """
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path}: unknown kind of file; end the name in {' or '.join(FORMATS + others)}")
    _check_matplotlib()


def new_figure(width: float, height: float, *, title: str | None = None) -> "Figure":
    """Return a blank figure of this size in inches; MissingExtraError if matplotlib is not installed."""
    _check_matplotlib()
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    from heedful.analysis.notebook_figure import NotebookFigure

    margins = ConstrainedLayoutEngine(w_pad=0.09, h_pad=0.09)
    figure = NotebookFigure(figsize=(width, height), facecolor="white", layout=margins)
    if title is not None:
        style = {"fontsize": 12, "color": INK, "fontweight": "bold", "fontfamily": fonts()}
        figure.suptitle(printable(title), x=0.02, ha="left", parse_math=False, **style)
    return figure


def save_figure(figure: "Figure", path: Path) -> None:
    """Write a figure as PNG or SVG, by its name, atomically; missing directories are created.

    The text of an SVG stays text, and the same figure gives the same bytes.
    """
    from matplotlib import rc_context

    path.parent.mkdir(parents=True, exist_ok=True)
    kind, picture = path.suffix.lower().removeprefix("."), BytesIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none", "svg.hashsalt": "heedful"}):
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        metadata = {"Date": None} if kind == "svg" else None
        figure.savefig(picture, dpi=_DPI, format=kind, metadata=metadata)
    write_atomically(path, picture.getvalue())


def weight_colours() -> "Colormap":
    """Return the colours of weights and counts: white for 0, then darker."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("weights", _WEIGHTS)


def signed_colours() -> "Colormap":
    """Return the colours of values around 0: blue below, white at 0, orange above."""
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("signed", _SIGNED)


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


def title_axes(axes: "Axes", title: str, *, x: str = "", y: str = "") -> None:
    """Set the title above a set of axes, and what its axes measure."""
    axes.set_title(title, fontsize=10, color=INK, loc="left", parse_math=False)
    axes.set_xlabel(x, fontsize=8, color=FAINT)
    axes.set_ylabel(y, fontsize=8, color=FAINT)


def style_bar(bar: "Colorbar") -> None:
    """Set small labels and no frame for a colour bar."""
    bar.ax.tick_params(labelsize=7, colors=FAINT, length=2)
    bar.outline.set_visible(False)


def readable_tokens(tokens: Sequence[str]) -> list[str]:
    """Return tokens as labels: the first token of a word plain, the others after a dot.

    >>> readable_tokens(["▁the", "▁green", "house", "</s>"])
    ['the', 'green', '·house', '</s>']
    """
    if not any(token.startswith("▁") for token in tokens):
        return [printable(token) for token in tokens]
    labels = []
    for token in tokens:
        special = token.startswith("<") and token.endswith(">")
        if token == "▁":
            labels.append("␣")
        elif token.startswith("▁"):
            labels.append(printable(token[1:]))
        else:
            labels.append(printable(token if special else f"·{token}"))
    return labels


def printable(text: str) -> str:
    r"""Return a text with a mark in place of each character that no font shows and XML may not hold.

    >>> printable("a\x01b")
    'a�b'
    """
    hidden = {"Cc", "Cs", "Cn"}  # control characters, halves of surrogate pairs, non-characters
    return "".join("\ufffd" if unicodedata.category(each) in hidden else each for each in text)


def _check_matplotlib() -> None:
    with needing("plotting needs matplotlib", extra="plot"):
        import_module("matplotlib.figure")
