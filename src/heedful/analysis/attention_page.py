"""Attention maps as one self-contained HTML file."""

import json
from html import escape
from pathlib import Path

from heedful.analysis.attention_maps import LAST_CROSS, MEAN, AttentionMaps, MapChoice
from heedful.durable import put_text_in_place

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
    # "</" would end the script element, so "<" is escaped.
    data = json.dumps(maps.as_dict() | {"start": start}, ensure_ascii=False, separators=(",", ":")).replace(
        "<", "\\u003c"
    )
    page = _PAGE.replace("@TITLE@", escape(maps.source)).replace("@DATA@", data)
    path.parent.mkdir(parents=True, exist_ok=True)
    put_text_in_place(path, page)
