"""The search that the options ask for."""

from collections.abc import Callable
from contextlib import AbstractContextManager

from heedful.decoding.beam import beam_search
from heedful.decoding.diverse_beam import diverse_beam_search
from heedful.decoding.greedy import greedy_search
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.sampling import sample_in_parts, sample_search
from heedful.decoding.steps import StepFunction
from heedful.decoding.task import SearchTask


def search_batch(
    start: Callable[[], AbstractContextManager[StepFunction]], task: SearchTask, *, vocab_size: int
) -> list[list[Hypothesis]]:
    """Search one batch as `search` does; many samples of a sentence are drawn in parts.

    Args:
        start: gives a step function, each time that it is called.
        task: what to search.
        vocab_size: of the outputs.
    """
    if task.options.sampling is not None:
        return sample_in_parts(start, task, vocab_size=vocab_size)
    with start() as step:
        return search(step, task)


def search(step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
    """Search one batch: by sampling, greedy search, beam search or diverse beam search.

    Args:
        step: has one row for each sentence, and no input ids yet.
        task: what to search, with the sources where sampling needs them.

    Returns:
        For each sentence at most `options.n_best` hypotheses, best first, or as they were drawn.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    options = task.options
    if options.sampling is not None:
        return sample_search(step, task)
    if options.num_groups > 1:
        return diverse_beam_search(step, task)
    if options.beam_size == 1 and not options.coverage_penalty:  # a beam of one is the same, with it
        return greedy_search(step, task)
    return beam_search(step, task)
