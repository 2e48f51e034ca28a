import dataclasses
import itertools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from searches import searched, searched_by_beam, searched_greedily
from step_tables import BOS, EOS, PAD, Table, TableStep, constrained, every_output, random_table, task_of
from tolerances import FLOAT64, close

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.task import Hypothesis
from heedful.errors import InputError
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
        assert [each.score for each in hypotheses] == close(
            [score for score, _ in outputs[:n_best]], FLOAT64.ROW
        )


@pytest.mark.parametrize("normalization", ["gnmt", "power"])
@pytest.mark.parametrize(
    ("vocab_size", "limit", "alpha"),
    [*itertools.product([6, 7], [1, 2, 3], [0.0, 0.6, 1.0, 2.0]), (6, 4, 0.6), (6, 4, 1.0), (8, 3, 0.6)],
)
def test_a_wide_beam_equals_exhaustive_search(
    vocab_size: int, limit: int, alpha: float, normalization: LengthNormalization
) -> None:
    options = SearchOptions(n_best=3, length_penalty=alpha, length_normalization=normalization)
    check(11, vocab_size=vocab_size, limit=limit, options=options, num_sentences=2)


@settings(max_examples=60)
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
        length_normalization=st.sampled_from(["gnmt", "power"]),
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


@settings(max_examples=40)
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
            assert hypothesis.token_log_probs == close(own, FLOAT64.ROW)
            assert hypothesis.score == hypothesis.log_prob / options.penalty(len(tokens))


@settings(max_examples=40)
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


Attention = Callable[[int, tuple[int, ...]], Sequence[float]]


def random_attention(seed: int, num_tokens: int) -> Attention:
    """Weights over the source, a pure function of (seed, sentence, prefix)."""

    def attention(sentence: int, prefix: tuple[int, ...]) -> Sequence[float]:
        rng = random.Random(f"{seed}/{sentence}/{prefix}/attention")
        weights = [math.exp(2 * rng.gauss(0, 1)) for _ in range(num_tokens)]
        return [weight / sum(weights) for weight in weights]

    return attention


def equation_14(attention: Attention, sentence: int, tokens: tuple[int, ...], beta: float) -> float:
    """The coverage penalty of an output, as the paper writes it."""
    rows = [attention(sentence, tokens[:j]) for j in range(len(tokens))]
    return beta * sum(math.log(min(sum(column), 1.0)) for column in zip(*rows, strict=True))


class CoveringTableStep(TableStep):
    """A table of what is attended to beside that of what comes next."""

    def __init__(self, table: Table, attention: Attention, num_sentences: int) -> None:
        super().__init__(table, num_sentences)
        self.attention = attention

    def coverage(self) -> NDArray[np.float64]:
        # The attention of a step depends on what was written before: any next token ends the output.
        return np.asarray([equation_14(self.attention, b, (*ids, EOS), 1.0) for b, ids in self.prefixes])


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10**6),
    vocab_size=st.integers(4, 6),
    limit=st.integers(1, 4),
    num_src=st.integers(1, 5),
    options=st.builds(
        SearchOptions,
        strategy=st.builds(
            BeamSearch,
            beam_size=st.just(6),
            early_stopping=st.sampled_from(["optimal", "estimate", "first"]),
        ),
        n_best=st.integers(1, 6),
        length_penalty=st.floats(0.0, 2.0),
        coverage_penalty=st.floats(0.0, 3.0),
        length_normalization=st.sampled_from(["gnmt", "power"]),
        min_length=st.integers(0, 2),
        forced_last_id=st.sampled_from([None, EOS]),
    ),
)
def test_a_wide_beam_equals_exhaustive_search_with_coverage(
    seed: int, vocab_size: int, limit: int, num_src: int, options: SearchOptions
) -> None:
    table, attention = random_table(seed, vocab_size), random_attention(seed, num_src)
    every = [every_output(table, b, limit=limit, options=options) for b in range(2)]
    num_all = len(every[0])
    wide = dataclasses.replace(
        options,
        strategy=dataclasses.replace(options.strategy, beam_size=num_all),
        n_best=min(options.n_best, num_all),
    )
    found = searched(CoveringTableStep(table, attention, 2), task_of([limit] * 2, wide))
    for b, hypotheses in enumerate(found):
        scored = {
            tokens: score + equation_14(attention, b, tokens, options.coverage_penalty)
            for score, tokens in every[b]
        }
        best = sorted(scored, key=lambda tokens: (-scored[tokens], tokens))[: len(hypotheses)]
        assert [each.score for each in hypotheses] == close([scored[tokens] for tokens in best], FLOAT64.ROW)
        assert [scored[tokens_of(each)] for each in hypotheses] == close(
            [scored[tokens] for tokens in best], FLOAT64.ROW
        )


def test_coverage_changes_what_is_best_and_ends_no_search_early() -> None:
    """The narrow beam's choice between its ended hypotheses is by coverage; "optimal" waits for it."""
    table, attention = random_table(5, 6, sharpness=0.3), random_attention(5, 6)
    found = {}
    for beta in (0.0, 2.0):
        options = SearchOptions(strategy=BeamSearch(beam_size=3), length_penalty=0.0, coverage_penalty=beta)
        step = CoveringTableStep(table, attention, 3)
        found[beta] = searched(step, task_of([9] * 3, options))
    lengths = {beta: [len(tokens_of(each)) for [each] in lists] for beta, lists in found.items()}
    assert lengths[0.0] < lengths[2.0]
    for b, [each] in enumerate(found[2.0]):
        wanted = each.log_prob + equation_14(attention, b, tokens_of(each), 2.0)
        assert each.score == close(wanted, FLOAT64.ROW)


def test_a_beam_of_one_is_greedy_search_with_coverage_in_its_scores() -> None:
    table, attention = random_table(7, 6), random_attention(7, 4)
    found = {}
    for beta in (0.0, 0.7):
        options = SearchOptions(strategy=BeamSearch(beam_size=1), coverage_penalty=beta)
        found[beta] = searched(CoveringTableStep(table, attention, 3), task_of([9] * 3, options))
    for b, ([plain], [covered]) in enumerate(zip(found[0.0], found[0.7], strict=True)):
        assert covered.token_log_probs == plain.token_log_probs
        wanted = plain.score + equation_14(attention, b, tokens_of(plain), 0.7)
        assert covered.score == close(wanted, FLOAT64.ROW)


def test_groups_count_coverage_too() -> None:
    table, attention = random_table(9, 6), random_attention(9, 4)
    options = SearchOptions(
        strategy=DiverseBeamSearch(beam_size=3, num_groups=3, diversity_penalty=2.0),
        n_best=3,
        coverage_penalty=0.7,
        min_length=4,
    )
    step = CoveringTableStep(table, attention, 2)
    found = searched(step, task_of([6] * 2, options))
    for b, hypotheses in enumerate(found):
        assert len(hypotheses) > 1
        for each in hypotheses:
            tokens = tokens_of(each)
            penalty = options.penalty(len(tokens))
            wanted = each.log_prob / penalty + equation_14(attention, b, tokens, 0.7)
            assert each.score == close(wanted, FLOAT64.ROW)
