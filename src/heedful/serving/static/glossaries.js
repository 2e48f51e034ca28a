// The menu of the glossaries that the server has for the two languages.

import { byId, make } from "./elements.js";
import * as service from "./service.js";

const base = (code) => code.split("-")[0].toLowerCase();

export class Glossaries {
  constructor(languages) {
    this.languages = languages;
    this.listed = [];
    this.menu = byId("glossary");
  }

  /** The id of the one that is chosen; "": none. */
  get chosen() { return byId("terms").hidden ? "" : this.menu.value; }

  /** Ask the server which there are; without a key there may be none. */
  async load() {
    try {
      this.listed = (await service.glossaries()).glossaries ?? [];
    } catch {
      this.listed = [];
    }
    this.update();
  }

  /** Offer those of the languages that are chosen or detected. */
  update() {
    const [source, target] = [base(this.languages.source), base(this.languages.to.value)];
    const fitting = this.listed.filter(({ dictionaries }) =>
      dictionaries.some((each) => each.source_lang === source && each.target_lang === target));
    const before = this.menu.value;
    this.menu.replaceChildren(make("option", { value: "", textContent: "None" }),
      ...fitting.map((each) => make("option", { value: each.glossary_id, textContent: each.name })));
    if (fitting.some((each) => each.glossary_id === before)) this.menu.value = before;
    byId("terms").hidden = !fitting.length;
  }
}
