"""Which sentences of two documents translate each other: by words, lengths and structure.

The lengths of translations are alike (Gale and Church, 1993, "A Program for Aligning Sentences in Bilingual
Corpora"), and so are numbers and names. A first pass over all documents uses these. A lexicon that is learned
from its pairs then says more, as in Moore (2002), "Fast and Accurate Sentence Alignment of Bilingual
Corpora". No dictionary of the languages is needed.

Groups of sentences that stand for each other are a bead (Brown et al., 1991, "Aligning Sentences in Parallel
Corpora"). The score of a bead is a logarithm of how much more probable its texts are as translations than as
strangers of the same documents. The sum over all alignments in order gives each bead its probability. Two
beads over one half cannot contradict each other, so these are the result. What is left is aligned again,
because it may stand in another order: languages sort their lists differently.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Self

import numpy as np
from numpy.typing import NDArray

from heedful.data.lexicon import Lexicon, learn_lexicon
from heedful.text.scripts import UNSPACED

Floats = NDArray[np.float32]
Integers = NDArray[np.int64]
Scores = Mapping[tuple[int, int], Floats]  # by the shape of beads, (n + 1, m + 1) by where they end

# Sentences of a bead in source and target, and the logarithm of how rare that is.
_SHAPES = {(1, 1): 0.0, (1, 2): -3.0, (2, 1): -3.0, (2, 2): -6.0, (1, 3): -5.0, (3, 1): -5.0}
_MOST = 3
_SKIPPED = -2.0  # a sentence without a counterpart
_PREFERRED = 2.0  # a bead whose sentences have no better counterpart
_EVIDENCE = 0.4  # the weight of words themselves, beside their competition
_SAME_BOUNDARY, _OTHER_BOUNDARY, _ACROSS = 0.7, -1.5, -2.0  # where units end, and a bead over such an end
# The variance of the logarithm of the ratio of lengths: of one character (Gale and Church), and at least.
_OF_CHARACTER, _LEAST_VARIANCE = 6.8, 0.02
_EQUAL = 0.5  # the probability that a word, number or mark is its own translation
_ENOUGH = 3  # pairs with a word of the lexicon: one that occurs once confirms any pair that it is in
_FOLDS = 4  # a document is aligned by a lexicon of the others, for the same reason,
_WHOLE = 0.6  # unless this share of its sentences is in beads: then few of these are wrong
_WINDOW, _OVERLAP = 2000, 500  # sentences of longer documents
_ROUNDS = 6  # of one document in the last pass
_KNOWN = (0.03, 0.4, 0.6)  # in each pass, the share of words with a translation that is known
_TOKEN = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+|[^\w\s]")


@dataclass(frozen=True)
class Side:
    """The sentences of a document in one language.

    Attributes:
        texts: the sentences in order.
        units: for each, the number of the paragraph, cell or caption that it is in.
        translated: for each, a translation into the other language by a model; empty: there is none.
    """

    texts: Sequence[str]
    units: Sequence[int]
    translated: Sequence[str] = ()


@dataclass(frozen=True)
class Bead:
    """Sentences that translate each other, by their numbers in source and target.

    Attributes:
        src: the numbers in the source, one to three.
        tgt: the numbers in the target.
        confidence: the probability that this is right, over 0.5.
    """

    src: Sequence[int]
    tgt: Sequence[int]
    confidence: float


def tokens(text: str) -> list[str]:
    """Return words, numbers and marks in lower case; each character of scripts without spaces is one.

    >>> tokens("Page 12, 漢字.")
    ['page', '12', ',', '漢', '字', '.']
    """
    return _TOKEN.findall(text.lower())


def find_beads(
    documents: Sequence[tuple[Side, Side]], *, on_progress: Callable[[float], object] = lambda done: None
) -> list[list[Bead]]:
    """Return the beads of pairs of documents, in the order of the sources.

    Args:
        documents: source and target of each. The more there are, the better the lexicon is.
        on_progress: called with the share that is done, 0 to 1.
    """
    ids: dict[str, int] = {}
    coded = [(_Coded.of(src, ids), _Coded.of(tgt, ids)) for src, tgt in documents]
    knowledge = _Knowledge.of(coded, len(ids))
    beads: list[list[Bead]] = [[] for _ in coded]
    folds = min(_FOLDS, len(coded))
    for number, known in enumerate(_KNOWN):
        rounds = _ROUNDS if known == _KNOWN[-1] else 1
        pairs = [(*pair, found) for pair, found in zip(coded, beads, strict=True)]
        beads = [[] for _ in coded]
        of_all = knowledge.learned(known, pairs)
        for fold in range(folds):
            others = [pair for at, pair in enumerate(pairs) if at % folds != fold]
            of_others = knowledge.learned(known, others)
            for at in range(fold, len(coded), folds):
                is_whole = folds == 1 or _share(*pairs[at]) > _WHOLE
                beads[at] = _aligned(*coded[at], of_all if is_whole else of_others, rounds)
            on_progress((number + (fold + 1) / folds) / len(_KNOWN))
    return beads


@dataclass(frozen=True, eq=False)
class _Coded:
    """A side as numbers; equal tokens of both languages have the same number."""

    ids: Sequence[Sequence[int]]
    units: Integers
    lengths: Floats
    translated: Sequence[Sequence[int]]

    @classmethod
    def of(cls, side: Side, ids: dict[str, int]) -> Self:
        """Return a side as numbers; those of new tokens are added."""

        def encoded(text: str) -> list[int]:
            return [ids.setdefault(token, len(ids)) for token in tokens(text)]

        lengths = np.array([*map(len, side.texts)], np.float32)
        units = np.asarray(side.units, np.int64)
        return cls([*map(encoded, side.texts)], units, lengths, [*map(encoded, side.translated)])

    def __len__(self) -> int:
        return len(self.ids)

    def only(self, chosen: Integers) -> "_Coded":
        """Return some of the sentences."""
        ids = [self.ids[number] for number in chosen]
        translated = [self.translated[number] for number in chosen] if self.translated else []
        return _Coded(ids, self.units[chosen], self.lengths[chosen], translated)

    def joined(self, numbers: Sequence[int]) -> list[int]:
        """Return the tokens of some sentences as those of one."""
        return [*chain.from_iterable(self.ids[number] for number in numbers)]


@dataclass(frozen=True, eq=False)
class _Knowledge:
    """What is known of two languages, without looking at a pair of documents.

    Attributes:
        frequencies: of each token in source and in target, each (tokens,).
        ratio: the logarithm of characters of the target by those of the source.
        strangers_variance: the variance of that logarithm for sentences that do not translate each other.
        known: the share of words with a translation that is known.
        lexicons: from source to target, and back; None: there are none yet.
    """

    frequencies: tuple[Floats, Floats]
    ratio: float
    strangers_variance: float
    known: float = _KNOWN[0]
    lexicons: tuple[Lexicon, Lexicon] | None = None

    @classmethod
    def of(cls, coded: Sequence[tuple[_Coded, _Coded]], num_tokens: int) -> Self:
        """Return what documents say as a whole."""
        lengths = [np.concatenate([[1.0], *(pair[side].lengths for pair in coded)]) for side in (0, 1)]
        frequencies = []
        for side in (0, 1):
            sentences = chain.from_iterable(pair[side].ids for pair in coded)
            counts = np.bincount(np.fromiter(chain.from_iterable(sentences), np.int64), minlength=num_tokens)
            frequencies.append(((counts + 1) / (counts.sum() + num_tokens)).astype(np.float32))
        variances = [np.var(np.log(of_side + 1)) for of_side in lengths]
        ratio = np.log(lengths[1].sum() / lengths[0].sum())
        return cls((frequencies[0], frequencies[1]), float(ratio), float(sum(variances) + _LEAST_VARIANCE))

    def learned(
        self, known: float, documents: Sequence[tuple[_Coded, _Coded, Sequence[Bead]]]
    ) -> "_Knowledge":
        """Return the knowledge with the lexicons of documents with their beads, if they have any."""
        lexicons = _learned(documents)
        return replace(self, known=known, lexicons=lexicons) if lexicons else self


def _share(src: _Coded, tgt: _Coded, beads: Sequence[Bead]) -> float:
    """Return the share of the sentences of two documents that are in beads."""
    return sum(len(bead.src) + len(bead.tgt) for bead in beads) / max(1, len(src) + len(tgt))


def _learned(documents: Sequence[tuple[_Coded, _Coded, Sequence[Bead]]]) -> tuple[Lexicon, Lexicon] | None:
    """Return the lexicons of the words that are in enough beads; None: there are no such beads."""
    pairs = [(src.joined(bead.src), tgt.joined(bead.tgt)) for src, tgt, beads in documents for bead in beads]
    frequent = []
    for side in (0, 1):
        counts = Counter(chain.from_iterable(set(pair[side]) for pair in pairs))
        frequent.append({token for token, count in counts.items() if count >= _ENOUGH})
    kept = [
        [[token for token in text if token in frequent[side]] for side, text in enumerate(pair)]
        for pair in pairs
    ]
    src, tgt = ([pair[side] for pair in kept if all(pair)] for side in (0, 1))
    return (learn_lexicon(src, tgt), learn_lexicon(tgt, src)) if src else None


def _aligned(src: _Coded, tgt: _Coded, knowledge: _Knowledge, rounds: int) -> list[Bead]:
    """Return the beads of two documents; a long one is aligned in windows that overlap."""
    beads: list[Bead] = []
    at = (0, 0)
    while True:
        ends = min(len(src), at[0] + _WINDOW), min(len(tgt), at[1] + _WINDOW)
        left = [np.arange(start, end) for start, end in zip(at, ends, strict=True)]
        in_order, *others = _peeled(src, tgt, left, knowledge, rounds)
        found = [*in_order, *chain.from_iterable(others)]
        if ends == (len(src), len(tgt)):
            return sorted([*beads, *found], key=lambda bead: (bead.src[0], bead.tgt[0]))
        sure = [bead for bead in in_order if bead.src[-1] < ends[0] - _OVERLAP]
        following = (sure[-1].src[-1] + 1, sure[-1].tgt[-1] + 1) if sure else ends
        beads += [bead for bead in found if bead.src[-1] < following[0] and bead.tgt[-1] < following[1]]
        at = following


def _peeled(
    src: _Coded, tgt: _Coded, left: list[Integers], knowledge: _Knowledge, rounds: int
) -> list[list[Bead]]:
    """Return the beads among sentences that are in order, then those in order of what is left, and so on."""
    found: list[list[Bead]] = []
    for _ in range(rounds):
        scores = _scores(src.only(left[0]), tgt.only(left[1]), knowledge) if all(map(len, left)) else {}
        beads = [
            Bead(left[0][start:end].tolist(), left[1][first:last].tolist(), probability)
            for start, end, first, last, probability in _probable(scores)
        ]
        found.append(sorted(beads, key=lambda bead: bead.src[0]))
        if not beads:
            break
        used_src, used_tgt = (
            [*chain.from_iterable(side)] for side in ((b.src for b in beads), (b.tgt for b in beads))
        )
        left = [np.setdiff1d(left[0], used_src), np.setdiff1d(left[1], used_tgt)]
    return found


def _scores(src: _Coded, tgt: _Coded, knowledge: _Knowledge) -> Scores:
    """Return the scores of all beads."""
    lexicons = knowledge.lexicons or (None, None)
    usual = knowledge.frequencies
    forth = _word_scores(src.ids, tgt.ids, lexicons[0], usual[1], knowledge.known)
    back = _word_scores(tgt.ids, src.ids, lexicons[1], usual[0], knowledge.known)
    bridge = {}
    if src.translated:
        bridge = _word_scores(src.translated, tgt.ids, None, usual[1], _KNOWN[-1])
    ends = [np.r_[True, side.units[1:] != side.units[:-1], True] for side in (src, tgt)]
    same = np.where(ends[0][:, None], _SAME_BOUNDARY, 0.0)
    boundaries = np.where(ends[0][:, None] == ends[1], same, _OTHER_BOUNDARY).astype(np.float32)
    scores: dict[tuple[int, int], Floats] = {}
    for (rows, columns), prior in _SHAPES.items():
        words: Floats = (_sums(forth[rows].T, columns).T + _sums(back[columns].T, rows)) * np.float32(0.5)
        if bridge:
            words = words + _sums(bridge[rows].T, columns).T
        score = _in_competition(words, src.ids, tgt.ids, rows, columns) + np.float32(prior) + boundaries
        score += _length_scores(_sums(src.lengths, rows), _sums(tgt.lengths, columns), knowledge)
        score += _ACROSS * (_ends_within(ends[0], rows)[:, None] + _ends_within(ends[1], columns))
        score[:rows], score[:, :columns] = -np.inf, -np.inf
        scores[rows, columns] = score.astype(np.float32)
    return scores


def _sums(rows: Floats, size: int) -> Floats:
    """Return the sums of `size` rows by where they end, one more than there are rows; the first are 0."""
    sums = np.concatenate([np.zeros_like(rows[:1]), np.cumsum(rows, axis=0)])
    sums[size:] -= sums[:-size].copy()
    sums[:size] = 0
    return sums


def _ends_within(ends: NDArray[np.bool_], size: int) -> Floats:
    """Return how many units end within the `size` sentences before each place."""
    number = np.zeros(len(ends), np.float32)
    for back in range(1, size):
        number[back:] += ends[:-back]
    return number


def _length_scores(src: Floats, tgt: Floats, knowledge: _Knowledge) -> Floats:
    """Return the logarithm of the likelihood of lengths as translations, by that as strangers."""
    ratio = np.log(tgt + 1) - np.log(src + 1)[:, None] - knowledge.ratio
    variance = _LEAST_VARIANCE + _OF_CHARACTER / (src + 1)[:, None]
    of_strangers = knowledge.strangers_variance
    scores: Floats = (ratio**2 * (1 / of_strangers - 1 / variance) + np.log(of_strangers / variance)) / 2
    return scores


def _word_scores(
    src: Sequence[Sequence[int]],
    tgt: Sequence[Sequence[int]],
    lexicon: Lexicon | None,
    frequencies: Floats,
    known: float,
) -> dict[int, Floats]:
    """Return the likelihood ratio of the words of each target sentence, given 1, 2 or 3 of the source.

    A stranger has the words of the language and of the document, half and half.

    Returns:
        By the number of source sentences: logarithms, (source + 1, target) by where they end.
    """
    kinds = [np.unique(np.fromiter(chain.from_iterable(side), np.int64)) for side in (src, tgt)]
    of_src, of_tgt = (_counts(side, own) for side, own in zip((src, tgt), kinds, strict=True))
    table = _translations(lexicon, *kinds)
    usual = (frequencies[kinds[1]] + of_tgt.sum(axis=0) / max(1.0, float(of_tgt.sum()))) / 2
    scores = {}
    for size in range(1, _MOST + 1):
        rows = _sums(of_src, size)
        rows /= np.maximum(rows.sum(axis=1, keepdims=True), 1)
        scores[size] = np.log1p(known * (rows @ table / usual - 1)) @ of_tgt.T
    return scores


def _counts(sentences: Sequence[Sequence[int]], kinds: Integers) -> Floats:
    """Return how often each of the tokens is in each sentence, (sentences, tokens)."""
    counts = np.zeros((len(sentences), len(kinds)), np.float32)
    rows = np.repeat(np.arange(len(sentences)), [*map(len, sentences)])
    columns = np.searchsorted(kinds, np.fromiter(chain.from_iterable(sentences), np.int64))
    np.add.at(counts, (rows, columns), 1)
    return counts


def _translations(lexicon: Lexicon | None, src: Integers, tgt: Integers) -> Floats:
    """Return the probability of each target token for each source token, (src, tgt)."""
    table = np.zeros((len(src), len(tgt)), np.float32)
    if lexicon is not None:
        chosen = np.isin(lexicon.src, src) & np.isin(lexicon.tgt, tgt)
        places = np.searchsorted(src, lexicon.src[chosen]), np.searchsorted(tgt, lexicon.tgt[chosen])
        table[places] = lexicon.probabilities[chosen]
    _, rows, columns = np.intersect1d(src, tgt, return_indices=True)
    table[rows, columns] = np.maximum(table[rows, columns], _EQUAL)
    return table


def _in_competition(
    words: Floats, src: Sequence[Sequence[int]], tgt: Sequence[Sequence[int]], rows: int, columns: int
) -> Floats:
    """Return scores of words, less the logarithm of the sum of those with all other counterparts.

    So a bead gains little from the topic of the document. Equal sentences do not compete.
    """
    scores = np.zeros_like(words)
    inner = words[rows:, columns:]
    if inner.size:
        others = np.logaddexp.reduce(inner - _copies(tgt, columns), axis=1, initial=0)[:, None]
        more = np.logaddexp.reduce(inner - _copies(src, rows)[:, None], axis=0, initial=0)
        scores[rows:, columns:] = inner * (1 + _EVIDENCE) - (others + more) / 2 + _PREFERRED
    return scores


def _copies(sentences: Sequence[Sequence[int]], size: int) -> Floats:
    """Return the logarithm of how often each group of `size` sentences occurs."""
    groups = [
        tuple(chain.from_iterable(sentences[at : at + size])) for at in range(len(sentences) - size + 1)
    ]
    counts = Counter(groups)
    return np.log([counts[group] for group in groups]).astype(np.float32)


def _probable(scores: Scores) -> Iterator[tuple[int, int, int, int, float]]:
    """Yield start and end in source and target of the beads with a probability over one half, and it."""
    if not scores:
        return
    before = _sums_over_ways(scores)
    backwards = {shape: np.full_like(score, -np.inf) for shape, score in scores.items()}
    for (rows, columns), score in scores.items():
        backwards[rows, columns][rows:, columns:] = score[rows:, columns:][::-1, ::-1]
    after = _sums_over_ways(backwards)[::-1, ::-1]
    for (rows, columns), score in scores.items():
        starts = before[: len(score) - rows, : score.shape[1] - columns]
        logarithms = starts + score[rows:, columns:] + after[rows:, columns:] - before[-1, -1]
        for row, column in np.argwhere(logarithms > np.log(0.5)).tolist():
            probability = min(1.0, float(np.exp(logarithms[row, column])))
            yield row, row + rows, column, column + columns, probability


def _sums_over_ways(scores: Scores) -> NDArray[np.float64]:
    """Return the logarithm of the sum over all ways from the beginning to each place, (n + 1, m + 1)."""
    num_rows, num_columns = scores[1, 1].shape
    sums = np.full((num_rows + _MOST, num_columns + _MOST), -np.inf)  # places before the beginning are first
    sums[_MOST, _MOST] = 0
    for diagonal in range(1, num_rows + num_columns - 1):  # a place depends on earlier diagonals alone
        row = np.arange(max(0, diagonal - num_columns + 1), min(num_rows - 1, diagonal) + 1)
        column = diagonal - row
        at = row + _MOST, column + _MOST
        ways = [sums[at[0] - 1, at[1]] + _SKIPPED, sums[at[0], at[1] - 1] + _SKIPPED]
        ways += [sums[at[0] - a, at[1] - b] + score[row, column] for (a, b), score in scores.items()]
        sums[at] = np.logaddexp.reduce(ways)
    return sums[_MOST:, _MOST:]
