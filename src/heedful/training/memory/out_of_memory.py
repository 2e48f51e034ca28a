"""Split batches that do not fit into memory into halves."""

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
def reraise_out_of_memory(batch: Batch) -> Iterator[None]:
    """Raise all of torch's out-of-memory errors inside the block as one class.

    Raises:
        OutOfMemoryError: memory is too small for this batch.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(batch) from None


def halve_batches(batches: Sequence[Batch], *, like: Batch, pad_id: int) -> list[Batch]:
    """Return the same rows, with every batch at least as large as `like` split in two.

    Args:
        batches: of one step.
        like: the batch that did not fit into memory.
        pad_id: of the target.

    Raises:
        TrainingError: `like` has only one row.
    """
    if len(like) == 1:
        raise TrainingError(
            f"memory is too small for one pair of {like.src.shape[1]} and {like.tgt_out.shape[1]} tokens; "
            "lower data.max_length, or take a smaller model"
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # free memory may be fragmented
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
