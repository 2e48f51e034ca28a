import dataclasses
import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from searches import searched
from step_tables import BOS, EOS, PAD, TableStep, every_output, random_table, task_of

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.settings.options import LengthNormalization


def check(seed: int, *, vocab_size: int, limit: int, options: SearchOptions, num_sentences: int = 1) -> None:
    """A beam with a place for every output finds the best of all, whatever early_stopping says."""
    table = random_table(seed, vocab_size)
    expected = [every_output(table, b, limit=limit, options=options) for b in range(num_sentences)]
    n_best = min(options.n_best, len(expected[0]))
    beam = dataclasses.replace(options.strategy, beam_size=len(expected[0]))
    wide = dataclasses.replace(options, strategy=beam, n_best=n_best)
    found = searched(TableStep(table, num_sentences), task_of([limit] * num_sentences, wide))
    for hypotheses, outputs in zip(found, expected, strict=True):
        tokens = [(*each.ids, EOS) if each.finished else each.ids for each in hypotheses]
        assert tokens == [tokens for _, tokens in outputs[:n_best]]
        assert [each.score for each in hypotheses] == pytest.approx([score for score, _ in outputs[:n_best]])


@pytest.mark.parametrize("normalization", ["gnmt", "average"])
@pytest.mark.parametrize(
    ("vocab_size", "limit", "alpha"),
    [*itertools.product([6, 7], [1, 2, 3], [0.0, 0.6, 1.0, 2.0]), (6, 4, 0.6), (6, 4, 1.0), (8, 3, 0.6)],
)
def test_a_wide_beam_equals_exhaustive_search(
    vocab_size: int, limit: int, alpha: float, normalization: LengthNormalization
) -> None:
    options = SearchOptions(n_best=3, length_penalty=alpha, length_normalization=normalization)
    check(11, vocab_size=vocab_size, limit=limit, options=options, num_sentences=2)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(4, 6),
    limit=st.integers(1, 4),
    options=st.builds(
        SearchOptions,
        strategy=st.builds(
            BeamSearch,
            beam_size=st.just(6),
            early_stopping=st.sampled_from(["optimal", "estimate", "first"]),
        ),
        n_best=st.integers(1, 6),
        length_penalty=st.floats(0.0, 3.0),
        length_normalization=st.sampled_from(["gnmt", "average"]),
        min_length=st.integers(0, 2),
        forced_first_id=st.sampled_from([None, BOS, 3]),
        forced_last_id=st.sampled_from([None, EOS, 3]),
        suppressed_ids=st.sampled_from([None, (), (PAD,), (BOS,)]),
    ),
)
def test_a_wide_beam_equals_exhaustive_search_on_any_table(
    seed: int, vocab_size: int, limit: int, options: SearchOptions
) -> None:
    check(seed, vocab_size=vocab_size, limit=limit, options=options)
