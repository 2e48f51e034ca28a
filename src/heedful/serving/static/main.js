// The page: what happens when somebody types.

import { AttentionPanel } from "./attention.js";
import { showBeam } from "./beam.js";
import { byId, copyFrom, make } from "./elements.js";
import { Languages } from "./languages.js";
import { hideProblem, showProblem } from "./problem.js";
import { listen, mirrorText, showTexts, showWords, translation } from "./reading.js";
import * as service from "./service.js";
import { readState, writeState } from "./state.js";
import { tabs } from "./tabs.js";
import { themeButton } from "./theme-button.js";

// Milliseconds after the last key. Translations are quick; explanations cost more, and browsers allow few changes
// of the address.
const DEBOUNCE = 20;
const PAUSE = 250;
const field = byId("source");
const output = byId("output");
const panel = new AttentionPanel();

let languages;
let limits = { charLimit: 5000, alternativesLimit: 3 };
let running = new AbortController();
let timer = 0;
let remembering = 0;
let typedAt = 0;
let explainable = true;
let explained = null;

function typed() {
  mirrorText(field.value);
  count();
  running.abort(); // what is asked now is out of date
  clearTimeout(timer);
  typedAt = performance.now();
  timer = setTimeout(translateNow, DEBOUNCE);
}

async function translateNow() {
  clearTimeout(timer);
  running.abort();
  const controller = new AbortController();
  running = controller;
  const { signal } = controller;
  const text = field.value;
  clearTimeout(remembering);
  remembering = setTimeout(remember, untilPause());
  if (!text.trim()) return showNothing();
  const fields = { q: text, source: languages.from.value, target: languages.to.value };
  byId("empty").hidden = true;
  byId("bar").hidden = false;
  output.ariaBusy = "true";
  try {
    const alternatives = Math.min(3, limits.alternativesLimit);
    const answer = await service.translate({ ...fields, alternatives }, signal);
    if (signal.aborted) return;
    if (languages.turn(answer.detectedLanguage?.language)) return void translateNow();
    showAnswer(text, answer);
    await new Promise((done) => { setTimeout(done, untilPause()); });
    if (signal.aborted) return;
    await explainNow(text, fields, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    for (const id of ["output", "others", "inside"]) byId(id).classList.add("stale");
    showProblem(error, translateNow, signal);
    byId("key-line").hidden &&= error.status !== 403;
  } finally {
    if (running === controller) {
      byId("bar").hidden = true;
      output.ariaBusy = "false";
    }
  }
}

const untilPause = () => Math.max(0, typedAt + PAUSE - performance.now());

function remember() {
  writeState({ text: field.value, from: languages.from.value, to: languages.to.value });
}

function showAnswer(text, answer) {
  hideProblem();
  for (const id of ["output", "others"]) byId(id).classList.remove("stale");
  languages.detect(answer.detectedLanguage?.language ?? "");
  output.lang = languages.to.value;
  showTexts(text, answer.translatedText);
  byId("bar").hidden = true;
  byId("copy").hidden = false;
  byId("live").textContent = answer.translatedText;
  const others = answer.alternatives ?? [];
  byId("others").hidden = !others.length;
  byId("alternatives").replaceChildren(...others.map((each) => {
    const copy = make("button", { type: "button", className: "quiet", textContent: "Copy", "aria-label": `Copy: ${each}` });
    copy.addEventListener("click", () => copyFrom(copy, each));
    return make("li", {}, make("span", { dir: "auto", lang: languages.to.value, textContent: each }), copy);
  }));
  performance.measure("heedful: typed to shown", { start: typedAt, end: performance.now() });
}

async function explainNow(text, fields, signal) {
  byId("inside").classList.add("stale");
  if (!explainable || fields.source === fields.target) return hideInside();
  let answer;
  try {
    answer = await service.explain(fields, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return undefined;
    if (error.status === 501) explainable = false; // the server has no torch
    return hideInside(error.status === 501 || error.status === 400 ? "" : error.message);
  }
  if (signal.aborted) return undefined;
  explained = answer;
  showWords(text, translation(), answer.sentences, answer.source, answer.target);
  byId("inside").classList.remove("stale");
  byId("inside").hidden = byId("legend").hidden = !answer.sentences.length;
  const beyond = byId("beyond");
  beyond.hidden = answer.complete;
  beyond.textContent = "Of a long text, the first sentences are explained.";
  byId("which").hidden = answer.sentences.length < 2;
  byId("sentence").replaceChildren(...answer.sentences.map(({ source }, n) => {
    const start = source.text.length > 40 ? `${source.text.slice(0, 38)}…` : source.text;
    return make("option", { value: n, textContent: `${n + 1}: ${start}` });
  }));
  return showSentence(0);
}

function showSentence(number) {
  const sentence = explained?.sentences[number];
  if (!sentence) return undefined;
  showBeam(sentence);
  return panel.show(sentence, { source: explained.source, target: explained.target });
}

function hideInside(reason = "") {
  explained = null;
  byId("inside").hidden = byId("legend").hidden = true;
  byId("beyond").hidden = !reason;
  byId("beyond").textContent = reason;
}

function showNothing() {
  hideProblem();
  showTexts(field.value, "");
  languages.detect("");
  hideInside();
  byId("others").hidden = byId("copy").hidden = byId("bar").hidden = true;
  output.ariaBusy = "false";
  output.classList.remove("stale");
  const examples = languages.examples();
  byId("empty").hidden = !examples.length;
  byId("examples").replaceChildren(...examples.map(({ code, text }) => {
    const button = make("button", { type: "button", dir: "auto", lang: code, textContent: text });
    button.addEventListener("click", () => setText(text, { now: true }));
    return make("li", {}, button);
  }));
}

function setText(text, { now = false } = {}) {
  field.value = text;
  typed();
  field.focus();
  if (now) translateNow();
}

function count() {
  const length = [...field.value].length;
  const { charLimit } = limits;
  byId("count").textContent = length > charLimit / 2 ? `${length.toLocaleString("en")} of ${charLimit.toLocaleString("en")} characters` : "";
  byId("clear").hidden = !length;
}

function wire() {
  field.addEventListener("input", typed);
  byId("clear").addEventListener("click", () => setText("", { now: true }));
  byId("copy").addEventListener("click", (event) => copyFrom(event.currentTarget, translation()));
  byId("link").addEventListener("click", (event) => {
    remember();
    copyFrom(event.currentTarget, location.href);
  });
  byId("key").addEventListener("change", (event) => { service.setKey(event.target.value); translateNow(); });
  byId("sentence").addEventListener("change", (event) => showSentence(Number(event.target.value)));
  languages.from.addEventListener("change", () => { languages.detect(""); languages.changed(); translateNow(); });
  languages.to.addEventListener("change", () => { languages.changed(); translateNow(); });
  byId("swap").addEventListener("click", () => {
    const text = translation();
    languages.swap();
    setText(text, { now: true });
  });
  addEventListener("hashchange", restore);
  tabs(document.querySelector("[role=tablist]"), () => panel.refresh());
  themeButton(() => panel.refresh());
  listen(field, (number) => {
    byId("sentence").value = number;
    showSentence(number);
  });
}

function restore() {
  const { text, from, to } = readState();
  if (from) languages.choose(from, to);
  field.value = text;
  typed();
  translateNow();
}

async function start() {
  try {
    const [listed, settings] = await Promise.all([service.languages(), service.settings()]);
    languages = new Languages(listed);
    limits = settings;
    languages.begin();
    byId("key-line").hidden = !settings.keyRequired;
  } catch (error) {
    showProblem(error, start, new AbortController().signal);
    return;
  }
  hideProblem();
  wire();
  const typedAlready = field.value; // before the scripts were there
  restore();
  if (typedAlready && !field.value) setText(typedAlready, { now: true });
}

start();
