"""Collate pairs of ids into padded tensors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from heedful.data.store import IdPair
from heedful.text.padding import pad


@dataclass(frozen=True)
class Batch:
    """The tensors of one step, padded on the right.

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
        """Return the batch on another device."""
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
