"""Split batches for which memory is too small into halves."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from heedful.data.batches import Batch
from heedful.errors import TrainingError, is_out_of_memory


class OutOfMemoryError(Exception):
    """Memory is too small for a step with this batch."""

    def __init__(self, batch: Batch) -> None:
        super().__init__("memory is too small for a batch")
        self.batch = batch


@contextmanager
def out_of_memory_noted(batch: Batch) -> Iterator[None]:
    """Turn all the ways in which torch says that memory is used up, inside the block, into one.

    Raises:
        OutOfMemoryError: as said.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(batch) from None


def halve_batches(batches: Sequence[Batch], *, like: Batch, pad_id: int) -> list[Batch]:
    """Return the same rows, with all batches that are as large as one of them in halves.

    Args:
        batches: of one step.
        like: one of them, for which memory was too small.
        pad_id: of the target.

    Raises:
        TrainingError: it has one row.
    """
    if len(like) == 1:
        raise TrainingError(
            f"memory is too small for one pair of {like.src.shape[1]} and {like.tgt_out.shape[1]} tokens; "
            "lower data.max_length, or take a smaller model"
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # what is free may be in blocks too small
    return [
        part
        for batch in batches
        for part in (_halves(batch, pad_id) if _size(batch) >= _size(like) and len(batch) > 1 else [batch])
    ]


def _size(batch: Batch) -> int:
    return batch.src.numel() + batch.tgt_out.numel()


def _halves(batch: Batch, pad_id: int) -> Iterator[Batch]:
    middle = (len(batch) + 1) // 2
    for rows in (slice(middle), slice(middle, None)):
        tgt_out = batch.tgt_out[rows]
        yield Batch(batch.src[rows], batch.tgt_in[rows], tgt_out, int((tgt_out != pad_id).sum()))
