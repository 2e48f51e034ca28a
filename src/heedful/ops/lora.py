"""Low-rank adaptation (LoRA; Hu et al., 2021): frozen matrices plus trained products of two thin ones."""

import copy
from typing import TypeVar

import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import ConfigError, suggestion
from heedful.ops.changes import is_exactly
from heedful.ops.fused import FastDropout
from heedful.settings.run import LoraConfig

Model = TypeVar("Model", bound=nn.Module)


class AdaptedLinear(nn.Linear):
    """y = W x + b + (alpha / rank) B A x, where W and b belong to a trained layer and are frozen.

    A (rank, in) is initialised from N(0, 1 / in), so that A x is about as large as x; B (out, rank) with
    zeros, so that the layer is at first equal to the one that it adapts (section 4.1).
    """

    def __init__(self, layer: nn.Linear, *, rank: int, alpha: float, dropout: float) -> None:
        super().__init__(layer.in_features, layer.out_features, bias=layer.bias is not None, device="meta")
        layer.requires_grad_(requires_grad=False)
        self.weight, self.bias = layer.weight, layer.bias
        self.lora_a = nn.Parameter(layer.weight.new_empty(rank, layer.in_features))
        self.lora_b = nn.Parameter(layer.weight.new_zeros(layer.out_features, rank))
        nn.init.normal_(self.lora_a, std=layer.in_features**-0.5)
        self.scale = alpha / rank
        self.dropout = FastDropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Transform (..., in) to (..., out)."""
        return super().forward(x) + self.scale * F.linear(F.linear(self.dropout(x), self.lora_a), self.lora_b)

    def merged(self) -> nn.Linear:
        """Return an equal plain layer, with the matrix W + (alpha / rank) B A."""
        layer = nn.Linear(self.in_features, self.out_features, bias=self.bias is not None, device="meta")
        layer.weight = nn.Parameter((self.weight + self.scale * self.lora_b @ self.lora_a).detach())
        layer.bias = self.bias
        return layer


def inner_linear_layers(model: nn.Module) -> dict[str, nn.Linear]:
    """Return the linear layers inside submodules by name, not the model's pre-softmax matrix."""
    return {
        name: module
        for name, module in model.named_modules()
        if isinstance(module, nn.Linear) and "." in name
    }


def add_adapters(model: nn.Module, config: LoraConfig) -> None:
    """Adapt every inner linear layer that has a target as its last name; freeze all others."""
    layers = inner_linear_layers(model)
    known = sorted({name.rpartition(".")[2] for name in layers})
    for target in config.targets:
        if target not in known:
            raise ConfigError(
                f"lora.targets: no linear layer is called {target!r}{suggestion(target, known)}"
            )
    model.requires_grad_(requires_grad=False)
    for name, layer in layers.items():
        if name.rpartition(".")[2] in config.targets:
            if not is_exactly(layer, nn.Linear):
                raise ConfigError(f"lora.targets: {name} is not torch's own Linear, and cannot be adapted")
            adapted = AdaptedLinear(layer, rank=config.rank, alpha=config.alpha, dropout=config.dropout)
            _put(model, name, adapted)


def merge_layers(model: nn.Module) -> None:
    """Replace every adapted layer by an equal plain one."""
    for name, layer in inner_linear_layers(model).items():
        if isinstance(layer, AdaptedLinear):
            _put(model, name, layer.merged())


def without_adapters(model: Model) -> Model:
    """Return an equal model without adapters: a copy with them merged, or the model itself if it has none."""
    if not any(isinstance(module, AdaptedLinear) for module in model.modules()):
        return model
    plain = copy.deepcopy(model)
    merge_layers(plain)
    return plain


def adapter_matrices(model: nn.Module) -> dict[str, Tensor]:
    """Return `lora_a` and `lora_b` of every adapted layer, by their names in the model."""
    ends = (".lora_a", ".lora_b")
    return {name: weight.detach() for name, weight in model.named_parameters() if name.endswith(ends)}


def _put(model: nn.Module, name: str, layer: nn.Linear) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)
