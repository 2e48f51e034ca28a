// A translation that somebody betters: the server keeps it, and the next translation of the text is this one.

import { byId } from "./elements.js";
import { translation } from "./reading.js";
import * as service from "./service.js";

export class Correction {
  /**
   * @param about returns the text that is shown, and its languages: q, source, target.
   * @param translateNow translates the text again.
   */
  constructor(about, translateNow) {
    this.about = about;
    this.translateNow = translateNow;
    this.last = null; // what the server has kept
    this.form = byId("correction");
    this.field = byId("corrected");
    byId("correct").addEventListener("click", () => this.begin());
    byId("correction-cancel").addEventListener("click", () => this.end());
    byId("correction-undo").addEventListener("click", () => this.change(service.undo, "Undone."));
    byId("correction-confirm").addEventListener("click", () => this.change(service.confirmed, "Kept."));
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.keep();
    });
  }

  begin() {
    this.say("");
    this.asked = this.about(); // the text may change while somebody writes
    this.field.value = translation();
    this.field.lang = this.asked.target;
    this.form.hidden = false;
    this.field.focus();
  }

  end() {
    this.form.hidden = true;
    byId("correct").focus();
  }

  async keep() {
    const s = this.field.value.trim();
    if (!s) return this.field.focus();
    try {
      this.last = await service.suggest({ ...this.asked, s });
    } catch (error) {
      return this.say(error.message);
    }
    this.end();
    this.say(this.last.doubt ? `Kept, but not used: ${this.last.doubt}.` : "Kept. The next translation of this text is yours.", true);
    return this.translateNow();
  }

  async change(work, text) {
    try {
      await work(this.last.id);
    } catch (error) {
      return this.say(error.message);
    }
    this.say(text);
    return this.translateNow();
  }

  /** Say something; what was kept can be undone, and confirmed if it is in doubt. */
  say(text, canChange = false) {
    byId("correction-says").textContent = text;
    byId("correction-done").hidden = !text;
    byId("correction-undo").hidden = !canChange;
    byId("correction-confirm").hidden = !(canChange && this.last.doubt);
  }
}
