"""Pairs of sentences with their probabilities, the perplexity of all, and the pairs to check first."""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict, astuple, dataclass
from fractions import Fraction
from itertools import tee
from operator import itemgetter
from typing import Any, Self

from heedful.decoding.confidence import Confidence
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import ScoredText
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.text import Tokenizer

_LARGEST_EXPONENT = 700.0  # of a number that floats can hold
_FLAG = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)%?", re.ASCII)


@dataclass(frozen=True)
class ScoredToken:
    """One token as the tokenizer writes it.

    `log_prob` is the log-probability in a search: 0 if the token is forced, -inf if it is suppressed;
    `model_log_prob` is the log-probability of the model alone.
    """

    token: str
    log_prob: float
    model_log_prob: float


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the numbers of its target.

    Attributes:
        source: the source line.
        target: the target line; if it was given as ids, its text.
        score: `log_prob` over the length penalty, plus the coverage penalty: the score of a search.
        log_prob: the sum over the tokens.
        model_log_prob: the same sum for the model alone, without the options of a search.
        tokens: the tokens that the model writes, with the end token unless the output is truncated; none if
            both lines are empty, or if one is too long to be scored: then the numbers are NaN.
        confidence: the confidence in the target; None if the model has no calibration, or without tokens.
    """

    source: str
    target: str
    score: float
    log_prob: float
    model_log_prob: float
    tokens: tuple[ScoredToken, ...]
    confidence: Confidence | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints; a number that JSON does not have is None."""
        return {
            "source": self.source,
            "target": self.target,
            "score": _number(self.score),
            "log_prob": _number(self.log_prob),
            "model_log_prob": _number(self.model_log_prob),
            "tokens": [
                {"piece": text, "log_prob": _number(log_prob), "model_log_prob": _number(model_log_prob)}
                for text, log_prob, model_log_prob in map(astuple, self.tokens)
            ],
            "confidence": self.confidence and asdict(self.confidence),
        }


class Perplexity:
    """The perplexity of the pairs that are added and scored, by the model's log-probabilities alone."""

    def __init__(self) -> None:
        self.num_pairs = 0
        self.num_left_out = 0  # too long to be scored
        self.num_tokens = 0
        self.num_words = 0  # between spaces; the end of a line counts as one, as it is predicted too
        self.model_log_prob = 0.0

    def add(self, pair: ScoredPair) -> None:
        """Count a pair; one of empty lines has nothing to be counted."""
        self.num_left_out += math.isnan(pair.model_log_prob)
        if pair.tokens:
            self.num_pairs += 1
            self.num_tokens += len(pair.tokens)
            self.num_words += len(pair.target.encode().split()) + 1  # bytes are split at ASCII spaces alone
            self.model_log_prob += pair.model_log_prob

    @property
    def per_token(self) -> float:
        """The exponential of the mean negative log-probability of a token; NaN if there is none."""
        return self._per(self.num_tokens)

    @property
    def per_word(self) -> float:
        """The same for words: comparable between models with different tokenizers."""
        return self._per(self.num_words)

    def as_dict(self) -> dict[str, Any]:
        """Return what `--json` prints; a number that JSON does not have is None."""
        return {
            "pairs": self.num_pairs,
            "left_out": self.num_left_out,
            "tokens": self.num_tokens,
            "words": self.num_words,
            "model_log_prob": _number(self.model_log_prob),
            "perplexity": _number(self.per_token),
            "word_perplexity": _number(self.per_word),
        }

    def __str__(self) -> str:
        """Return the counts and the perplexity in one line."""
        counts = f"{self.num_pairs:,} pairs, {self.num_tokens:,} tokens, {self.num_words:,} words"
        if self.num_left_out:
            counts += f" (too long and left out: {self.num_left_out:,})"
        return f"{counts}: perplexity {self.per_token:.6g} per token, {self.per_word:.6g} per word"

    def _per(self, count: int) -> float:
        if not count:
            return math.nan
        nll = -self.model_log_prob / count
        return math.exp(nll) if nll < _LARGEST_EXPONENT else math.inf


class Flagged:
    """The pairs to check first: those with the least confidence, of equal ones the first."""

    def __init__(self, number: Fraction, *, is_share: bool) -> None:
        """Flag this number or share of pairs, rounded up."""
        self._number, self._is_share = number, is_share
        self._pairs: list[tuple[float, int, ScoredPair]] = []

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what `--flag` asks for; InputError if it is neither a number nor a share of pairs."""
        match = _FLAG.fullmatch(text)
        number, is_share = Fraction(match[1] if match else 0), text.endswith("%")
        if is_share:
            number /= 100
        if number <= 0 or (number > 1 if is_share else number.denominator > 1):
            raise InputError(f"--flag {text}: give a number of pairs, or a share of them such as 10%")
        return cls(number, is_share=is_share)

    def add(self, line: int, pair: ScoredPair) -> None:
        """Add a pair; one of empty lines has nothing to be checked."""
        if pair.confidence is not None:
            self._pairs.append((pair.confidence.sentence, line, pair))

    def pairs(self) -> list[tuple[int, ScoredPair]]:
        """Return the pairs with their lines, the least confident first."""
        exact = self._number * len(self._pairs) if self._is_share else self._number
        least_confident = sorted(self._pairs, key=itemgetter(0, 1))[: math.ceil(exact)]
        return [(line, pair) for _, line, pair in least_confident]


def score_pairs(
    translator: Translator,
    pairs: Iterable[tuple[str, str]],
    *,
    tgt_ids: bool = False,
    options: SearchOptions | None = None,
    prefixes: Iterable[str] | None = None,
    name: str = "targets",
) -> Iterator[ScoredPair]:
    """Score pair by pair, in order, empty lines kept. Lines are read a chunk ahead.

    Args:
        translator: the model.
        pairs: the source and target lines, read once.
        tgt_ids: whether the targets are ids between spaces.
        options: the options of the search, on which scores depend; by default the bundle's.
        prefixes: for each source, the text that its translation had to begin with, or nothing.
        name: the name of the targets, for messages.

    Raises:
        InputError: a line that holds no ids, or one without a prefix.
    """
    reading, scored = tee(pairs)
    targets = (
        (source, _ids(target, line, name) if tgt_ids else target)
        for line, (source, target) in enumerate(scored, start=1)
    )
    results = translator.score_lines(targets, options=options, prefixes=prefixes)
    for (source, target), each in zip(reading, results, strict=True):
        yield ScoredPair(
            source=source,
            target=each.text if tgt_ids else target,
            score=each.score,
            log_prob=each.log_prob,
            model_log_prob=each.model_log_prob,
            tokens=_tokens(each, translator.bundle.tokenizers.tgt),
            confidence=each.confidence,
        )


def _ids(line: str, number: int, name: str) -> list[int]:
    try:
        return [int(word) for word in line.split()]
    except ValueError:
        raise InputError(f"{name}: line {number:,}: not ids between spaces, as in 5 12 2") from None


def _tokens(scored: ScoredText, tokenizer: Tokenizer) -> tuple[ScoredToken, ...]:
    if not scored.token_log_probs:
        return ()
    texts = tokenizer.tokens(scored.written_ids)
    return tuple(map(ScoredToken, texts, scored.token_log_probs, scored.model_log_probs))


def _number(value: float) -> float | None:
    """JSON has no infinities, and no NaN."""
    return value if math.isfinite(value) else None
