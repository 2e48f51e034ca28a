import dataclasses

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from searches import searched, searched_by_beam, searched_greedily
from step_tables import EOS, TableStep, constrained, every_output, random_table, task_of

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.errors import InputError

VOCAB_SIZE, NUM_SENTENCES = 6, 2
TOKENS = st.lists(st.integers(3, VOCAB_SIZE - 1), max_size=2)
ENDED = st.builds(lambda ids, end: [*ids, *end], TOKENS, st.sampled_from([[], [], [EOS]]))
OPTIONS = st.builds(
    SearchOptions,
    strategy=st.just(BeamSearch(beam_size=6)),
    n_best=st.integers(1, 6),
    length_penalty=st.floats(0.0, 2.0),
    min_length=st.integers(0, 2),
    forced_first_id=st.sampled_from([None, 3]),
    forced_last_id=st.sampled_from([None, EOS]),
    no_repeat_ngram_size=st.sampled_from([0, 1, 2]),
    repetition_penalty=st.sampled_from([1.0, 0.5, 1.7]),
)


def tokens_of(hypothesis: Hypothesis) -> tuple[int, ...]:
    return (*hypothesis.ids, EOS) if hypothesis.finished else hypothesis.ids


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    limit=st.integers(1, 4),
    options=OPTIONS,
    prefixes=st.lists(ENDED, min_size=NUM_SENTENCES, max_size=NUM_SENTENCES),
)
def test_a_wide_beam_is_exhaustive_under_every_constraint(
    seed: int, limit: int, options: SearchOptions, prefixes: list[list[int]]
) -> None:
    table = random_table(seed, VOCAB_SIZE)
    expected = [
        every_output(table, b, limit=limit, options=options, prefixes=prefixes) for b in range(NUM_SENTENCES)
    ]
    assume(all(expected))
    beam_size = max(map(len, expected))
    wide = dataclasses.replace(options, strategy=BeamSearch(beam_size=max(beam_size, options.n_best)))
    task = task_of([limit] * NUM_SENTENCES, wide, prefixes=prefixes)
    found = searched(TableStep(table, NUM_SENTENCES), task)
    for b, (hypotheses, outputs) in enumerate(zip(found, expected, strict=True)):
        assert list(map(tokens_of, hypotheses)) == [tokens for _, tokens in outputs[: options.n_best]]
        for hypothesis in hypotheses:  # their numbers are the model's, whatever the search went by
            tokens = tokens_of(hypothesis)
            own = [table(b, tokens[:t])[token] for t, token in enumerate(tokens)]
            if options.forced_first_id is not None:
                own[0] = 0.0
            given = len(prefixes[b]) + (options.forced_first_id is not None)
            if options.forced_last_id is not None and len(tokens) == limit > given:
                own[-1] = 0.0
            assert hypothesis.token_log_probs == pytest.approx(own)
            assert hypothesis.score == hypothesis.log_prob / options.penalty(len(tokens))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    limit=st.integers(1, 6),
    options=OPTIONS,
    prefixes=st.lists(ENDED, min_size=NUM_SENTENCES, max_size=NUM_SENTENCES),
)
def test_greedy_search_takes_the_best_token_that_is_allowed(
    seed: int, limit: int, options: SearchOptions, prefixes: list[list[int]]
) -> None:
    table = random_table(seed, VOCAB_SIZE)
    allowed = constrained(table, options, limit, prefixes)
    one = dataclasses.replace(options, strategy=BeamSearch(beam_size=1), n_best=1)
    task = task_of([limit] * NUM_SENTENCES, one, prefixes=prefixes)
    try:
        found = searched_greedily(TableStep(table, NUM_SENTENCES), task)
    except InputError:
        return  # with few tokens and no repetition there may be no way on
    for b, [hypothesis] in enumerate(found):
        tokens = tokens_of(hypothesis)
        for t, token in enumerate(tokens):
            row = allowed(b, tokens[:t])
            assert row[token] == max(row)
    assert searched_by_beam(TableStep(table, NUM_SENTENCES), task) == found
