// The tab "Beam": the n-best list as a tree of common beginnings, and as a table with scores.

import { byId, grade, make, percent, SPACE, tokenName } from "./elements.js";

const END = "■"; // of a sentence

/** Show the hypotheses of a sentence. */
export function showBeam(sentence) {
  const { hypotheses } = sentence;
  const tree = make("div", { className: "frame tree", dir: "auto", tabIndex: 0, role: "group", "aria-label": "Search tree" },
    branches(hypotheses.map((each, rank) => ({ ...each, rank: rank + 1 })), 0));
  byId("panel-beam").replaceChildren(
    make("p", { className: "says" },
      `The ${hypotheses.length} best outputs of the search, joined where they begin alike. The underline of a token shows its probability.`),
    tree, table(hypotheses));
}

/** A list of the ways on from a common beginning; tokens that are the only way on stand together. */
function branches(hypotheses, depth) {
  const ways = new Map();
  for (const each of hypotheses) {
    const key = each.tokens[depth];
    if (key === undefined) continue;
    if (!ways.has(key)) ways.set(key, []);
    ways.get(key).push(each);
  }
  return make("ul", {}, ...[...ways.values()].map((group) => branch(group, depth)));
}

function branch(group, depth) {
  const [first] = group;
  let end = depth + 1;
  while (end < first.tokens.length && group.every((each) => each.tokens[end] === first.tokens[end])) end += 1;
  const segment = make("span", { className: first.rank === 1 ? "segment best" : "segment" }, ...tokens(first, depth, end));
  if (group.length === 1) {
    segment.append(make("span", { className: "rank", textContent: `${first.rank}` }));
    return make("li", {}, segment);
  }
  return make("li", {}, segment, branches(group, end));
}

function tokens({ texts, tokens: names, log_probs: logProbs }, from, to) {
  const found = [];
  for (let n = from; n < to; n += 1) {
    const probability = Math.exp(logProbs[n] ?? 0);
    const text = texts[n] || (n === names.length - 1 ? END : tokenName(names[n]));
    const bare = text.trimStart() || SPACE;
    if (/^\s/.test(text) && n > from) found.push(" ");
    found.push(make("span", {
      className: `token ${grade(probability)}${bare === END ? " end" : bare === SPACE ? " space" : ""}`, textContent: bare,
      title: `${names[n]}: ${percent(probability)}`,
    }));
  }
  return found;
}

function table(hypotheses) {
  const head = ["", "Output", "Score", "Log-probability"].map((text, n) =>
    make("th", { scope: "col", textContent: text || "Rank", className: n > 1 ? "number" : n ? "" : "rank-head" }));
  const rows = hypotheses.map((each, n) => make("tr", {},
    make("td", { textContent: n + 1, className: "number" }),
    make("td", { dir: "auto" }, ...tokens(each, 0, each.texts.length)),
    make("td", { textContent: each.score.toFixed(3), className: "number" }),
    make("td", { textContent: each.log_prob.toFixed(2), className: "number" })));
  return make("div", { className: "frame", tabIndex: 0, role: "group", "aria-label": "n-best list" },
    make("table", {}, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}
