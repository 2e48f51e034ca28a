// What went wrong, in the server's words, where the translation would be; and trying again.

import { byId, make } from "./elements.js";

let ticking = 0;

/** Show an error; where the server says when to come back, count down and ask again. */
export function showProblem(error, again, signal) {
  hideProblem();
  const box = byId("problem");
  const wait = make("span", { className: "wait", "aria-live": "off" });
  const button = make("button", { type: "button", textContent: "Try again" });
  button.addEventListener("click", again);
  const row = make("p", { className: "row" }, ...(error.retryAfter ? [wait] : []), button);
  box.replaceChildren(make("p", { textContent: error.message }));
  if (error.status !== 400) box.append(row); // the same mistake would have the same answer
  box.hidden = false;
  if (!error.retryAfter) return;
  let left = error.retryAfter;
  const tick = () => {
    if (signal.aborted) return hideProblem();
    wait.textContent = `Trying again in ${left} ${left === 1 ? "second" : "seconds"}.`;
    if (left <= 0) return again();
    left -= 1;
    ticking = setTimeout(tick, 1000);
    return undefined;
  };
  tick();
}

export function hideProblem() {
  clearTimeout(ticking);
  byId("problem").hidden = true;
  byId("problem").replaceChildren();
}
