import math

from hypothesis import given, settings
from hypothesis import strategies as st
from step_tables import BOS, EOS, PAD, Table, TableStep, random_table

from heedful.decoding.beam import beam_search
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypotheses import Hypothesis, length_penalty
from heedful.decoding.options import SearchOptions

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
        beam_size=beam_size,
        n_best=draw(st.integers(1, beam_size)),
        length_penalty=draw(st.floats(0.0, 2.0)),
        min_length=draw(st.integers(0, 2)),
        early_stopping=draw(st.sampled_from(["optimal", "first"])),
    )


def search(step: TableStep, limits: list[int], options: SearchOptions) -> list[list[Hypothesis]]:
    return beam_search(step, max_lengths=limits, bos_id=BOS, eos_id=EOS, pad_id=PAD, options=options)


@settings(max_examples=60, deadline=None)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_every_hypothesis_is_what_it_says(table: Table, limits: list[int], options: SearchOptions) -> None:
    found = search(TableStep(table, len(limits)), limits, options)
    assert len(found) == len(limits)
    for sentence, (hypotheses, limit) in enumerate(zip(found, limits, strict=True)):
        assert 1 <= len(hypotheses) <= options.n_best
        assert len({hypothesis.ids for hypothesis in hypotheses}) == len(hypotheses)
        scores = [hypothesis.score for hypothesis in hypotheses]
        assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            assert not {PAD, BOS, EOS} & set(hypothesis.ids)
            tokens = (*hypothesis.ids, EOS) if hypothesis.finished else hypothesis.ids
            assert len(tokens) <= limit
            assert hypothesis.finished or len(tokens) == limit
            assert len(hypothesis.ids) >= min(options.min_length, limit)
            assert hypothesis.log_prob == sum(hypothesis.token_log_probs)
            assert hypothesis.score == hypothesis.log_prob / length_penalty(
                len(tokens), options.length_penalty
            )
            looked_up = [table(sentence, tokens[:t])[token] for t, token in enumerate(tokens)]
            assert list(hypothesis.token_log_probs) == looked_up


@settings(max_examples=40, deadline=None)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_a_sentence_does_not_depend_on_its_neighbours(
    table: Table, limits: list[int], options: SearchOptions
) -> None:
    together = search(TableStep(table, len(limits)), limits, options)
    for sentence, limit in enumerate(limits):
        alone = TableStep(lambda _b, ids, s=sentence: table(s, ids), 1)
        assert search(alone, [limit], options) == [together[sentence]]


@settings(max_examples=40, deadline=None)
@given(table=TABLES, limits=LIMITS, alpha=st.floats(0.0, 2.0))
def test_a_beam_of_one_is_greedy(table: Table, limits: list[int], alpha: float) -> None:
    options = SearchOptions(beam_size=1, length_penalty=alpha)
    greedy = greedy_search(
        TableStep(table, len(limits)), max_lengths=limits, bos_id=BOS, eos_id=EOS, pad_id=PAD, options=options
    )
    assert search(TableStep(table, len(limits)), limits, options) == greedy


@settings(max_examples=40, deadline=None)
@given(table=TABLES, limits=LIMITS, options=search_options())
def test_stopping_early_never_finds_better_than_stopping_provably(
    table: Table, limits: list[int], options: SearchOptions
) -> None:
    def best(early_stopping: str) -> list[float]:
        asked = SearchOptions(
            beam_size=options.beam_size,
            length_penalty=options.length_penalty,
            early_stopping=early_stopping,  # type: ignore[arg-type]
        )
        found = search(TableStep(table, len(limits)), limits, asked)
        return [hypotheses[0].score if hypotheses[0].finished else -math.inf for hypotheses in found]

    assert all(one >= other for one, other in zip(best("optimal"), best("first"), strict=True))
