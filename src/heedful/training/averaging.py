"""Weights that are means: over the last checkpoints (6.1), or moving along with training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from heedful.bundle import WEIGHTS_FILE, load_weights, unique_weights
from heedful.model import Transformer


def average_weights(directories: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights in several checkpoints or bundles, read one file at a time.

    A weight that is the same in all of them stays that to the last bit: frozen ones do.
    """
    mean = load_file(directories[0] / WEIGHTS_FILE)
    for number, directory in enumerate(directories[1:], start=2):
        for name, weight in load_file(directory / WEIGHTS_FILE).items():
            mean[name] += (weight - mean[name]) / number
    return mean


class MovingAverage:
    """An exponential moving average of a model's weights, in float32."""

    def __init__(self, model: Transformer, decay: float) -> None:
        self.decay = decay
        self.weights = {name: weight.clone() for name, weight in unique_weights(model).items()}

    def update(self, latest: Mapping[str, Tensor], step: int) -> None:
        """Move some or all weights towards the latest; early on faster, so that the start is forgotten."""
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_([self.weights[name] for name in latest], list(latest.values()), 1.0 - decay)


@contextmanager
def swapped_weights(model: Transformer, weights: dict[str, Tensor] | None) -> Iterator[None]:
    """Give the model other weights inside the `with` block, its own back after it; None: no change."""
    if weights is None:
        yield
        return
    own = {name: weight.clone() for name, weight in unique_weights(model).items()}
    load_weights(model, weights, Path("averaged weights"))
    try:
        yield
    finally:
        load_weights(model, own, Path("own weights"))
