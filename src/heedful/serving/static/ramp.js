// Colours of a heat map: one hue, and a lightness that only ever goes one way, for every kind of eye.

let stops = [];

/** Read the colours of the theme. */
export function readRamp() {
  const style = getComputedStyle(document.documentElement);
  stops = [0, 1, 2, 3, 4].map((n) => rgb(style.getPropertyValue(`--heat-${n}`).trim()));
}

function rgb(hex) {
  const value = parseInt(hex.slice(1), 16);
  return [value >> 16, (value >> 8) & 255, value & 255];
}

/** The colour of a weight from 0 to 1. */
export function colour(weight) {
  const place = Math.min(1, Math.max(0, weight)) ** 0.6 * (stops.length - 1);
  const low = Math.min(stops.length - 2, Math.floor(place));
  const part = place - low;
  const mixed = stops[low].map((each, n) => Math.round(each + part * (stops[low + 1][n] - each)));
  return `rgb(${mixed.join(" ")})`;
}
