"""The precision of training's matrix multiplications. Weights and optimiser state are float32 always."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

from heedful.native import cpu_has_bf16
from heedful.precision import TrainingPrecision, torch_dtype

Precision = TrainingPrecision

_TIMED_SIZE = 128  # rows and columns of the matrices: some milliseconds where bfloat16 is emulated


def resolve_precision(wanted: Literal["auto", Precision], device: torch.device) -> Precision:
    """Choose bf16 where the device multiplies it faster than float32: it has instructions for it."""
    if wanted != "auto":
        return wanted
    return "bf16" if has_bf16(device) else "float32"


def has_bf16(device: torch.device) -> bool:
    """Whether a device multiplies bfloat16 by instructions of its own; elsewhere it is emulated, slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and cpu_has_bf16()


def emulation_warning(precision: Precision, device: torch.device) -> str | None:
    """Return what to say where a CPU is to compute in bf16 and can only emulate it; else None."""
    if precision != "bf16" or device.type != "cpu" or has_bf16(device):
        return None
    cost = _seconds_of_product(torch.bfloat16) / _seconds_of_product(torch.float32)
    return (
        "train.precision=bf16: this CPU has no bf16 instructions and emulates them: a matrix multiplication "
        f"takes {cost:.1f} times as long as in float32; take train.precision=float32"
    )


def _seconds_of_product(dtype: torch.dtype) -> float:
    """Time a small matrix multiplication a few times, and return the shortest."""
    matrix = torch.ones(_TIMED_SIZE, _TIMED_SIZE, dtype=dtype)
    seconds = []
    for _ in range(4):
        begun = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - begun)
    return min(seconds)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a forward pass computes its matrix multiplications in that precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch_dtype(precision))


@contextmanager
def settled_float32(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set how a GPU multiplies float32 matrices inside the block; elsewhere nothing changes.

    They are float32, whatever the program around has set; beside bf16 they may be TensorFloat-32, which has
    more digits than that.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if precision == "bf16" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
