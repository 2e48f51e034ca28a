from collections.abc import Sequence
from heapq import heapify, heapreplace

from hypothesis import given
from hypothesis import strategies as st

from heedful.decoding.generator import plan_batches, schedule_batches

LENGTHS = st.lists(st.integers(0, 30), max_size=100)


def time_of(batches: Sequence[Sequence[int]], lengths: Sequence[int], threads: int) -> int:
    """When the last thread is done, where each takes the next batch and needs its length in sum for it."""
    done = [0] * threads
    heapify(done)
    for batch in batches:
        heapreplace(done, done[0] + sum(lengths[i] for i in batch))
    return max(done)


@given(lengths=LENGTHS, threads=st.integers(1, 20), tokens=st.integers(1, 999), size=st.integers(1, 99))
def test_each_sentence_is_in_one_batch_within_the_limits(
    lengths: list[int], threads: int, tokens: int, size: int
) -> None:
    batches = schedule_batches(lengths, lengths, threads, tokens=tokens, size=size)
    assert sorted(i for batch in batches for i in batch) == [i for i, length in enumerate(lengths) if length]
    for batch in batches:
        assert len(batch) == 1 or len(batch) * max(lengths[i] for i in batch) <= tokens
        assert len(batch) <= size


@given(lengths=LENGTHS, parts=st.integers(1, 40))
def test_parts_are_of_the_same_length_in_sum_but_for_a_sentence(lengths: list[int], parts: int) -> None:
    batches = plan_batches(lengths, tokens=10**6, parts=parts)
    assert len(batches) <= parts
    for batch in batches:
        assert sum(lengths[i] for i in batch) <= sum(lengths) / parts + max(lengths)


@given(lengths=LENGTHS, threads=st.integers(2, 20))
def test_no_thread_waits_long_for_another(lengths: list[int], threads: int) -> None:
    batches = schedule_batches(lengths, lengths, threads, tokens=10**6)
    assert time_of(batches, lengths, threads) <= sum(lengths) / threads + 9 * max(lengths, default=0)


def test_a_thread_with_more_steps_for_each_sentence_has_fewer() -> None:
    lengths = [20] * 10 + [10] * 20
    assert [len(batch) for batch in schedule_batches(lengths, lengths, 2, tokens=4096)] == [10, 20]
    assert [len(batch) for batch in schedule_batches(lengths, [15] * 30, 2, tokens=4096)] == [15, 15]
    assert [len(batch) for batch in schedule_batches([9, 30, 9], [9, 30, 9], 2, tokens=4096)] == [1, 2]


def test_one_thread_one_sentence_and_many_batches_need_no_sharing() -> None:
    lengths = [5 + i % 20 for i in range(900)]
    assert schedule_batches(lengths, lengths, 1, tokens=4096) == plan_batches(lengths, tokens=4096)
    assert schedule_batches(lengths, lengths, 2, tokens=200) == plan_batches(lengths, tokens=200)
    assert schedule_batches(lengths, lengths, 2, tokens=4096, size=64) == plan_batches(
        lengths, tokens=4096, size=64
    )
    assert schedule_batches([7], [7], 2, tokens=4096) == [[0]]
    assert schedule_batches([0, 0], [9, 9], 2, tokens=4096) == []
