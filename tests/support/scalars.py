"""Numbers that remember how they were made: differentiation in plain Python, one number at a time.

Nothing here knows of tensors or torch, so that what it computes is independent of both.
"""

import itertools
import math
from collections.abc import Iterable, Sequence

_creation = itertools.count()


class Number:
    """A value, and for each number it was made from, the derivative with respect to that one."""

    __slots__ = ("gradient", "order", "parents", "value")

    def __init__(self, value: float, parents: Iterable[tuple["Number", float]] = ()) -> None:
        self.value = value
        self.parents = tuple(parents)
        self.gradient = 0.0
        self.order = next(_creation)


Vector = Sequence[Number]


def total(numbers: Iterable[Number]) -> Number:
    numbers = list(numbers)
    return Number(math.fsum(x.value for x in numbers), [(x, 1.0) for x in numbers])


def dot(xs: Vector, ys: Vector) -> Number:
    assert len(xs) == len(ys)
    value = math.fsum(x.value * y.value for x, y in zip(xs, ys, strict=True))
    parents = [(x, y.value) for x, y in zip(xs, ys, strict=True)]
    return Number(value, [*parents, *((y, x.value) for x, y in zip(xs, ys, strict=True))])


def times(x: Number, factor: float) -> Number:
    return Number(x.value * factor, [(x, factor)])


def minus(x: Number, y: Number) -> Number:
    return Number(x.value - y.value, [(x, 1.0), (y, -1.0)])


def divide(x: Number, y: Number) -> Number:
    return Number(x.value / y.value, [(x, 1 / y.value), (y, -x.value / y.value**2)])


def exp(x: Number) -> Number:
    value = math.exp(x.value)
    return Number(value, [(x, value)])


def log(x: Number) -> Number:
    return Number(math.log(x.value), [(x, 1 / x.value)])


def square_root(x: Number) -> Number:
    value = math.sqrt(x.value)
    return Number(value, [(x, 0.5 / value)])


def relu(x: Number) -> Number:
    return times(x, 1.0 if x.value > 0 else 0.0)


def swish(x: Number) -> Number:
    gate = 1 / (1 + math.exp(-x.value))
    return Number(x.value * gate, [(x, gate + x.value * gate * (1 - gate))])


def gelu(x: Number) -> Number:
    below = 0.5 * (1 + math.erf(x.value / math.sqrt(2)))
    density = math.exp(-(x.value**2) / 2) / math.sqrt(2 * math.pi)
    return Number(x.value * below, [(x, below + x.value * density)])


def differentiate(result: Number) -> None:
    """Fill `gradient` of everything that `result` was made from."""
    reached = {id(result): result}
    waiting = [result]
    while waiting:
        for parent, _ in waiting.pop().parents:
            if id(parent) not in reached:
                reached[id(parent)] = parent
                waiting.append(parent)
    result.gradient = 1.0
    for number in sorted(reached.values(), key=lambda number: -number.order):
        for parent, derivative in number.parents:
            parent.gradient += derivative * number.gradient
