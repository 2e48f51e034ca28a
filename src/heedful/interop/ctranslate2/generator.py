"""CTranslate2's search instead of heedful's: ids in, hypotheses out, by those options that it has."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from heedful.bundle import Bundle
from heedful.decoding.batch_plan import plan_batches
from heedful.decoding.beam import BeamSearch
from heedful.decoding.diverse_beam import DiverseBeamSearch
from heedful.decoding.generator import StepwiseGenerator
from heedful.decoding.greedy import Greedy
from heedful.decoding.hypotheses import Hypothesis, ended_hypothesis
from heedful.decoding.minimum_bayes_risk import MinimumBayesRisk
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import Sampling
from heedful.decoding.scoring import ScoredOutput
from heedful.errors import InputError
from heedful.interop.ctranslate2.position_limit import position_limit
from heedful.interop.ctranslate2.tokens import token_names
from heedful.precision import Precision
from heedful.text.framing import Framing

if TYPE_CHECKING:
    from ctranslate2 import Translator

Loader = Callable[[int, int], "Translator"]  # of batches at a time, and threads for each


class CTranslate2Generator:
    """Searches with an exported model; the log-probabilities of what it finds are those of heedful's search.

    Where it chooses otherwise than heedful's: what is suppressed or would repeat an n-gram leaves its
    probability to the other tokens, whatever `renormalize` says; the repetition penalty divides and
    multiplies logits; with prefixes, no output ends right after its own; samples differ each time.
    Scores and attention are heedful's own.
    """

    name = "ctranslate2"

    def __init__(
        self, bundle: Bundle, own: StepwiseGenerator, load: Loader, *, precision: Precision, threads: int
    ) -> None:
        """Prepare; nothing is loaded before the first search.

        Args:
            bundle: what was exported.
            own: heedful's generator for it, which gives batch sizes, scores and attention.
            load: loads the exported model.
            precision: of the exported model.
            threads: of the CPU: one for each batch, or all of them for a sentence that comes alone.
        """
        framing, tgt = Framing.of(bundle.config, bundle.tokenizers), bundle.tokenizers.tgt
        self.precision: Precision = precision
        self._start_id, self._eos_id, self._pad_id = framing.start_id, tgt.eos_id, tgt.pad_id
        self._own = own
        self._names = token_names(bundle)
        self._ids = {name: i for i, name in enumerate(self._names.tgt)}
        self._adds_end = framing.src_suffix == (bundle.tokenizers.src.eos_id,)
        self._limit = position_limit(bundle.config.model)
        self._load = load
        self._threads = threads

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be: there, most kinds of positions have an end."""
        return self._limit

    def max_length(self, source: Sequence[int], options: SearchOptions) -> int:
        """See `Generator`."""
        longest = self._own.max_length(source, options)
        return longest if self._limit is None else min(longest, self._limit)

    def score(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """See `Generator`; heedful's own."""
        return self._own.score(sources, outputs, options=options, prefixes=prefixes)

    def attention(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        """See `Generator`; heedful's own."""
        return self._own.attention(sources, outputs)

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
        max_lengths: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Search; see `Generator`.

        Raises:
            InputError: options that CTranslate2 does not have, each by its name.
        """
        if lacking := ", ".join(_lacking(options, self._eos_id)):
            raise InputError(f"engine='ctranslate2' cannot search with {lacking}; engine='auto' can")
        limits = [self.max_length(ids, options) for ids in sources]
        if max_lengths is not None:
            limits = list(map(min, limits, max_lengths))
        first = () if options.forced_first_id is None else (options.forced_first_id,)
        begun = [(*first, *ids) for ids in prefixes or [()] * len(sources)]
        at_once = 1 if sum(map(bool, sources)) == 1 else self._threads
        engine = self._load(at_once, self._threads // at_once)

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            return self._search_batch(
                engine, [sources[i] for i in batch], [begun[i] for i in batch], limits[batch[0]], options
            )

        found: list[list[Hypothesis]] = [[] for _ in sources]
        batches = self._batches(sources, limits, at_once)
        with ThreadPoolExecutor(at_once) as pool:
            for batch, results in zip(batches, pool.map(search_batch, batches), strict=True):
                for i, hypotheses in zip(batch, results, strict=True):
                    found[i] = hypotheses
        return found

    def _batches(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], at_once: int
    ) -> list[list[int]]:
        """Plan batches such that all of one have the same length limit: CTranslate2 takes one for all."""
        share = math.ceil(len(sources) / at_once)
        groups: dict[int, list[int]] = {}
        for i, limit in enumerate(limits):
            groups.setdefault(limit, []).append(i)
        return [
            [group[i] for i in batch]
            for _, group in sorted(groups.items(), reverse=True)
            for batch in plan_batches(
                [len(sources[i]) for i in group],
                tokens=self._own.batch_tokens,
                size=min(self._own.batch_size or share, share),
            )
        ]

    def _search_batch(
        self,
        engine: "Translator",
        sources: Sequence[Sequence[int]],
        begun: Sequence[Sequence[int]],
        limit: int,
        options: SearchOptions,
    ) -> list[list[Hypothesis]]:
        """Search, then let the model say what it thinks of each token: the search says one score only."""
        read = [self._named_source(ids) for ids in sources]
        results = engine.translate_batch(
            read,
            [self._named(ids) for ids in begun],
            max_decoding_length=max(1, limit - (options.forced_last_id is not None)),
            suppress_sequences=self._suppressed(options),
            # Its scores leave out what is forced: with that, another hypothesis may be the best.
            **_settings(options, whole_beam=any(begun) or options.forced_last_id is not None),
        )
        eos = self._names.tgt[self._eos_id]
        outputs = [(row, tokens) for row, each in enumerate(results) for tokens in each.hypotheses]
        own = engine.score_batch(
            [read[row] for row, _ in outputs],
            [tokens[:-1] if tokens[-1:] == [eos] else tokens for _, tokens in outputs],
            max_input_length=0,
        )
        scores = (score for each in results for score in each.scores)
        found: list[list[Hypothesis]] = [[] for _ in sources]
        for (row, tokens), score, scored in zip(outputs, scores, own, strict=True):
            ids = [self._ids[token] for token in tokens]
            found[row].append(self._hypothesis(ids, scored.log_probs, score, len(begun[row]), options))
        if _sampled(options) is None:
            found = [sorted(each, key=lambda one: -one.score)[: options.n_best] for each in found]
        return found

    def _hypothesis(
        self, ids: list[int], own: Sequence[float], score: float, num_begun: int, options: SearchOptions
    ) -> Hypothesis:
        """An output of these ids, from the model's log-probabilities `own` and the score of the search."""
        own = list(own[: len(ids)])  # an output that was truncated has no end token
        if options.forced_first_id is not None:
            own[0] = 0.0
        found = sum(own[:num_begun]) + score * len(ids) ** options.length_penalty
        if options.forced_last_id is not None and ids[-1:] != [self._eos_id]:
            ids, own = [*ids, self._eos_id], [*own, 0.0]
        penalty = options.penalty(len(ids))
        hypothesis = ended_hypothesis(ids, own, eos_id=self._eos_id, penalty=penalty)
        if options.renormalize:
            hypothesis = replace(hypothesis, log_prob=found, score=found / penalty)
        return hypothesis

    def _named(self, ids: Iterable[int]) -> list[str]:
        return [self._names.tgt[i] for i in ids]

    def _named_source(self, ids: Sequence[int]) -> list[str]:
        """As the encoder reads it, but for the end that CTranslate2 adds itself."""
        return [self._names.src[i] for i in (ids[:-1] if self._adds_end else ids)]

    def _suppressed(self, options: SearchOptions) -> list[list[str]]:
        suppressed = options.suppressed_ids
        if suppressed is None:
            suppressed = tuple(sorted({self._start_id, self._pad_id} - {self._eos_id}))
        return [self._named([i]) for i in suppressed]


def _lacking(options: SearchOptions, eos_id: int) -> Iterator[str]:
    """Yield each option that CTranslate2 does not have, and what it has instead."""
    if options.forced_last_id not in (None, eos_id):
        yield f"forced_last_id={options.forced_last_id}"
    if options.coverage_penalty:
        yield f"coverage_penalty={options.coverage_penalty}"
    if options.prefix_bias is not None:
        yield f"prefix_bias={options.prefix_bias}"
    if sampled := _sampled(options):
        for name in ("min_p", "epsilon", "seed"):
            if value := getattr(sampled.strategy, name):
                yield f"{name}={value}"
        return
    strategy = options.strategy
    if not isinstance(strategy, Greedy | BeamSearch | DiverseBeamSearch):
        yield f"strategy={strategy}"
        return
    beam = _beam(options)
    if beam.beam_size == 1:
        return
    if isinstance(strategy, DiverseBeamSearch) and strategy.num_groups > 1:
        yield f"num_groups={strategy.num_groups}"
    if options.length_penalty and options.length_normalization != "average":
        yield f"length_normalization={options.length_normalization!r} (but with 'average')"
    provably_best = not options.length_penalty and options.n_best == 1
    if beam.early_stopping != "first" and not (beam.early_stopping == "optimal" and provably_best):
        yield f"early_stopping={beam.early_stopping!r} (but with 'first')"


@dataclass(frozen=True)
class _Sampled:
    strategy: Sampling
    count: int  # of each sentence


def _sampled(options: SearchOptions) -> _Sampled | None:
    """Return how outputs are drawn; None where they are searched."""
    match options.strategy:
        case Sampling() as sampling:
            return _Sampled(sampling, options.n_best)
        case MinimumBayesRisk(samples=samples, sampling=sampling):
            return _Sampled(sampling, samples)
    return None


def _beam(options: SearchOptions) -> BeamSearch:
    """Return the beam of a search: of one where it has none."""
    match options.strategy:
        case BeamSearch() as beam:
            return beam
        case DiverseBeamSearch(beam_size=beam_size, early_stopping=early_stopping):
            return BeamSearch(beam_size=beam_size, early_stopping=early_stopping)
    return BeamSearch(beam_size=1)


def _settings(options: SearchOptions, *, whole_beam: bool) -> dict[str, Any]:
    """The options as CTranslate2 names them, but for those that depend on the model."""
    beam = _beam(options)
    settings: dict[str, Any] = {
        "beam_size": beam.beam_size,
        "num_hypotheses": beam.beam_size if whole_beam else options.n_best,
        # Without a length penalty it ends by "optimal", unless it is asked for patience.
        "patience": 1.0 if beam.early_stopping == "optimal" else 1.0001,
        "length_penalty": options.length_penalty,
        "repetition_penalty": options.repetition_penalty,
        "no_repeat_ngram_size": options.no_repeat_ngram_size,
        "min_decoding_length": options.min_length,
        "max_input_length": 0,
        "return_end_token": True,
        "return_scores": True,
    }
    if sampled := _sampled(options):
        settings |= {
            "beam_size": 1,
            "num_hypotheses": sampled.count,
            "patience": sampled.count,  # without which it refuses to draw several of the best token alone
            "sampling_topk": sampled.strategy.top_k or 0,
            "sampling_topp": sampled.strategy.top_p,
            "sampling_temperature": sampled.strategy.temperature,
        }
    return settings
