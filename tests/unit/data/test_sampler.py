import numpy as np
import pytest
from numpy.typing import NDArray

from heedful.data.batches import plan_epoch

RNG = np.random.default_rng(1)
SRC = RNG.gamma(6.0, 2.5, 20_000).astype(np.int32) + 1
TGT = np.maximum(1, SRC + RNG.normal(0, 3, 20_000).astype(np.int32))


def plan(seed: int = 1, epoch: int = 0, tokens: int = 4096, width: int = 4) -> list[NDArray[np.int64]]:
    return plan_epoch(SRC, TGT, tokens=tokens, seed=seed, epoch=epoch, bucket_width=width)


def test_epochs_and_seeds_differ_in_order_and_in_company() -> None:
    plans = [plan(), plan(epoch=1), plan(seed=2)]
    contents = [{frozenset(batch.tolist()) for batch in batches} for batches in plans]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert len(contents[first] & contents[second]) < 0.1 * len(contents[first])


def test_the_order_of_batches_is_not_by_length() -> None:
    mean_lengths = [float(np.maximum(SRC, TGT)[batch].mean()) for batch in plan()]
    correlation = np.corrcoef(mean_lengths, np.arange(len(mean_lengths)))[0, 1]
    assert abs(correlation) < 0.3


@pytest.mark.parametrize(("width", "most"), [(1, 0.10), (4, 0.18)])
def test_little_of_a_batch_is_padding(width: int, most: float) -> None:
    batches = plan(width=width)
    for lengths in (SRC, TGT):
        cells = sum(len(batch) * (-(-int(lengths[batch].max()) // width) * width) for batch in batches)
        assert 1 - int(lengths.sum()) / cells < most


def test_a_plan_is_the_same_on_every_machine() -> None:
    lengths = np.array([3, 9, 4, 4, 12, 1, 7, 5])
    batches = plan_epoch(lengths, lengths[::-1], tokens=30, seed=7, epoch=2, bucket_width=2)
    assert [batch.tolist() for batch in batches] == [[5], [1, 6], [3, 4], [2, 7, 0]]
