// The menus of languages, and examples of texts.

import { byId, make } from "./elements.js";

const AUTO = "auto";
const EXAMPLES = {
  en: ["The old woman reads a book.", "The dog sleeps in the garden.", "The old house is small."],
  de: ["Ein Mann in einem blauen Hemd steht auf einer Leiter.", "Zwei Hunde spielen im Schnee.", "Das alte Haus ist klein."],
  fr: ["Un homme en chemise bleue nettoie une fenêtre.", "Deux chiens jouent dans la neige."],
  es: ["Dos perros juegan en la nieve.", "La casa vieja es pequeña."],
  it: ["Due cani giocano nella neve.", "La vecchia casa è piccola."],
  cs: ["Dva psi si hrají ve sněhu.", "Starý dům je malý."],
  ar: ["كلبان يلعبان في الثلج.", "البيت القديم صغير."],
  he: ["שני כלבים משחקים בשלג.", "הבית הישן קטן."],
  ru: ["Две собаки играют в снегу.", "Старый дом маленький."],
  zh: ["两只狗在雪地里玩耍。", "老房子很小。"],
};

export class Languages {
  /** Take what /languages answers. */
  constructor(listed) {
    this.names = new Map(listed.map(({ code, name }) => [code, name]));
    this.targets = new Map(listed.filter(({ targets }) => targets.length).map(({ code, targets }) => [code, targets]));
    this.from = byId("from");
    this.to = byId("to");
    this.detected = "";
    this.from.replaceChildren(make("option", { value: AUTO, textContent: "Detect language" }),
      ...[...this.targets.keys()].map((code) => this.#option(code)));
    this.#fillTargets();
  }

  /** Choose what to begin with: the only source there is, or any; and the browser's language, or English. */
  begin() {
    const own = navigator.language.split("-")[0];
    const [only, ...others] = this.targets.keys();
    const targets = [...new Set([...this.targets.values()].flat())];
    const to = [own, "en"].find((code) => targets.includes(code)) ?? targets[0];
    if (others.length) this.choose(AUTO, to);
    else this.choose(only, to);
  }

  /** Choose languages, as far as there are such. */
  choose(from, to) {
    if (from === AUTO || this.targets.has(from)) this.from.value = from;
    this.#fillTargets(to);
  }

  /** Note which language was detected; "": none. */
  detect(code) {
    this.detected = code;
    const name = this.names.get(code);
    this.from.options[0].textContent = this.from.value === AUTO && name ? `${name} (detected)` : "Detect language";
    this.#update();
  }

  /** The code of the language that is translated from, detected or chosen; "" where it is not known yet. */
  get source() { return this.from.value === AUTO ? this.detected : this.from.value; }

  nameOf(code) { return this.names.get(code) ?? code; }

  /** Whether there is a way back. */
  get canSwap() { return Boolean(this.targets.get(this.to.value)?.includes(this.source)); }

  /** Choose another target where a text turns out to be in the chosen one already; whether there is one. */
  turn(detected) {
    const other = detected === this.to.value && this.targets.get(detected)?.[0];
    if (other) this.choose(this.from.value, other);
    return Boolean(other);
  }

  swap() { this.choose(this.to.value, this.source); }

  /** Fill the targets of the chosen source again. */
  changed() { this.#fillTargets(this.to.value); }

  examples() {
    const codes = this.from.value === AUTO ? [...this.targets.keys()] : [this.from.value];
    const found = codes.filter((code) => this.targets.get(code)?.includes(this.to.value))
      .map((code) => [code, EXAMPLES[code.split("-")[0]]]).filter(([, texts]) => texts);
    const each = found.length === 1 ? 3 : 1;
    return found.slice(0, 3).flatMap(([code, texts]) => texts.slice(0, each).map((text) => ({ code, text })));
  }

  #fillTargets(wanted = "") {
    const codes = this.from.value === AUTO
      ? [...new Set([...this.targets.values()].flat())].sort()
      : this.targets.get(this.from.value);
    this.to.replaceChildren(...codes.map((code) => this.#option(code)));
    if (codes.includes(wanted)) this.to.value = wanted;
    this.#update();
  }

  #option(code) { return make("option", { value: code, textContent: this.nameOf(code) }); }

  #update() { byId("swap").disabled = !this.canSwap; }
}
