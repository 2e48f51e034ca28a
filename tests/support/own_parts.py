"""Parts of a model as a researcher writes them, and how they come into one."""

import copy
import math
from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from heedful.model.attention import ScaledDotProductAttention
from heedful.model.layers import FeedForward, Residual
from heedful.model.transformer import Transformer
from heedful.model.variants import RotaryPositions


def squared(feed_forward: FeedForward, x: Tensor) -> Tensor:
    """Squared ReLU (So et al., 2021), large enough to be seen."""
    hidden: Tensor = feed_forward.inner(x)
    return 3.0 * torch.relu(hidden).square()


def cube(x: Tensor) -> Tensor:
    return x**3


class SquaredReLU(FeedForward):
    """The same weights as `FeedForward`, and another function of them."""

    def hidden(self, x: Tensor) -> Tensor:
        return squared(self, x)


class FlatAttention(ScaledDotProductAttention):
    """Weights of softmax at twice the temperature; recorded like the paper's, by its dropout."""

    def forward(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSV: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        return super().forward(0.5 * queries_BHTK, keys_BHSK, values_BHSV, mask, causal=causal, bias=bias)


class FirstKey(nn.Module):
    """Attention without weights: each query takes the value of the first key, which each may attend to."""

    def forward(
        self,
        queries_BHTK: Tensor,
        keys_BHSK: Tensor,
        values_BHSV: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        return values_BHSV[:, :, :1].expand(-1, -1, queries_BHTK.shape[2], -1)


class ScaleNorm(nn.Module):
    """g x / |x| (Nguyen & Salazar, 2019), with a weight under a name of its own."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.tensor([math.sqrt(d_model)]))

    def forward(self, x: Tensor) -> Tensor:
        return self.gain * x / x.norm(dim=-1, keepdim=True).clamp_min(1e-5)


class HalvedNorm(nn.LayerNorm):
    """The same weights as LayerNorm, and another function of them."""

    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * super().forward(x)


class HalvedResidual(Residual):
    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor], norm: nn.Module) -> Tensor:
        return super().forward(0.5 * x, sublayer, norm)


class Ramp(nn.Module):
    """Positions as one growing number."""

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        return 0.1 * (start + torch.arange(length))[:, None]


class CappedLinear(nn.Linear):
    """Logits between -2 and 2, as in Gemma 2."""

    def forward(self, x: Tensor) -> Tensor:
        return 2.0 * torch.tanh(super().forward(x) / 2.0)


def _feed_forward(model: Transformer) -> None:
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.feed_forward = _as(SquaredReLU, layer.feed_forward)


def _as(kind: type[nn.Module], module: Any) -> nn.Module:  # noqa: ANN401
    """Return a module with the weights and settings of another one, of a subclass."""
    own = copy.copy(module)
    own.__class__ = kind
    return own


def _attention(kind: Callable[[], nn.Module]) -> Callable[[Transformer], None]:
    def put(model: Transformer) -> None:
        for layer in (*model.encoder.layers, *model.decoder.layers):
            layer.self_attention.attention = kind()

    return put


def _put(name: str, part: Callable[[Any], Any]) -> Callable[[Transformer], None]:
    """Return what replaces a part of the first decoder layer, or of the model, by a function of it."""

    def put(model: Transformer) -> None:
        *path, last = name.split(".")
        owner = model.get_submodule(".".join(path))
        setattr(owner, last, part(getattr(owner, last)))

    return put


LAYER = "decoder.layers.0"


class Parts:
    """How each part comes into a model, by its name; the place that a message has to name."""

    PUT: ClassVar[dict[str, Callable[[Transformer], None]]] = {
        "feed-forward": _feed_forward,
        "method of one module": _put(
            f"{LAYER}.feed_forward.hidden", lambda before: squared.__get__(before.__self__)
        ),
        "activation": _put(f"{LAYER}.feed_forward.activation", lambda _: cube),
        "hook": lambda model: _hooked(model.get_submodule(f"{LAYER}.feed_forward")),
        "attention": _attention(FlatAttention),
        "attention without weights": _attention(FirstKey),
        "norm with weights of its own": _put(f"{LAYER}.feed_forward_norm", lambda _: ScaleNorm(32)),
        "norm": _put(f"{LAYER}.feed_forward_norm", lambda norm: _as(HalvedNorm, norm)),
        "residual": _put(f"{LAYER}.residual", lambda residual: _as(HalvedResidual, residual)),
        "positions": _put("encoder.embedding.positions", lambda _: Ramp()),
        "positions that heedful knows": _put(
            "encoder.layers.0.self_attention.positions", lambda _: RotaryPositions()
        ),
        "order of a norm": _put(f"{LAYER}.residual.norm_first", lambda _: True),
        "output": _put("output", lambda output: _as(CappedLinear, output)),
    }
    PLACES: ClassVar[dict[str, str]] = {
        "feed-forward": "encoder.layers.0.feed_forward",
        "method of one module": f"{LAYER}.feed_forward",
        "activation": f"{LAYER}.feed_forward",
        "hook": f"{LAYER}.feed_forward",
        "attention": "encoder.layers.0.self_attention.attention",
        "attention without weights": "encoder.layers.0.self_attention.attention",
        "norm with weights of its own": f"{LAYER}.feed_forward_norm",
        "norm": f"{LAYER}.feed_forward_norm",
        "residual": f"{LAYER}.residual",
        "positions": "encoder.embedding.positions",
        "positions that heedful knows": "encoder.layers.0.self_attention.positions",
        "order of a norm": f"{LAYER}.residual",
        "output": "output",
    }


def _hooked(module: nn.Module) -> None:
    module.register_forward_hook(lambda _, __, y: -y)


def with_part(model: Transformer, name: str) -> Transformer:
    """Return a copy of a model with a part of that name."""
    changed = copy.deepcopy(model)
    Parts.PUT[name](changed)
    return changed
