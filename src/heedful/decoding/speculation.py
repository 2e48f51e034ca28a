"""Greedy search that guesses ahead: where an output repeats its source or itself, it takes fewer steps.

The guess is what came next before, after the same two tokens (prompt lookup: Saxena, 2023). The model is
asked about all places of a guess in one step, and what it would have chosen itself is kept (blockwise
decoding: Stern et al., 2018, section 3). It decides about every token as ever, so the output is the same.
"""

import math
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.constraints import Constraints
from heedful.decoding.hypotheses import NO_CONTINUATION, Hypothesis, ended_hypothesis
from heedful.decoding.options import SearchOptions
from heedful.decoding.step_function import NextTokens, SpeculativeStep
from heedful.decoding.task import SearchTask
from heedful.errors import InputError


def speculative_search(step: SpeculativeStep, task: SearchTask) -> list[list[Hypothesis]]:
    """Search what `greedy_search` finds, with at most `options.speculate` guessed tokens in a step.

    Args:
        step: has one row for each sentence, not fed yet.
        task: as for greedy search, with sources, which outputs may repeat; prefixes are guesses without a
            limit.

    Returns:
        For each sentence a list of one hypothesis.

    Raises:
        InputError: log-probabilities that are not numbers, or that leave a sentence no continuation.
    """
    constraints, options = Constraints(task), task.options
    forced = [] if options.forced_first_id is None else [options.forced_first_id]
    begun = [[*forced, *prefix] for prefix in task.prefixes or [()] * len(task.max_lengths)]
    outputs = [
        _Output(*each, start_id=task.start_id, eos_id=task.eos_id)
        for each in zip(range(len(begun)), task.max_lengths, task.sources, begun, strict=True)
    ]
    live = outputs
    while live:
        fed = [output.guess(options.speculate) for output in live]
        counts = np.asarray([len(each) for each in fed])
        found = step.feed(torch.tensor([each for ids in fed for each in ids]), counts)
        best = iter(_best(constraints, found, live))
        rows = [row for row, output in enumerate(live) if output.write(best)]
        if 0 < len(rows) < len(live):
            step.reorder(torch.tensor(rows))
        live = [live[row] for row in rows]
        if live:
            step.rewind(np.asarray([len(output.ids) for output in live]))
    return [[output.hypothesis(options)] for output in outputs]


def _best(
    constraints: Constraints, found: Tensor | NextTokens, outputs: Sequence["_Output"]
) -> list[tuple[int, float]]:
    """The best token after each place that was fed, and its log-probability, -inf where there is none."""
    rows = [(output, length) for output in outputs for length in output.lengths]
    sentences = np.asarray([output.sentence for output, _ in rows])
    ids, log_probs = np.zeros_like(sentences), np.zeros(len(rows))
    for some, length in constraints.alike(np.asarray([length for _, length in rows])):
        written = [rows[row][0].with_guess(length) for row in some]
        best = constraints.candidates(
            found if len(some) == len(rows) else found[torch.from_numpy(some)],
            1,
            written=np.asarray(written, dtype=np.int64).reshape(len(some), length),
            sentences=sentences[some],
        )
        ids[some] = best.ids[:, 0]
        log_probs[some] = np.where(np.isneginf(best.scores[:, 0]), -np.inf, best.log_probs[:, 0])
    return list(zip(ids.tolist(), log_probs.tolist(), strict=True))


class Lookup:
    """What came next, in a text that is read token by token.

    >>> lookup = Lookup([5, 6, 7, 8, 9])
    >>> lookup.read([1, 6, 7])
    >>> lookup.after_the_latest(2)
    [8, 9]
    """

    def __init__(self, ids: Sequence[int]) -> None:
        self._ids: list[int] = []
        self._next: dict[tuple[int, int], int] = {}  # the place after two tokens, where they stood last
        self.read(ids)

    def read(self, ids: Sequence[int]) -> None:
        """Read on."""
        for each in ids:
            if len(self._ids) > 1:
                self._next[self._ids[-2], self._ids[-1]] = len(self._ids)
            self._ids.append(each)

    def after_the_latest(self, count: int) -> list[int]:
        """What came next, at most `count` tokens, after the latest two when they were there before."""
        place = self._next.get((self._ids[-2], self._ids[-1])) if len(self._ids) > 1 else None
        return [] if place is None else self._ids[place : place + count]


class _Output:
    """The output of a sentence, and what is guessed to come next in it."""

    def __init__(
        self,
        sentence: int,
        limit: int,
        source: Sequence[int],
        begun: list[int],
        *,
        start_id: int,
        eos_id: int,
    ) -> None:
        self.sentence = sentence
        self.ids: list[int] = []
        self._log_probs: list[float] = []
        self._guess: list[int] = []
        self._limit = limit
        self._begun = begun
        self._lookup = Lookup(source)
        self._start_id, self._eos_id = start_id, eos_id

    @property
    def lengths(self) -> range:
        """What is known at each place where the best token is asked for: so many tokens, guesses included."""
        return range(len(self.ids), len(self.ids) + len(self._guess) + 1)

    def with_guess(self, length: int) -> list[int]:
        """The first tokens, guesses included."""
        return [*self.ids, *self._guess][:length]

    def guess(self, most: int) -> list[int]:
        """Guess what comes next, but neither the end nor the last token of the limit; what to feed now."""
        length = len(self.ids)
        guess = self._begun[length:] or self._lookup.after_the_latest(most)
        guess = guess[: self._limit - length - 1]
        self._guess = guess[: guess.index(self._eos_id)] if self._eos_id in guess else guess
        return [self.ids[-1] if self.ids else self._start_id, *self._guess]

    def write(self, best: Iterator[tuple[int, float]]) -> bool:
        """Write the best token after each place that was fed, as far as the guess is right.

        Args:
            best: those tokens and their log-probabilities, all of which are taken.

        Returns:
            Whether the output goes on.

        Raises:
            InputError: a token that is impossible.
        """
        found = list(islice(best, len(self._guess) + 1))
        wrong = (i for i, each in enumerate(self._guess) if each != found[i][0])
        right = found[: next(wrong, len(self._guess)) + 1]
        for each, log_prob in right:
            if log_prob == -math.inf:
                raise InputError(NO_CONTINUATION)
            self.ids.append(each)
            self._log_probs.append(log_prob)
        self._lookup.read(self.ids[-len(right) :])
        return self.ids[-1] != self._eos_id and len(self.ids) < self._limit

    def hypothesis(self, options: SearchOptions) -> Hypothesis:
        """The output at its end."""
        penalty = options.penalty(len(self.ids))
        return ended_hypothesis(self.ids, self._log_probs, eos_id=self._eos_id, penalty=penalty)
