// The tab "Attention": maps by kind, layer and head.

import { byId, make, tokenName } from "./elements.js";
import { HeatMap, thumbnail } from "./heatmap.js";
import { readRamp } from "./ramp.js";
import { explain } from "./service.js";

const KINDS = [
  ["cross", "Cross-attention", "What each token of the translation looked at in the text"],
  ["encoder", "Encoder self-attention", "What each token of the text looked at in the text"],
  ["decoder", "Decoder self-attention", "What each token of the translation looked at in what was written before it"],
];

const HEADS = 250; // pixels that the heads want beside a map
const MOST_WEIGHTS = 15_000; // of each head in all layers, that are fetched for an overview

/** The mean of maps. */
const mean = (maps) => maps[0].map((row, r) => row.map((_, c) =>
  maps.reduce((sum, map) => sum + map[r][c], 0) / maps.length));

export class AttentionPanel {
  constructor() {
    this.state = { kind: "cross", layer: 0, head: 0 }; // layer 0: the mean of all, head 0: of the layer's
    this.known = new Map();
    this.kind = make("select", { ariaLabel: "Kind of attention" },
      ...KINDS.map(([value, text]) => make("option", { value, textContent: text })));
    this.layer = make("select", { ariaLabel: "Layer" });
    this.says = make("p", { className: "says" });
    this.heat = new HeatMap((least) => this.#room(least));
    this.heads = make("div", { className: "heads", role: "group", "aria-label": "Heads" });
    this.maps = make("div", { className: "maps" }, this.heat.element, this.heads);
    const scale = make("p", { className: "scale", "aria-hidden": "true" }, "0", make("i"), "1");
    byId("panel-attention").replaceChildren(
      make("div", { className: "controls" },
        make("label", {}, "Show ", this.kind), make("label", {}, "Layer ", this.layer), scale),
      this.says,
      this.maps);
    this.kind.addEventListener("change", () => this.#choose({ kind: this.kind.value, head: 0 }));
    this.layer.addEventListener("change", () => this.#choose({ layer: Number(this.layer.value), head: 0 }));
    new ResizeObserver(() => this.heat.draw()).observe(this.maps);
  }

  /** The pixels for a map: beside the heads where the `least` that it is readable in are there, else above them. */
  #room(least) {
    const all = this.maps.clientWidth;
    const beside = all - HEADS;
    this.maps.classList.toggle("below", least > beside);
    return least > beside ? all : beside;
  }

  /** Show the attention of a sentence; `fields` are its languages. */
  show(sentence, fields) {
    this.sentence = sentence;
    this.fields = fields;
    this.known = new Map();
    return this.refresh();
  }

  /** Show the same again, after the theme has changed or the tab is seen. */
  async refresh() {
    readRamp();
    if (!this.sentence || byId("panel-attention").hidden) return;
    const { kind } = this.state;
    const layers = this.sentence.layers[kind];
    this.state.layer = Math.min(this.state.layer, layers);
    if (kind !== "cross" && this.state.layer === 0) this.state.layer = layers;
    const options = Array.from({ length: layers }, (_, n) => make("option", { value: n + 1, textContent: n + 1 }));
    if (kind === "cross") options.unshift(make("option", { value: 0, textContent: "mean of all" }));
    this.layer.replaceChildren(...options);
    this.layer.value = this.state.layer;
    this.says.textContent = `${KINDS.find(([value]) => value === kind)[2]}; each row adds up to 1.`;
    if (this.state.layer === 0) this.#showMean();
    else await this.#showLayer();
  }

  /** The maps of a layer, or of all for 0; null where they cannot be had or are not wanted any more. */
  async #maps(kind, layer) {
    const key = `${kind} ${layer}`;
    const sentence = this.sentence;
    if (!this.known.has(key)) {
      const fields = { ...this.fields, q: sentence.source.text, attention: kind, ...(layer ? { layer } : {}) };
      this.heat.element.ariaBusy = "true";
      try {
        const found = await explain(fields);
        if (sentence !== this.sentence) return null;
        this.known.set(key, found.sentences[0].attention);
      } catch (error) {
        this.says.textContent = error.message;
        return null;
      } finally {
        this.heat.element.ariaBusy = "false";
      }
    }
    return kind === this.state.kind && layer === this.state.layer ? this.known.get(key) : null;
  }

  #choose(change) {
    Object.assign(this.state, change);
    this.refresh();
  }

  async #showMean() {
    const { source, hypotheses, cross, layers } = this.sentence;
    const rows = hypotheses[0].tokens.map(tokenName);
    const columns = source.tokens.map(tokenName);
    this.heads.replaceChildren();
    this.heat.show({ rows, columns, weights: cross, name: "Cross-attention, mean of all layers and heads" });
    if (rows.length * columns.length * layers.cross > MOST_WEIGHTS) return;
    const found = await this.#maps("cross", 0);
    if (!found) return;
    this.heads.replaceChildren(...found.maps.map(({ layer, heads }) => {
      const button = make("button", { type: "button", className: "head" }, thumbnail(mean(heads)), `Layer ${layer}`);
      button.addEventListener("click", () => { this.#choose({ layer, head: 0 }); this.layer.focus(); });
      return button;
    }));
  }

  async #showLayer() {
    const found = await this.#maps(this.state.kind, this.state.layer);
    if (found) this.#showHeads(found);
  }

  #showHeads(found) {
    const { kind, layer } = this.state;
    const { heads } = found.maps[0];
    const all = [mean(heads), ...heads];
    const names = ["Mean", ...heads.map((_, n) => `Head ${n + 1}`)];
    const choose = (head) => {
      this.state.head = head;
      [...this.heads.children].forEach((each, n) => each.setAttribute("aria-pressed", String(n === head)));
      this.heat.show({
        rows: found.rows.map(tokenName), columns: found.columns.map(tokenName), weights: all[head],
        name: `${KINDS.find(([value]) => value === kind)[1]}, layer ${layer}, ${names[head].toLowerCase()}`,
      });
    };
    this.heads.replaceChildren(...all.map((weights, n) => {
      const button = make("button", { type: "button", className: "head" }, thumbnail(weights), names[n]);
      button.addEventListener("click", () => choose(n));
      return button;
    }));
    choose(Math.min(this.state.head, heads.length));
  }
}
