"""Attention maps as one self-contained HTML file."""

import math
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.analysis import AttentionKind
from heedful.analysis.attention_maps import (
    LAST_CROSS,
    MEAN,
    MERGED,
    AttentionMaps,
    Head,
    LayerAttention,
    MapChoice,
    write_attention_json,
)
from heedful.analysis.pages import write_page
from heedful.analysis.plotting import (
    FAINT,
    INK,
    check_picture,
    fonts,
    new_figure,
    readable_tokens,
    save_figure,
    style_bar,
    weight_colours,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.image import AxesImage

_PAGE = "attention_page.html"
_CELL = 0.36  # inches of one token in the large map, if they fit
_LARGEST, _SMALLEST = 11.0, 3.4  # inches of its width and height
_SMALL = 2.1  # inches of a map of a grid
_LEGIBLE = 4.0  # points of the smallest labels
_TITLES: dict[AttentionKind, str] = {
    "cross": "Cross-attention: what the decoder reads of the source",
    "encoder": "Self-attention of the encoder",
    "decoder": "Self-attention of the decoder",
}
_ROWS_AND_COLUMNS: dict[AttentionKind, str] = {
    "cross": "row: token that is written next\ncolumn: source token",
    "encoder": "row: token that attends\ncolumn: token attended to",
    "decoder": "row: token that is written next\ncolumn: token already written",
}


def check_attention_file(path: Path) -> None:
    """Check, before the work, that `write_attention` can write such a file; raises as `check_picture`."""
    if path.suffix.lower() not in (".html", ".json"):
        check_picture(path, others=(".html", ".json"))


def write_attention(maps: AttentionMaps, output: Path, *, choice: MapChoice = LAST_CROSS) -> None:
    """Write maps in the format of the file's suffix.

    Args:
        maps: the maps of a sentence.
        output: `.png` or `.svg` for an image of the chosen maps, `.html` or `.json` for all maps.
        choice: the maps of the image, and the one that a page shows first.
    """
    match output.suffix.lower():
        case ".html":
            write_attention_page(maps, output, choice=choice)
        case ".json":
            maps.select(choice)  # a layer that does not exist is an error in every format
            write_attention_json(maps, output)
        case _:
            draw_attention(maps, output, choice=choice)


def draw_attention(maps: AttentionMaps, path: Path, *, choice: MapChoice = LAST_CROSS) -> None:
    """Write `attention_figure` as PNG or SVG; raises also as `check_picture`."""
    check_picture(path)
    save_figure(attention_figure(maps, choice=choice), path)


def attention_figure(maps: AttentionMaps, *, choice: MapChoice = LAST_CROSS) -> "Figure":
    """Draw attention maps; InputError if the model does not have such a layer or head.

    Of one layer: a large map, which is the mean of the heads if that is among the chosen, and a small one for
    each other head. Of several: a row for each layer, a column for each head.
    """
    selected = maps.select(choice)
    return _layer(maps, *selected[0]) if len(selected) == 1 else _grid(maps, selected)


def _layer(maps: AttentionMaps, layer: LayerAttention, heads: tuple[Head, ...]) -> "Figure":
    rows, columns = (readable_tokens(labels) for labels in maps.labels(layer.kind))
    width = min(max(_CELL * len(columns), _SMALLEST), _LARGEST)
    height = min(max(_CELL * len(rows), _SMALLEST), _LARGEST)
    title = f"{_TITLES[layer.kind]}, layer {layer.layer} of {len(maps.of(layer.kind))}"
    first, *others = heads
    grid_rows = max(1, min(len(others), round(height / 1.9)))
    grid_columns = math.ceil(len(others) / grid_rows)
    small_width = min(max(1.2, width / 3), 2.6) * grid_columns
    total_width = max(width + small_width + 1.9, 0.092 * len(title) + 0.4)  # the title fits
    figure = new_figure(total_width, height + 2.3, title=title)
    left: FigureBase = figure
    if others:
        grid_rows = math.ceil(len(others) / grid_columns)
        left, right = figure.subfigures(
            1, 2, squeeze=False, width_ratios=[total_width - small_width - 0.5, small_width + 0.5]
        )[0]
        places = right.subplots(grid_rows, grid_columns, squeeze=False).flatten()
        for axes, head in zip(places, others, strict=False):
            _small(axes, layer, head, title=_name(head))
        _hide(places[len(others) :])
    large = left.subplots()
    weights = layer.of_head(first)
    # A mean is paler than its heads: its scale, shown by the bar, ends at its maximum, rounded up to a tenth.
    # Uniform attention stays pale.
    top = max(0.3, math.ceil(float(weights.max()) * 10) / 10) if first == MEAN else 1.0
    image = _heat(large, weights, top=top)
    _label(large, rows, columns, size=min(width / len(columns), height / len(rows)) * 72 * 0.62)
    _grid_between(large, len(rows), len(columns))
    # In lines, or it would reach into the small maps.
    subtitle = f"{_name(first)}\n{_ROWS_AND_COLUMNS[layer.kind]}"
    if any(label.startswith("·") for label in (*rows, *columns)):
        subtitle += " (·: continues a word)"
    if maps.is_merged and layer.kind != "encoder":
        subtitle += f"\n{MERGED}"
    large.set_title(subtitle, fontsize=9, color=FAINT, loc="left", pad=8)
    bar = left.colorbar(image, ax=large, location="bottom", shrink=0.5, aspect=32, pad=0.03)
    style_bar(bar)
    return figure


def _grid(maps: AttentionMaps, selected: list[tuple[LayerAttention, tuple[Head, ...]]]) -> "Figure":
    tiles = [[(layer, head) for head in heads] for layer, heads in selected]
    kinds = list(dict.fromkeys(layer.kind for layer, _ in selected))
    if len(tiles[0]) == 1:  # a row for each kind instead
        tiles = [[tile for (tile,) in tiles if tile[0].kind == kind] for kind in kinds]
    num_columns = max(map(len, tiles))
    title = _TITLES[kinds[0]] if len(kinds) == 1 else "Attention"
    width = max(_SMALL * num_columns + 1.2, 0.1 * len(title))
    figure = new_figure(width, _SMALL * len(tiles) + 0.9, title=title)
    grid = figure.subplots(len(tiles), num_columns, squeeze=False)
    for line, chosen in zip(grid, tiles, strict=True):
        for axes, (layer, head) in zip(line, chosen, strict=False):
            _small(axes, layer, head, title=f"{layer.kind} {layer.layer}, {_name(head)}")
        _hide(line[len(chosen) :])
        rows, columns = (readable_tokens(labels) for labels in maps.labels(chosen[0][0].kind))
        size = min(_SMALL * 72 * 0.6 / max(len(rows), len(columns)), 7.0)
        if size >= _LEGIBLE:
            _label(line[0], rows, columns, size=size)
    return figure


def _small(axes: "Axes", layer: LayerAttention, head: Head, *, title: str) -> None:
    _heat(axes, layer.of_head(head), top=1.0)
    axes.set_title(title, fontsize=8, color=FAINT, loc="left", pad=3)


def _hide(places: "Iterable[Axes]") -> None:
    for axes in places:
        axes.set_visible(False)


def _name(head: Head) -> str:
    return "mean of the heads" if head == MEAN else f"head {head}"


def _heat(axes: "Axes", weights: NDArray[np.float32], *, top: float) -> "AxesImage":
    # Without interpolation an SVG holds one pixel for each weight.
    image = axes.imshow(
        weights, cmap=weight_colours(), vmin=0.0, vmax=top, aspect="auto", interpolation="none"
    )
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.6)
    return image


def _label(axes: "Axes", rows: list[str], columns: list[str], *, size: float) -> None:
    plain = {"parse_math": False}  # or dollar signs would start a formula
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="left", rotation_mode="anchor", **plain)
    axes.set_yticks(range(len(rows)), rows, **plain)
    size = min(max(size, _LEGIBLE), 10.0)
    axes.tick_params(length=0, labelsize=size, labelcolor=INK, labelfontfamily=fonts())


def _grid_between(axes: "Axes", num_rows: int, num_columns: int) -> None:
    axes.set_xticks([x - 0.5 for x in range(1, num_columns)], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, num_rows)], minor=True)
    axes.grid(which="minor", color="#edf0f6", linewidth=0.5)
    axes.tick_params(which="minor", length=0)


def write_attention_page(maps: AttentionMaps, path: Path, *, choice: MapChoice = LAST_CROSS) -> None:
    """Write a page with a choice of attention, layer and head; it shows the first of the chosen maps."""
    layer, (head, *_) = maps.select(choice)[0]
    start = {"kind": layer.kind, "layer": layer.layer, "head": head if head == MEAN else head - 1}
    data = maps.as_dict() | {
        "start": start,
        "source_pieces": readable_tokens(maps.source_tokens),
        "target_in_pieces": readable_tokens(maps.target_in_tokens),
        "target_pieces": readable_tokens(maps.target_tokens),
    }
    row_sum = MERGED if maps.is_merged else "a row adds up to 1"
    write_page(_PAGE, path, data, TITLE=escape(maps.source), ROWS=row_sum)
