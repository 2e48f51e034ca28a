"""How far apart two computations of a value may lie: one table, by number format and length of the sum.

A bound is derived, never read off a machine:

    bound = rtol |wanted| + atol · scale,    rtol and atol = 2 √n eps(format)

n counts the roundings behind one value. They are independent, so their error grows as √n (Higham and Mary,
2019, "A New Approach to Probabilistic Rounding Error Analysis"). A rounding is at most eps / 2, so √n of them
are a quarter of a bound. The scale of the values is 1 (normalised states, weights, logits,
log-probabilities), unless the test states another: `FLOAT32.ROW.at(0.001)`.

    ELEMENT     a function of some operations                               n = 16
    ROW         a sum of some hundred products: attention, norm, softmax    n = 256
    MODEL       states, logits or gradients behind sixteen such sums        n = 16 · 256
    SENTENCE    log-probabilities of a model, summed over 32 tokens         n = 32 · 16 · 256
    TRAINING    weights after 16 updates; the scale is how far they moved   n = 16 · 64² · 16 · 256

The terms of SENTENCE have one sign, so that their sum has the rtol of MODEL. Weights move little, so that
they have the rtol of ELEMENT; Adam divides a gradient by its own size, which may be a 64th of the scale, so
that its error counts 64 times. Products of the short formats are summed in float32 or in integers: their n
counts what is stored, one value in ELEMENT, four in ROW (two factors, the sum and the bias).

Where HEEDFUL_NEARNESS names a file, each comparison adds a line to it: how near it came to its bound
(tools/near_bounds.py).
"""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

VARIABLE = "HEEDFUL_NEARNESS"
STANDARD_ERRORS = 8  # one sample mean in 16,000 is off by more than half of these
_TOKENS, _LAYERS, _UPDATES, _ADAM = 32, 16, 16, 64


@dataclass(frozen=True)
class Bound:
    """The largest allowed difference of two numbers: rtol |wanted| + atol."""

    name: str
    rtol: float
    atol: float

    def at(self, scale: float) -> "Bound":
        """Return the bound for values of this scale instead of 1."""
        return replace(self, name=f"{self.name}.at({scale:g})", atol=self.atol * scale)

    def printed(self, digits: int, terms: int = 1) -> "Bound":
        """Return the bound of a sum of printed numbers: for each, one unit of its last digit."""
        return replace(self, name=f"{self.name}.printed({digits})", atol=self.atol + terms * 10.0**-digits)

    def averaged(self, count: int) -> "Bound":
        """Return the bound of the mean of that many values, with errors that are independent."""
        divisor = math.sqrt(count)
        return Bound(f"{self.name}.averaged({count})", self.rtol / divisor, self.atol / divisor)

    def __str__(self) -> str:
        return f"{self.name} ({self.rtol:.2g} |wanted| + {self.atol:.2g})"

    def over(self, wanted: Any) -> Any:  # noqa: ANN401
        """Return the largest allowed difference from each wanted value."""
        return self.atol + self.rtol * np.abs(wanted)


class Format:
    """The bounds of a number format, by length of the sum."""

    def __init__(self, name: str, eps: float, *, element: int = 16, row: int = 256) -> None:
        def bound(length: str, roundings: int, relative: int | None = None) -> Bound:
            of_value = roundings if relative is None else relative
            rtol, atol = (2 * math.sqrt(n) * eps for n in (of_value, roundings))
            return Bound(f"{name}.{length}", rtol, atol)

        model = _LAYERS * row
        self.ELEMENT = bound("ELEMENT", element)
        self.ROW = bound("ROW", row)
        self.MODEL = bound("MODEL", model)
        self.SENTENCE = bound("SENTENCE", _TOKENS * model, model)
        self.TRAINING = bound("TRAINING", _UPDATES * _ADAM**2 * model, element)


FLOAT64 = Format("FLOAT64", 2.0**-52)
FLOAT32 = Format("FLOAT32", 2.0**-23)
FP16 = Format("FP16", 2.0**-10, element=1, row=4)
BF16 = Format("BF16", 2.0**-7, element=1, row=4)
INT8 = Format("INT8", 4 * 2.0**-7, element=1, row=4)  # of the largest of a row: four times a typical one


_FORMATS = {
    "float64": FLOAT64, "float32": FLOAT32, "float16": FP16, "fp16": FP16, "bfloat16": BF16, "bf16": BF16,
    "int8": INT8,
}  # fmt: skip


def format_of(dtype: object) -> Format:
    """Return the bounds of a dtype of torch or numpy, or of a precision by its name."""
    return _FORMATS[str(dtype).removeprefix("torch.")]


def largest(*arrays: Any) -> float:  # noqa: ANN401
    """Return the scale of values that are computed together, such as gradients: the largest, or 1."""
    return max(1.0, *(float(np.abs(_array(each)).max()) for each in arrays))


def sampled(deviation: float, count: int) -> Bound:
    """Return the bound of the mean of a sample of values of that standard deviation."""
    return Bound("sampled", 0.0, STANDARD_ERRORS * deviation / math.sqrt(count))


def assert_close(found: Any, wanted: Any, bound: Bound, *, note: object = "") -> None:  # noqa: ANN401
    """Compare numbers, arrays, tensors, and sequences and mappings of them; other values must be equal."""
    why_not = _why_not(found, wanted, bound)
    assert why_not is None, f"{note}: {why_not}" if note != "" else why_not


def assert_apart(found: Any, wanted: Any, bound: Bound, *, note: object = "") -> None:  # noqa: ANN401
    """Require two arrays to differ somewhere by more than the bound; `make bounds` wants twice as much."""
    one, other = _array(found), _array(wanted)
    apart = float(np.max(np.abs(one - other) / bound.over(other)))
    _record(bound, 1 / apart if apart else math.inf)
    assert apart > 1, f"{note}: nowhere apart by more than {bound}; at most {apart:.3g} times"


class Close:
    """Compares by `==` as equal to what is close to its value; can stand inside of larger values."""

    __hash__ = None  # type: ignore[assignment]
    __array_ufunc__ = None  # numpy asks this class, not each of its elements

    def __init__(self, wanted: Any, bound: Bound) -> None:  # noqa: ANN401
        self._wanted, self._bound, self._why_not = wanted, bound, ""

    def __eq__(self, found: object) -> bool:
        self._why_not = _why_not(found, self._wanted, self._bound) or ""
        return not self._why_not

    def __repr__(self) -> str:
        return f"close({self._wanted!r}, {self._bound}){self._why_not and f' ({self._why_not})'}"


def close(wanted: Any, bound: Bound) -> Close:  # noqa: ANN401
    """Return an object that equals all that is close to the wanted number, array, sequence or mapping."""
    return Close(wanted, bound)


def _why_not(found: Any, wanted: Any, bound: Bound) -> str | None:  # noqa: ANN401
    """Return where two values differ most, in units of the bound; None where that is allowed."""
    worst, what = 0.0, None
    for where, one, other in _pairs(found, wanted, ""):
        if one is None:
            return f"{where or 'the value'}: {other}"
        with np.errstate(invalid="ignore", divide="ignore"):
            difference = np.where(one == other, 0.0, np.abs(one - other))
            ratios = np.where(difference == 0, 0.0, difference / bound.over(other))
        if not ratios.size:
            continue
        ratios = np.where(np.isfinite(ratios), ratios, math.inf)  # nan, and infinity against a number
        place = np.unravel_index(int(ratios.argmax()), ratios.shape)
        if ratios[place] > worst:
            worst = float(ratios[place])
            index = f"[{', '.join(map(str, place))}]" if place else ""
            what = f"{where}{index}: {one[place]!r} for {other[place]!r}, {worst:.3g} times {bound}"
    _record(bound, worst)
    return what if worst > 1 else None


def _pairs(found: Any, wanted: Any, where: str) -> Iterator[tuple[str, Any, Any]]:  # noqa: ANN401
    """Yield the pairs of arrays and where they stand; None and a message if two parts are no such pair."""
    if isinstance(wanted, Mapping):
        if not isinstance(found, Mapping) or found.keys() != wanted.keys():
            yield where, None, f"other keys than {[*wanted]}: {found}"
            return
        for name, value in wanted.items():
            yield from _pairs(found[name], value, f"{where}[{name!r}]")
    elif isinstance(wanted, list | tuple):
        found = _array(found) if hasattr(found, "detach") else found
        if not isinstance(found, Sequence | np.ndarray) or len(found) != len(wanted):
            yield where, None, f"no {len(wanted)} values: {found}"
            return
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            yield from _pairs(one, other, f"{where}[{number}]")
    elif wanted is None or isinstance(wanted, str | bytes | bool):
        if found is None or type(found) is not type(wanted) or found != wanted:
            yield where, None, f"{found!r} for {wanted!r}"
    else:
        yield _arrays(found, wanted, where)


def _arrays(found: Any, wanted: Any, where: str) -> tuple[str, Any, Any]:  # noqa: ANN401
    if found is None or isinstance(found, str | bytes):
        return where, None, f"{found!r} for {wanted!r}"
    types = [each.dtype for each in (found, wanted) if hasattr(each, "detach")]
    if len({*types}) > 1:
        return where, None, f"{types[0]} for {types[1]}"
    one, other = _array(found), _array(wanted)
    if other.ndim and one.shape != other.shape:
        return where, None, f"shape {one.shape} for {other.shape}"
    return where, one, np.broadcast_to(other, one.shape)


def _array(values: Any) -> Any:  # noqa: ANN401
    if hasattr(values, "detach"):  # a tensor, on whatever device
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


def _record(bound: Bound, ratio: float) -> None:
    file = os.environ.get(VARIABLE)
    if not file:
        return
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename == __file__:
        frame = frame.f_back
    row = {
        "test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" (")[0],
        "line": f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno}",
        "bound": bound.name,
        "ratio": ratio,
    }
    # One write, at the end of the file: lines of several processes stay whole.
    out = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    try:
        os.write(out, (json.dumps(row) + "\n").encode())
    finally:
        os.close(out)
