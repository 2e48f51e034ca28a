"""Greedy search: the best next token, each time. The reference for a beam of one."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, PartialOutputs
from heedful.decoding.steps import SearchTask, Start
from heedful.decoding.strategies import Strategy
from heedful.errors import InputError

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions


@dataclass(frozen=True, kw_only=True)
class Greedy(Strategy):
    """Greedy search: take the most probable token, until the end token."""

    def check(self, options: "SearchOptions") -> None:
        """See `Strategy`."""
        if options.n_best > 1:
            raise InputError(f"n_best={options.n_best}: greedy search has one output; search with a beam")
        if options.coverage_penalty:
            raise InputError(
                f"coverage_penalty={options.coverage_penalty}: ranks nothing in greedy search; leave it out, "
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
