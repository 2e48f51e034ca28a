// One map of attention: a row for each token that looks, a column for each that is looked at.

import { make, SPACE } from "./elements.js";
import { colour } from "./ramp.js";

// Pixels: cells grow as long as the map is no higher than is handy, and need not be square.
const MOST_CELL = 44; // of the height
const READABLE_CELL = 22; // with slanted labels; those above smaller cells stand upright
const LEAST_CELL = 12;
const HANDY = 560;
const OBLONG = 1.5; // how much larger one side of a cell may be than the other
const LABEL = 110; // that a label may have

export class HeatMap {
  /** Make the map's elements; `element` is what to show, `room` tells the width for a map that wants at least some. */
  constructor(room) {
    this.room = room;
    this.names = make("canvas", { className: "names", "aria-hidden": "true" }); // of the rows: they do not scroll
    this.canvas = make("canvas", { tabIndex: 0, role: "img" });
    this.readout = make("p", { className: "readout", "aria-live": "polite" });
    this.frame = make("div", { className: "frame" }, this.names, this.canvas);
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
    const { left, top, wide, high, right } = this.place = this.#placed();
    const height = top + high * rows.length + 2;
    const names = sized(this.names, left, height);
    const pen = sized(this.canvas, wide * columns.length + right, height);
    const gap = high > 14 ? 1.5 : 0.5;
    weights.slice(0, rows.length).forEach((line, row) => line.forEach((weight, column) => {
      pen.fillStyle = colour(weight);
      pen.fillRect(column * wide, top + row * high, wide - gap, high - gap);
    }));
    this.#labels(names, pen);
    if (!this.at) return;
    pen.strokeStyle = getComputedStyle(this.canvas).color;
    pen.lineWidth = 2;
    pen.strokeRect(Math.max(1, this.at[1] * wide), top + this.at[0] * high, wide - gap, high - gap);
  }

  /** Where the cells are: {left, top, right, wide, high}, pixels around them and of each; and if labels are `upright`. */
  #placed() {
    const { rows, columns } = this.data;
    const pen = this.canvas.getContext("2d");
    const longest = (texts, cell) => {
      pen.font = this.#font(cell);
      return Math.ceil(Math.min(this.#label(), Math.max(...texts.map((text) => pen.measureText(text).width))));
    };
    const left = longest(rows, READABLE_CELL) + 12;
    const slanted = longest(columns, READABLE_CELL);
    const slant = Math.ceil(0.6 * slanted); // of the last column's label, to the right
    const room = this.room(left + READABLE_CELL * columns.length + slant);
    const most = Math.min(MOST_CELL, Math.max(READABLE_CELL, HANDY / rows.length));
    const fitting = (right) => Math.max(LEAST_CELL, Math.floor(Math.min(OBLONG * most, (room - left - right) / columns.length)));
    const upright = fitting(slant) < READABLE_CELL;
    const wide = fitting(upright ? 2 : slant);
    const high = Math.floor(Math.min(most, OBLONG * wide));
    const top = 16 + (upright ? longest(columns, wide) : Math.ceil(0.85 * slanted));
    return { left, top, right: upright ? 2 : slant, wide, high, upright };
  }

  /** The pixels that a label may have. */
  #label() { return Math.min(LABEL, this.element.parentElement.clientWidth / 4); }

  #font(cell) { return `${cell < 14 ? 10 : cell < 18 ? 11 : 13}px ${getComputedStyle(this.canvas).fontFamily}`; }

  #labels(names, pen) {
    const { rows, columns } = this.data;
    const { left, top, wide, high, upright } = this.place;
    const style = getComputedStyle(this.canvas);
    const [ink, faint, accent] = [style.color, ...["--faint", "--accent"].map((each) => style.getPropertyValue(each))];
    const [atRow, atColumn] = this.at ?? [-1, -1];
    names.font = this.#font(high);
    pen.font = this.#font(wide);
    names.textBaseline = pen.textBaseline = "middle";
    names.textAlign = "right";
    const label = this.#label();
    const fitted = (text, on) => {
      let short = text;
      while (short.length > 1 && on.measureText(short).width > label + 1) short = `${short.slice(0, -2)}…`;
      return short;
    };
    const ofText = (text, isAt) => (isAt ? accent : text === SPACE ? faint : ink);
    rows.forEach((text, row) => {
      names.fillStyle = ofText(text, row === atRow);
      names.fillText(fitted(text, names), left - 8, top + (row + 0.5) * high);
    });
    columns.forEach((text, column) => {
      pen.save();
      pen.translate((column + 0.5) * wide, top - 8);
      pen.rotate(upright ? -Math.PI / 2 : -Math.PI / 3.2);
      pen.fillStyle = ofText(text, column === atColumn);
      pen.fillText(fitted(text, pen), 0, 0);
      pen.restore();
    });
  }

  #point(event) {
    if (!this.data) return;
    const { top, wide, high } = this.place;
    const column = Math.floor(event.offsetX / wide);
    const row = Math.floor((event.offsetY - top) / high);
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
    const { left, wide } = this.place;
    const start = this.at[1] * wide; // of the cell, which must be seen beside the names
    const end = start + wide + left - this.frame.clientWidth;
    this.frame.scrollLeft = Math.max(end, Math.min(start, this.frame.scrollLeft));
  }

  #select(place) {
    if (String(place) === String(this.at)) return;
    this.at = place;
    this.draw();
    const { rows, columns, weights } = this.data;
    this.readout.textContent = place
      ? `${spoken(rows[place[0]])} → ${spoken(columns[place[1]])}: ${(weights[place[0]]?.[place[1]] ?? 0).toFixed(3)}`
      : "";
  }
}

const spoken = (token) => (token === SPACE ? "space" : token);

/** Make a canvas as large, and return its pen. */
function sized(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  return pen;
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
