"""Token translation probabilities: IBM Model 1, learned from sentence pairs.

Brown et al. (1993), "The Mathematics of Statistical Machine Translation: Parameter Estimation", section 4.1.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from numpy.typing import NDArray

_CHUNK_LINKS = 1 << 22  # unless a sentence pair has more; a link takes some 40 bytes during the estimation

Ids = Sequence[Sequence[int]]


@dataclass(frozen=True)
class Lexicon:
    """The probabilities t(tgt | src) of all tokens that co-occur in a sentence pair, each array (entries,).

    Attributes:
        src: source tokens, ascending.
        tgt: target tokens, ascending for each source token.
        probabilities: of each entry; those of a source token sum to 1.
    """

    src: NDArray[np.int64]
    tgt: NDArray[np.int64]
    probabilities: NDArray[np.float64]

    def best(self, count: int, *, without: Sequence[int] = ()) -> "Lexicon":
        """Return the `count` most probable translations of each source token, not those in `without`."""
        entries = np.flatnonzero(~np.isin(self.tgt, without))
        entries = entries[np.lexsort((self.tgt[entries], -self.probabilities[entries], self.src[entries]))]
        _, starts, sizes = np.unique(self.src[entries], return_index=True, return_counts=True)
        entries = np.sort(entries[np.arange(len(entries)) - np.repeat(starts, sizes) < count])
        return Lexicon(self.src[entries], self.tgt[entries], self.probabilities[entries])


@dataclass(frozen=True)
class _Links:
    """The links of a chunk of sentence pairs: each target token with each source token of its sentence."""

    entries: NDArray[np.int32]  # the lexicon entry of each link
    fans: NDArray[np.int64]  # the number of links of each target token


def learn_lexicon(src: Ids, tgt: Ids, *, iterations: int = 5) -> Lexicon:
    """Learn a lexicon from sentence pairs by expectation maximisation, from uniform probabilities.

    The caller may add the paper's NULL word, the source of target tokens without a counterpart, to each
    source sentence. Takes 4 bytes for each link of a target token with a source token of its sentence.

    >>> lexicon = learn_lexicon([[0, 1], [0, 2], [3, 2]], [[5, 6], [5, 7], [8, 7]], iterations=50)
    >>> lexicon.best(1).tgt.tolist()  # the translations of 0, 1, 2, 3
    [5, 6, 7, 8]

    Args:
        src: the ids of each source sentence, none of them empty.
        tgt: the ids of its translation.
        iterations: of expectation maximisation.
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
    """Yield chunks of sentence pairs with a bounded number of links."""
    start = links = 0
    for i, (source, target) in enumerate(zip(src, tgt, strict=True)):
        if links and links + len(source) * len(target) > _CHUNK_LINKS:
            yield slice(start, i)
            start, links = i, 0
        links += len(source) * len(target)
    if links:
        yield slice(start, len(src))


def _linked(
    src: Ids, tgt: Ids, num_tgt: int
) -> tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]:
    """Return the keys of the distinct links, the index of each link's key, and `_Links.fans`."""
    src_lengths = np.fromiter(map(len, src), np.int64)
    tgt_lengths = np.fromiter(map(len, tgt), np.int64)
    src_tokens = np.fromiter(chain.from_iterable(src), np.int64)
    tgt_tokens = np.fromiter(chain.from_iterable(tgt), np.int64)
    fans = np.repeat(src_lengths, tgt_lengths)
    src_starts = np.repeat(src_lengths.cumsum() - src_lengths, tgt_lengths)  # of each target token's sentence
    positions = np.arange(fans.sum()) + np.repeat(src_starts - (fans.cumsum() - fans), fans)
    keys, entries = np.unique(
        src_tokens[positions] * num_tgt + np.repeat(tgt_tokens, fans), return_inverse=True
    )
    return keys, entries.astype(np.int32), fans
