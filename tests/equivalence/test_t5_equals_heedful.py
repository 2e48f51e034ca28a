"""A model with T5's options is transformers' T5: logits, gradients and attention maps, with weights copied.

T5 does not divide scores by sqrt(d_k), which the queries make up for here; and T5 1.0 divides the decoder's
output by sqrt(d_model) before the shared matrix, which the gain of the last norm makes up for.
"""

import math

import pytest
import torch
from tolerances import FLOAT32, assert_close
from torch import Tensor, nn
from transformers import T5Config, T5ForConditionalGeneration

from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.settings.model import ModelConfig

B, S, T = 3, 37, 29  # longer than max_distance, so that every bucket is used
D, D_K, H, V, D_FF = 15, 7, 3, 31, 11
LENGTHS = (37, 5, 19)
BUCKETS, MAX_DISTANCE = 8, 13
VERSIONS = pytest.mark.parametrize("version", ["1.0", "1.1"])
ATTENTION = {"query": "q", "key": "k", "value": "v", "output": "o"}


def t5(version: str) -> T5ForConditionalGeneration:
    torch.manual_seed(113)
    config = T5Config(
        vocab_size=V, d_model=D, d_kv=D_K, d_ff=D_FF, num_layers=2, num_decoder_layers=3, num_heads=H,
        relative_attention_num_buckets=BUCKETS, relative_attention_max_distance=MAX_DISTANCE,
        feed_forward_proj="gated-gelu" if version == "1.1" else "relu", tie_word_embeddings=version == "1.0",
        decoder_start_token_id=0, attn_implementation="eager",
    )  # fmt: skip
    model = T5ForConditionalGeneration(config)
    if version == "1.1":
        model.lm_head.weight = nn.Parameter(torch.empty(V, D))
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    return model.double().eval()


def ours(version: str) -> Transformer:
    differences = {"1.0": {"tied": "all"}, "1.1": {"tied": "none", "gated": True, "activation": "gelu_tanh"}}
    config = ModelConfig(
        d_model=D, num_heads=H, d_k=D_K, d_v=D_K, d_ff=D_FF, num_encoder_layers=2, num_decoder_layers=3,
        norm="pre", norm_kind="rms", layer_norm_eps=1e-6, positions="relative", relative_buckets=BUCKETS,
        relative_max_distance=MAX_DISTANCE, attention_bias=False, feed_forward_bias=False,
        scale_embeddings=False, src_vocab_size=V, tgt_vocab_size=V,
        **differences[version],
    )  # fmt: skip
    return Transformer.from_config(config).double().eval()


def matches(version: str) -> dict[str, tuple[str, float]]:
    """For each weight here, its name there, and by how much it is larger here."""
    names = {"encoder.embedding.tokens": ("shared", 1.0)}
    if version == "1.1":
        names |= {"decoder.embedding.tokens": ("shared", 1.0), "output": ("lm_head", 1.0)}
        feed_forward = {"gate": "wi_0", "inner": "wi_1", "outer": "wo"}
    else:
        feed_forward = {"inner": "wi", "outer": "wo"}
    for stack, num_layers in (("encoder", 2), ("decoder", 3)):
        parts = [("self_attention", "SelfAttention"), ("cross_attention", "EncDecAttention")]
        parts = parts[: 1 + (stack == "decoder")]
        for layer in range(num_layers):
            here, there = f"{stack}.layers.{layer}", f"{stack}.block.{layer}.layer"
            for i, (part, other) in enumerate(parts):
                names[f"{here}.{part}_norm"] = (f"{there}.{i}.layer_norm", 1.0)
                for name, letter in ATTENTION.items():
                    factor = math.sqrt(D_K) if name == "query" else 1.0
                    names[f"{here}.{part}.{name}"] = (f"{there}.{i}.{other}.{letter}", factor)
            last = len(parts)
            names[f"{here}.feed_forward_norm"] = (f"{there}.{last}.layer_norm", 1.0)
            for name, other in feed_forward.items():
                names[f"{here}.feed_forward.{name}"] = (f"{there}.{last}.DenseReluDense.{other}", 1.0)
        first = f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias"
        names[f"{stack}.layers.0.self_attention.positions"] = (first, 1.0)
        scaled = version == "1.0" and stack == "decoder"
        names[f"{stack}.final_norm"] = (f"{stack}.final_layer_norm", D**-0.5 if scaled else 1.0)
    return {f"{here}.weight": (f"{there}.weight", factor) for here, (there, factor) in names.items()}


def both(version: str) -> tuple[Transformer, T5ForConditionalGeneration]:
    model, theirs = ours(version), t5(version)
    found = matches(version)
    assert found.keys() == dict(model.named_parameters()).keys()
    assert {there for there, _ in found.values()} == {name for name, _ in theirs.named_parameters()}
    with torch.no_grad():
        for name, (other, factor) in found.items():
            model.get_parameter(name).copy_(factor * theirs.get_parameter(other))
    return model, theirs


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(127)
    src, tgt_in = torch.randint(1, V, (B, S)), torch.randint(1, V, (B, T))
    for row, length in enumerate(LENGTHS):
        src[row, length:] = 0
    return src, tgt_in


@VERSIONS
def test_logits_and_gradients_of_every_weight_equal_t5s(version: str) -> None:
    model, theirs = both(version)
    src, tgt_in = inputs()
    found = model(src, tgt_in)
    wanted = theirs(src, attention_mask=src != 0, decoder_input_ids=tgt_in).logits
    assert_close(found, wanted, FLOAT32.MODEL)
    assert found.std() > 0.2
    coefficients = torch.randn_like(found)
    (found * coefficients).sum().backward()
    (wanted * coefficients).sum().backward()
    sums: dict[str, Tensor] = {}
    for name, (other, factor) in matches(version).items():
        gradient = model.get_parameter(name).grad
        assert gradient is not None
        sums[other] = sums.get(other, torch.zeros(())) + gradient * factor
    for other, gradient in sums.items():  # a matrix that is shared there may be two here
        expected = theirs.get_parameter(other).grad
        assert expected is not None
        assert expected.norm() > 0.01
        # T5's norms compute their mean square in float32, whatever the model is in.
        scale = float(expected.norm())
        assert_close((gradient - expected).norm() / scale, 0.0, FLOAT32.MODEL, note=other)


def test_attention_maps_equal_t5s() -> None:
    model, theirs = both("1.1")
    src, tgt_in = inputs()
    with record_attention(model) as recorder:
        model(src, tgt_in)
    wanted = theirs(src, attention_mask=src != 0, decoder_input_ids=tgt_in, output_attentions=True)
    kinds = {
        "encoder.self": wanted.encoder_attentions,
        "decoder.self": wanted.decoder_attentions,
        "decoder.cross": wanted.cross_attentions,
    }  # fmt: skip
    assert len(recorder.maps) == 2 + 3 + 3
    for each in recorder.maps:
        stack, _, layer, part = each.name.split(".")
        expected = kinds[f"{stack}.{part.removesuffix('_attention')}"][int(layer)]
        assert_close(each.weights, expected, FLOAT32.MODEL)


@VERSIONS
def test_cached_steps_equal_t5s_own(version: str) -> None:
    """Both decode with a cache: the bias of a step is that of its position."""
    model, theirs = both(version)
    src, tgt_in = inputs()
    with torch.no_grad():
        cache = model.start_cache(model.encode(src))
        memory = theirs.encoder(src, attention_mask=src != 0)
        past = None
        for t in range(17):
            step = theirs(
                encoder_outputs=memory, attention_mask=src != 0, decoder_input_ids=tgt_in[:, t : t + 1],
                past_key_values=past, use_cache=True,
            )  # fmt: skip
            past = step.past_key_values
            found = model.decode_step(tgt_in[:, t], cache)
            assert_close(found, step.logits[:, 0], FLOAT32.MODEL)
