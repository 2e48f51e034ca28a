"""RMS norm: divided by the root of the mean square, neither centred nor shifted."""

import pytest
import torch
from option_models import option_config
from torch import Tensor, nn
from torch.nn.functional import rms_norm
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.transformer import Transformer

EPS = 0.01
NORMS = {"norm_kind": "rms", "embedding_norm": True, "final_norm": True, "layer_norm_eps": EPS}


def norms(norm: str = "post") -> dict[str, nn.Module]:
    """Every norm of a model, with gains that are not 1."""
    torch.manual_seed(103)
    model = Transformer.from_config(option_config(norm=norm, **NORMS))
    found = {name: part for name, part in model.named_modules() if name.endswith("norm")}
    for part in found.values():
        nn.init.normal_(part.get_parameter("weight"))
    return found


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_every_norm_of_the_model_becomes_one(norm: str) -> None:
    found = norms(norm)
    assert len(found) == 2 + 2 * 2 + 2 * 3 + 2  # embeddings, layers, ends of the stacks
    assert all(isinstance(part, nn.RMSNorm) and part.eps == EPS for part in found.values())
    assert {name for part in found.values() for name, _ in part.named_parameters()} == {"weight"}


@pytest.mark.parametrize("other", ["torch", "formula", "T5", "Llama"])
def test_a_norm_equals_others_forward_and_backward(other: str) -> None:
    part = next(iter(norms().values()))
    gain = part.get_parameter("weight")
    theirs = {
        "torch": lambda x: rms_norm(x, (20,), gain, EPS),
        "formula": lambda x: gain * x / (x.pow(2).sum(-1, keepdim=True) / 20 + EPS).sqrt(),
    }  # fmt: skip
    for name, kind in (("T5", T5LayerNorm), ("Llama", LlamaRMSNorm)):
        theirs[name] = kind(20, eps=EPS)
        theirs[name].weight = gain
    x = (3 * torch.randn(2, 3, 20) + 1).requires_grad_()
    found, wanted = part(x), theirs[other](x)
    torch.testing.assert_close(found, wanted)
    coefficients = torch.randn_like(found)
    for one, two in zip(
        torch.autograd.grad(found, (x, gain), coefficients),
        torch.autograd.grad(wanted, (x, gain), coefficients),
        strict=True,
    ):
        torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-5)


def test_a_shift_of_all_numbers_matters_to_it_and_not_to_the_layer_norm() -> None:
    x, part = torch.randn(3, 20), next(iter(norms().values()))
    torch.testing.assert_close(nn.LayerNorm(20)(x + 5), nn.LayerNorm(20)(x), rtol=1e-3, atol=1e-3)
    assert (part(x + 5) - part(x)).abs().max() > 0.5


@pytest.mark.parametrize("norm", ["post", "pre"])
def test_layers_norm_where_they_norm_with_the_layer_norm(norm: str) -> None:
    """The sub-layers replaced by plain functions, so that the order of norms is all there is."""

    def by(factor: float) -> nn.Module:
        return type("By", (nn.Module,), {"forward": lambda _, x, *rest, **settings: x * factor})()

    def rms(x: Tensor) -> Tensor:
        return x / (x.pow(2).mean(-1, keepdim=True) + EPS).sqrt()

    def wrapped(x: Tensor, factor: float) -> Tensor:
        return x + factor * rms(x) if norm == "pre" else rms(x + factor * x)

    settings = {"d_model": 20, "dropout": 0.0, "norm_first": norm == "pre", "rms_norm": True, "eps": EPS}
    x = torch.randn(2, 3, 20)
    encoder_layer = EncoderLayer(by(2.0), by(3.0), **settings)  # type: ignore[arg-type]
    torch.testing.assert_close(encoder_layer(x, None), wrapped(wrapped(x, 2.0), 3.0))
    decoder_layer = DecoderLayer(by(2.0), by(5.0), by(3.0), **settings)  # type: ignore[arg-type]
    found = decoder_layer(x, None, None)
    torch.testing.assert_close(found, wrapped(wrapped(wrapped(x, 2.0), 5.0), 3.0))
