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
