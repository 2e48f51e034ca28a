// Words of a text, which tokens make them up, and how much each word attended to each other one.

/** Words and signs of a text: {text, start, end}; for every script, also those that write no spaces. */
export function wordsOf(text, language) {
  const found = [];
  if (typeof Intl.Segmenter === "function") {
    for (const { segment, index } of segmenter(language).segment(text)) {
      if (segment.trim()) found.push({ text: segment, start: index, end: index + segment.length });
    }
    return found;
  }
  for (const match of text.matchAll(/[\p{L}\p{M}\p{N}'’-]+|[^\s\p{L}\p{M}\p{N}]+/gu)) {
    found.push({ text: match[0], start: match.index, end: match.index + match[0].length });
  }
  return found;
}

function segmenter(language) {
  try {
    return new Intl.Segmenter(language, { granularity: "word" });
  } catch {
    return new Intl.Segmenter(undefined, { granularity: "word" });
  }
}

/** For each word the indices of its tokens; `texts` are the parts of the text that the tokens stand for. */
function tokensOf(words, texts) {
  const spans = [];
  let at = 0;
  for (const part of texts) {
    const blank = part.length - part.trimStart().length;
    spans.push([at + blank, at + part.length]);
    at += part.length;
  }
  return words.map(({ start, end }) =>
    spans.flatMap(([from, to], index) => (from < end && to > start && from < to ? [index] : [])));
}

/**
 * A sentence in words.
 *
 * Returns {source, target, weights, probabilities}: the words of both sides, weights[t][s] from 0 to 1, and
 * the probability of each target word, the product of its tokens'.
 */
export function inWords(sentence, from, to) {
  const best = sentence.hypotheses[0];
  const source = wordsOf(sentence.source.text, from);
  const target = wordsOf(best.text, to);
  const sourceTokens = tokensOf(source, sentence.source.texts);
  const targetTokens = tokensOf(target, best.texts);
  const weights = targetTokens.map((rows) => sourceTokens.map((columns) => {
    let sum = 0;
    for (const row of rows) for (const column of columns) sum += sentence.cross[row]?.[column] ?? 0;
    return rows.length ? sum / rows.length : 0;
  }));
  const probabilities = targetTokens.map((rows) =>
    Math.exp(rows.reduce((sum, row) => sum + (best.log_probs[row] ?? 0), 0)));
  return { source, target, weights, probabilities };
}

/** Where each of some sentences is in a text, in their order; -1 for one that is not there as it is. */
export function placesOf(text, sentences) {
  let at = 0;
  return sentences.map((sentence) => {
    const found = text.indexOf(sentence, at);
    if (found >= 0) at = found + sentence.length;
    return found;
  });
}

const MOST_COMPARED = 250_000; // pairs of words

/**
 * The parts of a text, in order, and which of them differ from another text: [{text, differs}].
 *
 * Words count as the same along a longest common subsequence; an empty part that differs is where words of the
 * other text are missing.
 */
export function differences(text, other, language) {
  const words = wordsOf(text, language);
  const others = wordsOf(other, language);
  const same = inBoth(words.map((each) => each.text), others.map((each) => each.text));
  const parts = [];
  const add = (start, end, differs) => {
    const last = parts.at(-1);
    if (last?.differs === differs) last.text += text.slice(start, end);
    else if (start < end || differs) parts.push({ text: text.slice(start, end), differs });
  };
  let at = 0; // in the text
  let expected = 0; // the next word of the other one
  words.forEach(({ start, end }, n) => {
    const within = same[n] < 0 && parts.at(-1)?.differs; // of the same difference, with the blank between
    add(at, start, Boolean(within));
    if (same[n] > expected && !(n > 0 && same[n - 1] < 0)) add(start, start, true);
    add(start, end, same[n] < 0);
    if (same[n] >= 0) expected = same[n] + 1;
    at = end;
  });
  if (expected < others.length && same.at(-1) >= 0) add(at, at, true);
  add(at, text.length, false);
  return parts;
}

/** For each word of `a` the index of the same one in `b`, in order; -1 for those that are not in both. */
function inBoth(a, b) {
  const found = a.map(() => -1);
  let start = 0;
  while (start < a.length && a[start] === b[start]) { found[start] = start; start += 1; }
  let ends = 0;
  while (ends < Math.min(a.length, b.length) - start && a.at(-1 - ends) === b.at(-1 - ends)) {
    ends += 1;
    found[a.length - ends] = b.length - ends;
  }
  const [rows, columns] = [a.length - ends - start, b.length - ends - start];
  if (rows * columns > MOST_COMPARED) return found;
  const wide = columns + 1;
  const common = new Uint16Array((rows + 1) * wide); // words in common of what is left of both
  for (let r = rows - 1; r >= 0; r -= 1) {
    for (let c = columns - 1; c >= 0; c -= 1) {
      common[r * wide + c] = a[start + r] === b[start + c]
        ? common[(r + 1) * wide + c + 1] + 1
        : Math.max(common[(r + 1) * wide + c], common[r * wide + c + 1]);
    }
  }
  for (let r = 0, c = 0; r < rows && c < columns;) {
    if (a[start + r] === b[start + c]) { found[start + r] = start + c; r += 1; c += 1; }
    else if (common[(r + 1) * wide + c] >= common[r * wide + c + 1]) r += 1;
    else c += 1;
  }
  return found;
}
