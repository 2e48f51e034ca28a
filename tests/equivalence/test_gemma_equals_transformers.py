"""T5Gemma's variants equal transformers': logits, states with a cache, and outputs of searches."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from tolerances import FLOAT32, assert_close
from torch import Tensor, nn
from transformers import (
    T5Gemma2Config,
    T5Gemma2ForConditionalGeneration,
    T5GemmaConfig,
    T5GemmaForConditionalGeneration,
)

from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.settings.model import ModelConfig

V, LAYERS, D_K, SCALAR, WINDOW = 40, 3, 12, 20, 5
EOS, BOS = 1, 2
STACK: dict[str, Any] = {
    "vocab_size": V, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": LAYERS,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": D_K, "query_pre_attn_scalar": SCALAR,
    "sliding_window": WINDOW,
}  # fmt: skip
COMMON: dict[str, Any] = {
    "d_model": 32, "d_ff": 48, "num_heads": 4, "num_kv_heads": 2, "d_k": D_K, "d_v": D_K,
    "num_encoder_layers": LAYERS, "num_decoder_layers": LAYERS, "src_vocab_size": V, "tgt_vocab_size": V,
    "activation": "gelu_tanh", "gated": True, "norm": "both", "norm_kind": "rms", "layer_norm_eps": 1e-6,
    "attention_bias": False, "feed_forward_bias": False, "positions": "rotary", "full_attention_every": 2,
    "decoder_window": WINDOW - 1, "decoder_start_id": BOS,
}  # fmt: skip
_ATTENTIONS = {"self_attn": "self_attention", "cross_attn": "cross_attention"}
_PARTS = {"q_proj": "query", "k_proj": "key", "v_proj": "value", "o_proj": "output"}
_FEED_FORWARD = {"gate_proj": "gate", "up_proj": "inner", "down_proj": "outer"}


def first_generation() -> tuple[nn.Module, ModelConfig]:
    caps = {"attn_logit_softcapping": 3.0, "final_logit_softcapping": 2.0}
    config = T5GemmaConfig(encoder=STACK | caps, decoder=STACK | caps, vocab_size=V)
    config._attn_implementation = "eager"
    ours = COMMON | {
        "attention_cap": 3.0, "output_cap": 2.0, "tied": "target", "encoder_window": (WINDOW, WINDOW),
    }  # fmt: skip
    return T5GemmaForConditionalGeneration(config), ModelConfig(**ours)


def second_generation() -> tuple[nn.Module, ModelConfig]:
    stack = STACK | {
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
        },
    }
    vision = {
        "model_type": "siglip_vision_model", "hidden_size": 16, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14,
    }  # fmt: skip
    images = {"eoi_token_index": 39, "image_token_index": 38, "boi_token_index": 37, "mm_tokens_per_image": 4}
    config = T5Gemma2Config(
        encoder={"text_config": stack, "vision_config": vision, **images}, decoder=stack, eoi_token_index=39
    )
    config._attn_implementation = "eager"
    ours = COMMON | {
        "query_norm": True, "decoder_unit": "merged", "rotary_base": 1e6, "rotary_scale": 8.0,
        "rotary_window_base": 1e4, "tied": "all",
        "encoder_window": ((WINDOW + 1) // 2 - 1, WINDOW // 2),
    }  # fmt: skip
    return T5Gemma2ForConditionalGeneration(config), ModelConfig(**ours)


def converted(theirs: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Our weights; theirs scale norms by one plus the weight, and scores by another root."""
    weights = theirs.state_dict()
    scale = math.sqrt(D_K / SCALAR)
    yield "output.weight", weights["lm_head.out_proj.weight"]
    for stack in ("encoder", "decoder"):
        prefix = f"model.{stack}"
        if f"{prefix}.embed_tokens.weight" not in weights:
            prefix = f"{prefix}.text_model"
        yield f"{stack}.embedding.tokens.weight", weights[f"{prefix}.embed_tokens.weight"]
        yield f"{stack}.final_norm.weight", 1 + weights[f"{prefix}.norm.weight"]
        for i in range(LAYERS):
            layer, ours = f"{prefix}.layers.{i}", f"{stack}.layers.{i}"
            for block, attention in _ATTENTIONS.items():
                if f"{layer}.{block}.q_proj.weight" not in weights:
                    continue
                normalised = f"{layer}.{block}.q_norm.weight" in weights
                for part, name in _PARTS.items():
                    factor = scale if name == "query" and not normalised else 1.0
                    yield (
                        f"{ours}.{attention}.{name}.weight",
                        weights[f"{layer}.{block}.{part}.weight"] * factor,
                    )
                for part, name, factor in (("q", "query", scale), ("k", "key", 1.0)) if normalised else ():
                    gain = 1 + weights[f"{layer}.{block}.{part}_norm.weight"]
                    yield f"{ours}.{attention}.{name}_norm.weight", gain * factor
            for part, name in _FEED_FORWARD.items():
                yield f"{ours}.feed_forward.{name}.weight", weights[f"{layer}.mlp.{part}.weight"]
            for block, sublayer in {**_ATTENTIONS, "feedforward": "feed_forward"}.items():
                for place, name in (("pre", "before"), ("post", "after")):
                    if (norm := f"{layer}.{place}_{block}_layernorm.weight") in weights:
                        yield f"{ours}.{sublayer}_norm.{name}.weight", 1 + weights[norm]


Pair = tuple[nn.Module, Transformer]


@pytest.fixture(scope="module", params=[first_generation, second_generation], ids=["t5gemma", "t5gemma2"])
def pair(request: pytest.FixtureRequest) -> Pair:
    make: Callable[[], tuple[nn.Module, ModelConfig]] = request.param
    torch.manual_seed(19)
    theirs, config = make()
    for parameter in theirs.parameters():
        nn.init.normal_(parameter, std=0.3)
    theirs.tie_weights()  # type: ignore[operator]
    ours = Transformer(config).eval()
    ours.load_state_dict(dict(converted(theirs)))
    return theirs.eval(), ours


def sources() -> Tensor:
    """Ids (4, 17), of which no image token is one, with sources of 17, 12, 17 and 4."""
    src = torch.randint(3, 37, (4, 17), generator=torch.Generator().manual_seed(5))
    src[1, 12:] = src[3, 4:] = 0
    return src


def test_logits_are_equal_at_once_and_step_by_step(pair: Pair) -> None:
    theirs, ours = pair
    src, tgt_in = sources(), torch.randint(3, 37, (4, 13), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        wanted = theirs(input_ids=src, attention_mask=(src != 0).long(), decoder_input_ids=tgt_in).logits
        assert_close(ours(src, tgt_in), wanted, FLOAT32.MODEL.at(float(wanted.abs().max())))
        cache = ours.start_cache(ours.encode(src))
        for t in range(tgt_in.shape[1]):
            found = ours.decode_step(tgt_in[:, t], cache)
            assert_close(found, wanted[:, t], FLOAT32.MODEL.at(float(wanted.abs().max())))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_searches_find_the_same_outputs(pair: Pair, beam_size: int) -> None:
    theirs, ours = pair
    src = sources()
    wanted = theirs.generate(  # type: ignore[operator]
        input_ids=src, attention_mask=(src != 0).long(), num_beams=beam_size, max_new_tokens=12,
        do_sample=False, length_penalty=1.0, early_stopping=False, decoder_start_token_id=BOS,
        bad_words_ids=[[0], [BOS]], pad_token_id=0, eos_token_id=EOS,
    )[:, 1:]  # fmt: skip
    found = ours.generate(
        src, beam_size=beam_size, bos_id=BOS, eos_id=EOS, max_length=12, max_length_offset=12,
        length_penalty=1.0, length_normalization="power",
    )  # fmt: skip
    assert found.tolist() == wanted.tolist()


def test_a_windowed_query_sees_no_key_beyond_its_window(pair: Pair) -> None:
    _, ours = pair
    src = sources()[:1]
    with record_attention(ours) as recorder:
        ours(src, src[:, :9])
    maps = {each.name: each.weights[0] for each in recorder.maps}
    before, after = ours.config.encoder_window or (0, 0)
    assert maps["encoder.layers.0.self_attention"].triu(after + 1).max() == 0
    assert maps["encoder.layers.0.self_attention"].tril(-before - 1).max() == 0
    assert maps["encoder.layers.1.self_attention"].triu(after + 1).max() > 0
    on_target = maps["decoder.layers.0.self_attention"][..., -9:]
    assert on_target.tril(-WINDOW).max() == 0
    assert on_target.tril(1 - WINDOW).max() > 0
