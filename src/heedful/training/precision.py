"""What the matrix products of training are computed in. Weights and optimiser state are float32 always."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Literal

import torch

Precision = Literal["float32", "bf16"]


def resolve_precision(wanted: Literal["auto", "float32", "bf16"], device: torch.device) -> Precision:
    """Choose bf16 where the device multiplies it faster than float32: it has instructions for it."""
    if wanted != "auto":
        return wanted
    if device.type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    capabilities = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    gains = capabilities.get("avx512_bf16") or capabilities.get("amx_bf16") or capabilities.get("bf16")
    return "bf16" if gains else "float32"


def autocast(precision: Precision, device: torch.device) -> AbstractContextManager[object]:
    """Return the context in which a forward pass computes its products in that precision."""
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch.bfloat16)


@contextmanager
def settled_float32(precision: Precision, device: torch.device) -> Iterator[None]:
    """Settle what a GPU makes of products of float32 inside the block; elsewhere nothing changes.

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
