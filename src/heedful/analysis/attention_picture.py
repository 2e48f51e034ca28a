"""Attention maps as a PNG: the mean cross-attention of one layer, and each head."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.analysis.attention_maps import AttentionMaps
from heedful.analysis.plotting import FAINT, INK, fonts, new_figure, readable_tokens, save_png
from heedful.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.image import AxesImage

_CELL = 0.36  # inches of one token in the large map, if they fit
_LARGEST, _SMALLEST = 11.0, 3.4  # inches of its width and height
_COLOURS = ("#ffffff", "#dbe6fb", "#9cbcf3", "#4f7fe0", "#2447a8", "#0f1f5c")


def draw_attention(maps: AttentionMaps, path: Path, *, layer: int | None = None) -> None:
    """Draw the cross-attention of one layer, by default the last.

    Raises:
        InputError: the decoder does not have that layer.
        MissingExtraError: matplotlib is not installed.
    """
    layers = maps.of("cross")
    number = len(layers) if layer is None else layer
    if not 1 <= number <= len(layers):
        raise InputError(
            f"attention: layer {number} does not exist; the decoder has layers 1 to {len(layers)}"
        )
    weights = layers[number - 1].weights
    rows, columns = readable_tokens(maps.target_tokens), readable_tokens(maps.source_tokens)
    width = min(max(_CELL * len(columns), _SMALLEST), _LARGEST)
    height = min(max(_CELL * len(rows), _SMALLEST), _LARGEST)
    num_heads = len(weights)
    grid_rows = max(1, min(num_heads, round(height / 1.9)))
    grid_columns = math.ceil(num_heads / grid_rows)
    grid_rows = math.ceil(num_heads / grid_columns)
    small_width = min(max(1.2, width / 3), 2.6)

    figure = new_figure(width + small_width * grid_columns + 1.9, height + 1.9)
    widths = [width + 1.4, small_width * grid_columns + 0.5]
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=widths)[0]
    colours = _colour_map()
    large = left.subplots()
    mean = weights.mean(axis=0)
    # The mean is paler than its heads: its scale, shown by the bar, ends at its maximum, rounded up to a
    # tenth. Uniform attention stays pale.
    image = _heat(large, mean, colours, top=max(0.3, math.ceil(float(mean.max()) * 10) / 10))
    _label(large, rows, columns, cell=min(width / len(columns), height / len(rows)))
    subtitle = "mean of the heads  (row: written, column: read)"
    large.set_title(subtitle, fontsize=9, color=FAINT, loc="left", pad=8)
    bar = left.colorbar(image, ax=large, location="bottom", shrink=0.5, aspect=32, pad=0.03)
    bar.ax.tick_params(labelsize=7, colors=FAINT, length=2)
    bar.outline.set_visible(False)
    for index, axes in enumerate(right.subplots(grid_rows, grid_columns, squeeze=False).flat):
        if index < num_heads:
            _heat(axes, weights[index], colours, top=1.0)
            axes.set_title(f"head {index + 1}", fontsize=8, color=FAINT, loc="left", pad=3)
        else:
            axes.set_visible(False)
    title = f"What the decoder looked at  ·  cross-attention, layer {number} of {len(layers)}"
    figure.suptitle(title, fontsize=12, color=INK, x=0.02, ha="left", fontweight="bold")
    save_png(figure, path)


def _colour_map() -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heedful", _COLOURS)


def _heat(axes: "Axes", weights: NDArray[np.float32], colours: "Colormap", *, top: float) -> "AxesImage":
    image = axes.imshow(weights, cmap=colours, vmin=0.0, vmax=top, aspect="auto", interpolation="nearest")
    axes.set_xticks([])
    axes.set_yticks([])
    for spine in axes.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.6)
    return image


def _label(axes: "Axes", rows: list[str], columns: list[str], *, cell: float) -> None:
    size = min(max(cell * 72 * 0.62, 4.0), 10.0)
    axes.xaxis.tick_top()
    plain = {"parse_math": False}  # or dollar signs would start a formula
    axes.set_xticks(range(len(columns)), columns, rotation=50, ha="left", rotation_mode="anchor", **plain)
    axes.set_yticks(range(len(rows)), rows, **plain)
    axes.tick_params(length=0, labelsize=size, labelcolor=INK, labelfontfamily=fonts())
    axes.set_xticks([x - 0.5 for x in range(1, len(columns))], minor=True)
    axes.set_yticks([y - 0.5 for y in range(1, len(rows))], minor=True)
    axes.grid(which="minor", color="#edf0f6", linewidth=0.5)
    axes.tick_params(which="minor", length=0)
