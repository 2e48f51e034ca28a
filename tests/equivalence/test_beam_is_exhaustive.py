import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from step_tables import BOS, EOS, PAD, TableStep, every_output, random_table

from heedful.decoding.beam import beam_search
from heedful.decoding.options import SearchOptions


def check(
    seed: int, *, vocab_size: int, max_length: int, alpha: float, n_best: int, num_sentences: int
) -> None:
    table = random_table(seed, vocab_size)
    wide = (vocab_size - 2) ** max_length  # every token but pad and bos, at every step
    n_best = min(n_best, wide)
    found = beam_search(
        TableStep(table, num_sentences),
        max_lengths=[max_length] * num_sentences,
        bos_id=BOS,
        eos_id=EOS,
        pad_id=PAD,
        options=SearchOptions(beam_size=wide, n_best=n_best, length_penalty=alpha),
    )
    for sentence, hypotheses in enumerate(found):
        expected = every_output(table, sentence, vocab_size=vocab_size, max_length=max_length, alpha=alpha)
        expected = expected[:n_best]
        assert [hypothesis.ids for hypothesis in hypotheses] == [ids for _, ids in expected]
        assert [hypothesis.score for hypothesis in hypotheses] == pytest.approx(
            [score for score, _ in expected]
        )
        assert all(hypothesis.finished for hypothesis in hypotheses)


@pytest.mark.parametrize(
    ("vocab_size", "max_length", "alpha"),
    [*itertools.product([6, 7], [1, 2, 3], [0.0, 0.6, 1.0, 2.0]), (6, 4, 0.6), (6, 4, 1.0), (8, 3, 0.6)],
)
def test_a_wide_beam_equals_exhaustive_search(vocab_size: int, max_length: int, alpha: float) -> None:
    check(11, vocab_size=vocab_size, max_length=max_length, alpha=alpha, n_best=3, num_sentences=2)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(4, 7),
    max_length=st.integers(1, 3),
    alpha=st.floats(0.0, 3.0),
    n_best=st.integers(1, 6),
)
def test_a_wide_beam_equals_exhaustive_search_on_any_table(
    seed: int, vocab_size: int, max_length: int, alpha: float, n_best: int
) -> None:
    check(seed, vocab_size=vocab_size, max_length=max_length, alpha=alpha, n_best=n_best, num_sentences=1)
