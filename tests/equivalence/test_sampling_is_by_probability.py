"""What is drawn, against the cut-offs of transformers and against exact probabilities.

An empirical distribution p' of n draws over k outcomes is further than e from its p, in the sum of absolute
differences, with a probability of at most (2^k - 2) exp(-n e^2 / 2) (Weissman et al., 2003). The bounds below
are those of a false alarm in 10^9 seeds, and the seed is fixed.
"""

import math
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import pytest
import torch
from step_tables import BOS, EOS, PAD, Table, TableStep, random_table, task_of
from tolerances import FLOAT32, assert_close
from torch import Tensor
from transformers.generation.logits_process import (
    EpsilonLogitsWarper,
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.sampling import Sampling, probable

FALSE_ALARM = 1e-9
VOCAB_SIZE, LIMIT = 5, 3
SETTINGS = [
    Sampling(),
    Sampling(temperature=0.6),
    Sampling(temperature=2.5, seed=3),
    Sampling(top_k=2),
    Sampling(top_p=0.7),
    Sampling(min_p=0.4),
    Sampling(epsilon=0.3),
    Sampling(temperature=1.4, top_k=3, top_p=0.9, min_p=0.2, epsilon=0.1),
]


def their_cut_offs(scores: Tensor, sampling: Sampling) -> Tensor:
    """Scores (rows, V) as transformers leaves them for a draw."""
    processors = LogitsProcessorList([TemperatureLogitsWarper(float(sampling.temperature))])
    if sampling.top_k is not None:
        processors.append(TopKLogitsWarper(sampling.top_k))
    processors.append(TopPLogitsWarper(sampling.top_p))
    processors.append(MinPLogitsWarper(sampling.min_p))
    if sampling.epsilon:
        processors.append(EpsilonLogitsWarper(sampling.epsilon))
    return processors(torch.empty(0), scores)


@pytest.mark.parametrize("sampling", SETTINGS)
@pytest.mark.parametrize("spread", [0.3, 2.0, 7.0])
def test_what_may_be_drawn_is_what_transformers_would_draw_from(sampling: Sampling, spread: float) -> None:
    torch.manual_seed(5)
    scores = (spread * torch.randn(211, 31, dtype=torch.float64)).log_softmax(-1)
    scores[:, 7] = -torch.inf  # suppressed
    assert_close(
        probable(scores, sampling).softmax(-1), their_cut_offs(scores, sampling).softmax(-1), FLOAT32.MODEL
    )


def every_probability(table: Table, sampling: Sampling) -> dict[tuple[int, ...], float]:
    """Of each possible output, by the cut-offs of transformers."""
    found: dict[tuple[int, ...], float] = {}

    def extend(tokens: tuple[int, ...], probability: float) -> None:
        if len(tokens) == LIMIT or EOS in tokens:
            found[tokens] = probability
            return
        scores = torch.tensor([table(0, tokens)], dtype=torch.float64)
        scores[:, [PAD, BOS]] = -torch.inf
        for token, share in enumerate(their_cut_offs(scores, sampling).softmax(-1)[0].tolist()):
            if share > 0:
                extend((*tokens, token), probability * share)

    extend((), 1.0)
    return found


def assert_drawn_by(expected: Mapping[Hashable, float], drawn: Iterable[Hashable]) -> None:
    counts = Counter(drawn)
    total, outcomes = counts.total(), len(expected)
    assert counts.keys() <= expected.keys()
    bound = math.sqrt(2 / total * (outcomes * math.log(2) - math.log(FALSE_ALARM)))
    assert bound < 0.14
    assert sum(abs(counts[key] / total - p) for key, p in expected.items()) < bound


def outputs(
    table: Table, sampling: Sampling, *, num_sentences: int, n_best: int
) -> list[list[tuple[int, ...]]]:
    options = SearchOptions(n_best=n_best, strategy=sampling)
    sources = [[i] for i in range(num_sentences)]

    def start() -> AbstractContextManager[TableStep]:
        return nullcontext(TableStep(lambda _b, written: table(0, written), num_sentences))

    found = sampling.search(start, task_of([LIMIT] * num_sentences, options, sources=sources))
    return [[(*each.ids, EOS) if each.finished else each.ids for each in drawn] for drawn in found]


@pytest.mark.representatives(4)
@pytest.mark.parametrize("sampling", SETTINGS)
def test_outputs_come_as_often_as_they_are_probable(sampling: Sampling) -> None:
    table = random_table(2, VOCAB_SIZE, sharpness=0.8)
    drawn = outputs(table, sampling, num_sentences=70, n_best=100)
    expected = every_probability(table, sampling)
    assert_drawn_by(expected, [each for found in drawn for each in found])


def test_the_samples_of_a_sentence_and_its_neighbours_are_independent() -> None:
    table = random_table(2, VOCAB_SIZE)
    drawn = outputs(table, Sampling(seed=1), num_sentences=6_000, n_best=2)
    firsts = {token: math.exp(table(0, ())[token]) for token in range(2, VOCAB_SIZE)}
    firsts = {token: p / sum(firsts.values()) for token, p in firsts.items()}
    pairs = {(one, other): p * q for one, p in firsts.items() for other, q in firsts.items()}
    assert_drawn_by(pairs, [(one[0], other[0]) for one, other in drawn])
    neighbours = zip(drawn[::2], drawn[1::2], strict=True)
    assert_drawn_by(pairs, [(one[0], other[0]) for (one, _), (other, _) in neighbours])
