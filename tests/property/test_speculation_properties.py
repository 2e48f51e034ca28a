"""Guesses change no output of greedy search, whatever they are."""

from hypothesis import given, settings
from hypothesis import strategies as st
from step_tables import BOS, EOS, PAD, SpeculativeTableStep, Table, TableStep, random_table, task_of

from heedful.decoding.greedy import greedy_search
from heedful.decoding.options import SearchOptions
from heedful.decoding.speculation import speculative_search

TOKENS = st.integers(0, 5)
TABLES = st.builds(
    random_table,
    seed=st.integers(0, 10**6),
    vocab_size=st.just(6),
    sharpness=st.sampled_from([0.0, 1.0, 3.0]),
)


def with_a_habit(table: Table, habit: list[int]) -> Table:
    """A model that mostly goes on with the same tokens again and again, and so can be guessed."""

    def habitual(sentence: int, prefix: tuple[int, ...]) -> list[float]:
        log_probs = [*table(sentence, prefix)]
        log_probs[habit[(len(prefix) + sentence) % len(habit)]] += 3.0
        return log_probs

    return habitual


@st.composite
def greedy_options(draw: st.DrawFn) -> SearchOptions:
    return SearchOptions(
        beam_size=1,
        length_penalty=draw(st.sampled_from([0.0, 0.6])),
        min_length=draw(st.integers(0, 6)),
        forced_first_id=draw(st.sampled_from([None, BOS, 3])),
        forced_last_id=draw(st.sampled_from([None, EOS, 3])),
        suppressed_ids=draw(st.sampled_from([None, (), (PAD, 4)])),
        renormalize=draw(st.booleans()),
        no_repeat_ngram_size=draw(st.sampled_from([0, 0, 3, 4])),
        repetition_penalty=draw(st.sampled_from([1.0, 1.0, 1.2])),
        prefix_bias=draw(st.sampled_from([None, 0.4])),
        speculate=draw(st.integers(1, 6)),
    )


@settings(max_examples=150, deadline=None)
@given(
    table=st.builds(with_a_habit, TABLES, st.lists(TOKENS, min_size=1, max_size=4)),
    sentences=st.lists(
        st.tuples(st.integers(1, 14), st.lists(TOKENS, max_size=12), st.lists(st.integers(3, 5), max_size=5)),
        max_size=4,
    ),
    options=greedy_options(),
    has_prefixes=st.booleans(),
)
def test_guesses_change_no_bit_of_an_output(
    table: Table,
    sentences: list[tuple[int, list[int], list[int]]],
    options: SearchOptions,
    *,
    has_prefixes: bool,
) -> None:
    max_lengths, sources, prefixes = ([each[i] for each in sentences] for i in range(3))
    task = task_of(max_lengths, options, sources=sources, prefixes=prefixes if has_prefixes else None)
    step = SpeculativeTableStep(table, len(sentences))
    plain = TableStep(table, len(sentences))
    assert speculative_search(step, task) == greedy_search(plain, task)
    assert len(step.row_counts) <= len(plain.row_counts)
