"""From sources to hypotheses, as ids: batches of sentences, and how many are searched at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from heapq import heapreplace
from typing import TypeVar

import numpy as np

from heedful.decoding.backends.protocol import Adapters, Allowed, Backend
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import ScoredOutput, score_outputs
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.steps import Floats, Ids
from heedful.decoding.task import Hypothesis, SearchTask, Source
from heedful.errors import InputError, NotNumbersError, is_out_of_memory
from heedful.runtime.threads import num_threads

_BATCHES_PER_THREAD = 4  # with more batches, the threads finish at about the same time anyway
_STEP_OVERHEAD = 8  # the fixed time of a step, in sentences


def schedule_batches(
    lengths: Sequence[int], steps: Sequence[int], threads: int, *, tokens: int, size: int | None = None
) -> list[list[int]]:
    """Plan batches for threads that take the next batch when they are free, to minimise the makespan.

    The largest batches cost least, but then one thread may have the longest sentences while the others wait.
    If there are few batches, plans with some smaller ones per thread, of equal numbers of steps, are
    compared.

    `steps` are the expected steps of each sentence's output; for the others, see `plan_batches`.
    """
    largest, most = plan_batches(lengths, tokens=tokens, size=size), _BATCHES_PER_THREAD * threads
    if threads == 1 or len(lengths) == 1 or len(largest) > most:
        return largest
    plans = [largest]
    for parts in range(threads, most + 1, threads):
        plan = plan_batches(lengths, tokens=tokens, size=size, steps=steps, parts=parts)
        if len(plan) <= parts:  # else the limits split a part
            plans.append(plan)
    return min(plans, key=lambda plan: _makespan(plan, steps, threads))


def _makespan(batches: Ids, steps: Sequence[int], threads: int) -> int:
    """Return the time that the threads take for all batches, in steps of one sentence."""
    ends = [0] * threads
    for batch in batches:
        of_batch = [steps[i] for i in batch]
        heapreplace(ends, ends[0] + sum(of_batch) + _STEP_OVERHEAD * max(of_batch))
    return max(ends)


def plan_batches(
    lengths: Sequence[int], *, tokens: int, size: int | None = None, steps: Sequence[int] = (), parts: int = 1
) -> list[list[int]]:
    """Group indices by length, longest first, so that rows x longest <= tokens; a longer one goes alone.

    Sentences of length 0 are left out: they need no search.

    Args:
        lengths: the lengths of the sentences.
        tokens: the maximum number of tokens in a group, padding included.
        size: the maximum number of sentences in a group.
        steps: the steps of each sentence; by default, its length.
        parts: the sentences are divided into this number of parts with about equal steps; a group lies within
            one part.

    >>> plan_batches([3, 0, 7, 3, 2], tokens=6)
    [[2], [0, 3], [4]]
    >>> plan_batches([3, 0, 7, 3, 2], tokens=99, parts=2)
    [[2], [0, 3, 4]]
    """
    batches: list[list[int]] = [[]]
    order = sorted(np.flatnonzero(lengths).tolist(), key=lambda i: -lengths[i])
    steps = steps or lengths
    total, before, part_before = sum(steps[i] for i in order), 0, 0
    for i in order:
        part = (2 * before + steps[i]) * parts // (2 * total)  # the part of its middle
        longest = lengths[batches[-1][0]] if batches[-1] else lengths[i]
        if (len(batches[-1]) + 1) * longest > tokens or len(batches[-1]) == size or part != part_before:
            batches.append([])
        batches[-1].append(i)
        before, part_before = before + steps[i], part
    return [batch for batch in batches if batch]


_NOTHING = ScoredOutput((), 0.0, 0.0, (), finished=True, model_log_probs=())  # the output of an empty source
_Result = TypeVar("_Result")


@dataclass(frozen=True, kw_only=True)
class Generator:
    """Generates the outputs of sources, or scores given ones, all as ids: in batches of similar length.

    Attributes:
        backend: computes the steps.
        start_id: the first input of the decoder.
        eos_id: the end token.
        pad_id: the padding token, which is never generated.
        vocab_size: the size of the target vocabulary.
        batch_tokens: the maximum number of source tokens in a batch, padding included; if outputs are given,
            a pair has the length max(src_len, tgt_len).
        batch_size: the maximum number of sentences in a batch; None: no limit but `batch_tokens`.
        shortlist: the tokens that outputs may have besides their prefixes; None: all tokens.
    """

    backend: Backend
    start_id: int
    eos_id: int
    pad_id: int
    vocab_size: int
    batch_tokens: int
    batch_size: int | None = None
    shortlist: Shortlist | None = None

    def search(self, sources: Sequence[Source], options: SearchOptions) -> list[list[Hypothesis]]:
        """Return the n-best hypotheses of each source, in the order of the sources.

        Raises:
            InputError: options that the backend does not support, or too little memory for a batch.
        """

        def search_batch(batch: list[int], threads: int) -> list[list[Hypothesis]]:
            task, allowed = self._task([sources[i] for i in batch], options)
            start = partial(
                self.backend.step,
                task.sources,
                threads=threads,
                allowed=allowed,
                coverage=options.coverage_penalty > 0,
                **self._adapters([sources[i] for i in batch]),
            )
            return options.strategy.search(start, task)

        lengths = [len(source.ids) for source in sources]
        steps = [min(max(len(source.ids), options.min_length), source.limit) for source in sources]
        limits = self.batch_size, options.strategy.batch_limit(options.n_best, self.vocab_size)
        size = min(filter(None, limits), default=None)
        n_best_lists = self._in_batches(search_batch, lengths, steps, options, size=size)
        return [each or [] for each in n_best_lists]

    def score(self, sources: Sequence[Source], outputs: Ids, options: SearchOptions) -> list[ScoredOutput]:
        """Score outputs by teacher forcing (see `score_outputs`); the order is kept.

        Args:
            sources: the sources, with the prefixes of the search.
            outputs: for each source the ids that the decoder writes, with the end token unless the output is
                truncated. An empty source with an empty output scores 0.
            options: the options of the search.
        """

        def score_batch(batch: list[int], threads: int) -> list[ScoredOutput]:
            task, allowed = self._task([sources[i] for i in batch], options)
            outputs_of_batch = [outputs[i] for i in batch]
            with self.backend.forced_step(
                task.sources,
                outputs_of_batch,
                start_id=self.start_id,
                threads=threads,
                allowed=allowed,
                coverage=options.coverage_penalty > 0,
                **self._adapters([sources[i] for i in batch]),
            ) as step:
                return score_outputs(step, outputs_of_batch, task)

        lengths = [max(len(source.ids), len(output)) for source, output in zip(sources, outputs, strict=True)]
        scored = self._in_batches(score_batch, lengths, lengths, options, size=self.batch_size)
        return [each or _NOTHING for each in scored]

    def attention(self, sources: Sequence[Source], outputs: Ids, *, layer: int | None = None) -> list[Floats]:
        """Return for each given output the cross-attention weights (T, S) of its tokens.

        Args:
            sources: the sources.
            outputs: for each source the ids that the decoder writes.
            layer: the decoder layer, from 1; None: the last but one (see `Backend.attention`).

        Raises:
            InputError: the backend records none, or there is no such layer.
        """
        weights = [np.zeros((0, 0)) for _ in sources]
        lengths = [max(len(source.ids), len(output)) for source, output in zip(sources, outputs, strict=True)]
        for batch in plan_batches(lengths, tokens=self.batch_tokens, size=self.batch_size):
            some = [sources[i] for i in batch]
            of_batch = self.backend.attention(
                [source.ids for source in some],
                [outputs[i] for i in batch],
                start_id=self.start_id,
                layer=layer,
                **self._adapters(some),
            )
            for i, weights_TS in zip(batch, of_batch, strict=True):
                weights[i] = weights_TS
        return weights

    def _adapters(self, sources: Sequence[Source]) -> dict[str, Adapters]:
        """Return the argument of a backend for the adapters of sources, if there are any."""
        adapters = [source.adapter for source in sources]
        return {"adapters": adapters} if any(adapters) else {}

    @property
    def parallel_batches(self) -> int:
        """The number of batches that are searched at the same time, each in its own thread."""
        return self.backend.parallel_batches or num_threads()

    def _task(self, sources: Sequence[Source], options: SearchOptions) -> tuple[SearchTask, Allowed]:
        """Return the task of a batch, and the ids that each output may have; None: all."""
        allowed = None
        if self.shortlist is not None:
            allowed = [self.shortlist.ids(source.ids, besides=source.target_ids) for source in sources]
        terms = [source.terms for source in sources]
        task = SearchTask(
            max_lengths=[source.limit for source in sources],
            start_id=self.start_id,
            eos_id=self.eos_id,
            pad_id=self.pad_id,
            options=options,
            sources=[source.ids for source in sources],
            prefixes=[source.prefix for source in sources],
            vocab_size=self.vocab_size,
            terms=terms if any(terms) else None,
        )
        return task, allowed

    def _in_batches(
        self,
        compute: Callable[[list[int], int], Sequence[_Result]],
        lengths: Sequence[int],
        steps: Sequence[int],
        options: SearchOptions,
        *,
        size: int | None,
    ) -> list[_Result | None]:
        """Return the results for all sentences, in their order; None for one of length 0.

        `compute` returns the results of a batch, given its sentences and a number of threads.
        The backend computes batches in parallel, one thread each; if there are fewer batches than threads,
        the threads are divided among them.

        Raises:
            InputError: the backend has no attention for a coverage penalty, or too little memory for a batch.
        """
        if options.coverage_penalty and not self.backend.records_attention:
            raise InputError(
                f"coverage_penalty={options.coverage_penalty}: engine={self.backend.name!r} records no "
                "attention; engine='auto' does"
            )
        threads = self.parallel_batches
        if options.threads is not None:
            threads = min(threads, options.threads)
        batches = schedule_batches(lengths, steps, threads, tokens=self.batch_tokens, size=size)
        at_once = min(threads, len(batches))
        shares = [threads // max(at_once, 1)] * len(batches)
        of_all: list[_Result | None] = [None] * len(lengths)
        with ThreadPoolExecutor(at_once) if at_once > 1 else nullcontext() as pool:
            of_batches = (pool.map if pool else map)(compute, batches, shares)
            for batch in batches:
                try:
                    for i, result in zip(batch, next(of_batches), strict=True):
                        of_all[i] = result
                except NotNumbersError as error:
                    if self.backend.precision != "fp16":
                        raise
                    advice = "or too large for fp16; precision bf16 has the range of float32"
                    raise NotNumbersError(f"{error}, {advice}") from None
                except (MemoryError, RuntimeError) as error:
                    if not is_out_of_memory(error):
                        raise
                    longest = max(batch, key=lengths.__getitem__)
                    raise InputError(
                        f"no memory left for {len(batch):,} sentences at a time; the longest, sentence "
                        f"{longest + 1:,}, has {lengths[longest]:,} tokens; lower batch_tokens, or split it"
                    ) from error
        return of_all
