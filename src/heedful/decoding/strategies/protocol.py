"""The protocol of search strategies, and the simplest one, greedy search."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from typing_extensions import override

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, PartialOutputs
from heedful.decoding.steps import Start
from heedful.decoding.task import SearchTask
from heedful.decoding.translation import Translation
from heedful.errors import InputError
from heedful.settings.options import SharedOptions


class Strategy(Protocol):
    """Searches the outputs of a batch; a frozen dataclass of the settings of one algorithm.

    It sees step functions and knows no backend, so it runs on every one. A class that inherits from this one
    only has to define `search`.

    Attributes:
        supports_terms: whether `search` writes the terms of a task; a glossary needs that.
    """

    supports_terms: ClassVar[bool] = False

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search one batch.

        Args:
            start: gives, each time that it is called, a step function with one row for each sentence and no
                input ids yet, to be used inside the block.
            task: what to search, and the options that all strategies share.

        Returns:
            For each sentence at most `num_hypotheses` hypotheses, best first, or as they were drawn.

        Raises:
            InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
            SearchCancelledError: the outputs are no longer needed: see `SharedOptions.check_cancelled`.
        """
        ...

    def check(self, options: SharedOptions) -> None:
        """Check that the options that all strategies share can be met; by default, all can.

        Raises:
            InputError: an option that this strategy cannot meet.
        """

    def num_hypotheses(self, n_best: int) -> int:
        """Return how many hypotheses of a sentence `search` returns at most."""
        return n_best

    def default_n_best(self, n_best: int) -> int:
        """Return how many hypotheses to return where nothing is asked for, given the bundle's n-best list."""
        del n_best
        return 1

    def batch_limit(self, n_best: int, vocab_size: int) -> int | None:
        """Return the most sentences of a batch; None leaves it to the number of tokens."""
        del n_best, vocab_size
        return None

    def choose(self, translation: Translation, n_best: int) -> Translation:
        """Return the translation with the `n_best` of its hypotheses, chosen by their texts."""
        del n_best
        return translation


@dataclass(frozen=True, kw_only=True)
class Greedy(Strategy):
    """Greedy search: take the most probable token, until the end token."""

    @override
    def check(self, options: SharedOptions) -> None:
        if options.n_best > 1:
            raise InputError(f"n_best={options.n_best}: greedy search has one output; search with a beam")
        if options.coverage_penalty:
            raise InputError(
                f"coverage_penalty={options.coverage_penalty}: has no effect in greedy search; leave it out, "
                "or search with a beam, which may be of one"
            )

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search one output for each sentence: see `Strategy`.

        Of the options, the length penalty is for the score; constraints are suppressed, penalised or forced
        tokens.
        """
        with start() as step:
            outputs = PartialOutputs(task.max_lengths, eos_id=task.eos_id)
            constraints = Constraints(task)
            last_ids = task.start_ids()
            while num_live := len(outputs.live):
                task.options.check_cancelled()
                best = constraints.candidates(
                    step(last_ids), 1, written=outputs.written, sentences=outputs.live
                )
                if np.isneginf(best.scores).any():
                    raise InputError(NO_CONTINUATION)
                rows = outputs.append(best.ids[:, 0], best.log_probs[:, 0])
                if 0 < len(rows) < num_live:
                    step.reorder(rows)
                last_ids = best.ids[rows, 0]
            return [[hypothesis] for hypothesis in outputs.hypotheses(task.options.penalty)]
