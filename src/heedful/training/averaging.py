"""Averaged weights: the mean of the last checkpoints (6.1), or a moving average during training."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from heedful.errors import CheckpointError
from heedful.model.transformer import Transformer
from heedful.storage.description import WEIGHTS_FILE
from heedful.storage.torch_weights import load_weights, read_safetensors, unique_weights


def average_weights(directories: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights in several checkpoints or bundles, read one file at a time.

    A weight that is equal in all of them, as frozen ones are, is returned bit for bit.
    """
    mean = _weights_of(directories[0])
    for number, directory in enumerate(directories[1:], start=2):
        weights = _weights_of(directory)
        if _shapes(weights) != _shapes(mean):
            raise CheckpointError(f"{directory}: has other weights than {directories[0]}; leave one out")
        for name, weight in weights.items():
            mean[name] += (weight - mean[name]) / number
    return mean


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: weight.shape for name, weight in weights.items()}


def _weights_of(directory: Path) -> dict[str, Tensor]:
    try:
        return read_safetensors(directory / WEIGHTS_FILE)
    except ValueError as error:
        raise CheckpointError(f"{directory / WEIGHTS_FILE}: {error}; leave it out") from error


class MovingAverage:
    """An exponential moving average of a model's weights, in float32."""

    def __init__(self, model: Transformer, decay: float) -> None:
        self.decay = decay
        self.weights = {name: weight.clone() for name, weight in unique_weights(model).items()}

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Load the average from a checkpoint, onto the model's device."""
        self.weights = {name: weights[name].to(own.device) for name, own in self.weights.items()}

    def update(self, latest: Mapping[str, Tensor], step: int) -> None:
        """Update the average of some or all weights; the decay warms up, as in TensorFlow's average."""
        decay = min(self.decay, (1 + step) / (10 + step))
        with torch.no_grad():
            torch._foreach_lerp_([self.weights[name] for name in latest], list(latest.values()), 1.0 - decay)


@contextmanager
def swapped_weights(model: Transformer, weights: dict[str, Tensor] | None) -> Iterator[None]:
    """Load other weights inside the block and restore the model's own after it; None: no change."""
    if weights is None:
        yield
        return
    own = {name: weight.clone() for name, weight in unique_weights(model).items()}
    try:
        load_weights(model, weights, Path("averaged weights"))
        yield
    finally:
        load_weights(model, own, Path("own weights"))
