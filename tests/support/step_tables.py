"""Step functions without a model: hand-written or random tables of next-token log-probabilities."""

import functools
import math
import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.decoding.options import SearchOptions
from heedful.decoding.steps import ArrayTokens
from heedful.decoding.task import SearchTask

PAD, BOS, EOS = 0, 1, 2
Table = Callable[[int, tuple[int, ...]], Sequence[float]]


def task_of(
    max_lengths: Sequence[int],
    options: SearchOptions,
    *,
    sources: Sequence[Sequence[int]] = (),
    prefixes: Sequence[Sequence[int]] | None = None,
) -> SearchTask:
    """What to search with a table, whose special ids are those above."""
    return SearchTask(
        max_lengths=max_lengths, start_id=BOS, eos_id=EOS, pad_id=PAD, options=options, sources=sources,
        prefixes=prefixes,
    )  # fmt: skip


class TableStep:
    """A step function that looks up (sentence, prefix without bos) and remembers what it was asked."""

    def __init__(self, table: Table, num_sentences: int, *, dtype: type[np.floating] = np.float64) -> None:
        self.table = table
        self.dtype = dtype
        self.prefixes: list[tuple[int, tuple[int, ...]]] = [(b, ()) for b in range(num_sentences)]
        self.row_counts: list[int] = []
        self.started = False

    def __call__(self, last_ids: NDArray[np.int64]) -> ArrayTokens:
        assert last_ids.shape == (len(self.prefixes),)
        assert last_ids.dtype == np.int64
        if self.started:
            fed = last_ids.tolist()
            self.prefixes = [(b, (*ids, i)) for (b, ids), i in zip(self.prefixes, fed, strict=True)]
        else:
            assert set(last_ids.tolist()) <= {BOS}
        self.started = True
        self.row_counts.append(len(self.prefixes))
        return ArrayTokens(np.array([list(self.table(b, ids)) for b, ids in self.prefixes], dtype=self.dtype))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]


def random_table(seed: int, vocab_size: int, *, sharpness: float = 1.0) -> Table:
    """Normalised log-probabilities, a pure function of (seed, sentence, prefix)."""

    @functools.cache
    def table(sentence: int, prefix: tuple[int, ...]) -> Sequence[float]:
        rng = random.Random(f"{seed}/{sentence}/{prefix}")
        logits = torch.tensor([sharpness * rng.gauss(0, 1) for _ in range(vocab_size)], dtype=torch.float64)
        return [float(value) for value in logits.log_softmax(dim=0)]

    return table


def probability_table(rows: dict[tuple[int, ...], dict[int, float]], vocab_size: int) -> Table:
    """One sentence's table from probabilities by prefix; what is not listed has none."""

    def table(_sentence: int, prefix: tuple[int, ...]) -> Sequence[float]:
        probabilities = torch.zeros(vocab_size, dtype=torch.float64)
        for i, probability in rows.get(prefix, {}).items():
            probabilities[i] = probability
        return [float(value) for value in probabilities.log()]

    return table


def constrained(
    table: Table, options: SearchOptions, limit: int, prefixes: Sequence[Sequence[int]] = ()
) -> Table:
    """What a search with these options, limit and prefixes goes by, token by token; -inf is impossible."""
    suppressed = {PAD, BOS} if options.suppressed_ids is None else set(options.suppressed_ids)
    size = options.no_repeat_ngram_size

    def repeats(written: tuple[int, ...]) -> bool:
        ngrams = [written[i : i + size] for i in range(len(written) - size + 1)]
        return size > 0 and bool(ngrams) and ngrams[-1] in ngrams[:-1]

    def allowed(sentence: int, written: tuple[int, ...]) -> Sequence[float]:
        row = table(sentence, written)
        place = len(written) - (options.forced_first_id is not None)
        if prefixes and 0 <= place < len(prefixes[sentence]):
            return [value if i == prefixes[sentence][place] else -math.inf for i, value in enumerate(row)]
        forced = options.forced_first_id if not written else None
        if len(written) == limit - 1 and options.forced_last_id is not None:
            forced = options.forced_last_id
        if forced is not None:
            return [0.0 if i == forced else -math.inf for i in range(len(row))]
        never = suppressed | {EOS} if len(written) < options.min_length else suppressed
        row = [options.repetition_penalty * value if i in written else value for i, value in enumerate(row)]
        return [-math.inf if i in never or repeats((*written, i)) else row[i] for i in range(len(row))]

    return allowed


def every_output(
    table: Table,
    sentence: int,
    *,
    limit: int,
    options: SearchOptions,
    prefixes: Sequence[Sequence[int]] = (),
) -> list[tuple[float, tuple[int, ...]]]:
    """All possible outputs, finished or cut at `limit` tokens: (rank, tokens), best first."""
    allowed, alpha = constrained(table, options, limit, prefixes), options.length_penalty
    outputs = []

    def extend(tokens: tuple[int, ...], log_prob: float) -> None:
        length = len(tokens)
        if length == limit or EOS in tokens:
            base = length if options.length_normalization == "power" else (5 + length) / 6
            outputs.append((log_prob / base**alpha, tokens))
            return
        for i, value in enumerate(allowed(sentence, tokens)):
            if value > -math.inf:
                extend((*tokens, i), log_prob + value)

    extend((), 0.0)
    return sorted(outputs, key=lambda output: (-output[0], output[1]))
