from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from heedful.data.batches import plan_epoch

Lengths = NDArray[np.int32]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[Lengths, Lengths]:
    pairs = draw(st.lists(st.tuples(st.integers(1, 300), st.integers(1, 300)), max_size=200))
    both = np.array(pairs, dtype=np.int32).reshape(len(pairs), 2)
    return both[:, 0], both[:, 1]


TOKENS, WIDTHS, SEEDS = st.integers(1, 2000), st.integers(1, 16), st.integers(0, 2**63)


def padded(lengths: Lengths, width: int) -> int:
    return -(-int(lengths.max()) // width) * width


@given(corpora(), TOKENS, WIDTHS, SEEDS, st.integers(0, 10**6))
def test_every_pair_is_in_exactly_one_batch_within_the_budget(
    corpus: tuple[Lengths, Lengths], tokens: int, width: int, seed: int, epoch: int
) -> None:
    src, tgt = corpus
    plan = plan_epoch(src, tgt, tokens=tokens, seed=seed, epoch=epoch, bucket_width=width)
    assert sorted(int(i) for batch in plan for i in batch) == list(range(len(src)))
    for batch in plan:
        assert len(batch) > 0
        longer = max(padded(src[batch], width), padded(tgt[batch], width))
        assert len(batch) * longer <= tokens or len(batch) == 1


@given(corpora(), TOKENS, WIDTHS, SEEDS, st.integers(0, 10**6))
def test_a_plan_is_a_pure_function_of_its_arguments(
    corpus: tuple[Lengths, Lengths], tokens: int, width: int, seed: int, epoch: int
) -> None:
    first, second = (
        plan_epoch(*corpus, tokens=tokens, seed=seed, epoch=epoch, bucket_width=width) for _ in range(2)
    )
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


@given(corpora(), TOKENS, WIDTHS, SEEDS, st.integers(1, 1000))
def test_the_order_is_that_of_a_sort_by_maximum_difference_and_random_number(
    corpus: tuple[Lengths, Lengths], tokens: int, width: int, seed: int, factor: int
) -> None:
    src, tgt = (lengths * factor for lengths in corpus)  # keys of 16 bits, and of more
    plan = plan_epoch(src, tgt, tokens=tokens, seed=seed, epoch=3, bucket_width=width)
    rng = np.random.Generator(np.random.PCG64([seed, 3]))
    rounded = [-(-lengths // width) for lengths in (src, tgt)]
    maximum, difference = np.maximum(*rounded), rounded[0] - rounded[1]
    order = np.lexsort((rng.random(len(src)), np.where(maximum % 2 == 0, difference, -difference), maximum))
    positions = {int(pair): position for position, pair in enumerate(order)}
    rng.uniform()
    batches = [np.array(sorted(positions[int(pair)] for pair in batch)) for batch in plan]
    assert all((np.diff(batch) == 1).all() for batch in batches)
    assert all(
        [positions[int(pair)] for pair in batch] == rows.tolist()
        for batch, rows in zip(plan, batches, strict=True)
    )
    starts = sorted(int(rows[0]) for rows in batches)
    assert [int(rows[0]) for rows in batches] == [starts[i] for i in rng.permutation(len(starts))]


@given(corpora(), TOKENS, SEEDS)
def test_no_two_batches_could_have_been_one_but_for_the_first_cut(
    corpus: tuple[Lengths, Lengths], tokens: int, seed: int
) -> None:
    src, tgt = corpus
    plan = plan_epoch(src, tgt, tokens=tokens, seed=seed, epoch=0, bucket_width=1)
    longer = np.maximum(src, tgt)
    plan.sort(key=lambda batch: (int(longer[batch].min()), int(longer[batch].max())))
    joinable = 0
    for first, second in pairwise(plan):
        both = np.concatenate([first, second])
        joinable += len(both) * int(longer[both].max()) <= tokens
    assert joinable <= 2
