"""Step functions without a model: hand-written or random tables of next-token log-probabilities."""

import functools
import itertools
import random
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

PAD, BOS, EOS = 0, 1, 2
Table = Callable[[int, tuple[int, ...]], Sequence[float]]


class TableStep:
    """A step function that looks up (sentence, prefix without bos) and remembers what it was asked."""

    def __init__(self, table: Table, num_sentences: int, *, dtype: torch.dtype = torch.float64) -> None:
        self.table = table
        self.dtype = dtype
        self.prefixes: list[tuple[int, tuple[int, ...]]] = [(b, ()) for b in range(num_sentences)]
        self.row_counts: list[int] = []
        self.started = False

    def __call__(self, last_ids: Tensor) -> Tensor:
        assert last_ids.shape == (len(self.prefixes),)
        assert last_ids.dtype == torch.int64
        if self.started:
            fed = last_ids.tolist()
            self.prefixes = [(b, (*ids, i)) for (b, ids), i in zip(self.prefixes, fed, strict=True)]
        else:
            assert set(last_ids.tolist()) <= {BOS}
        self.started = True
        self.row_counts.append(len(self.prefixes))
        return torch.tensor([list(self.table(b, ids)) for b, ids in self.prefixes], dtype=self.dtype)

    def reorder(self, rows: Tensor) -> None:
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


def every_output(
    table: Table, sentence: int, *, vocab_size: int, max_length: int, alpha: float
) -> list[tuple[float, tuple[int, ...]]]:
    """All finished outputs of at most `max_length` tokens, the end included: (score, ids), best first."""
    outputs = []
    for length in range(max_length):
        for ids in itertools.product(range(EOS + 1, vocab_size), repeat=length):
            steps = zip(range(length + 1), (*ids, EOS), strict=True)
            log_prob = sum(table(sentence, ids[:t])[i] for t, i in steps)
            outputs.append((log_prob / ((5 + length + 1) / 6) ** alpha, ids))
    return sorted(outputs, key=lambda output: (-output[0], output[1]))
