"""Batches: an epoch in batches of similar length (5.1), corpora mixed, segmentations sampled, ids padded."""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import accumulate, pairwise
from math import floor, sqrt

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.store import IdPair, ParallelStore
from heedful.settings.plugins import function_part
from heedful.text import SegmentationSampler, SpecialTokens, TokenizerPair
from heedful.text.tokenizer import pad


@dataclass(frozen=True)
class Batch:
    """One micro-batch, padded on the right.

    Attributes:
        src: (B, S) int64, each sentence followed by eos, with a language tag if the model needs one.
        tgt_in: (B, T) int64, the start id followed by the target: the decoder's input.
        tgt_out: (B, T) int64, the target followed by eos: the decoder's expected output.
        num_tgt_tokens: tokens of tgt_out that are not padding, eos included.
    """

    src: torch.Tensor
    tgt_in: torch.Tensor
    tgt_out: torch.Tensor
    num_tgt_tokens: int

    def __len__(self) -> int:
        return self.src.shape[0]

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device; the copy to a GPU goes on while the CPU does."""
        tensors = [self.src, self.tgt_in, self.tgt_out]
        if torch.device(device).type == "cuda" and not self.src.is_cuda:
            tensors = [
                each.pin_memory() for each in tensors
            ]  # a GPU reads it itself, so the CPU need not wait
        src, tgt_in, tgt_out = (each.to(device, non_blocking=True) for each in tensors)
        return Batch(src, tgt_in, tgt_out, self.num_tgt_tokens)


def collate(
    pairs: Sequence[IdPair],
    *,
    src_pad_id: int,
    tgt_pad_id: int,
    start_id: int,
    length_multiple: int = 1,
) -> Batch:
    """Pad pairs of ids, eos included in source and target, into one batch.

    Args:
        pairs: (source ids, target ids), at least one pair.
        src_pad_id: fills the source; may differ from the target's.
        tgt_pad_id: fills both target tensors.
        start_id: precedes the target in `tgt_in`; bos, unless the model has another.
        length_multiple: S and T are rounded up to it, so that shapes repeat and kernels are reused.
    """
    src = pad([pair[0] for pair in pairs], src_pad_id, length_multiple=length_multiple)
    tgt_out = pad([pair[1] for pair in pairs], tgt_pad_id, length_multiple=length_multiple)
    tgt_in = np.full_like(tgt_out, tgt_pad_id)
    tgt_in[:, 0] = start_id
    for row, (_, tgt) in enumerate(pairs):
        tgt_in[row, 1 : len(tgt)] = tgt[:-1]
    return Batch(
        src=torch.from_numpy(src),
        tgt_in=torch.from_numpy(tgt_in),
        tgt_out=torch.from_numpy(tgt_out),
        num_tgt_tokens=sum(len(tgt) for _, tgt in pairs),
    )


Indices = NDArray[np.int64]
EpochPlan = list[Indices]  # the pairs of each batch of an epoch, in order


def plan_epoch(
    src_lengths: NDArray[np.integer],
    tgt_lengths: NDArray[np.integer],
    *,
    tokens: int,
    seed: int,
    epoch: int,
    bucket_width: int,
) -> EpochPlan:
    """Divide all pairs into batches of similar length ("by approximate sequence length", 5.1 of the paper).

    Lengths are rounded up to a multiple of `bucket_width`, as in the padded batches. A batch is filled while
    rows x max(src_len, tgt_len) is at most `tokens`; a pair that alone exceeds it is a batch of its own.
    Pairs of equal rounded lengths are in random order, the first batch ends at a random position so that the
    boundaries differ from epoch to epoch, and the order of the batches is random.

    Returns:
        One array of pair indices for each batch; each pair is in exactly one.
    """
    rng = np.random.Generator(np.random.PCG64([seed, epoch]))
    src, tgt = (-(-lengths // bucket_width) for lengths in (src_lengths, tgt_lengths))
    maximum = np.maximum(src, tgt)
    # Sort by max(src_len, tgt_len), then by the difference of both, in alternating direction so that
    # neighbours are alike where the maximum changes too: this keeps padding low in source and target.
    shape = np.where(maximum % 2 == 0, src - tgt, tgt - src)
    largest = int(maximum.max(initial=0))
    # As one number, in 16 bits if that suffices: numpy sorts those by radix, in a fraction of the time.
    kind = np.uint16 if (largest + 1) * (2 * largest + 1) < 2**16 else np.int64
    key = maximum.astype(kind) * kind(2 * largest + 1) + (shape + largest).astype(kind)
    del src, tgt, shape  # a text may have 50 million pairs
    order = rng.random(len(key)).argsort(kind="stable")
    order = order[key[order].argsort(kind="stable")]
    lengths = maximum[order].astype(np.int64) * bucket_width
    boundaries = _fill(lengths, tokens, first=rng.uniform(0.0, tokens))
    batches = [order[start:stop] for start, stop in pairwise(boundaries)]
    return [batches[i] for i in rng.permutation(len(batches))]


def _fill(lengths: Indices, tokens: int, *, first: float) -> list[int]:
    """Return the boundaries of batches filled one by one with pairs in ascending order of length."""
    boundaries = [0]
    budget = first
    while boundaries[-1] < len(lengths):
        start = boundaries[-1]
        reachable = lengths[start : start + max(1, int(budget) // max(1, int(lengths[start])))]
        rows = np.arange(1, len(reachable) + 1)
        boundaries.append(start + max(1, int(np.count_nonzero(rows * reachable <= budget))))
        budget = tokens
    return boundaries


def sampler_of(name: str) -> Callable[..., EpochPlan]:
    """Return the sampler of a plugin, `PLUGIN:NAME`, in place of `plan_epoch`."""
    arguments = "src_lengths, tgt_lengths, *, tokens, seed, epoch, bucket_width"
    returns = "a list of int64 arrays with each index of a pair once"
    return function_part(name, "batch.sampler", arguments, returns=returns, is_right=_is_plan)


def _is_plan(plan: object, lengths: Indices) -> bool:
    if not (isinstance(plan, list) and all(isinstance(each, np.ndarray) and each.size for each in plan)):
        return False
    indices = np.concatenate(plan or [np.empty(0, np.int64)], axis=None)
    return indices.dtype.kind in "iu" and np.array_equal(np.sort(indices), np.arange(len(lengths)))


Lengths = NDArray[np.integer]

_GROWTH_PAIRS = 512  # sampled to estimate how much longer random segmentations are
_GROWTH_DEVIATIONS = 1.0  # standard deviations of margin above the mean growth
_DRAWS = 4  # segmentations sampled for a sentence until one fits its batch


_MIXTURE = 0x6D6978  # apart from the plan's random numbers of the same seed


@dataclass(frozen=True)
class Mixture:
    """Several corpora, each with its share of the pairs of an epoch; a pure function of (seed, epoch).

    An epoch has about as many pairs as all corpora together. Each corpus is gone through in random order, and
    goes on in the next epoch where it was: none of its pairs comes again before all others have come.

    Attributes:
        sizes: the number of pairs of each corpus, in the order of the store.
        shares: the share of each in an epoch; they add up to 1.
        templates: the special-token template of each.
    """

    sizes: tuple[int, ...]
    shares: tuple[float, ...]
    templates: tuple[SpecialTokens, ...]

    def counts(self, num_epochs: int = 1) -> list[int]:
        """Return the number of pairs of each corpus in the first epochs.

        It is rounded over all of them: a share of less than one pair has its turn every few epochs.
        """
        total = num_epochs * sum(self.sizes)
        return [floor(total * share + 0.5) for share in self.shares]

    def indices(self, seed: int, epoch: int) -> Indices:
        """Return the indices of an epoch's pairs in the store, corpus by corpus."""
        chosen = []
        starts = accumulate(self.sizes, initial=0)
        corpora = zip(self.sizes, self.counts(epoch), self.counts(epoch + 1), starts, strict=False)
        for number, (size, position, end, first) in enumerate(corpora):
            while position < end:
                turn, start = divmod(position, size)
                stop = min(size, start + end - position)
                position += stop - start
                if stop - start == size:
                    chosen.append(np.arange(first, first + size))
                    continue
                rng = np.random.Generator(np.random.PCG64([seed, turn, number, _MIXTURE]))
                chosen.append(first + np.sort(rng.permutation(size)[start:stop]))
        return np.concatenate(chosen)

    def template(self, index: int) -> SpecialTokens:
        """Return the special-token template of a pair."""
        ends = accumulate(self.sizes)
        return next(each for end, each in zip(ends, self.templates, strict=True) if index < end)


@dataclass(frozen=True)
class BatchSource:
    """Batches: their order, contents and segmentations are a pure function of (seed, epoch).

    Attributes:
        store: the pairs; with their texts if `sampling` is above 0.
        tokenizers: the tokenizers, for pad ids, and for new segmentations if `sampling` is above 0.
        tokens: the budget of a batch, rows x max(src_len, tgt_len), padding included. With sampling the plan
            leaves a margin for longer segmentations, and one that does not fit is sampled again.
        seed: the seed of order and segmentation.
        bucket_width: S and T are multiples of it.
        sampling: the rate of the subword sampler; 0 is off.
        template: the special-token template of the store; None: eos only.
        ramp_from: the budget of the first epoch, doubled with each up to `tokens`; None: always `tokens`.
        mixture: how several corpora are mixed; None: each pair of the store once in each epoch.
        sampler: divides the pairs of an epoch into batches.
    """

    store: ParallelStore
    tokenizers: TokenizerPair
    tokens: int
    seed: int
    bucket_width: int = 4
    sampling: float = 0.0
    template: SpecialTokens | None = None
    ramp_from: int | None = None
    mixture: Mixture | None = None
    sampler: Callable[..., EpochPlan] = plan_epoch

    def __post_init__(self) -> None:
        if self.sampling > 0.0:
            if not self.store.has_text:
                raise ValueError("subword sampling needs a store that was built with keep_text=True")
            _ = self._samplers  # raises now, not at the first batch, if a tokenizer cannot sample

    def __getstate__(self) -> dict[str, object]:
        return {field.name: getattr(self, field.name) for field in fields(self)}  # nothing that is cached

    def budget(self, epoch: int) -> int:
        """Return the tokens of a batch in an epoch, counted from 0."""
        return self.tokens if self.ramp_from is None else min(self.tokens, self.ramp_from * 2**epoch)

    def plan(self, epoch: int) -> EpochPlan:
        """Return the plan of an epoch.

        The last two plans are remembered: a step may begin in one epoch and end in the next.
        """
        plans = self._plans
        if epoch not in plans:
            if len(plans) > 1:
                del plans[next(iter(plans))]
            plans[epoch] = self._new_plan(epoch)
        return plans[epoch]

    def _new_plan(self, epoch: int) -> EpochPlan:
        src_lengths, tgt_lengths = self._planned_lengths
        mixed = None
        if self.mixture is not None:
            mixed = self.mixture.indices(self.seed, epoch)
            src_lengths, tgt_lengths = src_lengths[mixed], tgt_lengths[mixed]
        plan = self.sampler(
            src_lengths,
            tgt_lengths,
            tokens=self.budget(epoch),
            seed=self.seed,
            epoch=epoch,
            bucket_width=self.bucket_width,
        )
        return plan if mixed is None else [mixed[rows] for rows in plan]

    @property
    def max_lengths(self) -> tuple[int, int]:
        """The longest S and T of a batch, padding included; sampled segmentations rarely exceed them."""
        width = self.bucket_width
        src, tgt = (-(-int(lengths.max()) // width) * width for lengths in self._planned_lengths)
        return src, tgt

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the batches of an epoch."""
        return (self.batch(indices, epoch) for indices in self.plan(epoch))

    def batch(self, indices: Indices, epoch: int) -> Batch:
        """Return one batch of an epoch's plan."""
        return collate(
            self._pairs(indices, epoch),
            src_pad_id=self.tokenizers.src.pad_id,
            tgt_pad_id=self.tokenizers.tgt.pad_id,
            start_id=self._template.start_id,
            length_multiple=self.bucket_width,
        )

    def _pairs(self, indices: Indices, epoch: int) -> list[IdPair]:
        if self.sampling == 0.0:
            return [self.store[int(i)] for i in indices]
        length = max(int(lengths[indices].max()) for lengths in self._planned_lengths)
        length = -(-length // self.bucket_width) * self.bucket_width
        # A string is hashed with sha512: the same generator in every process and version of Python.
        longest = min(length, self.store.max_length)
        return [self._sample(int(i), random.Random(f"{self.seed} {epoch} {i}"), longest) for i in indices]

    def _sample(self, index: int, rng: random.Random, longest: int) -> IdPair:
        """Return a pair with sampled segmentations and special tokens, each at most `longest` tokens."""
        (src_text, tgt_text), (src_ids, tgt_ids) = self.store.text(index), self.store[index]
        src_sampler, tgt_sampler = self._samplers
        template = self._template if self.mixture is None else self.mixture.template(index)
        return (
            _draw(lambda: template.source(src_sampler(src_text, rng)), longest, src_ids),
            _draw(lambda: template.target(tgt_sampler(tgt_text, rng)), longest, tgt_ids),
        )

    @cached_property
    def _plans(self) -> dict[int, EpochPlan]:
        return {}

    @property
    def _template(self) -> SpecialTokens:
        return self.template or SpecialTokens.plain(self.tokenizers)

    @cached_property
    def _samplers(self) -> tuple[SegmentationSampler, SegmentationSampler]:
        src = SegmentationSampler(self.tokenizers.src, self.sampling)
        tgt = src if self.tokenizers.joint else SegmentationSampler(self.tokenizers.tgt, self.sampling)
        return src, tgt

    @cached_property
    def _planned_lengths(self) -> tuple[Lengths, Lengths]:
        """Return the lengths in the store, with a margin if segmentations are sampled."""
        lengths = self.store.src_lengths, self.store.tgt_lengths
        if self.sampling == 0.0:
            return lengths
        rng = random.Random(f"{self.seed} growth")
        some = np.linspace(0, len(self.store) - 1, min(len(self.store), _GROWTH_PAIRS)).astype(np.int64)
        sampled = [self._sample(int(i), rng, self.store.max_length) for i in some]
        sampled_lengths = np.array([(len(src), len(tgt)) for src, tgt in sampled]).T
        src, tgt = (
            np.minimum(_with_margin(before, before[some], after), self.store.max_length)
            for before, after in zip(lengths, sampled_lengths, strict=True)
        )
        return src, tgt


def _with_margin(lengths: Lengths, before: Lengths, after: Lengths) -> Lengths:
    """Return lengths that most sampled segmentations stay below.

    The tokens of a sentence grow independently, so the growth has a mean proportional to the length and a
    standard deviation proportional to its root; both are fitted to the lengths before and after sampling.
    """
    mean = max(0.0, float((after - before).sum() / before.sum()))
    deviation = sqrt(float((((after - before) - mean * before) ** 2 / before).mean()))
    return np.ceil(lengths * (1 + mean) + _GROWTH_DEVIATIONS * deviation * np.sqrt(lengths)).astype(np.int64)


def _draw(sample: Callable[[], list[int]], longest: int, unsampled: NDArray[np.int32]) -> NDArray[np.int32]:
    """Return sampled ids of at most `longest` tokens, or the unsampled ids after several attempts."""
    for _ in range(_DRAWS):
        ids = sample()
        if len(ids) <= longest:
            return np.array(ids, dtype=np.int32)
    return unsampled
