"""Entry points that compute with a model, on a device of the caller's choice, to be compared with a CPU.

Each takes the name of a device and an empty folder, and returns numbers and texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tolerances import FLOAT32, Bound, assert_close

Result = Mapping[str, Any]
Run = Callable[[str, Path], Result]


@dataclass(frozen=True)
class Case:
    """One entry point.

    Attributes:
        run: with a device and a folder.
        bound: largest difference of numbers.
        wanted: what comes out on every device; None: what comes out on a CPU.
    """

    run: Run
    bound: Bound = FLOAT32.MODEL
    wanted: Result | None = None


CASES: dict[str, Case] = {}


def case(name: str, *, bound: Bound = FLOAT32.MODEL, wanted: Result | None = None) -> Callable[[Run], Run]:
    """Enter a function under a name."""

    def enter(run: Run) -> Run:
        CASES[name] = Case(run, bound, wanted)
        return run

    return enter


def assert_equal(result: object, wanted: object, bound: Bound, where: str = "result") -> None:
    """Compare results of the same case: texts exactly, numbers within the bound."""
    if isinstance(wanted, Mapping):
        assert isinstance(result, Mapping)
        assert result.keys() == wanted.keys(), where
        for name, value in wanted.items():
            assert_equal(result[name], value, bound, f"{where}.{name}")
    elif isinstance(wanted, torch.Tensor | np.ndarray | float):
        one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (result, wanted))
        assert_close(one, other, bound, note=where)
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        assert isinstance(result, Sequence)
        assert len(result) == len(wanted), where
        for number, (one, other) in enumerate(zip(result, wanted, strict=True)):
            assert_equal(one, other, bound, f"{where}[{number}]")
    else:
        assert result == wanted, where


def on_host(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().double() for name, tensor in tensors.items()}
