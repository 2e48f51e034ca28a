import dataclasses
import math

from hypothesis import given, settings
from hypothesis import strategies as st
from searches import searched_by_beam, searched_greedily
from step_tables import BOS, EOS, PAD, Table, TableStep, constrained, random_table, task_of
from tolerances import FLOAT64, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.task import Hypothesis
from heedful.settings.options import EarlyStopping

TABLES = st.builds(
    random_table,
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(4, 9),
    sharpness=st.sampled_from([0.0, 0.5, 1.0, 3.0]),
)
LIMITS = st.lists(st.integers(1, 8), min_size=1, max_size=4)


@st.composite
def search_options(draw: st.DrawFn) -> SearchOptions:
    beam_size = draw(st.integers(1, 6))
    return SearchOptions(
        strategy=BeamSearch(
            beam_size=beam_size, early_stopping=draw(st.sampled_from(["optimal", "estimate", "first"]))
        ),
        n_best=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.floats(0.0, 2.0)),
        length_normalization=draw(st.sampled_from(["gnmt", "power"])),
        min_length=draw(st.integers(0, 2)),
        forced_first_id=draw(st.sampled_from([None, BOS, 3])),
        forced_last_id=draw(st.sampled_from([None, EOS, 3])),
        suppressed_ids=draw(st.sampled_from([None, (), (PAD,)])),
    )


def search(step: TableStep, limits: list[int], options: SearchOptions) -> list[list[Hypothesis]]:
    return searched_by_beam(step, task_of(limits, options))


@settings(max_examples=60)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_every_hypothesis_is_what_it_says(table: Table, limits: list[int], options: SearchOptions) -> None:
    found = search(TableStep(table, len(limits)), limits, options)
    assert len(found) == len(limits)
    for sentence, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
        assert 1 <= len(hypotheses) <= options.n_best
        assert len({(hypothesis.ids, hypothesis.finished) for hypothesis in hypotheses}) == len(hypotheses)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        allowed = constrained(table, options, limit)
        for hypothesis in hypotheses:
            assert EOS not in hypothesis.ids
            tokens = (*hypothesis.ids, EOS) if hypothesis.finished else hypothesis.ids
            assert len(tokens) <= limit
            assert hypothesis.finished or len(tokens) == limit
            assert hypothesis.log_prob == sum(hypothesis.token_log_probs)
            assert hypothesis.score == hypothesis.log_prob / options.penalty(len(tokens))
            looked_up = [allowed(sentence, tokens[:t])[token] for t, token in enumerate(tokens)]
            assert list(hypothesis.token_log_probs) == looked_up
            assert hypothesis.log_prob > -math.inf


@settings(max_examples=40)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_a_sentence_does_not_depend_on_its_neighbours(
    table: Table, limits: list[int], options: SearchOptions
) -> None:
    together = search(TableStep(table, len(limits)), limits, options)
    for sentence, limit in enumerate(limits):
        alone = TableStep(lambda _b, ids, s=sentence: table(s, ids), 1)
        assert search(alone, [limit], options) == [together[sentence]]


@settings(max_examples=40)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_a_beam_of_one_is_greedy(table: Table, limits: list[int], options: SearchOptions) -> None:
    options = dataclasses.replace(options, strategy=BeamSearch(beam_size=1), n_best=1)
    greedy = searched_greedily(TableStep(table, len(limits)), task_of(limits, options))
    assert search(TableStep(table, len(limits)), limits, options) == greedy


@settings(max_examples=40)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_stopping_early_never_finds_better_than_stopping_provably(
    table: Table, limits: list[int], options: SearchOptions
) -> None:
    def scores(early_stopping: EarlyStopping) -> list[list[float]]:
        asked = dataclasses.replace(
            options, strategy=dataclasses.replace(options.strategy, early_stopping=early_stopping)
        )
        found = search(TableStep(table, len(limits)), limits, asked)
        return [[hypothesis.score for hypothesis in hypotheses] for hypotheses in found]

    for early_stopping in ("estimate", "first"):
        for one, other in zip(scores("optimal"), scores(early_stopping), strict=True):
            assert len(one) >= len(other)
            assert all(a >= b - 1e-12 for a, b in zip(one, other, strict=False))


@settings(max_examples=40)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_a_provable_end_changes_nothing_that_comes_before_it_in_the_list(
    table: Table, limits: list[int], options: SearchOptions
) -> None:
    def scores(n_best: int) -> list[list[float]]:
        optimal = dataclasses.replace(options.strategy, early_stopping="optimal")
        asked = dataclasses.replace(options, strategy=optimal, n_best=n_best)
        found = search(TableStep(table, len(limits)), limits, asked)
        return [[hypothesis.score for hypothesis in hypotheses] for hypotheses in found]

    for one, other in zip(scores(1), scores(options.strategy.beam_size), strict=True):
        assert one == close(other[:1], FLOAT64.SENTENCE)
