// Documents: a file is chosen or dropped, sent, watched while it is translated, and offered for saving.

import { byId, make } from "./elements.js";
import * as service from "./service.js";
import { columnsOf, isTable } from "./table.js";

const POLL = 1000; // milliseconds between two questions
const MOST_FAILURES = 5; // questions in a row that are not answered
const GONE = "The server does not have this document any more. Send it again.";

const wait = (milliseconds, signal) => new Promise((done, failed) => {
  const timer = setTimeout(done, milliseconds);
  signal.addEventListener("abort", () => { clearTimeout(timer); failed(signal.reason); }, { once: true });
});

const counted = (number, unit) => `${number} ${unit}${number === 1 ? "" : "s"}`;

/** A time in words, rounded so that it does not jump. */
function inWords(seconds) {
  if (seconds < 60) return counted(Math.max(1, seconds), "second");
  return seconds < 5400 ? counted(Math.round(seconds / 60), "minute") : counted(Math.round(seconds / 3600), "hour");
}

export class Documents {
  /** Take what says the languages and the glossary, and what the server allows. */
  constructor(languages, glossaries, { supportedFilesFormat, fileLimit }) {
    this.languages = languages;
    this.glossaries = glossaries;
    this.formats = supportedFilesFormat;
    this.limit = fileLimit;
    this.running = new AbortController();
    this.address = "";
    this.latest = null;
    this.columns = [];
  }

  wire() {
    byId("choose").hidden = false;
    byId("file").accept = this.formats.join(",");
    byId("formats").textContent = `Formats: ${this.formats.join(", ")}`;
    byId("choose").addEventListener("click", () => byId("file").click());
    byId("file").addEventListener("change", ({ target }) => {
      if (target.files.length) this.take(target.files[0]);
      target.value = ""; // the same file may be chosen again
    });
    byId("document-again").addEventListener("click", () => this.translate(this.latest));
    byId("document-columns").addEventListener("submit", (event) => {
      event.preventDefault();
      this.columns = [...byId("document-choices").querySelectorAll(":checked")].map((each) => each.value);
      if (this.columns.length) this.translate(this.latest);
      else this.#say("Choose at least one column.");
    });
    byId("document-close").addEventListener("click", () => this.#close());
    this.#takeDropped();
  }

  #takeDropped() {
    const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
    const show = (isOver) => { byId("drop").hidden = !isOver; };
    addEventListener("dragover", (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      show(true);
    });
    addEventListener("dragleave", (event) => { if (!event.relatedTarget) show(false); });
    addEventListener("drop", (event) => {
      show(false);
      if (!hasFiles(event)) return;
      event.preventDefault();
      if (event.dataTransfer.files.length > 1) this.#fail("Drop one document at a time.");
      else if (event.dataTransfer.files.length) this.take(event.dataTransfer.files[0]);
    });
  }

  /** Translate a file; of a table, ask first for the columns that hold text. */
  async take(file) {
    this.#restart(file);
    this.columns = [];
    const { signal } = this.running;
    const problem = this.#problemOf(file);
    if (problem) return this.#fail(problem);
    if (!isTable(file.name)) return this.translate(file);
    byId("document-bar").hidden = true;
    const columns = await columnsOf(file).catch(() => []);
    if (signal.aborted) return undefined;
    if (!columns.length) return this.#fail("The table is empty, or cannot be read.");
    byId("document-choices").replaceChildren(...columns.map(({ name, example, field, isText }) => make("label", {},
      make("input", { type: "checkbox", value: field, checked: isText }),
      make("span", { className: "column", dir: "auto", textContent: name }),
      make("span", { className: "example", dir: "auto", textContent: example }))));
    for (const id of ["document-columns", "document-start"]) byId(id).hidden = false;
    this.#say("Which columns hold text?");
    byId("document").scrollIntoView({ block: "nearest" });
    byId("document-choices").querySelector("input").focus();
    return undefined;
  }

  async translate(file) {
    this.#restart(file);
    const { signal } = this.running;
    const target = this.languages.to.value;
    const glossary = this.glossaries.chosen;
    const source = glossary ? this.languages.source : this.languages.from.value;
    const fields = { target_lang: target, source_lang: source === "auto" ? "" : source, glossary_id: glossary, columns: this.columns.join(",") };
    try {
      this.#say("Sending the document …");
      const handle = await service.sendDocument(file, fields, signal);
      await this.#watch(handle, signal);
      const blob = await service.documentResult(handle, signal);
      if (!signal.aborted) this.#offer(file.name.replace(/(\.[^.]*)$/, `_${target}$1`), blob);
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return undefined;
      byId("key-line").hidden &&= error.status !== 403;
      this.#fail(error.message === "Document not found" ? GONE : error.message, { again: error.status !== 400 });
    }
    return undefined;
  }

  /** Why a file cannot be translated; "": it can. */
  #problemOf({ name, size }) {
    const end = name.slice(name.lastIndexOf(".")).toLowerCase();
    if (!this.formats.includes(end)) return `This format is not translated. Choose a document that ends in ${this.formats.join(", ")}.`;
    if (size > this.limit) return `The document is too large: ${(size / 2 ** 20).toFixed(1)} MiB, and at most ${(this.limit / 2 ** 20).toFixed(1)} MiB are allowed.`;
    return "";
  }

  /** Wait until a document is translated, and show the time that is left. */
  async #watch(handle, signal) {
    const started = performance.now();
    for (let failures = 0; ;) {
      let answer = {};
      try {
        answer = await service.documentStatus(handle, signal);
        failures = 0;
      } catch (error) {
        failures += 1;
        const mayPass = error.status === 0 || error.status === 429 || error.status >= 500;
        if (!mayPass || failures > MOST_FAILURES) throw error;
        await wait(1000 * error.retryAfter, signal);
      }
      if (answer.status === "done") return;
      if (answer.status === "error") throw new service.Refusal(answer.error_message, { status: 400 });
      this.#showProgress(answer, (performance.now() - started) / 1000);
      await wait(POLL, signal);
    }
  }

  #showProgress({ status, seconds_remaining: left }, elapsed) {
    const bar = byId("document-bar");
    if (left) bar.value = elapsed / (elapsed + left);
    else bar.removeAttribute("value");
    if (status === "queued") this.#say("Waiting for other documents …");
    else if (status) this.#say(left ? `Translating: about ${inWords(left)} left` : "Translating …");
  }

  #offer(name, blob) {
    const link = byId("document-save");
    this.address = URL.createObjectURL(blob);
    Object.assign(link, { href: this.address, download: name, textContent: `Save ${name}`, hidden: false });
    byId("document-bar").hidden = true;
    this.#say("The document is translated.");
  }

  #fail(reason, { again = false } = {}) {
    byId("document").hidden = false;
    byId("document").classList.add("failed");
    byId("document-bar").hidden = true;
    byId("document-again").hidden = !again;
    this.#say(reason);
  }

  #say(text) {
    if (byId("document-says").textContent !== text) byId("document-says").textContent = text;
  }

  #restart(file) {
    const hadFocus = byId("document").contains(document.activeElement);
    this.#close();
    this.running = new AbortController();
    this.latest = file;
    byId("document-name").textContent = file.name;
    byId("document-bar").removeAttribute("value");
    for (const id of ["document", "document-bar"]) byId(id).hidden = false;
    byId("document").scrollIntoView({ block: "nearest" });
    if (hadFocus) byId("document-close").focus();
  }

  #close() {
    this.running.abort();
    const held = byId("document").contains(document.activeElement);
    byId("document").hidden = true;
    byId("document").classList.remove("failed");
    for (const id of ["document-save", "document-again", "document-columns", "document-start"]) byId(id).hidden = true;
    this.#say("");
    URL.revokeObjectURL(this.address);
    if (held) byId("choose").focus();
  }
}
