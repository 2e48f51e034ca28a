"""The options that the paper does not have as loops over numbers, each written down from its own formula."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from naive_transformer import ACTIVATIONS, Naive, States
from scalars import Number, Vector, divide, dot, minus, square_root, total
from scalars import times as scaled


@dataclass(frozen=True)
class NaiveWithOptions(Naive):
    """Positions that self-attention sees, gates and RMS norms; where weights are there, they are used."""

    positions: str = "rotary"
    max_distance: int = 0  # of relative positions

    def score(self, query: Vector, key: Vector, place: tuple[str, int, int, int]) -> Number:
        name, head, t, s = place
        score = super().score(query, key, place)
        if name.endswith("cross_attention"):
            return score
        if self.positions == "rotary":
            return scaled(turned_product(query, key, t - s), 1 / math.sqrt(len(query)))
        if self.positions == "alibi":
            return total([score, Number(-slope(head, self.num_heads) * abs(t - s))])
        stack = name.split(".")[0]
        table = self.weights[f"{stack}.layers.0.self_attention.positions.weight"]
        place_in_table = bucket(t - s, len(table), self.max_distance, bidirectional=stack == "encoder")
        return total([score, table[place_in_table][head]])

    def feed_forward(self, x: States, name: str) -> list[Vector]:
        """Shazeer, 2020: (f(x W_g) * x W_1) W_2."""
        if f"{name}.gate.weight" not in self.weights:
            return super().feed_forward(x, name)
        results: list[Vector] = []
        for row in x:
            gates = [ACTIVATIONS[self.activation](number) for number in self.linear(row, f"{name}.gate")]
            inner = self.linear(row, f"{name}.inner")
            product = [dot([gate], [number]) for gate, number in zip(gates, inner, strict=True)]
            results.append(self.linear(product, f"{name}.outer"))
        return results

    def norm(self, x: States, name: str) -> list[Vector]:
        """Zhang and Sennrich, 2019: over the root of the mean square, where there is no shift."""
        if f"{name}.bias" in self.weights:
            return super().norm(x, name)
        results: list[Vector] = []
        for row in x:
            root = square_root(total([scaled(dot(row, row), 1 / len(row)), Number(self.eps)]))
            gain = self.weights[f"{name}.weight"]
            results.append([dot([divide(n, root)], [g]) for n, g in zip(row, gain, strict=True)])
        return results

    def embed(self, ids: Sequence[int], matrix: Sequence[Vector], table: Sequence[Vector] | None) -> States:
        assert table is None
        return [[scaled(n, math.sqrt(len(matrix[0]))) for n in matrix[i]] for i in ids]


def turned_product(query: Vector, key: Vector, distance: int) -> Number:
    """Over the complex pairs j: the real part of q_j e^(i distance theta_j) times the conjugate of k_j."""
    half = len(query) // 2
    parts: list[Number] = []
    for i in range(half):
        angle = distance * 10_000 ** (-i / half)
        (a, b), (c, d) = (query[i], query[i + half]), (key[i], key[i + half])
        parts.append(scaled(dot([a, b], [c, d]), math.cos(angle)))
        parts.append(scaled(minus(dot([a], [d]), dot([b], [c])), math.sin(angle)))
    return total(parts)


def slope(head: int, num_heads: int) -> float:
    """Press et al., 2022: 2^(-8/n), 2^(-16/n), ...; here for powers of two."""
    assert num_heads & (num_heads - 1) == 0
    return float(2.0 ** (-8 / num_heads)) ** (head + 1)


def bucket(back: int, num_buckets: int, max_distance: int, *, bidirectional: bool) -> int:
    """Raffel et al., 2020, in whole numbers: `back` is how far the key stands before the query.

    Of n buckets for one direction, distances below e = n // 2 have their own; bucket e + k begins at the
    distance e * (max_distance / e)^(k / (n - e)).
    """
    first, count = 0, num_buckets
    if bidirectional:
        count = num_buckets // 2
        first = count if back < 0 else 0
    back = abs(back) if bidirectional else max(0, back)
    exact = count // 2
    if back < exact:
        return first + back
    k = 0
    while k + 1 < count - exact and begins_by(back, k + 1, exact, count - exact, max_distance):
        k += 1
    return first + exact + k


def begins_by(distance: int, k: int, exact: int, steps: int, max_distance: int) -> bool:
    """Whether distance >= exact * (max_distance / exact)^(k / steps), both sides to the power of `steps`."""
    return distance**steps * exact**k >= exact**steps * max_distance**k
