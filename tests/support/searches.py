"""Searches of one step function."""

from contextlib import nullcontext

from heedful.decoding.steps import StepFunction
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.task import Hypothesis, SearchTask


def searched(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """The outputs of the strategy that the task's options name."""
    return task.options.strategy.search(lambda: nullcontext(step), task)


def searched_by_beam(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """The outputs of beam search, whose algorithm runs for a beam of one too."""
    assert isinstance(task.options.strategy, BeamSearch)
    return task.options.strategy.search_beam(step, task)


def searched_greedily(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """The outputs of greedy search, whatever strategy the task's options name."""
    return Greedy().search(lambda: nullcontext(step), task)
