"""Figure 1 and sections 3.1, 3.4, 5.4: what is shared, what is scaled, where norms and dropout stand."""

import math
import re

import pytest
import torch
from tolerances import FLOAT32, assert_close, close, sampled
from torch import Tensor, nn

from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.positions import sinusoids
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

D, V = 22, 19
SRC, TGT_IN = torch.tensor([[5, 7, 11, 3]]), torch.tensor([[2, 13, 6]])


def build(**changes: object) -> Transformer:
    torch.manual_seed(31)
    config = ModelConfig(
        d_model=D, num_heads=2, d_ff=13, num_encoder_layers=2, num_decoder_layers=3,
        src_vocab_size=V, tgt_vocab_size=V,
    ).replace(**changes)  # fmt: skip
    return Transformer.from_config(config).eval()


def test_embeddings_and_the_pre_softmax_matrix_are_one() -> None:
    """3.4."""
    model = build()
    matrix = model.output.weight
    assert model.encoder.embedding.tokens.weight is matrix
    assert model.decoder.embedding.tokens.weight is matrix
    assert model.output.bias is None
    model(SRC, TGT_IN).sum().backward()
    assert [name for name, _ in model.named_parameters() if "tokens" in name or name == "output.weight"] == [
        "encoder.embedding.tokens.weight"
    ]


@pytest.mark.parametrize(("tied", "shared"), [("target", {"decoder"}), ("none", set())])
def test_fewer_matrices_may_be_shared(tied: str, shared: set[str]) -> None:
    model = build(tied=tied)
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        assert (stack.embedding.tokens.weight is model.output.weight) == (side in shared)
    assert model.encoder.embedding.tokens.weight is not model.decoder.embedding.tokens.weight


def test_both_embeddings_may_be_shared_while_the_output_is_not() -> None:
    model = build(tied="embeddings")
    assert model.encoder.embedding.tokens.weight is model.decoder.embedding.tokens.weight
    assert model.output.weight is not model.encoder.embedding.tokens.weight


def test_embeddings_are_multiplied_by_the_root_of_d_model_and_positions_are_not() -> None:
    """3.4, 3.5."""
    embedding = build().encoder.embedding
    wanted = embedding.tokens.weight[SRC] * math.sqrt(D) + sinusoids(4, D)
    assert_close(embedding(SRC), wanted, FLOAT32.ELEMENT)
    assert_close(
        build(scale_embeddings=False).encoder.embedding(SRC),
        embedding.tokens.weight[SRC] + sinusoids(4, D),
        FLOAT32.ELEMENT,
    )


@pytest.mark.parametrize("tied", ["all", "target", "embeddings", "none"])
def test_every_matrix_is_drawn_with_one_deviation_and_every_bias_is_zero(tied: str) -> None:
    model = build(d_model=64, src_vocab_size=500, tgt_vocab_size=500, tied=tied)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            assert weight.std().item() == close(0.02, sampled(0.02 / 2**0.5, weight.numel())), name
        elif name.endswith("bias"):
            assert not weight.any(), name


def test_post_norm_has_no_norm_after_its_stacks_and_pre_norm_has_one() -> None:
    """3.1: LayerNorm(x + Sublayer(x)) ends each layer."""
    post, pre = build(), build(norm="pre")
    for model, final in ((post, 0), (pre, 2)):
        norms = [name for name, part in model.named_modules() if isinstance(part, nn.LayerNorm)]
        assert len(norms) == 2 * 2 + 3 * 3 + final
        assert sum("final_norm" in name for name in norms) == final
    for part in post.modules():
        if isinstance(part, nn.LayerNorm):
            part.eps = 0.0
    states = post.encode(SRC).states
    assert_close(states.mean(-1), torch.zeros(1, 4), FLOAT32.ROW)
    assert_close(states.var(-1, unbiased=False), torch.ones(1, 4), FLOAT32.ROW)


def test_post_norm_is_the_default_and_normalises_the_sum() -> None:
    layer = build().encoder.layers[0]
    assert isinstance(layer, EncoderLayer)
    x, mask = torch.randn(1, 4, D), torch.ones(1, 1, 1, 4, dtype=torch.bool)
    y = layer.self_attention_norm(x + layer.self_attention(x, x, mask))
    assert_close(layer(x, mask), layer.feed_forward_norm(y + layer.feed_forward(y)), FLOAT32.ROW)


def test_dropout_stands_on_each_sublayers_output_before_the_sum_and_on_the_embedded_input() -> None:
    """5.4. With everything dropped a layer is its norms alone: nothing of the residual stream is lost."""
    model = build().train()
    for part in model.modules():
        if isinstance(part, nn.Dropout):
            part.forward = torch.zeros_like  # type: ignore[method-assign]
    x, memory = torch.randn(1, 4, D), torch.randn(1, 7, D)
    encoder_layer, decoder_layer = model.encoder.layers[0], model.decoder.layers[0]
    assert isinstance(encoder_layer, EncoderLayer)
    assert isinstance(decoder_layer, DecoderLayer)
    everything = torch.ones(1, 1, 1, 1, dtype=torch.bool)
    twice = encoder_layer.feed_forward_norm(encoder_layer.self_attention_norm(x))
    assert_close(encoder_layer(x, everything), twice, FLOAT32.ROW)
    twice = decoder_layer.cross_attention_norm(decoder_layer.self_attention_norm(x))
    thrice = decoder_layer.feed_forward_norm(twice)
    assert_close(decoder_layer(x, memory, everything), thrice, FLOAT32.ROW)
    assert model.encoder.embedding(SRC).abs().max() == 0
    assert model.decoder.embedding(TGT_IN).abs().max() == 0


def test_nothing_else_is_dropped_by_default() -> None:
    """One dropout for each sub-layer's output and each input is on; weights and activations have none."""
    rates = {name: part.p for name, part in build().named_modules() if isinstance(part, nn.Dropout)}
    on = {name for name, p in rates.items() if p}
    assert {rates[name] for name in on} == {0.1}
    assert {re.sub(r"layers\.\d+", "layers.N", name) for name in on} == {
        "encoder.embedding.dropout", "decoder.embedding.dropout",
        "encoder.layers.N.residual.dropout", "decoder.layers.N.residual.dropout",
    }  # fmt: skip


def test_the_feed_forward_network_has_a_relu_between_two_linear_maps() -> None:
    """3.3."""
    part = build().encoder.layers[0].get_submodule("feed_forward")
    x = torch.randn(2, 3, D)
    inner, outer = part.get_submodule("inner"), part.get_submodule("outer")
    assert isinstance(inner, nn.Linear)
    assert isinstance(outer, nn.Linear)
    hidden: Tensor = (x @ inner.weight.T + inner.bias).clamp(min=0)
    assert_close(part(x), hidden @ outer.weight.T + outer.bias, FLOAT32.ROW)


def test_norms_have_the_biased_variance_and_eps_inside_the_root() -> None:
    norm = build(layer_norm_eps=0.5).encoder.layers[0].get_submodule("self_attention_norm")
    x = torch.randn(3, D)
    variance = (x - x.mean(-1, keepdim=True)).pow(2).mean(-1, keepdim=True)
    assert_close(norm(x), (x - x.mean(-1, keepdim=True)) / (variance + 0.5).sqrt(), FLOAT32.ROW)
