"""A search strategy: two beam searches, and the more probable output of each sentence.

    heedful translate MODEL --plugin best_of_both.py --strategy best_of_both:BestOfBoth:alpha=1

In Python it is `SearchOptions(strategy=BestOfBoth(alpha=1))`.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from heedful.decoding.steps import Start
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.protocol import Strategy
from heedful.decoding.task import Hypothesis, SearchTask
from heedful.settings.options import SEARCH, Option, check_options


@dataclass(frozen=True, kw_only=True)
class BestOfBoth(Strategy):
    """The better output of a beam with a length penalty and a beam with none."""

    alpha: Annotated[float, Option("The length penalty.", SEARCH, minimum=0, maximum=30)] = 2.0

    def __post_init__(self) -> None:
        check_options(self)

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search twice; `start()` makes a new step function."""
        searches = [
            BeamSearch().search(start, replace(task, options=replace(task.options, length_penalty=alpha)))
            for alpha in (0.0, self.alpha)
        ]
        pairs = zip(*searches, strict=True)
        return [[max(one[0], other[0], key=lambda each: each.log_prob)] for one, other in pairs]
