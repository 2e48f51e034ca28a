"""Entry points that compute with a model, on a device of the caller's choice, to be compared with a CPU.

Each takes the name of a device and an empty folder, and returns numbers and texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

Result = Mapping[str, Any]
Run = Callable[[str, Path], Result]


@dataclass(frozen=True)
class Case:
    """One entry point.

    Attributes:
        run: with a device and a folder.
        tolerance: of numbers, absolute and relative.
        wanted: what comes out on every device; None: what comes out on a CPU.
    """

    run: Run
    tolerance: float = 1e-5
    wanted: Result | None = None


CASES: dict[str, Case] = {}


def case(name: str, *, tolerance: float = 1e-5, wanted: Result | None = None) -> Callable[[Run], Run]:
    """Enter a function under a name."""

    def enter(run: Run) -> Run:
        CASES[name] = Case(run, tolerance, wanted)
        return run

    return enter


def assert_equal(result: object, wanted: object, tolerance: float, where: str = "result") -> None:
    """Compare results of the same case: texts exactly, numbers within the tolerance."""
    if isinstance(wanted, Mapping):
        assert isinstance(result, Mapping)
        assert result.keys() == wanted.keys(), where
        for name, value in wanted.items():
            assert_equal(result[name], value, tolerance, f"{where}.{name}")
    elif isinstance(wanted, torch.Tensor | np.ndarray | float):
        one, other = (torch.as_tensor(each, dtype=torch.float64) for each in (result, wanted))
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance, msg=lambda m: f"{where}: {m}")
    elif isinstance(wanted, Sequence) and not isinstance(wanted, str):
        assert isinstance(result, Sequence)
        assert len(result) == len(wanted), where
        for number, (one, other) in enumerate(zip(result, wanted, strict=True)):
            assert_equal(one, other, tolerance, f"{where}[{number}]")
    else:
        assert result == wanted, where


def on_host(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().cpu().double() for name, tensor in tensors.items()}
