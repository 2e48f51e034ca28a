// The page: what happens when somebody types.

import { AttentionPanel } from "./attention.js";
import { showBeam } from "./beam.js";
import { Documents } from "./document.js";
import { Correction } from "./correction.js";
import { byId, copyFrom, make } from "./elements.js";
import { Glossaries } from "./glossaries.js";
import { Languages } from "./languages.js";
import { allowCopying, markImprobable, showOthers } from "./others.js";
import { hideProblem, showProblem } from "./problem.js";
import { listen, mirrorText, showTexts, showWords, translation } from "./reading.js";
import * as service from "./service.js";
import { tabs } from "./tabs.js";
import { themeButton } from "./theme-button.js";

// Milliseconds after the last key. Translations are quick; explanations cost more, and browsers allow few changes
// of the address.
const DEBOUNCE = 20;
const PAUSE = 250;
const MOST_NAMED = 6; // terms that are not kept
const field = byId("source");
const output = byId("output");
const panel = new AttentionPanel();

let languages;
let glossaries;
let limits = { charLimit: 5000, alternativesLimit: 3 };
let running = new AbortController();
let timer = 0;
let remembering = 0;
let typedAt = 0;
let explainable = true;
let explained = null;
let confidence = null; // in the translation; null: the model is not calibrated
let terms = []; // of the glossary, those of the text
let current = false; // whether the translation is that of the text as it stands

function typed() {
  mirrorText(field.value);
  count();
  running.abort(); // what is asked now is out of date
  clearTimeout(timer);
  typedAt = performance.now();
  setCurrent(false);
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
  setCurrent(false);
  if (!text.trim()) return showNothing();
  if (excess() > 0) return showTooLong();
  const fields = { q: text, source: languages.from.value, target: languages.to.value };
  byId("empty").hidden = true;
  byId("bar").hidden = false;
  output.ariaBusy = "true";
  try {
    const alternatives = Math.min(3, limits.alternativesLimit);
    const asked = glossaries.chosen ? { glossary: glossaries.chosen, terms: true } : {};
    const answer = await service.translate({ ...fields, ...asked, alternatives, confidence: true }, signal);
    if (signal.aborted) return;
    if (languages.turn(answer.detectedLanguage?.language)) return void translateNow();
    showAnswer(text, answer);
    await new Promise((done) => { setTimeout(done, untilPause()); });
    if (signal.aborted) return;
    await explainNow(text, fields, answer.pivot, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return;
    showOutdated();
    showProblem(error, translateNow, signal);
    byId("key-line").hidden &&= error.status !== 403;
  } finally {
    if (running === controller) stopWaiting();
  }
}

function stopWaiting() {
  byId("bar").hidden = true;
  output.ariaBusy = "false";
}

const untilPause = () => Math.max(0, typedAt + PAUSE - performance.now());

/** Keep the text in the fragment of the address, which browsers never send to a server. */
function remember() {
  const fields = new URLSearchParams({ from: languages.from.value, to: languages.to.value, text: field.value });
  history.replaceState(null, "", location.pathname + location.search + (field.value ? `#${fields}` : ""));
}

function showAnswer(text, answer) {
  hideProblem();
  for (const id of ["output", "others"]) setStale(id, false);
  languages.detect(answer.detectedLanguage?.language ?? "");
  glossaries.update();
  output.lang = languages.to.value;
  confidence = answer.confidence ?? null;
  terms = answer.terms ?? [];
  showTexts(text, answer.translatedText, { sentences: confidence?.sentences, terms });
  byId("bar").hidden = true;
  byId("copy").hidden = false;
  byId("correct").hidden = !limits.suggestions;
  byId("live").textContent = answer.translatedText;
  showOthers(answer.translatedText, answer.alternatives ?? [], languages.to.value);
  setCurrent(true);
  expectExplanation(answer.pivot);
  performance.measure("heedful: typed to shown", { start: typedAt, end: performance.now() });
}

/** Make place for an explanation, so that nothing moves when it comes; or say why there will be none. */
function expectExplanation(pivot) {
  const name = languages.nameOf(pivot);
  remark(pivot ? `Translated through ${name}` : [doubt(), missed()].filter(Boolean).join(" "));
  if (pivot) return hideInside(`No attention to show: two models translated this text, one after the other. Choose ${name} as one of the languages to see it.`);
  if (glossaries.chosen) return hideInside("With a glossary, no attention is shown.");
  if (!explainable || languages.source === languages.to.value) return hideInside();
  const inside = byId("inside");
  inside.classList.toggle("pending", inside.hidden || !explained);
  inside.hidden = byId("legend").hidden = false;
  byId("beyond").hidden = true;
  byId("legend").classList.remove("void");
  output.classList.remove("improbable");
  return setStale("inside", true);
}

async function explainNow(text, fields, pivot, signal) {
  if (pivot || byId("inside").hidden) return undefined;
  let answer;
  try {
    answer = await service.explain(fields, signal);
  } catch (error) {
    if (signal.aborted || error.name === "AbortError") return undefined;
    if (error.status === 501) explainable = false; // the server cannot explain this model
    return hideInside(error.status === 501 || error.status === 400 ? "" : error.message);
  }
  if (signal.aborted) return undefined;
  explained = answer;
  showDoubt(showWords(text, translation(), answer.sentences, answer.source, answer.target));
  if (answer.complete) markImprobable(answer.sentences);
  setStale("inside", false);
  byId("inside").classList.remove("pending");
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

/** What is said of the sentences that a calibrated model is unsure of; nothing where it is sure of all. */
function doubt() {
  const sentences = confidence?.sentences ?? [];
  const unsure = sentences.flatMap((each, n) => (each.unsure ? [n + 1] : []));
  if (!unsure.length) return "";
  if (unsure.length === sentences.length) return `The model is unsure of this ${sentences.length > 1 ? "translation" : "sentence"}.`;
  if (unsure.length > 1) return `The model is unsure of ${unsure.length} of ${sentences.length} sentences.`;
  return `The model is unsure of sentence ${unsure[0]} of ${sentences.length}.`;
}

/** What is said of the terms that are not in the translation of a sentence that they apply to. */
function missed() {
  const names = [...new Set(terms.flatMap(({ source, met }) => (met ? [] : [source])))];
  const more = names.length > MOST_NAMED ? ` and ${names.length - MOST_NAMED} more` : "";
  return names.length ? `Not kept: ${names.slice(0, MOST_NAMED).join(", ")}${more}.` : "";
}

/** Say that a model is unsure; one that is not calibrated, where it is of most words. Lines below all words say no more. */
function showDoubt(probabilities) {
  const below = (limit) => probabilities.filter((each) => each < limit).length;
  const improbable = probabilities.length > 0 && below(0.25) === probabilities.length;
  const seemsUnsure = below(0.5) > probabilities.length / 2;
  remark(confidence ? doubt() : seemsUnsure ? "The model is unsure of this translation." : "");
  byId("legend").classList.toggle("void", improbable);
  output.classList.toggle("improbable", improbable);
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
  remark("");
  byId("others").hidden = byId("copy").hidden = byId("correct").hidden = true;
  stopWaiting();
  setStale("output", false);
  const examples = languages.examples();
  byId("empty").hidden = !examples.length;
  byId("examples").replaceChildren(...examples.map(({ code, text }) => {
    const button = make("button", { type: "button", dir: "auto", lang: code, textContent: text });
    button.addEventListener("click", () => setText(text, { now: true }));
    return make("li", {}, button);
  }));
}

/** Let the server alone with a text that it would refuse; what to do stands beside the count. */
function showTooLong() {
  hideProblem();
  stopWaiting();
  showOutdated();
}

/** Show that the translation is that of an earlier text. */
function showOutdated() {
  setCurrent(false);
  if (!explained || byId("inside").classList.contains("pending")) hideInside();
  byId("beyond").hidden = true;
  byId("legend").hidden = true;
  showTexts(field.value, translation());
  for (const id of ["output", "others", "inside"]) setStale(id, true);
  remark(translation() ? "Translation of an earlier text" : "");
}

/** Grey a part of the page that is of an earlier text; what is below the texts can then not be used. */
function setStale(id, isStale) {
  byId(id).classList.toggle("stale", isStale);
  if (id !== "output") byId(id).inert = isStale;
}

/** Note whether the translation is that of the text as it stands; only then can it be copied. */
function setCurrent(isCurrent) {
  current = isCurrent;
  byId("copy").disabled = byId("correct").disabled = !isCurrent;
  allowCopying(isCurrent);
}

/** Say something about the translation, beside it. */
function remark(text) {
  if (byId("remark").textContent !== text) byId("remark").textContent = text;
}

function setText(text, { now = false } = {}) {
  field.value = text;
  typed();
  field.focus();
  if (now) translateNow();
}

const grouped = (number) => number.toLocaleString("en");
const characters = () => [...field.value].length;

/** Characters beyond the limit. */
const excess = () => characters() - limits.charLimit;

function count() {
  const length = characters();
  const over = excess();
  byId("count").textContent = length > limits.charLimit / 2 ? `${grouped(length)} of ${grouped(limits.charLimit)} characters` : "";
  byId("count").classList.toggle("over", over > 0);
  const shorten = over > 0 ? `Shorten the text by ${grouped(over)} ${over === 1 ? "character" : "characters"}.` : "";
  if (shorten && field.ariaInvalid !== "true") byId("live").textContent = shorten;
  byId("shorten").textContent = shorten;
  field.ariaInvalid = String(over > 0);
  byId("clear").hidden = !length;
}

const shownFields = () => ({ q: field.value, source: languages.source, target: languages.to.value });

function wire() {
  field.addEventListener("input", typed);
  byId("clear").addEventListener("click", () => setText("", { now: true }));
  byId("copy").addEventListener("click", (event) => copyFrom(event.currentTarget, translation()));
  byId("link").addEventListener("click", (event) => {
    remember();
    copyFrom(event.currentTarget, location.href);
  });
  byId("key-line").addEventListener("submit", (event) => event.preventDefault());
  byId("key").addEventListener("change", (event) => {
    service.setKey(event.target.value);
    glossaries.load();
    translateNow();
  });
  byId("sentence").addEventListener("change", (event) => showSentence(Number(event.target.value)));
  languages.from.addEventListener("change", () => { languages.detect(""); languages.changed(); glossaries.update(); translateNow(); });
  languages.to.addEventListener("change", () => { languages.changed(); glossaries.update(); translateNow(); });
  byId("glossary").addEventListener("change", translateNow);
  byId("swap").addEventListener("click", () => {
    const text = current ? translation() : field.value;
    languages.swap();
    glossaries.update();
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
  const fields = new URLSearchParams(location.hash.slice(1));
  if (fields.get("from")) languages.choose(fields.get("from"), fields.get("to") ?? "");
  field.value = fields.get("text") ?? "";
  typed();
  translateNow();
}

async function start() {
  try {
    const [listed, settings] = await Promise.all([service.languages(), service.settings()]);
    languages = new Languages(listed);
    limits = settings;
    languages.begin();
    glossaries = new Glossaries(languages);
    if (settings.glossaries) glossaries.load();
    if (settings.suggestions) new Correction(shownFields, translateNow);
    if (settings.filesTranslation) new Documents(languages, glossaries, settings).wire();
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
