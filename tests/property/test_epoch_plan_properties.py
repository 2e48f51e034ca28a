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
