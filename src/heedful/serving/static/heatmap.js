// One map of attention: a row for each token that looks, a column for each that is looked at.

import { make } from "./elements.js";
import { colour } from "./ramp.js";

const MOST_CELL = 34;
const LEAST_CELL = 9;
const LABEL = 110; // pixels that a label may have

export class HeatMap {
  /** Make the map's elements; `element` is what to show. */
  constructor() {
    this.canvas = make("canvas", { tabIndex: 0, role: "img" });
    this.readout = make("p", { className: "readout", "aria-live": "polite" });
    this.frame = make("div", { className: "frame" }, this.canvas);
    this.element = make("div", { className: "heat" }, this.frame, this.readout);
    this.at = null;
    this.canvas.addEventListener("pointermove", (event) => this.#point(event));
    this.canvas.addEventListener("pointerdown", (event) => this.#point(event));
    this.canvas.addEventListener("pointerleave", () => this.#select(null));
    this.canvas.addEventListener("blur", () => this.#select(null));
    this.canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  /** Show a map: `name` says which, for who cannot see it. */
  show({ rows, columns, weights, name }) {
    this.data = { rows, columns, weights };
    this.at = null;
    this.canvas.setAttribute("aria-label", `${name}: ${rows.length} rows, ${columns.length} columns. Arrow keys read single weights.`);
    this.draw();
  }

  /** Draw again, as large as there is room. */
  draw() {
    if (!this.data) return;
    const { rows, columns, weights } = this.data;
    const style = getComputedStyle(this.canvas);
    const pen = this.canvas.getContext("2d");
    const font = `13px ${style.fontFamily}`;
    pen.font = font;
    const longest = (texts) => Math.min(LABEL, Math.max(...texts.map((text) => pen.measureText(text).width)));
    const left = Math.ceil(longest(rows)) + 10;
    const top = Math.ceil(longest(columns) * 0.85) + 16;
    const slant = Math.ceil(longest(columns) * 0.6); // of the last column's label, to the right
    const room = this.frame.clientWidth - left - slant - 2;
    const cell = Math.floor(Math.max(LEAST_CELL, Math.min(MOST_CELL, room / columns.length)));
    this.place = { left, top, cell };
    const width = left + cell * columns.length + slant;
    const height = top + cell * rows.length + 2;
    const scale = window.devicePixelRatio || 1;
    this.canvas.width = width * scale;
    this.canvas.height = height * scale;
    this.canvas.style.width = `${width}px`;
    this.canvas.style.height = `${height}px`;
    pen.scale(scale, scale);
    pen.font = cell < 13 ? `10px ${style.fontFamily}` : font;
    pen.textBaseline = "middle";
    const gap = cell > 14 ? 1.5 : 0.5;
    weights.slice(0, rows.length).forEach((line, row) => line.forEach((weight, column) => {
      pen.fillStyle = colour(weight);
      pen.fillRect(left + column * cell, top + row * cell, cell - gap, cell - gap);
    }));
    this.#labels(pen, style, gap);
  }

  #labels(pen, style, gap) {
    const { rows, columns } = this.data;
    const { left, top, cell } = this.place;
    const ink = style.color;
    const accent = style.getPropertyValue("--accent");
    const [atRow, atColumn] = this.at ?? [-1, -1];
    const fitted = (text) => {
      let short = text;
      while (short.length > 1 && pen.measureText(short).width > LABEL) short = `${short.slice(0, -2)}…`;
      return short;
    };
    pen.textAlign = "right";
    rows.forEach((text, row) => {
      pen.fillStyle = row === atRow ? accent : ink;
      pen.fillText(fitted(text), left - 8, top + (row + 0.5) * cell);
    });
    pen.textAlign = "left";
    columns.forEach((text, column) => {
      pen.save();
      pen.translate(left + (column + 0.5) * cell, top - 8);
      pen.rotate(-Math.PI / 3.2);
      pen.fillStyle = column === atColumn ? accent : ink;
      pen.fillText(fitted(text), 0, 0);
      pen.restore();
    });
    if (this.at) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.strokeRect(left + atColumn * cell, top + atRow * cell, cell - gap, cell - gap);
    }
  }

  #point(event) {
    if (!this.data) return;
    const { left, top, cell } = this.place;
    const column = Math.floor((event.offsetX - left) / cell);
    const row = Math.floor((event.offsetY - top) / cell);
    const inside = row >= 0 && column >= 0 && row < this.data.rows.length && column < this.data.columns.length;
    this.#select(inside ? [row, column] : null);
  }

  #key(event) {
    const move = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!move || !this.data) return;
    event.preventDefault();
    const [row, column] = this.at ?? [0, 0];
    const limit = (value, most) => Math.min(most - 1, Math.max(0, value));
    const by = this.at ? move : [0, 0];
    this.#select([limit(row + by[0], this.data.rows.length), limit(column + by[1], this.data.columns.length)]);
  }

  #select(place) {
    if (String(place) === String(this.at)) return;
    this.at = place;
    this.draw();
    const { rows, columns, weights } = this.data;
    this.readout.textContent = place
      ? `${rows[place[0]]} → ${columns[place[1]]}: ${(weights[place[0]]?.[place[1]] ?? 0).toFixed(3)}`
      : "";
  }
}

/** Return a small map without labels, on a canvas. */
export function thumbnail(weights, size = 64) {
  const columns = weights[0].length;
  const side = Math.max(1, Math.min(8, Math.floor((2 * size) / Math.max(weights.length, columns))));
  const canvas = make("canvas", { width: columns * side, height: weights.length * side });
  const pen = canvas.getContext("2d");
  weights.forEach((line, row) => line.forEach((weight, column) => {
    pen.fillStyle = colour(weight);
    pen.fillRect(column * side, row * side, side, side);
  }));
  return canvas;
}
