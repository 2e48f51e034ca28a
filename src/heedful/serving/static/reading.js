// The two texts side by side: words light up on both, and those of the translation show their probability.

import { byId, grade, make, percent } from "./elements.js";
import { inWords, placesOf } from "./words.js";

const FAINT = 0.18; // of the strongest attention: below it a word does not light up
const mirror = byId("mirror");
const output = byId("output");
const note = byId("word");
const live = byId("live");

let entries = []; // {sentence, sourceSpans, targetSpans} of what is explained
let spans = new Map(); // element -> {entry, side, index}
let current = -1; // word of the translation that the keyboard is at
let shown = "";
let doubts = []; // {start, end, title} of the sentences of the translation that the model is unsure of
let confident = []; // {start, end, value} of its words

/**
 * Show texts without anything known of their words but, of a calibrated model, the confidence in sentences, and
 * the terms of a glossary.
 */
export function showTexts(source, translation, { sentences = [], terms = [] } = {}) {
  entries = [];
  spans = new Map();
  current = -1;
  shown = translation;
  note.textContent = "";
  findDoubts(translation, sentences);
  mirrorText(source);
  fill(output, translation, ofGlossary(translation, terms), doubts);
}

/** Mark what the terms of a glossary placed; those that overlap have one mark. */
function ofGlossary(translation, terms) {
  const offsets = [0]; // of the code points, which spans count, in UTF-16 code units
  for (const character of translation) offsets.push(offsets.at(-1) + character.length);
  const placed = terms.flatMap(({ source, spans: own }) =>
    own.map(({ start, end }) => ({ source, start: offsets[start], end: offsets[end] })));
  const marks = [];
  for (const { source, start, end } of placed.sort((a, b) => a.start - b.start || b.end - a.end)) {
    const entry = `${source} → ${translation.slice(start, end)}`;
    const last = marks.at(-1);
    if (last && start < last.end) {
      last.end = Math.max(last.end, end);
      last.entries.add(entry);
    } else marks.push({ start, end, entries: new Set([entry]) });
  }
  return marks.map(({ start, end, entries: found }) => {
    const title = `${[...found].join(", ")}, from the glossary`;
    return { start, end, span: make("span", { className: "term", role: "mark", title, textContent: translation.slice(start, end) }) };
  });
}

function findDoubts(translation, sentences) {
  doubts = [];
  confident = [];
  const places = placesOf(translation, sentences.map((each) => each.text));
  sentences.forEach(({ text, value, unsure, words }, n) => {
    if (places[n] < 0) return;
    if (unsure) {
      const title = `The model is unsure of this sentence: ${percent(value)} confidence`;
      doubts.push({ start: places[n], end: places[n] + text.length, title });
    }
    const starts = placesOf(text, words.map((each) => each.text)).map((start) => places[n] + start);
    confident.push(...words.map((word, i) => (
      { start: starts[i], end: starts[i] + word.text.length, value: word.value })));
  });
}

/** Let the mirror behind the text field have its text, so that both wrap alike and grow together. */
export function mirrorText(source) {
  mirror.replaceChildren(`${source}\n`);
  unlight();
}

/** Show the words of texts with what is known of them; return the probabilities of those of the translation. */
export function showWords(source, translation, sentences, from, to) {
  const sourceAt = placesOf(source, sentences.map((each) => each.source.text));
  const targetAt = placesOf(translation, sentences.map((each) => each.hypotheses[0].text));
  spans = new Map();
  entries = [];
  const read = [];
  const written = [];
  sentences.forEach((sentence, index) => {
    if (sourceAt[index] < 0 || targetAt[index] < 0) return;
    const entry = { number: index, ...inWords(sentence, from, to), sourceSpans: [], targetSpans: [], confidences: [] };
    entries.push(entry);
    read.push(...marked(entry, "source", sourceAt[index]));
    written.push(...marked(entry, "target", targetAt[index]));
  });
  fill(mirror, `${source}\n`, read);
  fill(output, translation, written, doubts);
  current = -1;
  return entries.flatMap(({ target, probabilities }) =>
    probabilities.filter((_, n) => /[\p{L}\p{N}]/u.test(target[n].text))); // signs are easily guessed
}

function marked(entry, side, offset) {
  return entry[side].map((word, index) => {
    const span = make("span", { className: "w", textContent: word.text });
    if (side === "target") {
      span.classList.add(grade(entry.probabilities[index]));
      const known = confident.find(({ start, end }) => start <= offset + word.start && offset + word.end <= end);
      entry.confidences.push(known?.value);
    }
    entry[`${side}Spans`].push(span);
    spans.set(span, { entry, side, index });
    return { start: offset + word.start, end: offset + word.end, span };
  });
}

function fill(element, text, marks, unsure = []) {
  const children = [];
  let at = 0;
  for (const { start, end, title } of unsure) {
    const sentence = make("mark", { className: "unsure", title }, ...between(text, marks, start, end));
    children.push(...between(text, marks, at, start), sentence);
    at = end;
  }
  element.replaceChildren(...children, ...between(text, marks, at, text.length));
}

/** A part of a text, with the words in it that are marked. */
function between(text, marks, from, to) {
  const parts = [];
  let at = from;
  for (const { start, end, span } of marks) {
    if (start < from || end > to) continue;
    parts.push(text.slice(at, start), span);
    at = end;
  }
  return [...parts, text.slice(at, to)];
}

function light(span) {
  unlight();
  if (span.matches(".term")) {
    span.classList.add("on");
    note.textContent = span.title;
  }
  const found = spans.get(span);
  if (!found) return;
  const { entry, side, index } = found;
  span.classList.add("on");
  const others = side === "target" ? entry.sourceSpans : entry.targetSpans;
  const weights = side === "target" ? entry.weights[index] : entry.weights.map((row) => row[index]);
  const most = Math.max(...weights);
  const partners = [];
  weights.forEach((weight, other) => {
    const strength = most > 0 ? weight / most : 0;
    if (strength < FAINT) return;
    others[other].classList.add("lit");
    others[other].style.setProperty("--strength", `${Math.round(20 + 80 * strength)}%`);
    partners.push([strength, others[other].textContent]);
  });
  const names = partners.sort((a, b) => b[0] - a[0]).slice(0, 3).map(([, name]) => (/[\p{L}\p{N}]/u.test(name) ? name : `“${name}”`)).join(", ");
  const word = span.textContent;
  const confidence = entry.confidences[index] === undefined ? "" : `, confidence ${percent(entry.confidences[index])}`;
  note.textContent = side === "target"
    ? `${word}: ${percent(entry.probabilities[index])}${confidence}, attended to ${names}`
    : `${word}: attended to by ${names}`;
}

function unlight() {
  for (const element of document.querySelectorAll(".w.on, .w.lit, .term.on")) {
    element.classList.remove("on", "lit");
    element.style.removeProperty("--strength");
  }
  note.textContent = "";
}

/**
 * Let words light up under the mouse, at the caret of the text, and at the keyboard's word; `onSentence` is told
 * the number of the sentence that is clicked on.
 */
export function listen(field, onSentence) {
  output.addEventListener("pointerover", (event) => light(event.target));
  output.addEventListener("pointerleave", unlight);
  output.addEventListener("click", (event) => {
    if (spans.has(event.target)) onSentence(spans.get(event.target).entry.number);
  });
  output.addEventListener("blur", () => { current = -1; unlight(); });
  output.addEventListener("keydown", (event) => {
    const words = [...output.querySelectorAll(".w, .term")];
    const rtl = getComputedStyle(output).direction === "rtl";
    const step = { ArrowRight: rtl ? -1 : 1, ArrowLeft: rtl ? 1 : -1, Home: -words.length, End: words.length };
    const by = step[event.key];
    if (by === undefined || !words.length || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    current = Math.min(words.length - 1, Math.max(0, current + by));
    light(words[current]);
    words[current].scrollIntoView({ block: "nearest" });
    live.textContent = note.textContent;
  });
  // The mirror lies behind the field, so that the field itself gets the mouse.
  field.addEventListener("pointermove", (event) => {
    const under = document.elementsFromPoint(event.clientX, event.clientY);
    const word = under.find((element) => spans.has(element));
    if (word) light(word);
    else unlight();
  });
  field.addEventListener("pointerleave", unlight);
  const atCaret = () => {
    const place = field.selectionStart;
    let at = 0;
    for (const child of mirror.childNodes) {
      const end = at + child.textContent.length;
      if (place >= at && place <= end && spans.has(child)) return light(child);
      at = end;
    }
    return unlight();
  };
  field.addEventListener("keyup", (event) => {
    if (/^(Arrow|Home|End|Page)/.test(event.key)) atCaret();
  });
  field.addEventListener("click", atCaret);
}

/** The translation that is shown. */
export const translation = () => shown;
