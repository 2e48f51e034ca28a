"""What the matrix products of training are computed in. Weights and optimiser state are float32 always."""

from contextlib import AbstractContextManager, nullcontext
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
