"""Token translation probabilities: IBM Model 1, learned from sentence pairs, and links of tokens.

Brown et al. (1993), "The Mathematics of Statistical Machine Translation: Parameter Estimation", section 4.1.
With `diagonal`, links near the diagonal are more probable, as in Dyer et al. (2013), "A Simple, Fast, and
Effective Reparameterization of IBM Model 2", equation 2: else an article that comes twice is linked anywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from heedful.data.files import ParallelText
from heedful.errors import CorpusError
from heedful.text import TokenizerPair

_CHUNK_LINKS = 1 << 22  # unless a sentence pair has more; a link takes some 40 bytes during the estimation

Ids = Sequence[Sequence[int]]


def encoded_pairs(
    text: ParallelText, chosen: Iterable[int], tokenizers: TokenizerPair, *, least: int = 1
) -> tuple[Ids, Ids]:
    """Return the ids of the chosen pairs of a text that have tokens in both; CorpusError for too few."""
    chosen = [*chosen]
    src = tokenizers.src.encode_batch([*map(text.src.__getitem__, chosen)])
    tgt = tokenizers.tgt.encode_batch([*map(text.tgt.__getitem__, chosen)])
    pairs = [pair for pair in zip(src, tgt, strict=True) if all(pair)]
    if len(pairs) < least:
        raise CorpusError(
            f"{text.name}: pairs with tokens in both source and target: {len(pairs)}; give {least} at least"
        )
    return [source for source, _ in pairs], [target for _, target in pairs]


@dataclass(frozen=True)
class Lexicon:
    """The probabilities t(tgt | src) of all tokens that co-occur in a sentence pair, each array (entries,).

    Attributes:
        src: source tokens, ascending.
        tgt: target tokens, ascending for each source token.
        probabilities: the probability of each entry; they sum to 1 for each source token.
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

    def probability(self, src: NDArray[np.int64], tgt: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return t(tgt | src) of pairs of tokens, arrays of one shape, that all co-occur."""
        num_tgt, keys = self._keys
        result: NDArray[np.float64] = self.probabilities[np.searchsorted(keys, src * num_tgt + tgt)]
        return result

    @cached_property
    def _keys(self) -> tuple[int, NDArray[np.int64]]:
        num_tgt = 1 + int(self.tgt.max(initial=0))
        return num_tgt, self.src * num_tgt + self.tgt


@dataclass(frozen=True)
class _Links:
    """The links of a chunk of sentence pairs: each target token with each source token of its sentence."""

    entries: NDArray[np.int32]  # the lexicon entry of each link
    fans: NDArray[np.int64]  # the number of links of each target token
    prior: NDArray[np.float32] | None  # of each link, by its position; None: all are equal


def learn_lexicon(src: Ids, tgt: Ids, *, iterations: int = 5, diagonal: float = 0.0) -> Lexicon:
    """Learn a lexicon from sentence pairs by expectation maximisation, from uniform probabilities.

    The caller may add the paper's NULL word, the source of target tokens without a counterpart, to each
    source sentence. Takes 4 bytes for each link of a target token with a source token of its sentence, and
    with `diagonal` 8.

    >>> lexicon = learn_lexicon([[0, 1], [0, 2], [3, 2]], [[5, 6], [5, 7], [8, 7]], iterations=50)
    >>> lexicon.best(1).tgt.tolist()  # the translations of 0, 1, 2, 3
    [5, 6, 7, 8]

    Args:
        src: the ids of each source sentence, none of them empty.
        tgt: the ids of its translation.
        iterations: the number of iterations of expectation maximisation.
        diagonal: lambda, the larger the nearer to the diagonal; 0: Model 1, without positions.
    """
    num_tgt = 1 + max(chain.from_iterable(tgt), default=0)
    chunks = [_linked(src[some], tgt[some], num_tgt, diagonal) for some in _chunks(src, tgt)]
    keys = np.unique(np.concatenate([[], *(keys for keys, _ in chunks)]).astype(np.int64))
    all_links = [
        replace(links, entries=np.searchsorted(keys, own).astype(np.int32)[links.entries])
        for own, links in chunks
    ]
    del chunks
    src_tokens = keys // num_tgt
    probabilities = np.ones(len(keys))
    for _ in range(iterations):
        counts = np.zeros(len(keys))
        for links in all_links:
            shares = probabilities[links.entries]
            if links.prior is not None:
                shares *= links.prior
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


def _linked(src: Ids, tgt: Ids, num_tgt: int, diagonal: float) -> tuple[NDArray[np.int64], _Links]:
    """Return the keys of the distinct links, and the links; their entries are indices of these keys."""
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
    prior = None
    if diagonal:
        positions_of = [
            np.concatenate([relative_positions(n) for n in (*lengths, 0)])
            for lengths in (src_lengths, tgt_lengths)
        ]
        distances = np.abs(positions_of[0][positions] - np.repeat(positions_of[1], fans))
        prior = np.exp(-diagonal * distances).astype(np.float32)
    return keys, _Links(entries.astype(np.int32), fans, prior)


def relative_positions(length: int) -> NDArray[np.float64]:
    """Return where in a sentence of that length its tokens are: the middle of each, from 0 to 1."""
    return (np.arange(length) + 0.5) / max(length, 1)


def mutual_links(src: Ids, tgt: Ids, *, diagonal: float = 4.0) -> list[set[tuple[int, int]]]:
    """Return the links (source index, target index) of each pair that both directions of a lexicon agree on.

    In each direction a token is linked with the most probable token of the other sentence. The intersection
    of both has few wrong links (Och and Ney, 2003, "A Systematic Comparison of Various Statistical Alignment
    Models", section 4). Larger texts give better links. `diagonal` is as in `learn_lexicon`; 4 is the first
    value of Dyer et al.
    """
    forward, backward = learn_lexicon(src, tgt, diagonal=diagonal), learn_lexicon(tgt, src, diagonal=diagonal)
    links = []
    for source, target in zip(src, tgt, strict=True):
        near = np.exp(
            -diagonal * np.abs(relative_positions(len(target))[:, None] - relative_positions(len(source)))
        )
        both = np.broadcast_arrays(np.asarray(source)[None], np.asarray(target)[:, None])
        best_src = (forward.probability(*both) * near).argmax(axis=1)
        best_tgt = (backward.probability(*both[::-1]) * near).argmax(axis=0)
        links.append({(int(s), t) for t, s in enumerate(best_src) if best_tgt[s] == t})
    return links
