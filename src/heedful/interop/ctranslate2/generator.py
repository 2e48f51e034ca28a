"""CTranslate2's search instead of heedful's: ids in, hypotheses out, by those options that it has."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.bundle import Bundle
from heedful.decoding.batch_plan import plan_batches
from heedful.decoding.generator import StepwiseGenerator
from heedful.decoding.hypotheses import Hypothesis, hypothesis_of
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import ScoredOutput
from heedful.errors import InputError
from heedful.interop.ctranslate2.position_limit import position_limit
from heedful.interop.ctranslate2.search_settings import (
    lacking,
    sampled_by,
    search_settings,
    sum_of_log_probs,
)
from heedful.interop.ctranslate2.tokens import token_names
from heedful.precision import Precision
from heedful.text.framing import Framing, suppressed_ids

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
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """See `Generator`; heedful's own."""
        return self._own.attention(sources, outputs, layer=layer)

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
        if names := ", ".join(lacking(options, self._eos_id)):
            raise InputError(f"engine='ctranslate2' cannot search with {names}; engine='auto' can")
        limits = [self.max_length(ids, options) for ids in sources]
        if max_lengths is not None:
            limits = list(map(min, limits, max_lengths))
        first = () if options.forced_first_id is None else (options.forced_first_id,)
        beginnings = [(*first, *ids) for ids in prefixes or [()] * len(sources)]
        at_once = 1 if sum(map(bool, sources)) == 1 else self._threads
        engine = self._load(at_once, self._threads // at_once)

        def search_batch(batch: list[int]) -> list[list[Hypothesis]]:
            return self._search_batch(
                engine, [sources[i] for i in batch], [beginnings[i] for i in batch], limits[batch[0]], options
            )

        n_best_lists: list[list[Hypothesis]] = [[] for _ in sources]
        batches = self._batches(sources, limits, at_once)
        with ThreadPoolExecutor(at_once) as pool:
            for batch, results in zip(batches, pool.map(search_batch, batches), strict=True):
                for i, hypotheses in zip(batch, results, strict=True):
                    n_best_lists[i] = hypotheses
        return n_best_lists

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
        beginnings: Sequence[Sequence[int]],
        limit: int,
        options: SearchOptions,
    ) -> list[list[Hypothesis]]:
        """Search, then let the model say what it thinks of each token: the search says one score only."""
        read = [self._named_source(ids) for ids in sources]
        most = max(1, limit - (options.forced_last_id is not None))
        # Its scores leave out what is forced: with that, another hypothesis may be the best.
        whole_beam = any(beginnings) or options.forced_last_id is not None
        settings = search_settings(options, whole_beam=whole_beam)
        # What CTranslate2 refuses, and what changes no output.
        settings["min_decoding_length"] = min(options.min_length, most)
        if "sampling_topk" in settings:
            settings["sampling_topk"] = min(settings["sampling_topk"], len(self._names.tgt))
        results = engine.translate_batch(
            read,
            [self._named(ids) for ids in beginnings],
            max_decoding_length=most,
            suppress_sequences=self._suppressed(options),
            **settings,
        )
        eos = self._names.tgt[self._eos_id]
        outputs = [(row, tokens) for row, each in enumerate(results) for tokens in each.hypotheses]
        own = engine.score_batch(
            [read[row] for row, _ in outputs],
            [tokens[:-1] if tokens[-1:] == [eos] else tokens for _, tokens in outputs],
            max_input_length=0,
        )
        scores = (score for each in results for score in each.scores)
        n_best_lists: list[list[Hypothesis]] = [[] for _ in sources]
        for (row, tokens), score, scored in zip(outputs, scores, own, strict=True):
            ids = [self._ids[token] for token in tokens]
            n_best_lists[row].append(
                self._hypothesis(ids, scored.log_probs, score, len(beginnings[row]), options)
            )
        if sampled_by(options) is None:
            n_best_lists = [
                sorted(each, key=lambda one: -one.score)[: options.n_best] for each in n_best_lists
            ]
        return n_best_lists

    def _hypothesis(
        self, ids: list[int], own: Sequence[float], score: float, num_in_prefix: int, options: SearchOptions
    ) -> Hypothesis:
        """An output of these ids, from the model's log-probabilities `own` and the score of the search."""
        own = list(own[: len(ids)])  # an output that was truncated has no end token
        if options.forced_first_id is not None:
            own[0] = 0.0
        log_prob = sum(own[:num_in_prefix]) + sum_of_log_probs(score, len(ids), options)
        if options.forced_last_id is not None and ids[-1:] != [self._eos_id]:
            ids, own = [*ids, self._eos_id], [*own, 0.0]
        penalty = options.penalty(len(ids))
        hypothesis = hypothesis_of(ids, own, eos_id=self._eos_id, penalty=penalty)
        if options.renormalize:
            hypothesis = replace(hypothesis, log_prob=log_prob, score=log_prob / penalty)
        return hypothesis

    def _named(self, ids: Iterable[int]) -> list[str]:
        return [self._names.tgt[i] for i in ids]

    def _named_source(self, ids: Sequence[int]) -> list[str]:
        """As the encoder reads it, but for the end that CTranslate2 adds itself."""
        return [self._names.src[i] for i in (ids[:-1] if self._adds_end else ids)]

    def _suppressed(self, options: SearchOptions) -> list[list[str]]:
        ids = suppressed_ids(
            options.suppressed_ids, start_id=self._start_id, pad_id=self._pad_id, eos_id=self._eos_id
        )
        return [self._named([i]) for i in ids]
