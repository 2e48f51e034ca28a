"""Which sentences are searched or scored together, and how many batches at a time."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.batch_plan import plan_batches, share_out
from heedful.decoding.computation import Allowed, Computation
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.sampling import samples_at_once
from heedful.decoding.scoring import ScoredOutput, score_outputs
from heedful.decoding.search import search_batch
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.task import SearchTask
from heedful.errors import InputError, is_out_of_memory
from heedful.text.framing import Framing
from heedful.text.pair import TokenizerPair

_NOTHING = ScoredOutput((), 0.0, 0.0, (), finished=True, model_log_probs=())  # the output of an empty source
_Found = TypeVar("_Found")


class BatchedSearch:
    """Searches the outputs of sources, or scores given ones, as ids, in batches of similar length."""

    def __init__(
        self,
        computation: Computation,
        framing: Framing,
        tokenizers: TokenizerPair,
        *,
        tokens: int,
        size: int | None,
        shortlist: Shortlist | None = None,
    ) -> None:
        """Prepare.

        Args:
            computation: of the steps.
            framing: says what an output starts from.
            tokenizers: of sources and outputs.
            tokens: source tokens of one batch at most, padding included; where outputs are given, of the
                longer side.
            size: sentences of one batch at most; None leaves it to the tokens.
            shortlist: what the outputs may be written with besides their prefixes; None: all tokens.
        """
        self._computation = computation
        self._start_id = framing.start_id
        self._eos_id, self._pad_id = tokenizers.tgt.eos_id, tokenizers.tgt.pad_id
        self._tokens = tokens
        self._size = size
        self._shortlist = shortlist

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be where a model has learned positions."""
        return self._computation.position_limit

    def max_length(self, source: Sequence[int], options: SearchOptions) -> int:
        """The most tokens of an output: section 6.1 limits it to the length of its input + 50."""
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
        """Search; the order is kept.

        Args:
            sources: as the encoder reads them, with what `Framing` puts around a text; an empty one has no
                output.
            options: the search.
            prefixes: for each source the ids that its outputs begin with.
            max_lengths: for each source the most tokens of its outputs, where that is less than the options
                and the model allow.
        """
        limits = [self.max_length(ids, options) for ids in sources]
        if max_lengths is not None:
            limits = list(map(min, limits, max_lengths))
        computation = self._computation_for(options)

        def search_some(batch: list[int], threads: int) -> list[list[Hypothesis]]:
            together = [sources[i] for i in batch]
            begun = None if prefixes is None else [prefixes[i] for i in batch]
            allowed = self._allowed(together, begun)
            task = self._task(
                options,
                max_lengths=[limits[i] for i in batch],
                sources=together,
                prefixes=begun,
            )
            start = partial(computation.step, together, threads=threads, allowed=allowed)
            return search_batch(start, task, vocab_size=computation.vocab_size)

        lengths = [len(ids) for ids in sources]
        steps = [
            min(max(length, options.min_length), limit) for length, limit in zip(lengths, limits, strict=True)
        ]
        found = self._in_batches(
            search_some, lengths, steps, computation.batches_at_once, size=self._size_for(options)
        )
        return [each or [] for each in found]

    def score(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        options: SearchOptions,
        prefixes: Sequence[Sequence[int]] | None = None,
    ) -> list[ScoredOutput]:
        """Score given outputs (see `score_outputs`); the order is kept.

        Args:
            sources: as the encoder reads them.
            outputs: for each source what the decoder writes, with its end token unless the output is cut;
                where both are empty, that has the score 0.
            options: of the search.
            prefixes: for each source the ids that a search had to begin its outputs with.
        """
        computation = self._computation_for(options)

        def score_batch(batch: list[int], threads: int) -> list[ScoredOutput]:
            together, given = [sources[i] for i in batch], [outputs[i] for i in batch]
            begun = None if prefixes is None else [prefixes[i] for i in batch]
            allowed = self._allowed(together, begun)
            limits = [self.max_length(ids, options) for ids in together]
            task = self._task(options, max_lengths=limits, sources=together, prefixes=begun)
            with computation.forced_step(
                together, given, start_id=self._start_id, threads=threads, allowed=allowed
            ) as step:
                return score_outputs(step, given, task)

        lengths = [max(len(source), len(output)) for source, output in zip(sources, outputs, strict=True)]
        found = self._in_batches(score_batch, lengths, lengths, computation.batches_at_once, size=self._size)
        return [each or _NOTHING for each in found]

    def attention(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]]
    ) -> list[NDArray[np.float64]]:
        """What each token of given outputs attends to in its source, (T, S) of each; the order is kept."""
        start_id, found = self._start_id, [np.zeros((0, 0)) for _ in sources]
        lengths = [max(len(source), len(output)) for source, output in zip(sources, outputs, strict=True)]
        for batch in plan_batches(lengths, tokens=self._tokens, size=self._size):
            together, given = [sources[i] for i in batch], [outputs[i] for i in batch]
            of_batch = self._computation.attention(together, given, start_id=start_id)
            for i, weights_TS in zip(batch, of_batch, strict=True):
                found[i] = weights_TS
        return found

    def _size_for(self, options: SearchOptions) -> int | None:
        """The most sentences of one batch: as many as have all of their samples drawn together."""
        if options.sampling is None:
            return self._size
        most = max(1, samples_at_once(self._computation.vocab_size) // options.n_best)
        return most if self._size is None else min(self._size, most)

    def _computation_for(self, options: SearchOptions) -> Computation:
        return self._computation.covering if options.coverage_penalty else self._computation

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
        )

    def _allowed(self, sources: Sequence[Sequence[int]], prefixes: Sequence[Sequence[int]] | None) -> Allowed:
        """The ids that each output may be written with, where that is not all."""
        if self._shortlist is None:
            return None
        begun = prefixes or [()] * len(sources)
        return [self._shortlist.ids(*each) for each in zip(sources, begun, strict=True)]

    def _in_batches(
        self,
        work_on: Callable[[list[int], int], list[_Found]],
        lengths: Sequence[int],
        steps: Sequence[int],
        most: int,
        *,
        size: int | None,
    ) -> list[_Found | None]:
        """What the work on each batch finds for its sentences, in their order; None for one of length 0.

        A batch has one thread; where there are fewer batches than the `most` at a time, it has its share of
        them.

        Raises:
            InputError: there is no memory for a batch.
        """

        def work_on_some(batch: list[int], threads: int) -> list[_Found]:
            try:
                return work_on(batch, threads)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                longest = max(batch, key=lengths.__getitem__)
                raise InputError(
                    f"no memory left for {len(batch):,} sentences at a time, of which the longest, sentence "
                    f"{longest + 1:,}, has {lengths[longest]:,} tokens; lower batch_tokens, or split it"
                ) from error

        batches = share_out(lengths, steps, most, tokens=self._tokens, size=size)
        at_once = min(most, len(batches))
        threads = [most // max(at_once, 1)] * len(batches)
        found: list[_Found | None] = [None] * len(lengths)
        with ThreadPoolExecutor(at_once) if at_once > 1 else nullcontext() as pool:
            each = (pool.map if pool else map)(work_on_some, batches, threads)
            for batch, results in zip(batches, each, strict=True):
                for i, result in zip(batch, results, strict=True):
                    found[i] = result
        return found
