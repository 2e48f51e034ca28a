"""From source ids to hypotheses: which sentences are searched together, and how many batches at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from copy import copy
from functools import partial
from heapq import heapreplace
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.backends.protocol import (
    Allowed,
    AttentionBackend,
    Backend,
    BackendChoice,
    SingleBackend,
)
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.scoring import ScoredOutput, score_outputs
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.steps import NOT_NUMBERS, SearchTask
from heedful.errors import InputError, is_out_of_memory
from heedful.settings.options import Precision
from heedful.storage.bundle import Bundle
from heedful.text.pair import TokenizerPair
from heedful.text.special_tokens import SpecialTokens

_FEW = 4  # batches of a thread: with more, it does not matter how long each takes
_STEP = 8  # a step of any batch takes as long as for so many more sentences


def share_out(
    lengths: Sequence[int], steps: Sequence[int], threads: int, *, tokens: int, size: int | None = None
) -> list[list[int]]:
    """Plan batches so that the threads, each of which takes the next when it is done, soon have no more.

    Batches as large as the limits allow cost least, but one thread may have the longest sentences while the
    others wait: then there are a few for each thread, with as many steps in sum. Many even out by themselves.

    Args:
        lengths: of the sentences.
        steps: about as many as the output of each will take.
        threads: how many there are.
        tokens: of a batch, padding included.
        size: the maximum number of sentences of a batch.
    """
    plans = [plan_batches(lengths, tokens=tokens, size=size)]
    if threads > 1 and len(plans[0]) <= _FEW * threads:
        for parts in range(threads, _FEW * threads + 1, threads):
            plan = plan_batches(lengths, tokens=tokens, size=size, steps=steps, parts=parts)
            plans += [plan] if len(plan) <= parts else []  # without what is left over by the limits
    return min(plans, key=lambda plan: _end(plan, steps, threads))


def _end(batches: Sequence[Sequence[int]], steps: Sequence[int], threads: int) -> int:
    """Return how long the threads take for all batches, in steps of one sentence."""
    ends = [0] * threads
    for batch in batches:
        of_batch = [steps[i] for i in batch]
        heapreplace(ends, ends[0] + sum(of_batch) + _STEP * max(of_batch))
    return max(ends)


def plan_batches(
    lengths: Sequence[int],
    *,
    tokens: int,
    size: int | None = None,
    steps: Sequence[int] = (),
    parts: int = 1,
) -> list[list[int]]:
    """Group indices by length, longest first, so that rows x longest <= tokens; a longer one goes alone.

    Lengths of 0 are left out: they need no search.

    Args:
        lengths: of the sentences.
        tokens: of a group, padding included.
        size: the maximum number of sentences of a group.
        steps: of the sentences; without them, as many as they are long.
        parts: a group stays within one of so many parts that have the same number of steps, or nearly so.

    >>> plan_batches([3, 0, 7, 3, 2], tokens=6)
    [[2], [0, 3], [4]]
    >>> plan_batches([3, 0, 7, 3, 2], tokens=99, parts=2)
    [[2], [0, 3, 4]]
    """
    batches: list[list[int]] = []
    order = sorted((i for i, length in enumerate(lengths) if length), key=lambda i: (-lengths[i], i))
    steps = steps or lengths
    total, before, part = sum(steps[i] for i in order), 0, 0
    for i in order:
        latest, part_before = batches[-1] if batches else [], part
        part = (2 * before + steps[i]) * parts // (2 * total)  # where its middle is
        before += steps[i]
        fits = latest and (len(latest) + 1) * lengths[latest[0]] <= tokens and len(latest) != size
        if fits and part == part_before:
            latest.append(i)
        else:
            batches.append([i])
    return batches


_NOTHING = ScoredOutput((), 0.0, 0.0, (), finished=True, model_log_probs=())  # the output of an empty source
_Result = TypeVar("_Result")


class Generator(Protocol):
    """Generates the outputs of sources, or scores given ones, all as ids."""

    @property
    def name(self) -> str:
        """The name of the engine, as users know it."""
        ...

    @property
    def precision(self) -> Precision:
        """The precision of its matrix multiplications."""
        ...

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be; None: as long as memory allows."""
        ...

    def max_length(self, source: Sequence[int], options: SearchOptions) -> int:
        """Return the most tokens that an output of this source may have."""
        ...

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
        max_lengths: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the n-best hypotheses of each source, in the order of the sources.

        Args:
            sources: ids with the special tokens that the encoder reads; an empty source has no output.
            options: of the search.
            prefixes: for each source the ids that its outputs begin with.
            max_lengths: for each source the most tokens of its outputs, where that is less than the options
                and the model allow.

        Raises:
            InputError: options that this generator does not support, or too little memory for a batch.
        """
        ...

    def score(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """Score outputs by teacher forcing (see `score_outputs`); the order is kept.

        Args:
            sources: ids with the special tokens that the encoder reads.
            outputs: for each source what the decoder writes, with its end token unless the output is
                truncated; where both are empty, that has the score 0.
            options: of the search.
            prefixes: for each source the ids that a search had to begin its outputs with.
        """
        ...

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """Return for each given output the cross-attention weights (T, S) of its tokens.

        Args:
            sources: ids with the special tokens that the encoder reads.
            outputs: for each source the ids that the decoder writes.
            layer: of the decoder, from 1; None: the last but one (see `AttentionBackend`).

        Raises:
            InputError: there are none, or no such layer.
        """
        ...


class ForeignEngine(Protocol):
    """Another system's engine, which searches in its own way."""

    def __call__(self, bundle: Bundle, own: "StepwiseGenerator") -> Generator:
        """Return its generator for a bundle.

        Args:
            bundle: the model and its tokenizers.
            own: heedful's generator for it: its settings, and what the engine does not do itself.

        Raises:
            InputError: what the engine does not support.
        """
        ...


class StepwiseGenerator:
    """The generator over a backend's steps: batches of similar length, one thread each.

    Attributes:
        backends: of the steps.
        batch_tokens: source tokens of one batch at most, padding included; where outputs are given, of
            max(src_len, tgt_len).
        batch_size: sentences of one batch at most; None leaves it to the tokens.
        shortlist: what the outputs may be written with besides their prefixes; None: all tokens.
    """

    def __init__(
        self,
        backends: BackendChoice,
        framing: SpecialTokens,
        tokenizers: TokenizerPair,
        *,
        batch_tokens: int,
        batch_size: int | None,
        shortlist: Shortlist | None = None,
    ) -> None:
        """Prepare; see the class for what is not said here.

        Args:
            backends: of the steps.
            framing: has the start token of outputs.
            tokenizers: of sources and outputs.
            batch_tokens: of one batch.
            batch_size: of one batch.
            shortlist: of the model.
        """
        self.backends: BackendChoice = backends
        self._start_id = framing.start_id
        self._eos_id, self._pad_id = tokenizers.tgt.eos_id, tokenizers.tgt.pad_id
        self.batch_tokens = batch_tokens
        self.batch_size = batch_size
        self.shortlist = shortlist

    def over(self, backend: Backend) -> "StepwiseGenerator":
        """Return the same generator over another backend, with all searches: a `ForeignEngine` may do so."""
        other = copy(self)
        own = self.backends
        other.backends = SingleBackend(
            backend,
            vocab_size=own.vocab_size,
            position_limit=own.position_limit,
            lender=own,
        )
        return other

    @property
    def name(self) -> str:
        """See `Generator`: that of the backend."""
        return self.backends.searching.name

    @property
    def precision(self) -> Precision:
        """See `Generator`."""
        return self.backends.searching.precision

    @property
    def position_limit(self) -> int | None:
        """See `Generator`: models with learned positions have a limit."""
        return self.backends.position_limit

    def max_length(self, source: Sequence[int], options: SearchOptions) -> int:
        """See `Generator`; section 6.1 limits outputs to the length of their inputs + 50."""
        caps = [cap for cap in (options.max_length, self.position_limit) if cap is not None]
        return min([len(source) + options.max_length_offset, *caps])

    def __call__(
        self,
        sources: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
        max_lengths: Sequence[int] | None = None,
    ) -> list[list[Hypothesis]]:
        """See `Generator`."""
        limits = [self.max_length(ids, options) for ids in sources]
        if max_lengths is not None:
            limits = list(map(min, limits, max_lengths))
        backend = self._backend_for(options)

        def search_some(batch: list[int], threads: int) -> list[list[Hypothesis]]:
            of_batch = [sources[i] for i in batch]
            prefixes_of_batch = None if prefixes is None else [prefixes[i] for i in batch]
            allowed = self._allowed(of_batch, prefixes_of_batch)
            task = self._task(
                options,
                max_lengths=[limits[i] for i in batch],
                sources=of_batch,
                prefixes=prefixes_of_batch,
            )
            start = partial(backend.step, of_batch, threads=threads, allowed=allowed)
            return options.strategy.search(start, task)

        lengths = [len(ids) for ids in sources]
        steps = [
            min(max(length, options.min_length), limit) for length, limit in zip(lengths, limits, strict=True)
        ]
        n_best_lists = self._in_batches(
            search_some, lengths, steps, backend.parallel_batches, size=self._size_for(options)
        )
        return [each or [] for each in n_best_lists]

    def score(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """See `Generator`."""
        backend = self._backend_for(options)

        def score_batch(batch: list[int], threads: int) -> list[ScoredOutput]:
            of_batch, outputs_of_batch = [sources[i] for i in batch], [outputs[i] for i in batch]
            prefixes_of_batch = None if prefixes is None else [prefixes[i] for i in batch]
            allowed = self._allowed(of_batch, prefixes_of_batch)
            limits = [self.max_length(ids, options) for ids in of_batch]
            task = self._task(options, max_lengths=limits, sources=of_batch, prefixes=prefixes_of_batch)
            with backend.forced_step(
                of_batch, outputs_of_batch, start_id=self._start_id, threads=threads, allowed=allowed
            ) as step:
                return score_outputs(step, outputs_of_batch, task)

        lengths = [max(len(source), len(output)) for source, output in zip(sources, outputs, strict=True)]
        scored = self._in_batches(
            score_batch, lengths, lengths, backend.parallel_batches, size=self.batch_size
        )
        return [each or _NOTHING for each in scored]

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """See `Generator`."""
        backend, weights = self.backends.attending, [np.zeros((0, 0)) for _ in sources]
        lengths = [max(len(source), len(output)) for source, output in zip(sources, outputs, strict=True)]
        for batch in plan_batches(lengths, tokens=self.batch_tokens, size=self.batch_size):
            sources_of_batch, outputs_of_batch = [sources[i] for i in batch], [outputs[i] for i in batch]
            weights_of_batch = backend.attention(
                sources_of_batch, outputs_of_batch, start_id=self._start_id, layer=layer
            )
            for i, weights_TS in zip(batch, weights_of_batch, strict=True):
                weights[i] = weights_TS
        return weights

    def _size_for(self, options: SearchOptions) -> int | None:
        """Return the maximum number of sentences in a batch; None: only the tokens limit it."""
        limit = options.strategy.batch_limit(options.n_best, self.backends.vocab_size)
        limits = [each for each in (self.batch_size, limit) if each is not None]
        return min(limits, default=None)

    def _backend_for(self, options: SearchOptions) -> Backend:
        backend = self.backends.searching
        if not options.coverage_penalty:
            return backend
        if isinstance(backend, AttentionBackend):
            return backend.covering()
        raise InputError(
            f"coverage_penalty={options.coverage_penalty}: engine={backend.name!r} records no attention; "
            "engine='auto' does"
        )

    def _task(
        self,
        options: SearchOptions,
        *,
        max_lengths: list[int],
        sources: list[Sequence[int]],
        prefixes: list[Sequence[int]] | None,
    ) -> SearchTask:
        return SearchTask(
            max_lengths=max_lengths,
            start_id=self._start_id,
            eos_id=self._eos_id,
            pad_id=self._pad_id,
            options=options,
            sources=sources,
            prefixes=prefixes,
            vocab_size=self.backends.vocab_size,
        )

    def _allowed(self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None) -> Allowed:
        """The ids that each output may be written with, where that is not all."""
        if self.shortlist is None:
            return None
        beginnings = prefixes or [()] * len(sources)
        return [self.shortlist.ids(*each) for each in zip(sources, beginnings, strict=True)]

    def _in_batches(
        self,
        work_on: Callable[[list[int], int], list[_Result]],
        lengths: Sequence[int],
        steps: Sequence[int],
        num_threads: int,
        *,
        size: int | None,
    ) -> list[_Result | None]:
        """Return the results for all sentences, in their order; None for one of length 0.

        Up to `num_threads` batches are worked on at the same time, each with one thread; with fewer batches,
        the threads are divided among them.

        Raises:
            InputError: there is no memory for a batch.
        """

        def work_on_some(batch: list[int], threads: int) -> list[_Result]:
            try:
                return work_on(batch, threads)
            except InputError as error:
                if str(error) != NOT_NUMBERS or self.precision != "fp16":
                    raise
                raise InputError(
                    f"{error}, or too large for fp16; precision bf16 has the range of float32"
                ) from None
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                longest = max(batch, key=lengths.__getitem__)
                raise InputError(
                    f"no memory left for {len(batch):,} sentences at a time, of which the longest, sentence "
                    f"{longest + 1:,}, has {lengths[longest]:,} tokens; lower batch_tokens, or split it"
                ) from error

        batches = share_out(lengths, steps, num_threads, tokens=self.batch_tokens, size=size)
        at_once = min(num_threads, len(batches))
        threads = [num_threads // max(at_once, 1)] * len(batches)
        of_all: list[_Result | None] = [None] * len(lengths)
        with ThreadPoolExecutor(at_once) if at_once > 1 else nullcontext() as pool:
            each = (pool.map if pool else map)(work_on_some, batches, threads)
            for batch, results in zip(batches, each, strict=True):
                for i, result in zip(batch, results, strict=True):
                    of_all[i] = result
        return of_all
