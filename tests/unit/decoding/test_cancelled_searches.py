"""A search stops between two steps when its caller no longer needs the outputs."""

import itertools

import pytest
from searches import searched
from step_tables import TableStep, random_table, task_of
from tiny_bundle import PAIRS, memorised

from heedful import Translator
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.errors import SearchCancelledError

STRATEGIES = [
    Greedy(),
    BeamSearch(beam_size=1),
    BeamSearch(beam_size=3),
    DiverseBeamSearch(beam_size=4, num_groups=2),
    Sampling(),
    MinimumBayesRisk(samples=3),
]


@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
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
@pytest.mark.parametrize("strategy", STRATEGIES, ids=str)
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
