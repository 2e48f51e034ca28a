"""Score given translations."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import tee
from pathlib import Path

from heedful.data.files import parallel_lines
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import ScoredText
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.settings.options import Runtime, ScoreRequest
from heedful.text import Tokenizer
from heedful.workflows.loading import load_translator, search_options

_LARGEST_EXPONENT = 700.0  # of a number that floats can hold


@dataclass(frozen=True, kw_only=True)
class ScoringTask:
    """Inputs of scoring: line i of the targets is the translation of line i of the sources.

    Attributes:
        sources: one sentence or line each, read once, as are the others.
        targets: the translation of each.
        prefixes: for each source what a search had to begin with, if anything.
        are_ids: whether targets are ids between spaces, as the decoder writes them.
        src_name: of the sources, for messages.
        tgt_name: of the targets.
    """

    sources: Iterable[str]
    targets: Iterable[str]
    prefixes: Iterable[str] | None = None
    are_ids: bool = False
    src_name: str = "sources"
    tgt_name: str = "targets"


@dataclass(frozen=True)
class ScoredToken:
    """One token as the tokenizer writes it.

    `log_prob` is what a search says: 0 where the token is forced, -inf where it is suppressed;
    `model_log_prob` is what the model says, whatever the options.
    """

    token: str
    log_prob: float
    model_log_prob: float


@dataclass(frozen=True)
class ScoredPair:
    """A pair with the numbers of its target.

    Attributes:
        source: its line.
        target: its line; the text of it, where it was given as ids.
        score: `log_prob` over the length penalty, plus the coverage penalty: what a search gives this output.
        log_prob: the sum over the tokens.
        model_log_prob: the same of the model alone, whatever the options.
        tokens: those that the model writes, the end token the last unless the output is truncated; none where
            both lines are empty.
    """

    source: str
    target: str
    score: float
    log_prob: float
    model_log_prob: float
    tokens: tuple[ScoredToken, ...]


class Perplexity:
    """The perplexity of all the pairs that are added, by the model's log-probabilities alone."""

    def __init__(self) -> None:
        self.num_pairs = 0
        self.num_tokens = 0
        self.num_words = 0  # between spaces; the end of a line counts as one, as it is predicted too
        self.model_log_prob = 0.0

    def add(self, pair: ScoredPair) -> None:
        """Count a pair; one of empty lines has nothing to be counted."""
        if pair.tokens:
            self.num_pairs += 1
            self.num_tokens += len(pair.tokens)
            self.num_words += len(pair.target.split()) + 1
            self.model_log_prob += pair.model_log_prob

    @property
    def per_token(self) -> float:
        """The exponential of the mean negative log-probability of a token; NaN if there is none."""
        return self._per(self.num_tokens)

    @property
    def per_word(self) -> float:
        """The same for words: comparable between models with different tokenizers."""
        return self._per(self.num_words)

    def _per(self, count: int) -> float:
        if not count:
            return math.nan
        nll = -self.model_log_prob / count
        return math.exp(nll) if nll < _LARGEST_EXPONENT else math.inf


def score(
    run: Path,
    task: ScoringTask,
    *,
    request: ScoreRequest,
    runtime: Runtime,
    ensemble: Sequence[Path] = (),
    chunk_lines: int = 1024,
    on_precision: Callable[[str], None] = lambda precision: None,
) -> Iterator[ScoredPair]:
    """Load a model, then score pair by pair, in order, empty lines kept.

    Loading comes first, before any line is read and before anything is given. Lines are read a chunk ahead.

    Args:
        run: a run directory, a bundle, or the id of one on the hub.
        task: the pairs.
        request: what a search was asked for, as far as scores depend on it, and the languages of a model that
            has many.
        runtime: how to compute.
        ensemble: more models, whose probabilities are averaged with those of the run.
        chunk_lines: how many pairs are read and scored at a time.
        on_precision: called with the precision that was chosen, once, where that is "auto".

    Raises:
        BundleError: no usable bundle.
        CorpusError: source and target are not parallel, or have no lines; pairs of earlier chunks came out.
        InputError: settings that cannot be, models that cannot work together, a line too long for learned
            positions, one that holds no ids, or one without a prefix.
    """
    translator = load_translator(run, request, runtime, ensemble=ensemble)
    if runtime.precision == "auto":
        on_precision(translator.precision_in_use)
    options = search_options(request, translator.bundle.config.decode)
    return _scored_pairs(translator, task, options, chunk_lines)


def _scored_pairs(
    translator: Translator, task: ScoringTask, options: SearchOptions, chunk_lines: int
) -> Iterator[ScoredPair]:
    reading, scored = tee(
        parallel_lines(task.sources, task.targets, src_name=task.src_name, tgt_name=task.tgt_name)
    )
    targets = (
        (source, _ids(target, line, task.tgt_name) if task.are_ids else target)
        for line, (source, target) in enumerate(scored, start=1)
    )
    results = translator.score_lines(
        targets, options=options, prefixes=task.prefixes, chunk_lines=chunk_lines
    )
    for (source, target), each in zip(reading, results, strict=True):
        yield ScoredPair(
            source=source,
            target=each.text if task.are_ids else target,
            score=each.score,
            log_prob=each.log_prob,
            model_log_prob=each.model_log_prob,
            tokens=_tokens(each, translator.bundle.tokenizers.tgt),
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
