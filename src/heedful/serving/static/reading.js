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

/** Show texts without anything known of their words. */
export function showTexts(source, translation) {
  entries = [];
  spans = new Map();
  current = -1;
  shown = translation;
  note.textContent = "";
  mirrorText(source);
  output.replaceChildren(translation);
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
    const entry = { number: index, ...inWords(sentence, from, to), sourceSpans: [], targetSpans: [] };
    entries.push(entry);
    read.push(...marked(entry, "source", sourceAt[index]));
    written.push(...marked(entry, "target", targetAt[index]));
  });
  fill(mirror, `${source}\n`, read);
  fill(output, translation, written);
  current = -1;
  return entries.flatMap(({ target, probabilities }) =>
    probabilities.filter((_, n) => /[\p{L}\p{N}]/u.test(target[n].text))); // signs are easily guessed
}

function marked(entry, side, offset) {
  return entry[side].map((word, index) => {
    const span = make("span", { className: "w", textContent: word.text });
    if (side === "target") span.classList.add(grade(entry.probabilities[index]));
    entry[`${side}Spans`].push(span);
    spans.set(span, { entry, side, index });
    return { start: offset + word.start, end: offset + word.end, span };
  });
}

function fill(element, text, marks) {
  const parts = [];
  let at = 0;
  for (const { start, end, span } of marks) {
    parts.push(text.slice(at, start), span);
    at = end;
  }
  element.replaceChildren(...parts, text.slice(at));
}

function light(span) {
  unlight();
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
  note.textContent = side === "target"
    ? `${word}: ${percent(entry.probabilities[index])}, attended to ${names}`
    : `${word}: attended to by ${names}`;
}

function unlight() {
  for (const element of document.querySelectorAll(".w.on, .w.lit")) {
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
    const words = [...output.querySelectorAll(".w")];
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
