"""The batches of each epoch, from any position: a resumed run goes on where it stopped."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from heedful.data.batches import Batch, collate
from heedful.data.sampler import Indices, plan_epoch
from heedful.data.store import IdPair, ParallelStore
from heedful.text import Framing, SegmentationSampler, TokenizerPair

Lengths = NDArray[np.integer]

_GROWTH_PAIRS = 512  # looked at to learn how much longer sampled segmentations are
_GROWTH_DEVIATIONS = 1.0  # of margin above the mean growth: more would make batches of normal ones small
_DRAWS = 4  # segmentations tried for a sentence that must fit its batch


@dataclass(frozen=True)
class BatchSource:
    """Batches whose order, contents and segmentations are a pure function of (seed, epoch).

    Attributes:
        store: the pairs; with its texts kept where `sampling` is above 0.
        tokenizers: they give the pad ids, and segment anew where `sampling` is above 0.
        tokens: the budget of a batch, rows x max(src_len, tgt_len), padding included. It holds with sampling
            too: the plan leaves a margin for longer segmentations, and one that does not fit is drawn again.
        seed: of order and segmentation.
        bucket_width: S and T are multiples of it.
        sampling: rate of the subword sampler; 0 is off.
        framing: the special-token template, as in the store; an eos where None.
        ramp_from: the budget in the first epoch, doubled with each until it is `tokens`; always that if None.
    """

    store: ParallelStore
    tokenizers: TokenizerPair
    tokens: int
    seed: int
    bucket_width: int = 4
    sampling: float = 0.0
    framing: Framing | None = None
    ramp_from: int | None = None

    def __post_init__(self) -> None:
        if self.sampling > 0.0 and not self.store.has_text:
            raise ValueError("subword sampling needs a store that was built with keep_text=True")
        if self.sampling > 0.0:
            _ = self._samplers  # refuses now, not at the first batch, a tokenizer that has no samples

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # nothing that is cached

    def budget(self, epoch: int) -> int:
        """The tokens of a batch in an epoch, counted from 0."""
        return self.tokens if self.ramp_from is None else min(self.tokens, self.ramp_from * 2**epoch)

    def plan(self, epoch: int) -> list[Indices]:
        """The pair numbers of each batch of an epoch."""
        src_lengths, tgt_lengths = self._planned_lengths
        return plan_epoch(
            src_lengths,
            tgt_lengths,
            tokens=self.budget(epoch),
            seed=self.seed,
            epoch=epoch,
            bucket_width=self.bucket_width,
        )

    @property
    def longest_sides(self) -> tuple[int, int]:
        """The longest S and T of a batch, padding included; sampled segmentations seldom go beyond."""
        width = self.bucket_width
        src, tgt = (-(-int(lengths.max()) // width) * width for lengths in self._planned_lengths)
        return src, tgt

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on, without making those before it."""
        for indices in self.plan(epoch)[start:]:
            yield self.batch(indices, epoch)

    def batch(self, indices: Indices, epoch: int) -> Batch:
        """One batch of an epoch's plan."""
        return collate(
            self._pairs(indices, epoch),
            src_pad_id=self.tokenizers.src.pad_id,
            tgt_pad_id=self.tokenizers.tgt.pad_id,
            start_id=self._framing.start_id,
            length_multiple=self.bucket_width,
        )

    def _pairs(self, indices: Indices, epoch: int) -> list[IdPair]:
        if self.sampling == 0.0:
            return [self.store[int(i)] for i in indices]
        side = max(int(lengths[indices].max()) for lengths in self._planned_lengths)
        side = -(-side // self.bucket_width) * self.bucket_width
        # A string is hashed with sha512: the same generator in every process and version of Python.
        return [
            self._sample(int(i), random.Random(f"{self.seed} {epoch} {i}"), min(side, self.store.max_length))
            for i in indices
        ]

    def _sample(self, index: int, rng: random.Random, longest: int) -> IdPair:
        """A pair segmented anew, special tokens added, each at most `longest` tokens."""
        (src_text, tgt_text), (src_ids, tgt_ids) = self.store.text(index), self.store[index]
        src_sampler, tgt_sampler = self._samplers
        return (
            _draw(lambda: self._framing.source(src_sampler(src_text, rng)), longest, src_ids),
            _draw(lambda: self._framing.target(tgt_sampler(tgt_text, rng)), longest, tgt_ids),
        )

    @property
    def _framing(self) -> Framing:
        return self.framing or Framing.plain(self.tokenizers)

    @cached_property
    def _samplers(self) -> tuple[SegmentationSampler, SegmentationSampler]:
        src = SegmentationSampler(self.tokenizers.src, self.sampling)
        tgt = src if self.tokenizers.joint else SegmentationSampler(self.tokenizers.tgt, self.sampling)
        return src, tgt

    @cached_property
    def _planned_lengths(self) -> tuple[Lengths, Lengths]:
        """Return the lengths to plan with: those in the store, with a margin where segmentations vary."""
        lengths = self.store.src_lengths, self.store.tgt_lengths
        if self.sampling == 0.0:
            return lengths
        rng = random.Random(f"{self.seed} growth")
        some = np.linspace(0, len(self.store) - 1, min(len(self.store), _GROWTH_PAIRS)).astype(np.int64)
        sampled = [self._sample(int(i), rng, self.store.max_length) for i in some]
        src, tgt = (
            _with_room(all_lengths, all_lengths[some], np.array([len(pair[side]) for pair in sampled]))
            for side, all_lengths in enumerate(lengths)
        )
        return np.minimum(src, self.store.max_length), np.minimum(tgt, self.store.max_length)


def _with_room(lengths: Lengths, before: Lengths, after: Lengths) -> Lengths:
    """Lengths that most sampled segmentations stay below.

    The tokens of a sentence grow independently, so growth has a mean in proportion to the length and a
    deviation in proportion to its root; both are fitted to the lengths before and after sampling.
    """
    mean = max(0.0, float((after - before).sum() / before.sum()))
    deviation = sqrt(float((((after - before) - mean * before) ** 2 / before).mean()))
    return np.ceil(lengths * (1 + mean) + _GROWTH_DEVIATIONS * deviation * np.sqrt(lengths)).astype(np.int64)


def _draw(sample: Callable[[], list[int]], longest: int, unsampled: NDArray[np.int32]) -> NDArray[np.int32]:
    """Sampled ids with special tokens; after several that are too long, the tokenizer's own."""
    for _ in range(_DRAWS):
        ids = sample()
        if len(ids) <= longest:
            return np.array(ids, dtype=np.int32)
    return unsampled
