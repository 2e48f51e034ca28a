"""Score given translations."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from heedful.data.corpus import check_parallel
from heedful.decoding.translation import TextHypothesis
from heedful.text import Tokenizer
from heedful.workflows.loading import Runtime, SearchWishes, load_translator

_LARGEST_EXPONENT = 700.0  # of a number that floats can hold


@dataclass(frozen=True, kw_only=True)
class ScoringTask:
    """What to score: line i of the targets is the translation of line i of the sources."""

    sources: Sequence[str]
    targets: Sequence[str]
    src_name: str = "sources"  # for messages
    tgt_name: str = "targets"


@dataclass(frozen=True)
class ScoredToken:
    """One token as the tokenizer writes it; log-probability 0 where it is forced, -inf where suppressed."""

    piece: str
    log_prob: float


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the log-probability of the target, and its score: that over the length penalty.

    The tokens are those that the model writes, the end token the last; there are none where both lines are
    empty.
    """

    source: str
    target: str
    score: float
    log_prob: float
    tokens: tuple[ScoredToken, ...]


class Perplexity:
    """The perplexity of all the pairs that are added."""

    def __init__(self) -> None:
        self.num_pairs = 0
        self.num_tokens = 0
        self.num_words = 0  # between spaces; the end of a line counts as one, as it is predicted too
        self.log_prob = 0.0

    def add(self, pair: ScoredPair) -> None:
        """Count a pair; one of empty lines has nothing to be counted."""
        if pair.tokens:
            self.num_pairs += 1
            self.num_tokens += len(pair.tokens)
            self.num_words += len(pair.target.split()) + 1
            self.log_prob += pair.log_prob

    @property
    def per_token(self) -> float:
        """The exponential of the mean negative log-probability of a token; NaN if there is none."""
        return self._per(self.num_tokens)

    @property
    def per_word(self) -> float:
        """The same for words: comparable between models with different pieces."""
        return self._per(self.num_words)

    def _per(self, count: int) -> float:
        if not count:
            return math.nan
        nll = -self.log_prob / count
        return math.exp(nll) if nll < _LARGEST_EXPONENT else math.inf


def score(
    run: Path,
    task: ScoringTask,
    *,
    wishes: SearchWishes,
    runtime: Runtime,
    ensemble: Sequence[Path] = (),
    chunk_lines: int = 1024,
) -> Iterator[ScoredPair]:
    """Check the text, load a model, then score pair by pair, in order, empty lines kept.

    Checking and loading come first, before anything is given.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        task: the pairs.
        wishes: the length penalty, and the languages of a model that has many.
        runtime: how to compute.
        ensemble: more models, whose probabilities are averaged with those of the run.
        chunk_lines: how many pairs are scored together.

    Raises:
        BundleError: no usable bundle.
        CorpusError: the two sides are not parallel.
        InputError: settings that cannot be, models that cannot work together, or a line too long for learned
            positions.
    """
    check_parallel(task.src_name, task.sources, task.tgt_name, task.targets)
    translator = load_translator(run, wishes, runtime, ensemble=ensemble)
    options = wishes.options(translator.bundle.config.decode)
    pairs = zip(task.sources, task.targets, strict=True)
    found = translator.score_lines(pairs, options=options, chunk_lines=chunk_lines)
    tokenizer = translator.bundle.tokenizers.tgt
    return (
        ScoredPair(source, target, each.score, each.log_prob, _tokens(each, tokenizer))
        for source, target, each in zip(task.sources, task.targets, found, strict=True)
    )


def _tokens(found: TextHypothesis, tokenizer: Tokenizer) -> tuple[ScoredToken, ...]:
    if not found.token_log_probs:
        return ()
    pieces = tokenizer.pieces([*found.ids, tokenizer.eos_id])
    return tuple(map(ScoredToken, pieces, found.token_log_probs))
