"""Averaged weights: the mean of the last checkpoints (6.1), or a moving average during training."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import Tensor

from heedful.errors import CheckpointError, ConfigError, suggestion
from heedful.model.transformer import Transformer
from heedful.ops.lora import AdaptedLinear, adapt_layers, inner_linear_layers, merge_layers
from heedful.settings.run import Config, LoraConfig
from heedful.storage.bundle import WEIGHTS_FILE
from heedful.storage.model_files import load_weights, read_safetensors, unique_weights


def choose_trained_weights(model: Transformer, config: Config) -> None:
    """Add the configured adapters and set `requires_grad` of frozen weights to False.

    The optimiser gets only the others; checkpoints and averages hold all weights. A shared matrix is frozen
    if one of its names is.

    Raises:
        ConfigError: an adapter for no layer, a frozen prefix of no weight, or nothing left to train.
    """
    if config.lora.rank:
        add_adapters(model, config.lora)
    for prefix in config.train.freeze:
        _freeze(model, prefix)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ConfigError(
            "no weight is left to train: give train.freeze fewer prefixes, or lora.targets more layers"
        )


def add_adapters(model: Transformer, config: LoraConfig) -> None:
    """Adapt the linear layers that are targets (`heedful.ops.lora`).

    Raises:
        ConfigError: no layer has that name.
    """
    known = sorted({name.rpartition(".")[2] for name in inner_linear_layers(model)})
    for target in config.targets:
        if target not in known:
            raise ConfigError(
                f"lora.targets: no linear layer is called {target!r}{suggestion(target, known)}"
            )
    adapt_layers(model, config.targets, rank=config.rank, alpha=config.alpha, dropout=config.dropout)


def without_adapters(model: Transformer) -> Transformer:
    """Return an equal model without adapters: a copy with them merged, or the model itself if it has none."""
    if not any(isinstance(module, AdaptedLinear) for module in model.modules()):
        return model
    plain = copy.deepcopy(model)
    merge_layers(plain)
    return plain


def num_trained(model: Transformer) -> int:
    """Return the number of trained parameters; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _freeze(model: Transformer, prefix: str) -> None:
    weights = dict(model.named_parameters(remove_duplicate=False))
    frozen = [weight for name, weight in weights.items() if name.startswith(prefix)]
    if not frozen:
        parts = {".".join([*name.split(".")[:2], ""]) for name in weights if name.count(".") > 1}
        known = sorted({name.split(".")[0] + "." for name in weights} | parts)
        raise ConfigError(f"train.freeze: no weight's name begins with {prefix!r}{suggestion(prefix, known)}")
    for weight in frozen:
        weight.requires_grad = False


def average_weights(directories: Sequence[Path]) -> dict[str, Tensor]:
    """Return the mean of the weights in several checkpoints or bundles, read one file at a time.

    A weight that is equal in all of them, as frozen ones are, is returned bit for bit.

    Raises:
        CheckpointError: one cannot be read, or has other weights than the first.
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
        """Replace the average by that of a checkpoint, on the model's device."""
        self.weights = {name: weights[name].to(own.device) for name, own in self.weights.items()}

    def update(self, latest: Mapping[str, Tensor], step: int) -> None:
        """Update the average of some or all weights; the decay is smaller in the first steps."""
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
