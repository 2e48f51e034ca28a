"""With a coverage penalty, a beam with a place for every output finds what enumerating them finds."""

import dataclasses
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from searches import searched
from step_tables import EOS, Table, TableStep, every_output, random_table, task_of

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch

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


def tokens_of(found: Hypothesis) -> tuple[int, ...]:
    return (*found.ids, EOS) if found.finished else found.ids


@settings(max_examples=40, deadline=None)
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
        length_normalization=st.sampled_from(["gnmt", "average"]),
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
        assert [each.score for each in hypotheses] == pytest.approx([scored[tokens] for tokens in best])
        assert [scored[tokens_of(each)] for each in hypotheses] == pytest.approx(
            [scored[tokens] for tokens in best]
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
        assert each.score == pytest.approx(wanted)


def test_a_beam_of_one_is_greedy_search_with_coverage_in_its_scores() -> None:
    table, attention = random_table(7, 6), random_attention(7, 4)
    found = {}
    for beta in (0.0, 0.7):
        options = SearchOptions(strategy=BeamSearch(beam_size=1), coverage_penalty=beta)
        found[beta] = searched(CoveringTableStep(table, attention, 3), task_of([9] * 3, options))
    for b, ([plain], [covered]) in enumerate(zip(found[0.0], found[0.7], strict=True)):
        assert covered.token_log_probs == plain.token_log_probs
        wanted = plain.score + equation_14(attention, b, tokens_of(plain), 0.7)
        assert covered.score == pytest.approx(wanted)


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
            assert each.score == pytest.approx(wanted)
