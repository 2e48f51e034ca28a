"""Detokenise hypotheses, and replace unknown tokens by words of the source where asked."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.generator import Generator
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import Translation
from heedful.text.pair import TokenizerPair
from heedful.text.special_tokens import SpecialTokens
from heedful.text.tokenizer import Tokenizer


def translations_of(
    lines: Sequence[str],
    sources: Sequence[Sequence[int]],
    n_best_lists: Sequence[Sequence[Hypothesis]],
    *,
    options: SearchOptions,
    tokenizers: TokenizerPair,
    framing: SpecialTokens,
    generator: Generator,
) -> list[Translation]:
    """Return the hypotheses of each line as text, detokenised by the target's tokenizer.

    With `options.replace_unknown`, no unknown token is left. That of a vocabulary of words stands for a word,
    and becomes the word of the line that was attended to most: a run of tokens up to the next space, whose
    attention counts together (as in Clark et al., 2019). In other vocabularies it stands for a part of a
    word, and becomes the text of the one token that was attended to most. (Vocabularies with single bytes
    have no unknown tokens.) The attention is that of a pass over the whole output.

    Args:
        lines: the texts that were translated.
        sources: their ids as the encoder reads them.
        n_best_lists: the hypotheses of each line.
        options: of the search.
        tokenizers: of the model.
        framing: its special-token template.
        generator: gives the attention.
    """
    tgt, num_before = tokenizers.tgt, len(framing.src_prefix)
    spelled = [[tgt.decode(each.ids) for each in one] for one in n_best_lists]
    if options.replace_unknown:
        incomplete = [
            (i, k)
            for i, one in enumerate(n_best_lists)
            for k, each in enumerate(one)
            if tgt.unk_id in each.ids
        ]
        hypotheses = [n_best_lists[i][k] for i, k in incomplete]
        attention = generator.attention(
            [sources[i] for i, _ in incomplete],
            [(*each.ids, *[tgt.eos_id] * each.finished) for each in hypotheses],
        )
        for (i, k), each, weights_TS in zip(incomplete, hypotheses, attention, strict=True):
            spelled[i][k] = _replaced(each.ids, weights_TS[:, num_before:], lines[i], tokenizers)
    return [
        Translation.of(line, one, texts, eos_id=tgt.eos_id)
        for line, one, texts in zip(lines, n_best_lists, spelled, strict=True)
    ]


def _replaced(
    ids: Sequence[int], weights_TS: NDArray[np.float64], line: str, tokenizers: TokenizerPair
) -> str:
    src, tgt = tokenizers.src, tokenizers.tgt
    positions = [position for position, i in enumerate(ids) if i == tgt.unk_id]
    words = attended_words(weights_TS[positions], line, src, whole=tgt.kind == "word")
    return tgt.decode(ids, unknown=words)


def attended_words(
    weights_US: NDArray[np.float64], line: str, tokenizer: Tokenizer, *, whole: bool
) -> list[str]:
    """Return the text of a line that each of U positions attends to most, with the space before it, if any.

    Args:
        weights_US: the attention (U, S) to each token of the line, and perhaps to more behind them.
        line: the source text, in which there is a word.
        tokenizer: it has tokenised the line.
        whole: whether to return whole words, or tokens as they stand in the line.
    """
    runs: list[list[int]] = []  # of tokens that belong together
    spans, last = tokenizer.spans(line), 0
    for token, (start, end) in enumerate(spans):
        if runs and whole and start == last and not line[start:end][:1].isspace():
            runs[-1].append(token)
        else:
            runs.append([token])
        last = end
    texts = [line[spans[run[0]][0] : spans[run[-1]][1]] for run in runs]
    totals_UR = np.stack([weights_US[:, run].sum(axis=1) for run in runs], axis=1)
    totals_UR[:, [not text.strip() for text in texts]] = -np.inf
    chosen = [texts[run] for run in totals_UR.argmax(axis=1)]
    return [f" {text.strip()}" if whole or text[:1].isspace() else text.strip() for text in chosen]
