"""Diverse beam search: a beam in groups, each of which keeps away from what those before it write."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from heedful.decoding.beam import Beam, BeamSearch, best_of, by_search_score, check_beam, check_n_best
from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.ranges import check_range, check_whole, range_of
from heedful.decoding.scoring import coverage_penalties
from heedful.decoding.steps import SearchTask, Start, StepFunction
from heedful.decoding.strategies import Strategy
from heedful.errors import InputError
from heedful.settings.options import EarlyStopping

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions


@dataclass(frozen=True, kw_only=True)
class DiverseBeamSearch(Strategy):
    """Diverse beam search: outputs that differ, from groups (Vijayakumar et al., 2016, algorithm 1).

    Each group is a beam of its own. At each position the groups choose one after the other, and a token costs
    `diversity_penalty` for each hypothesis of an earlier group that goes on with it at this position
    (Hamming diversity). The first group is beam search with its share of `beam_size`.

    Attributes:
        beam_size: live hypotheses of one sentence, in all groups.
        num_groups: of the beam, each with an equal share of it; one group is beam search.
        diversity_penalty: lambda: what a token costs in a group for each hypothesis of the groups before it
            that goes on with the same token at the same position.
        early_stopping: when a group ends: see `BeamSearch`.
    """

    beam_size: int = 4
    num_groups: int = 2
    diversity_penalty: float = 0.5
    early_stopping: EarlyStopping = "optimal"

    def __post_init__(self) -> None:
        check_beam(self.beam_size, self.early_stopping)
        check_whole("num_groups", self.num_groups, *range_of("num_groups"))
        check_range("diversity_penalty", self.diversity_penalty, *range_of("diversity_penalty"))
        if self.beam_size % self.num_groups:
            raise InputError(f"num_groups={self.num_groups}: must divide beam_size={self.beam_size}")

    def check(self, options: "SearchOptions") -> None:
        """See `Strategy`."""
        check_n_best(options.n_best, self.beam_size)

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Search different outputs of each sentence: see `Strategy`.

        The hypotheses are those of all groups, best first by what the search went by. Their numbers are the
        model's own, without what diversity costs.
        """
        if self.num_groups == 1:
            beam = BeamSearch(beam_size=self.beam_size, early_stopping=self.early_stopping)
            return beam.search(start, task)
        with start() as step:
            return self._search(step, task)

    def _search(self, step: StepFunction, task: SearchTask) -> list[list[Hypothesis]]:
        constraints, options, size = Constraints(task), task.options, self.beam_size // self.num_groups
        share = BeamSearch(beam_size=size, early_stopping=self.early_stopping)
        of_group = replace(options, strategy=share, n_best=min(size, options.n_best))
        groups = [Beam(replace(task, options=of_group), share) for _ in range(self.num_groups)]
        starts = [0] * self.num_groups  # the first row of each group; they share the rows of the first step
        last_ids = task.start_ids()
        while len(last_ids):
            options.check_cancelled()
            tokens = step(last_ids)
            coverage = coverage_penalties(step, options, len(last_ids))
            costs = np.zeros((len(task.max_lengths), tokens.vocab_size))  # of each next token
            moves = []  # of each group, for each row of the next step, its row in this one and its input id
            for group, first in zip(groups, starts, strict=True):
                sentences = group.sentences_of_rows()
                candidates = constraints.candidates(
                    tokens[np.arange(first, first + len(sentences))], size + 1, written=group.written,
                    sentences=sentences, discounts=costs[sentences],
                )  # fmt: skip
                rows, ids = group.advance(candidates, coverage[first : first + len(sentences)])
                moves.append((first + rows, ids))
                live = group.is_live()
                np.add.at(costs, (group.sentences_of_rows()[live], ids[live]), self.diversity_penalty)
            rows, ids = (np.concatenate(of_groups) for of_groups in zip(*moves, strict=True))
            starts = np.cumsum([0, *(len(ids) for _, ids in moves[:-1])]).tolist()
            if len(rows):
                step.reorder(rows)
            last_ids = ids
        return best_of(_merged([group.finished for group in groups]), options.n_best)


def _merged(
    groups: Sequence[Sequence[Sequence[tuple[float, Hypothesis]]]],
) -> list[list[tuple[float, Hypothesis]]]:
    """Of each sentence the ended hypotheses of all groups, best first, each output once."""
    merged = []
    for of_groups in zip(*groups, strict=True):
        best: dict[tuple[tuple[int, ...], bool], tuple[float, Hypothesis]] = {}
        for ranked in sorted((each for group in of_groups for each in group), key=by_search_score):
            best.setdefault((ranked[1].ids, ranked[1].finished), ranked)
        merged.append(list(best.values()))
    return merged
