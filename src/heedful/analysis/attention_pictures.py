"""Attention maps as one self-contained HTML file."""

import json
import math
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.analysis import AttentionKind
from heedful.analysis.attention_maps import (
    LAST_CROSS,
    MEAN,
    AttentionMaps,
    Head,
    LayerAttention,
    MapChoice,
    write_attention_json,
)
from heedful.analysis.plotting import (
    FAINT,
    FORMATS,
    INK,
    check_picture,
    fonts,
    new_figure,
    readable_tokens,
    save_figure,
    style_bar,
    weight_colours,
)
from heedful.errors import InputError
from heedful.runtime.durable import put_file_in_place

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, FigureBase
    from matplotlib.image import AxesImage

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
    """Check, before the work, that `write_attention` can write a file of this name.

    Raises:
        InputError: an unknown format.
        MissingExtraError: an image needs matplotlib, which is not installed.
    """
    suffix = path.suffix.lower()
    if suffix not in (known := (*FORMATS, ".html", ".json")):
        raise InputError(f"{path}: unknown kind of file; end the name in {', '.join(known)}")
    if suffix in FORMATS:
        check_picture(path)


def write_attention(maps: AttentionMaps, output: Path, *, choice: MapChoice = LAST_CROSS) -> None:
    """Write maps in the format of the file's suffix.

    Args:
        maps: of a sentence.
        output: `.png` or `.svg` for an image of the chosen maps, `.html` or `.json` for all maps.
        choice: the maps of the image, and the one that a page shows first; by default the last
            layer's cross-attention.
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
    """Write `attention_figure` as PNG or SVG.

    Raises:
        InputError: the model does not have such a layer or head, or the name is not that of a picture.
        MissingExtraError: matplotlib is not installed.
    """
    check_picture(path)
    save_figure(attention_figure(maps, choice=choice), path)


def attention_figure(maps: AttentionMaps, *, choice: MapChoice = LAST_CROSS) -> "Figure":
    """Draw attention maps.

    Of one layer: a large map, which is the mean of the heads where that is among the chosen, and a small one
    of each other head. Of several: a row for each layer, a column for each head.

    Raises:
        InputError: the model does not have such a layer or head.
        MissingExtraError: matplotlib is not installed.
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
        for index, axes in enumerate(right.subplots(grid_rows, grid_columns, squeeze=False).flat):
            if index < len(others):
                _heat(axes, layer.of_head(others[index]), top=1.0)
                axes.set_title(_name(others[index]), fontsize=8, color=FAINT, loc="left", pad=3)
            else:
                axes.set_visible(False)
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
            _heat(axes, layer.of_head(head), top=1.0)
            name = f"{layer.kind} {layer.layer}, {_name(head)}"
            axes.set_title(name, fontsize=8, color=FAINT, loc="left", pad=3)
        for axes in line[len(chosen) :]:
            axes.set_visible(False)
        rows, columns = (readable_tokens(labels) for labels in maps.labels(chosen[0][0].kind))
        size = min(_SMALL * 72 * 0.6 / max(len(rows), len(columns)), 7.0)
        if size >= _LEGIBLE:
            _label(line[0], rows, columns, size=size)
    return figure


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


_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Attention: @TITLE@</title>
<style>
:root { --ink: #1f2430; --faint: #6b7180; --paper: #fff; --line: #e4e7ee; --rgb: 0, 94, 150 }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaf0; --faint: #9aa1b2; --paper: #14171f; --line: #2b303c; --rgb: 120, 190, 240 }
}
body { margin: 2rem auto; padding: 0 1rem; max-width: 76rem; background: var(--paper); color: var(--ink);
       font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.2rem; margin: 0 0 .3rem }
p { margin: .1rem 0; color: var(--faint) }
p b { color: var(--ink); font-weight: 500 }
form { display: flex; flex-wrap: wrap; gap: 1.2rem; margin: 1rem 0 }
select { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--line);
         border-radius: 6px; padding: .2rem .5rem }
#frame { overflow: auto; padding-bottom: 1rem }
table { border-collapse: collapse; font-size: 13px }
td { width: 30px; min-width: 30px; height: 26px; border: 1px solid var(--line); padding: 0 }
th { font-weight: 400; white-space: nowrap; padding: 0 .5rem; text-align: right }
thead th { height: 7.5rem; padding: 0; vertical-align: bottom }
thead span { display: block; width: 30px; transform-origin: 15px 50%;
             transform: translateY(-8px) rotate(-55deg); text-align: left }
th.on { color: rgb(var(--rgb)); font-weight: 600 }
td:hover { outline: 2px solid rgb(var(--rgb)) }
#value { min-height: 1.5em; color: var(--ink) }
</style>
<h1>What the model looked at</h1>
<p>read <b id="source"></b></p>
<p>wrote <b id="target"></b></p>
<form>
  <label>attention <select id="kind"></select></label>
  <label>layer <select id="layer"></select></label>
  <label>head <select id="head"></select></label>
</form>
<p>A row for each query token, a column for each key token; a row adds up to 1.</p>
<p id="value"></p>
<div id="frame"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const data = JSON.parse(document.getElementById("data").textContent), start = data.start;
const $ = id => document.getElementById(id);
const kinds = [
  ["cross", "decoder on source", data.target_pieces, data.source_pieces],
  ["encoder", "source on source", data.source_pieces, data.source_pieces],
  ["decoder", "target on target", data.target_pieces, data.target_in_pieces]
];
const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text ?? "" });
const fill = (select, options, chosen) => {
  select.replaceChildren(...options.map(([value, text]) => Object.assign(make("option", text), { value })));
  select.value = options.some(([value]) => String(value) === String(chosen)) ? chosen : options[0][0];
};
const mapsOf = kind => data.maps.filter(map => map.kind === kind);
const mean = heads => heads[0].map((row, t) => row.map((_, s) =>
  heads.reduce((sum, head) => sum + head[t][s], 0) / heads.length));

function chooseKind() {
  const maps = mapsOf($("kind").value);
  const chosen = $("kind").value === start.kind ? start.layer : maps.length;
  fill($("layer"), maps.map(map => [map.layer, map.layer + " of " + maps.length]), chosen);
  chooseLayer();
}
function chooseLayer() {
  const heads = mapsOf($("kind").value)[$("layer").value - 1].weights;
  const options = heads.map((_, i) => [i, String(i + 1)]);
  fill($("head"), [["mean", "mean of " + heads.length], ...options], $("head").value || start.head);
  draw();
}
function draw() {
  const [, , rows, columns] = kinds.find(kind => kind[0] === $("kind").value);
  const heads = mapsOf($("kind").value)[$("layer").value - 1].weights;
  const weights = $("head").value === "mean" ? mean(heads) : heads[$("head").value];
  const table = make("table"), top = table.createTHead().insertRow(), body = table.createTBody();
  top.append(make("th"));
  const above = columns.map(token => { const th = make("th"); th.append(make("span", token)); return th; });
  top.append(...above);
  rows.forEach((token, t) => {
    const line = body.insertRow(), name = make("th", token);
    line.append(name);
    columns.forEach((column, s) => {
      const cell = line.insertCell(), weight = weights[t][s];
      cell.style.background = "rgba(var(--rgb), " + weight.toFixed(4) + ")";
      const show = on => { name.classList.toggle("on", on); above[s].classList.toggle("on", on); };
      cell.onmouseenter = () => {
        show(true);
        $("value").textContent = token + " \\u2192 " + column + ": " + weight.toFixed(3);
      };
      cell.onmouseleave = () => { show(false); $("value").textContent = ""; };
    });
  });
  $("frame").replaceChildren(table);
}
$("source").textContent = data.source;
$("target").textContent = data.target;
fill($("kind"), kinds.filter(kind => mapsOf(kind[0]).length), start.kind);
$("kind").onchange = chooseKind;
$("layer").onchange = chooseLayer;
$("head").onchange = draw;
chooseKind();
</script>
</html>
"""


def write_attention_page(maps: AttentionMaps, path: Path, *, choice: MapChoice = LAST_CROSS) -> None:
    """Write a page with a choice of attention, layer and head, which shows the first of the chosen maps.

    Raises:
        InputError: the model does not have such a layer or head.
    """
    layer, (head, *_) = maps.select(choice)[0]
    start = {"kind": layer.kind, "layer": layer.layer, "head": head if head == MEAN else head - 1}
    data = maps.as_dict() | {
        "start": start,
        "source_pieces": readable_tokens(maps.source_tokens),
        "target_in_pieces": readable_tokens(maps.target_in_tokens),
        "target_pieces": readable_tokens(maps.target_tokens),
    }
    # "</" would end the script element, so "<" is escaped.
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    page = _PAGE.replace("@TITLE@", escape(maps.source)).replace("@DATA@", text)
    path.parent.mkdir(parents=True, exist_ok=True)
    put_file_in_place(path, page)
