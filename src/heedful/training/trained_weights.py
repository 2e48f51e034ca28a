"""Choose the weights that are trained: all, all but frozen ones, or only low-rank adapters."""

import copy

from heedful.config import Config, LoraConfig
from heedful.errors import ConfigError, suggestion
from heedful.model import Transformer
from heedful.ops.lora import AdaptedLinear, adapt_layers, inner_linear_layers, merge_layers


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
