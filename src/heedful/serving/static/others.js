// Other translations: where they differ from the first, and a button to open those that are long.

import { byId, copyFrom, make } from "./elements.js";
import { differences, wordsOf } from "./words.js";

const LINES = 3; // that a translation has before it is opened; the style sheet has the same
const BEFORE = 4; // words that stay before the first difference, where the beginning is left out
const LESS_PROBABLE = 20; // times than the first translation: what is no choice beside it
const list = byId("alternatives");

/** Show translations of the same text as `best` is one of. */
export function showOthers(best, others, language) {
  byId("others").hidden = !others.length;
  list.replaceChildren(...others.map((each, n) => item(each, differences(each, best, language), language, n)));
  fold();
}

/** Say which translations are far less probable than the first, where the n-best lists of the sentences tell. */
export function markImprobable(sentences) {
  for (const shown of list.querySelectorAll(".other")) {
    let behind = 0; // the first translation, in log-probability; NaN: not known
    for (const { hypotheses } of sentences) {
      const found = hypotheses.filter(({ text }) => shown.textContent.includes(text)).sort((a, b) => b.text.length - a.text.length);
      behind += hypotheses[0].log_prob - (found[0]?.log_prob ?? NaN);
    }
    shown.classList.toggle("improbable", behind > Math.log(LESS_PROBABLE));
  }
}

/** Let the translations be copied, or not: then they are those of an earlier text. */
export function allowCopying(isAllowed) {
  for (const button of list.querySelectorAll(".copy")) button.disabled = !isAllowed;
}

function item(text, parts, language, n) {
  const id = `other-${n + 1}`;
  const copy = make("button", { type: "button", className: "quiet copy", textContent: "Copy", "aria-label": `Copy: ${text}` });
  copy.addEventListener("click", () => copyFrom(copy, text));
  const shown = make("p", { id, className: "other", dir: "auto", lang: language }, ...marked(parts, language));
  const open = make("button", { type: "button", className: "quiet open", hidden: true, "aria-controls": id });
  const turn = (isOpen) => {
    shown.classList.toggle("cut", !isOpen);
    open.setAttribute("aria-expanded", String(isOpen));
    open.textContent = isOpen ? "Show less" : "Show all";
  };
  const note = make("span", { className: "note", textContent: "improbable" }); // seen if it is, so that nothing moves
  turn(false);
  open.addEventListener("click", () => turn(open.getAttribute("aria-expanded") === "false"));
  return make("li", {}, shown, make("div", { className: "actions" }, note, open, copy));
}

/** The parts as elements; a long beginning that all translations share can be left out. */
function marked(parts, language) {
  const rest = parts.map(({ text, differs }) => (differs ? make("mark", { textContent: text }) : text));
  if (parts.length < 2 || parts[0].differs) return rest;
  const beginning = wordsOf(parts[0].text, language);
  if (beginning.length < 3 * BEFORE) return rest;
  const { start } = beginning.at(-BEFORE);
  return [
    make("span", { className: "lead", textContent: parts[0].text.slice(0, start) }),
    make("span", { className: "after" }, parts[0].text.slice(start)),
    ...rest.slice(1),
  ];
}

/** Offer to open what has more lines than are shown. */
function fold() {
  for (const shown of list.querySelectorAll(".other")) {
    const open = shown.parentElement.querySelector(".open");
    shown.classList.remove("cut");
    open.hidden = shown.scrollHeight <= (LINES + 0.5) * parseFloat(getComputedStyle(shown).lineHeight);
    shown.classList.toggle("cut", !open.hidden && open.getAttribute("aria-expanded") === "false");
  }
}

let width = 0;
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width !== width) fold();
  width = contentRect.width;
}).observe(list);
