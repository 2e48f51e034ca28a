"""Attention, both layers and the whole model equal loops over single numbers, forward and backward.

B, H, T, S = 2, 3, 5, 7 and other primes for the rest, with d_k, d_v and d_model / h all different.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
import torch
from naive_transformer import Naive, gradients, numbers, values, weigh_and_differentiate, weights_of
from tolerances import FLOAT32, FLOAT64, assert_close, largest
from torch import Tensor, nn

from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

B, H, T, S = 2, 3, 5, 7
D, K, V, F = 17, 11, 13, 19
SRC_LENGTHS = (7, 4)
MEMORY_MASK = (torch.arange(S) < torch.tensor(SRC_LENGTHS)[:, None])[:, None, None, :]


def perturbed(module: nn.Module) -> Any:  # noqa: ANN401
    """In float64, with no weight at a value such as 0 or 1 that would hide a mistake."""
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def attention(**sizes: Any) -> MultiHeadAttention:  # noqa: ANN401
    return MultiHeadAttention(D, H, **{"d_k": K, "d_v": V, **sizes})


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def assert_same(found: Tensor | None, wanted: Tensor) -> None:
    assert found is not None
    assert_close(found, wanted, FLOAT64.MODEL.at(largest(wanted)))


Rows = list[list[Any]]
Formula = Callable[..., Rows]


def assert_formula_holds(
    module: nn.Module, found: Tensor, inputs: Sequence[Tensor], formula: Formula
) -> None:
    """The output and all gradients equal those of loops.

    The formula gets the weights, the number of a sentence and its rows of each input.
    """
    coefficients = torch.randn_like(found)
    (found * coefficients).sum().backward()
    weights, rows = weights_of(module), [numbers(x) for x in inputs]
    wanted = [formula(weights, b, *(sentences[b] for sentences in rows)) for b in range(B)]
    weigh_and_differentiate(wanted, coefficients)
    assert_same(found, values(wanted))
    for x, sentences in zip(inputs, rows, strict=True):
        assert_same(x.grad, gradients(sentences))
    for name, parameter in module.named_parameters():
        assert_same(parameter.grad, gradients(weights[name]))


def is_real(t: int, s: int, *, b: int) -> bool:
    return s < SRC_LENGTHS[b]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(11)


NOWHERE = MEMORY_MASK.repeat(1, 1, T, 1)
NOWHERE[0, 0, 2] = False  # an empty sum


@pytest.mark.parametrize("mask", [MEMORY_MASK.expand(B, 1, T, S), NOWHERE], ids=["padding", "nowhere"])
@pytest.mark.parametrize("sizes", [{}, {"d_v": K}, {"d_k": 2, "d_v": 3, "bias": False}])
def test_attention_equals_its_formula(sizes: dict[str, Any], mask: Tensor) -> None:
    module = perturbed(attention(**sizes))
    x, context = random(B, T, D), random(B, S, D)

    def formula(weights: dict[str, Any], b: int, x: Rows, context: Rows) -> Rows:
        naive = Naive({f"a.{name}": weight for name, weight in weights.items()}, H)
        return naive.attention(x, context, "a", lambda t, s: bool(mask[b, 0, t, s]))

    found = module(x, context, mask)
    assert_formula_holds(module, found, [x, context], formula)
    if mask is NOWHERE and "bias" not in sizes:
        assert_same(found[0, 2], module.output.bias.detach())


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu", "swish"])
def test_an_encoder_layer_equals_its_formula(norm_first: bool, activation: str) -> None:
    feed_forward = FeedForward(D, F, activation=activation)
    layer = perturbed(
        EncoderLayer(
            attention(),
            feed_forward,
            norm=lambda: nn.LayerNorm(D, 0.01),
            residual=partial(Residual, 0.0, norm_first=norm_first),
        )
    )
    x = random(B, S, D)

    def formula(weights: dict[str, Any], b: int, x: Rows) -> Rows:
        naive = Naive(weights, H, activation, norm_first, eps=0.01)
        return naive.encoder_layer(x, "", partial(is_real, b=b))

    assert_formula_holds(layer, layer(x, MEMORY_MASK), [x], formula)


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_decoder_layer_equals_its_formula(norm_first: bool) -> None:
    parts = attention(), attention(d_k=2, d_v=5), FeedForward(D, F)
    layer = perturbed(
        DecoderLayer(
            *parts, norm=lambda: nn.LayerNorm(D), residual=partial(Residual, 0.0, norm_first=norm_first)
        )
    )
    x, memory = random(B, T, D), random(B, S, D)

    def formula(weights: dict[str, Any], b: int, x: Rows, memory: Rows) -> Rows:
        return Naive(weights, H, norm_first=norm_first).decoder_layer(x, memory, "", partial(is_real, b=b))

    assert_formula_holds(layer, layer(x, memory, MEMORY_MASK), [x, memory], formula)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "activation": "gelu"},
        {
            "positions": "learned",
            "max_positions": 11,
            "tied": "none",
            "output_bias": True,
            "tgt_vocab_size": 29,
            "tgt_pad_id": 1,
        },
        {
            "tied": "target",
            "attention_bias": False,
            "feed_forward_bias": False,
            "d_k": 2,
            "d_v": 3,
            "tgt_vocab_size": 29,
            "tgt_pad_id": 1,
        },
    ],
    ids=["paper", "pre-norm", "learned-and-untied", "no-biases"],
)
def test_the_model_equals_its_formulas_sentence_by_sentence(changes: dict[str, Any]) -> None:
    """Each sentence alone and without padding, while the model gets them as one padded batch."""
    config = ModelConfig(
        d_model=10, num_heads=H, d_k=5, d_v=7, d_ff=11, num_encoder_layers=2, num_decoder_layers=2,
        dropout=0.0, src_vocab_size=23, tgt_vocab_size=23, src_pad_id=5, tgt_pad_id=5,
    ).replace(**changes)  # fmt: skip
    model = perturbed(Transformer.from_config(config))
    src, tgt_in = torch.randint(6, 23, (B, S)), torch.randint(6, config.tgt_vocab_size, (B, T))
    tgt_lengths = (3, T)
    src[1, SRC_LENGTHS[1] :] = config.src_pad_id
    tgt_in[0, tgt_lengths[0] :] = config.tgt_pad_id
    coefficients = torch.randn(B, T, config.tgt_vocab_size, dtype=torch.float64)
    coefficients[0, tgt_lengths[0] :] = 0.0
    found = model(src, tgt_in)
    (found * coefficients).sum().backward()

    weights = weights_of(model)
    naive = Naive(weights, H, config.activation, config.norm == "pre")
    wanted = [
        naive.transformer(src[b, :s_length].tolist(), tgt_in[b, :t_length].tolist(), num_layers=2)
        for b, (s_length, t_length) in enumerate(zip(SRC_LENGTHS, tgt_lengths, strict=True))
    ]
    weigh_and_differentiate(
        [row for sentence in wanted for row in sentence],
        torch.cat([coefficients[b, :length] for b, length in enumerate(tgt_lengths)]),
    )
    # Sinusoids are a table in float32; all else is in float64.
    bound = (FLOAT32 if config.positions == "sinusoidal" else FLOAT64).MODEL
    for b, length in enumerate(tgt_lengths):
        assert_close(found[b, :length], values(wanted[b]), bound)
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None
        assert_close(parameter.grad, gradients(weights[name]), bound)
