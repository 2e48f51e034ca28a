// Elements by id, and new ones.

export const byId = (id) => document.getElementById(id);

/** Return a new element; children may be text. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name.includes("-") || name === "role") element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children);
  return element;
}

/** Put text on the clipboard, and say so on the button for a moment. */
export async function copyFrom(button, text) {
  const before = button.dataset.label ?? button.textContent;
  button.dataset.label = before;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    const area = make("textarea", { value: text, className: "unseen" }); // without TLS there is no clipboard API
    document.body.append(area);
    area.select();
    button.textContent = document.execCommand("copy") ? "Copied" : "Not copied";
    area.remove();
    button.focus();
  }
  byId("live").textContent = button.textContent;
  setTimeout(() => { button.textContent = before; }, 1500);
}

export const percent = (p) => (p >= 0.995 ? "above 99 %" : `${Math.round(100 * p)} %`);

/** The class of a probability: p3 (probable) to p0. */
export const grade = (p) => (p >= 0.8 ? "p3" : p >= 0.5 ? "p2" : p >= 0.25 ? "p1" : "p0");

/** A token that is nothing but the space before a word. */
export const SPACE = "·";

/** A token without the signs of its tokenizer. */
export const tokenName = (token) =>
  (/^<.*>$/.test(token) ? token : token.replace(/^[▁Ġ]+/, "").replace(/(<\/w>|@@)$/, "") || SPACE);
