"""The precisions of matrix multiplications, by the names that users give them, and torch's types for them."""

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import torch

Precision = Literal["float32", "bf16", "fp16", "int8"]
TrainingPrecision = Literal["float32", "bf16"]


def torch_dtype(precision: Literal["float32", "bf16", "fp16"]) -> "torch.dtype":
    """Return torch's type for a precision; int8, which has scales beside its numbers, has none."""
    import torch

    return {"float32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[precision]
