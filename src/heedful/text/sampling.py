"""Subword sampling: a new segmentation of a text in every epoch, as a regulariser.

BPE-dropout (Provilkov et al., 2020) for BPE models; sampling from the smoothed distribution over all
segmentations (Kudo, 2018) for unigram models. SentencePiece has both, but with a hidden global random
generator, so a run could not be resumed bit for bit. Here the caller passes the generator.
"""

import math
import random
import re
from functools import lru_cache
from itertools import accumulate

from heedful.errors import TokenizerError
from heedful.text.sentencepiece_tokenizer import SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer

_CACHED_WORDS = 1 << 17
_CACHED_LENGTH = 32  # in symbols; longer words are rarely repeated and would fill the cache
# No token of our models crosses a space, so each word is segmented by itself.
_WORD = re.compile("▁?[^▁]+|▁")
_UNKNOWN_PENALTY = 10.0  # SentencePiece's: an unknown character scores this much below the worst token

Symbols = tuple[str, ...]


class SegmentationSampler:
    """Samples segmentations: `sampler(text, rng)` returns ids and is a pure function of `rng`'s state.

    Args:
        tokenizer: of kind bpe or unigram; char and word models have only one segmentation.
        rate: for bpe, the probability that a merge is dropped (Provilkov et al. use 0.1); for unigram, the
            exponent of the probabilities (Kudo uses 0.1 to 0.5; the smaller, the more uniform). 0 is off:
            the tokenizer's own segmentation.

    Raises:
        TokenizerError: it is not a SentencePiece tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        if not 0.0 <= rate <= 1.0:
            raise ValueError(f"rate must be between 0 and 1, not {rate}")
        if not isinstance(tokenizer, SentencePieceTokenizer):
            raise TokenizerError(
                f"tokenizer.sampling={rate}: an imported tokenizer cannot sample segmentations; "
                "set tokenizer.sampling=0"
            )
        self._tokenizer = tokenizer
        self._rate = rate
        self._scores = tokenizer.token_scores()
        self._byte_ids = tokenizer.byte_ids()
        self._longest = max((len(token) for token in self._scores), default=1)
        self._unknown_score = (
            min((score for _, score in self._scores.values()), default=0.0) - _UNKNOWN_PENALTY
        )
        self._merges = lru_cache(maxsize=_CACHED_WORDS)(self._find_merges)
        self._lattice = lru_cache(maxsize=_CACHED_WORDS)(self._build_lattice)

    def __call__(self, text: str, rng: random.Random) -> list[int]:
        """Return the ids of a sampled segmentation, without bos and eos."""
        if self._rate == 0.0 or self._tokenizer.kind in ("char", "word"):
            return self._tokenizer.encode(text)
        segment = self._drop_merges if self._tokenizer.kind == "bpe" else self._walk_lattice
        words = _WORD.findall(self._tokenizer.normalize(text))
        return self._to_ids([symbol for word in words for symbol in segment(word, rng)])

    def _to_ids(self, symbols: list[str]) -> list[int]:
        """Return the ids as SentencePiece: unknown characters become bytes, or one unk for each run."""
        ids: list[int] = []
        after_unknown = False
        for symbol in symbols:
            known = self._scores.get(symbol)
            if known is not None:
                ids.append(known[0])
            elif self._byte_ids:
                ids.extend(self._byte_ids[byte] for byte in symbol.encode("utf-8"))
            elif not after_unknown:
                ids.append(self._tokenizer.unk_id)
            after_unknown = known is None
        return ids

    def _drop_merges(self, word: str, rng: random.Random) -> Symbols:
        """Apply algorithm 1 of Provilkov et al.: before each step, each possible merge may be dropped.

        Taking the best of the merges that are left equals trying them from the best on until one is not
        dropped, which needs far fewer random numbers.
        """
        symbols = tuple(word)
        while True:
            find = self._merges if len(symbols) <= _CACHED_LENGTH else self._find_merges
            for i in find(symbols):
                if rng.random() >= self._rate:
                    symbols = (*symbols[:i], symbols[i] + symbols[i + 1], *symbols[i + 2 :])
                    break
            else:
                return symbols

    def _find_merges(self, symbols: Symbols) -> tuple[int, ...]:
        """Return the indices of symbols that may merge with the next: the earliest learned, then leftmost."""
        merges = []
        for i in range(len(symbols) - 1):
            known = self._scores.get(symbols[i] + symbols[i + 1])
            if known is not None:
                merges.append((-known[1], i))
        return tuple(i for _, i in sorted(merges))

    def _walk_lattice(self, word: str, rng: random.Random) -> Symbols:
        """Sample a segmentation in proportion to (product of its tokens' probabilities)^rate."""
        lattice = self._lattice(word)
        end = len(word)
        symbols = []
        while end > 0:
            starts, cumulative = lattice[end]
            (start,) = rng.choices(starts, cum_weights=cumulative)
            symbols.append(word[start:end])
            end = start
        return tuple(reversed(symbols))

    def _build_lattice(self, word: str) -> list[tuple[list[int], list[float]]]:
        """Return, for each end position, the possible starts of the last token and their cumulative weights.

        A weight is the sum over all segmentations up to the end with that start (the forward algorithm), so
        sampling backwards from the end samples whole segmentations exactly.
        """
        log_sums = [0.0]
        lattice: list[tuple[list[int], list[float]]] = [([], [])]
        for end in range(1, len(word) + 1):
            starts, log_weights = [], []
            for start in range(max(0, end - self._longest), end):
                known = self._scores.get(word[start:end])
                if known is None and end - start > 1:
                    continue
                score = self._unknown_score if known is None else known[1]
                starts.append(start)
                log_weights.append(log_sums[start] + self._rate * score)
            best = max(log_weights)
            weights = [math.exp(weight - best) for weight in log_weights]
            cumulative = list(accumulate(weights))
            lattice.append((starts, cumulative))
            log_sums.append(best + math.log(cumulative[-1]))
        return lattice
