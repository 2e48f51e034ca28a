"""From pairs of ids to the tensors of one training step."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.data.sampler import Indices, plan_epoch
from heedful.data.store import IdPair, ParallelStore
from heedful.text import SegmentationSampler, TokenizerPair


@dataclass(frozen=True)
class Batch:
    """The tensors of one step, padded on the right.

    Attributes:
        src: (B, S) int64, each sentence followed by eos.
        tgt_in: (B, T) int64, bos followed by the target: what the decoder sees.
        tgt_out: (B, T) int64, the target followed by eos: what it must predict.
        num_tgt_tokens: tokens of tgt_out that are no padding, eos included.
    """

    src: torch.Tensor
    tgt_in: torch.Tensor
    tgt_out: torch.Tensor
    num_tgt_tokens: int

    def __len__(self) -> int:
        return self.src.shape[0]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device."""
        return Batch(
            src=self.src.to(device, non_blocking=True),
            tgt_in=self.tgt_in.to(device, non_blocking=True),
            tgt_out=self.tgt_out.to(device, non_blocking=True),
            num_tgt_tokens=self.num_tgt_tokens,
        )


def collate(
    pairs: Sequence[IdPair],
    *,
    src_pad_id: int,
    tgt_pad_id: int,
    bos_id: int,
    length_multiple: int = 1,
) -> Batch:
    """Pad pairs of ids, eos included on both sides, into one batch.

    Args:
        pairs: (source ids, target ids), at least one pair.
        src_pad_id: fills the source; may differ from the target's.
        tgt_pad_id: fills both target tensors.
        bos_id: stands before the target in `tgt_in`.
        length_multiple: S and T are rounded up to it, so that shapes come back and kernels are reused.
    """
    src = _pad([pair[0] for pair in pairs], src_pad_id, length_multiple)
    tgt_out = _pad([pair[1] for pair in pairs], tgt_pad_id, length_multiple)
    tgt_in = np.full_like(tgt_out, tgt_pad_id)
    tgt_in[:, 0] = bos_id
    for row, (_, tgt) in enumerate(pairs):
        tgt_in[row, 1 : len(tgt)] = tgt[:-1]
    return Batch(
        src=torch.from_numpy(src),
        tgt_in=torch.from_numpy(tgt_in),
        tgt_out=torch.from_numpy(tgt_out),
        num_tgt_tokens=sum(len(tgt) for _, tgt in pairs),
    )


def _pad(rows: Sequence[NDArray[np.integer]], pad_id: int, length_multiple: int) -> NDArray[np.int64]:
    longest = max(len(row) for row in rows)
    padded = np.full((len(rows), -(-longest // length_multiple) * length_multiple), pad_id, dtype=np.int64)
    for row, ids in zip(padded, rows, strict=True):
        row[: len(ids)] = ids
    return padded


@dataclass(frozen=True)
class BatchSource:
    """The batches of each epoch, from any place on: what a resumed run needs to go on where it stopped.

    Order, contents and segmentations are a pure function of (seed, epoch). With `sampling`, the token budget
    is counted in the tokenizer's own segmentation, and a sampled batch may exceed it by a little.

    Attributes:
        store: the pairs; with its texts kept where `sampling` is above 0.
        tokenizers: they give the pad and bos ids, and segment anew where `sampling` is above 0.
        tokens: the budget, rows x longer side, padding included.
        seed: of order and segmentation.
        bucket_width: lengths are rounded up to it.
        sampling: rate of the subword sampler; 0 is off.
    """

    store: ParallelStore
    tokenizers: TokenizerPair
    tokens: int
    seed: int
    bucket_width: int = 4
    sampling: float = 0.0

    def __post_init__(self) -> None:
        if self.sampling > 0.0 and not self.store.has_text:
            raise ValueError("subword sampling needs a store that was built with keep_text=True")

    def plan(self, epoch: int) -> list[Indices]:
        """The pair numbers of each batch of an epoch."""
        return plan_epoch(
            self.store.src_lengths,
            self.store.tgt_lengths,
            tokens=self.tokens,
            seed=self.seed,
            epoch=epoch,
            bucket_width=self.bucket_width,
        )

    def batches(self, epoch: int, *, start: int = 0) -> Iterator[Batch]:
        """The batches of an epoch from number `start` on."""
        for indices in self.plan(epoch)[start:]:
            yield self.collate([self._pair(int(i), epoch) for i in indices])

    def collate(self, pairs: Sequence[IdPair]) -> Batch:
        """`collate` with this source's ids and bucket width."""
        return collate(
            pairs,
            src_pad_id=self.tokenizers.src.pad_id,
            tgt_pad_id=self.tokenizers.tgt.pad_id,
            bos_id=self.tokenizers.tgt.bos_id,
            length_multiple=self.bucket_width,
        )

    def _pair(self, index: int, epoch: int) -> IdPair:
        if self.sampling == 0.0:
            return self.store[index]
        # A string seed is hashed with sha512, the same in every process and version of Python.
        rng = random.Random(f"{self.seed} {epoch} {index}")
        src_text, tgt_text = self.store.text(index)
        src_ids, tgt_ids = self.store[index]
        src_sampler, tgt_sampler = self._samplers
        return (
            self._sampled(src_sampler(src_text, rng), self.tokenizers.src.eos_id, src_ids),
            self._sampled(tgt_sampler(tgt_text, rng), self.tokenizers.tgt.eos_id, tgt_ids),
        )

    def _sampled(self, ids: list[int], eos_id: int, unsampled: NDArray[np.int32]) -> NDArray[np.int32]:
        """Sampled ids with eos; the tokenizer's own where sampling made them longer than the store allows."""
        if len(ids) + 1 > self.store.max_length:
            return unsampled
        return np.array([*ids, eos_id], dtype=np.int32)

    @cached_property
    def _samplers(self) -> tuple[SegmentationSampler, SegmentationSampler]:
        src = SegmentationSampler(self.tokenizers.src, self.sampling)
        tgt = src if self.tokenizers.joint else SegmentationSampler(self.tokenizers.tgt, self.sampling)
        return src, tgt
