"""Which target token translates which source token: IBM Model 1, learned from sentence pairs.

Brown et al. (1993), "The Mathematics of Statistical Machine Translation: Parameter Estimation", section 4.1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_LINKS_AT_ONCE = 1 << 22  # unless a sentence pair has more; a link takes some 40 bytes while it is worked on

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Lexicon:
    """The probabilities t(tgt | src) of all two tokens that some sentence pair has, each array (entries,).

    Attributes:
        src: source tokens, ascending.
        tgt: target tokens, ascending for each source token.
        probabilities: those of a source token sum to 1.
    """

    src: NDArray[np.int64]
    tgt: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def best(self, count: int, *, without: Sequence[int] = ()) -> "Lexicon":
        """The `count` most probable translations of each source token, equal ones by id.

        Those that are left out take no slots, and the others keep their probabilities.
        """
        kept = np.flatnonzero(~np.isin(self.tgt, without))
        kept = kept[np.lexsort((self.tgt[kept], -self.probabilities[kept], self.src[kept]))]
        _, starts, sizes = np.unique(self.src[kept], return_index=True, return_counts=True)
        kept = np.sort(kept[np.arange(len(kept)) - np.repeat(starts, sizes) < count])
        return Lexicon(self.src[kept], self.tgt[kept], self.probabilities[kept])


@dataclass(frozen=True)
class _Links:
    """The links of some sentence pairs: each target token with each source token of its sentence."""

    entries: NDArray[np.int32]  # of each link, in the lexicon
    fans: NDArray[np.int64]  # links of each target token; they follow each other


def learn_lexicon(src: Ids, tgt: Ids, *, iterations: int = 5) -> Lexicon:
    """Learn from sentence pairs by expectation maximisation, which begins with equal probabilities.

    The empty word of the paper, which target tokens without a counterpart may come from, is for the caller to
    put into each source sentence, if at all. Takes 4 bytes for each link of a target token with a
    source token of its sentence.

    >>> lexicon = learn_lexicon([[0, 1], [0, 2], [3, 2]], [[5, 6], [5, 7], [8, 7]], iterations=50)
    >>> lexicon.best(1).tgt.tolist()  # what 0, 1, 2, 3 mean
    [5, 6, 7, 8]

    Args:
        src: the ids of each source sentence, none of them empty.
        tgt: those of its translation.
        iterations: of the estimation.

    Returns:
        The lexicon of the tokens that were seen.
    """
    num_tgt = 1 + max(chain.from_iterable(tgt), default=0)
    chunks = [_linked(src[some], tgt[some], num_tgt) for some in _chunks(src, tgt)]
    keys = np.unique(np.concatenate([[], *(keys for keys, _, _ in chunks)]).astype(np.int64))
    all_links = [
        _Links(np.searchsorted(keys, own).astype(np.int32)[entries], fans) for own, entries, fans in chunks
    ]
    del chunks
    src_tokens = keys // num_tgt
    probabilities = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for links in all_links:
            shares = probabilities[links.entries]
            sums = np.add.reduceat(shares, links.fans.cumsum() - links.fans)
            shares /= np.repeat(sums, links.fans)
            counts += np.bincount(links.entries, shares, minlength=len(keys))
        probabilities = counts / np.bincount(src_tokens, counts)[src_tokens]
    return Lexicon(src_tokens, keys % num_tgt, probabilities)


def _chunks(src: Ids, tgt: Ids) -> Iterator[slice]:
    """Sentence pairs whose links are worked on together; those without target tokens stay out."""
    begun = links = 0
    for i, (source, target) in enumerate(zip(src, tgt, strict=True)):
        if links and links + len(source) * len(target) > _LINKS_AT_ONCE:
            yield slice(begun, i)
            begun, links = i, 0
        links += len(source) * len(target)
    if links:
        yield slice(begun, len(src))


def _linked(
    src: Ids, tgt: Ids, num_tgt: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """The distinct links of sentence pairs as numbers, which of them each link is, and `_Links.fans`."""
    src_lengths = np.fromiter(map(len, src), np.int64)
    tgt_lengths = np.fromiter(map(len, tgt), np.int64)
    src_tokens = np.fromiter(chain.from_iterable(src), np.int64)
    tgt_tokens = np.fromiter(chain.from_iterable(tgt), np.int64)
    fans = np.repeat(src_lengths, tgt_lengths)
    src_starts = np.repeat(src_lengths.cumsum() - src_lengths, tgt_lengths)  # of each target token's sentence
    places = np.arange(fans.sum()) + np.repeat(src_starts - (fans.cumsum() - fans), fans)
    keys, entries = np.unique(src_tokens[places] * num_tgt + np.repeat(tgt_tokens, fans), return_inverse=True)
    return keys, entries.astype(np.int32), fans
