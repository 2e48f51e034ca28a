"""The precision of training's matrix multiplications. Weights and optimiser state are always float32."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

from heedful.ops.kernels import torch_dtype
from heedful.runtime.native import cpu_has_bf16, why_no_bf16
from heedful.settings.options import TrainingPrecision

Precision = TrainingPrecision

_TIMED_SIZE = 128  # rows and columns of the timed matrices: a few milliseconds if bfloat16 is emulated


def resolve_precision(setting: Literal["auto", Precision], device: torch.device) -> Precision:
    """Return the precision of a setting; "auto" is bf16 if the device has instructions for it."""
    if setting != "auto":
        return setting
    return "bf16" if has_bf16(device) else "float32"


def has_bf16(device: torch.device) -> bool:
    """Return whether a device has instructions for bfloat16; otherwise it is emulated, slowly."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    return device.type == "cpu" and cpu_has_bf16()


def emulation_warning(precision: Precision, device: torch.device) -> str | None:
    """Return a warning if a CPU emulates bf16 and is slower for it, else None."""
    if precision != "bf16" or device.type != "cpu" or (reason := why_no_bf16()) is None:
        return None
    cost = _time_matmul(torch.bfloat16) / _time_matmul(torch.float32)
    if cost <= 1.0:  # HEEDFUL_ISA restricts heedful's own kernels, not torch
        return None
    return (
        f"train.precision=bf16: {reason}: a matrix multiplication takes {cost:.1f} times as long as in "
        "float32; take train.precision=float32"
    )


def _time_matmul(dtype: torch.dtype) -> float:
    """Return the shortest time of a few small matrix multiplications, in seconds."""
    matrix = torch.ones(_TIMED_SIZE, _TIMED_SIZE, dtype=dtype)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which forward passes multiply matrices in that precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch_dtype(precision))


@contextmanager
def float32_matmul_precision(precision: Precision, device: torch.device) -> Iterator[None]:
    """Set how a GPU multiplies float32 matrices inside the block; a CPU is not affected.

    With float32 they are exactly that, whatever the caller has set; with bf16 they may be TensorFloat-32,
    which has more digits than bf16.
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
