"""The protocol of search strategies, and the simplest one, greedy search."""

from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np
from typing_extensions import override

from heedful.decoding.constraints import Constraints
from heedful.decoding.steps import Start
from heedful.decoding.task import NO_CONTINUATION, Hypothesis, PartialOutputs, SearchTask
from heedful.decoding.translation import Translation
from heedful.errors import InputError, refuse_if
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
            start: returns a new step function at each call, with one row for each sentence and no input ids
                yet, to be used inside the block.
            task: the sentences, and the options that all strategies share.

        Returns:
            For each sentence at most `num_hypotheses` hypotheses, best first, or in the order of drawing.

        Raises:
            InputError: log-probabilities that are not numbers, or a sentence without a possible next token.
            SearchCancelledError: the outputs are no longer needed: see `SharedOptions.check_cancelled`.
        """
        ...

    def check(self, options: SharedOptions) -> None:
        """Check that this strategy supports the options that all strategies share; by default, it does.

        Raises:
            InputError: an option that this strategy does not support.
        """

    def num_hypotheses(self, n_best: int) -> int:
        """Return the maximum number of hypotheses of a sentence that `search` returns."""
        return n_best

    def default_n_best(self, n_best: int) -> int:
        """Return the default number of hypotheses to return; `n_best` is the bundle's."""
        del n_best
        return 1

    def batch_limit(self, n_best: int, vocab_size: int) -> int | None:
        """Return the maximum number of sentences in a batch; None: no limit."""
        del n_best, vocab_size
        return None

    def choose(self, translation: Translation, n_best: int) -> Translation:
        """Return the translation with `n_best` hypotheses, chosen by their texts."""
        del n_best
        return translation


@dataclass(frozen=True, kw_only=True)
class Greedy(Strategy):
    """Greedy search: take the most probable token, until the end token."""

    @override
    def check(self, options: SharedOptions) -> None:
        refuse_if(
            (
                options.n_best > 1,
                f"n_best={options.n_best}: greedy search has one output; search with a beam",
            ),
            (
                options.coverage_penalty,
                f"coverage_penalty={options.coverage_penalty}: has no effect in greedy search; leave it out, "
                "or search with a beam, which may be of one",
            ),
        )

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search one output for each sentence: see `Strategy`.

        The length penalty only changes the score; the constraints suppress, penalise and force tokens.
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
