import numpy as np
import pytest
import torch

from heedful.data.batches import Batch, collate

PAIRS = [
    (np.array([5, 6, 3], dtype=np.int32), np.array([7, 3], dtype=np.int32)),
    (np.array([8, 3], dtype=np.int32), np.array([9, 10, 11, 12, 3], dtype=np.int32)),
]


def test_a_batch_is_padded_on_the_right_with_each_sides_own_pad_id() -> None:
    batch = collate(PAIRS, src_pad_id=90, tgt_pad_id=91, start_id=2)
    assert batch.src.tolist() == [[5, 6, 3], [8, 3, 90]]
    assert batch.tgt_in.tolist() == [[2, 7, 91, 91, 91], [2, 9, 10, 11, 12]]
    assert batch.tgt_out.tolist() == [[7, 3, 91, 91, 91], [9, 10, 11, 12, 3]]
    assert {t.dtype for t in (batch.src, batch.tgt_in, batch.tgt_out)} == {torch.int64}
    assert batch.num_tgt_tokens == 7
    assert len(batch) == 2


@pytest.mark.parametrize(("multiple", "shape"), [(1, (3, 5)), (2, (4, 6)), (4, (4, 8)), (8, (8, 8))])
def test_lengths_are_rounded_up_to_the_multiple(multiple: int, shape: tuple[int, int]) -> None:
    batch = collate(PAIRS, src_pad_id=0, tgt_pad_id=0, start_id=2, length_multiple=multiple)
    assert (batch.src.shape[1], batch.tgt_in.shape[1]) == shape
    assert batch.tgt_out.shape == batch.tgt_in.shape
    assert batch.num_tgt_tokens == int((batch.tgt_out != 0).sum()) == int((batch.tgt_in != 0).sum())


def test_a_batch_moves_to_a_device_whole() -> None:
    moved = collate(PAIRS, src_pad_id=0, tgt_pad_id=0, start_id=2).to("meta")
    assert isinstance(moved, Batch)
    assert {t.device.type for t in (moved.src, moved.tgt_in, moved.tgt_out)} == {"meta"}
    assert moved.num_tgt_tokens == 7
