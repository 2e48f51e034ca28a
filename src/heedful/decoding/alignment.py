"""Word alignments from cross-attention, in Pharaoh form.

A target token is aligned with the source token of the highest weight, at the step that predicts the target
token. If heads of a decoder layer were trained to align words (`model.alignment_layer`), their weights are
read: Marian trains the first head of the last layer (guided alignment). Otherwise it is the average over the
heads of the last layer but one (Garg et al., 2019, "Jointly Learning to Align and Translate with Transformer
Models"). With `shift`, attention is read one step later,
when the target token is the decoder's input. This is better in the middle layers of deep models, for example
the third of six (Chen et al., 2020, "Accurate Word Alignment Induction from Neural Machine Translation"), and
far worse in shallow models (docs/alignments.md). Two words are aligned if any of their tokens are, as in both
papers.

Unlike there, the weights of a source token are first divided by their sum over the target, because a token
that many steps attend to, such as the full stop, says little about any of them. This finds 8 to 11 more of
100 links.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, product
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.steps import Floats, Ids
from heedful.text.tokenizer import Tokenizer

Span = tuple[int, int]  # the first character of a word, and the one after its last
TRAINED_LEAST = 0.2  # the lowest weight of a link, in heads that were trained to align words
SplitWords = Callable[[str], list[Span]]  # returns where each word of a text is
_WORD = re.compile(r"\S+", re.ASCII)


@dataclass(frozen=True)
class Alignment:
    """The aligned words of a sentence pair: (source word, target word), each from 0, in order."""

    links: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, links: Iterable[tuple[int, int]]) -> Self:
        """Return the alignment of these links, ordered by their target words."""
        return cls(tuple(sorted(links, key=lambda link: link[::-1])))

    def moved(self, src: int, tgt: int) -> "Alignment":
        """Return the links with these numbers of words added, for a segment with words before it."""
        return Alignment(tuple((src + one, tgt + other) for one, other in self.links))

    def then(self, other: "Alignment") -> "Alignment":
        """Return the links through the words of a text between: its `other` alignment goes on from them."""
        links = {(src, tgt) for src, middle in self.links for again, tgt in other.links if middle == again}
        return Alignment(tuple(sorted(links)))

    def __str__(self) -> str:
        """Return the links in Pharaoh form.

        >>> str(Alignment(((0, 0), (2, 1))))
        '0-0 2-1'
        """
        return " ".join(f"{src}-{tgt}" for src, tgt in self.links)


@dataclass(frozen=True, kw_only=True)
class AlignmentMethod:
    """The attention to read: a decoder layer from 1 (None: the default), and `shift`, see above."""

    layer: int | None = None
    shift: bool = False


BY_ATTENTION = AlignmentMethod()


def words_between_spaces(text: str) -> list[Span]:
    """Return where each word of a text begins and ends.

    Words are separated by ASCII white space, as in fast_align, eflomal and Marian. All other spaces, such as
    U+00A0 before a French colon, are inside words.
    """
    return [match.span() for match in _WORD.finditer(text)]


def split_words(text: str) -> list[str]:
    r"""Return the words of a text, as `words_between_spaces` finds them.

    >>> split_words("Bonjour\u00a0! Ça va\u202f?")
    ['Bonjour\xa0!', 'Ça', 'va\u202f?']
    """
    return _WORD.findall(text)


def words_before(text: str, positions: Iterable[int], split: SplitWords = words_between_spaces) -> list[int]:
    """Return, for each position in a text, the number of words that end there or before."""
    ends = [end for _, end in split(text)]
    return [bisect_right(ends, position) for position in positions]


def relative_weights(weights_TS: Floats, *, least: float = 0.0) -> Floats:
    """Return attention weights (T, S), each column (source token) divided by its sum.

    A row (target token) is 0 if the weight that is then the highest was below `least`.
    """
    sums_S = weights_TS.sum(axis=0)
    relative_TS = weights_TS / np.where(sums_S > 0, sums_S, 1)
    if not least or not weights_TS.size:
        return relative_TS
    best_T1 = relative_TS.argmax(axis=1, keepdims=True)
    return np.where(np.take_along_axis(weights_TS, best_T1, axis=1) < least, 0, relative_TS)


def align_words(weights: NDArray[np.floating], src_words: Ids, tgt_words: Ids) -> Alignment:
    """Align words by the attention between their tokens; source tokens outside words do not count.

    A target token without weights has no link.

    Args:
        weights: (T, S), the attention of target token t to source token s, without special tokens.
        src_words: for each source token, the words that it is a part of (usually one).
        tgt_words: the same for each target token.
    """
    in_words = [words for words in src_words if words]
    if not in_words:
        return Alignment(())
    weights = weights[:, [bool(words) for words in src_words]]
    links: set[tuple[int, int]] = set()
    for best, highest, of_target in zip(weights.argmax(axis=1), weights.max(axis=1), tgt_words, strict=True):
        if highest > 0:
            links |= set(product(in_words[best], of_target))
    return Alignment.of(links)


def attended_words(weights_US: Floats, line: str, tokenizer: Tokenizer, *, whole: bool) -> list[str]:
    """Return the source text that U positions attend to most, with the space before it, if any.

    Args:
        weights_US: the attention (U, S) to each token of the line; columns after these are ignored.
        line: the source text, with at least one word.
        tokenizer: the source tokenizer.
        whole: whether to return whole words, or single tokens.
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
    totals_UG = np.stack([weights_US[:, run].sum(axis=1) for run in runs], axis=1)
    totals_UG[:, [not text.strip() for text in texts]] = -np.inf
    chosen = [texts[run] for run in totals_UG.argmax(axis=1)]
    return [f" {text.strip()}" if whole or text[:1].isspace() else text.strip() for text in chosen]


def words_of_tokens(
    tokenizer: Tokenizer, text: str, *, split: SplitWords = words_between_spaces
) -> list[list[int]]:
    """Return, for each token of a text, the words that it is a part of; a space alone is part of the next."""
    words, spans = split(text), tokenizer.spans(text)
    numbers = range(len(words))
    return [[*parts] or [*numbers[parts.stop : parts.stop + 1]] for parts in _words_of_spans(words, spans)]


def _words_of_spans(words: Sequence[Span], spans: Iterable[Span]) -> list[range]:
    """Return, for each span of a text, the numbers of the words that it overlaps."""
    starts, ends = [start for start, _ in words], [end for _, end in words]
    first_and_behind = ((bisect_right(ends, start), bisect_left(starts, end)) for start, end in spans)
    return [range(min(first, behind), behind) for first, behind in first_and_behind]


def token_ends(text: str, ids: Sequence[int], decode: Callable[[Sequence[int]], str]) -> list[int]:
    """Return the position in the text where each token of an output ends.

    Args:
        text: the text of the output.
        ids: the ids of its tokens.
        decode: returns the text of the first tokens.
    """
    ends = []
    for length in range(1, len(ids) + 1):
        start = decode(ids[:length])
        ends.append(len(start) if text.startswith(start) else _common(start, text))
    return ends


def texts_of_tokens(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> tuple[str, ...]:
    """Cut an output into the texts of its tokens: the text that each adds to the tokens before it."""
    return cut(text, token_ends(text, ids, tokenizer.decode))


def cut(text: str, ends: Sequence[int]) -> tuple[str, ...]:
    """Return the parts of a text with these ends; the last nonempty part also has the rest."""
    bounds = [*accumulate(ends, max, initial=0)]
    parts = [text[start:end] for start, end in pairwise(bounds)]
    if parts:
        last = max((number for number, part in enumerate(parts) if part), default=0)
        parts[last] += text[bounds[-1] :]
    return tuple(parts)


def words_of_ends(
    text: str, ends: Sequence[int], *, split: SplitWords = words_between_spaces
) -> list[list[int]]:
    """Return, for each token of an output, the words that it is a part of, given the tokens' ends."""
    spans = zip(accumulate(ends, max, initial=0), ends, strict=False)
    return [[*parts] for parts in _words_of_spans(split(text), spans)]


def _common(a: str, b: str) -> int:
    """Return the number of characters with which both texts begin."""
    return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
