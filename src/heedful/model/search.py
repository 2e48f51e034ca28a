"""The search of `Transformer.generate`: searches are above the model, so the package's front sets it."""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

generate: Callable[..., "Tensor"]  # heedful/__init__.py, which every import runs first, sets it
