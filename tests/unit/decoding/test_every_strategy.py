"""What holds of every strategy alike: sentences are searched each for itself, and a search can be stopped."""

import itertools
import math

import pytest
from searches import searched
from step_tables import TableStep, random_table, task_of
from tiny_bundle import PAIRS, memorised

from heedful import Translator
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.decoding.task import NO_CONTINUATION
from heedful.errors import InputError, NotNumbersError, SearchCancelledError

STRATEGIES = [
    Greedy(),
    BeamSearch(beam_size=1),
    BeamSearch(beam_size=3),
    DiverseBeamSearch(beam_size=4, num_groups=2),
    Sampling(),
    MinimumBayesRisk(samples=3),
]
EACH = pytest.mark.parametrize("strategy", STRATEGIES, ids=str)


def options_of(strategy: Strategy, suppressed_ids: tuple[int, ...] | None = None) -> SearchOptions:
    many = isinstance(strategy, Sampling) or getattr(strategy, "beam_size", 1) > 1
    return SearchOptions(strategy=strategy, n_best=3 if many else 1, suppressed_ids=suppressed_ids)


@EACH
def test_a_sentence_does_not_depend_on_its_neighbours(strategy: Strategy) -> None:
    table, options = random_table(7, 6, sharpness=1.5), options_of(strategy)
    limits, sources = [3, 9, 4, 9, 9, 2, 9, 1, 9], [[5 + b, 7] for b in range(9)]
    together = searched(TableStep(table, 9), task_of(limits, options, sources=sources))
    for b, limit in enumerate(limits):
        alone = TableStep(lambda _b, ids, b=b: table(b, ids), 1)
        assert searched(alone, task_of([limit], options, sources=[sources[b]])) == [together[b]]


@EACH
def test_no_sentences_are_no_work(strategy: Strategy) -> None:
    assert searched(TableStep(random_table(1, 5), 0), task_of([], options_of(strategy))) == []


@EACH
def test_ended_sentences_leave_the_batch(strategy: Strategy) -> None:
    step = TableStep(random_table(7, 6), 3)
    searched(step, task_of([2, 9, 5], options_of(strategy), sources=[[5], [6], [7]]))
    assert step.row_counts[0] == 3
    assert step.row_counts[-1] < max(step.row_counts)


@EACH
def test_where_no_token_is_possible_or_a_number_is_none_it_is_reported(strategy: Strategy) -> None:
    none = options_of(strategy, suppressed_ids=tuple(range(5)))
    with pytest.raises(InputError, match=NO_CONTINUATION):
        searched(TableStep(random_table(1, 5), 1), task_of([4], none, sources=[[7]]))
    with pytest.raises(NotNumbersError):
        searched(
            TableStep(lambda _b, _ids: [0, 0, math.nan, 0, 0], 1),
            task_of([4], options_of(strategy), sources=[[7]]),
        )


@EACH
@pytest.mark.parametrize("steps", [0, 1, 5])
def test_no_step_is_taken_after_the_search_is_cancelled(strategy: Strategy, steps: int) -> None:
    asked = itertools.count()
    options = SearchOptions(
        strategy=strategy, min_length=50, max_length=60, cancelled=lambda: next(asked) >= steps
    )
    step = TableStep(random_table(3, 9), 2)
    with pytest.raises(SearchCancelledError):
        searched(step, task_of([60, 60], options, sources=[[7], [8]]))
    assert len(step.row_counts) == steps


@pytest.mark.parametrize("engine", ["native", "torch"])
@EACH
def test_every_engine_stops_and_goes_on_with_the_next_search(engine: str, strategy: Strategy) -> None:
    translator = Translator(memorised(), engine=engine)  # type: ignore[arg-type]
    texts = [source for source, _ in PAIRS]
    options = SearchOptions(strategy=strategy)
    expected = translator.translate(texts, options=options)
    asked = itertools.count()
    cancelled = SearchOptions(strategy=strategy, cancelled=lambda: next(asked) >= 2)
    with pytest.raises(SearchCancelledError):
        translator.translate(texts, options=cancelled)
    waited_for = SearchOptions(strategy=strategy, cancelled=lambda: False)
    assert translator.translate(texts, options=waited_for) == expected
