"""Models of the paper and with each option that it does not have, and a padded batch for them."""

from typing import Any

import torch
from torch import Tensor

from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

B, S, T = 3, 17, 13
SRC_PAD, TGT_PAD = 4, 1
SRC_VOCAB, TGT_VOCAB = 19, 23
LENGTHS = (17, 2, 7)
RELATIVE = {"positions": "relative", "relative_buckets": 8, "relative_max_distance": 11}
UNEVEN = {"d_k": 6, "d_v": 3, "num_kv_heads": 2}
PLAIN_LINEAR = {"attention_bias": False, "feed_forward_bias": False}
T5 = RELATIVE | PLAIN_LINEAR | {
    "norm": "pre", "norm_kind": "rms", "gated": True, "activation": "gelu_tanh", "scale_embeddings": False,
    "d_k": 3, "d_v": 3,
}  # fmt: skip
LLAMA = PLAIN_LINEAR | {
    "positions": "rotary", "norm": "pre", "norm_kind": "rms", "gated": True, "activation": "swish",
    "num_kv_heads": 2, "d_k": 6, "d_v": 6, "scale_embeddings": False,
}  # fmt: skip
T5GEMMA = LLAMA | {
    "norm": "both", "activation": "gelu_tanh", "attention_cap": 3.0, "output_cap": 2.0,
    "full_attention_every": 2, "encoder_window": (5, 4), "decoder_window": 4,
}  # fmt: skip
T5GEMMA2 = T5GEMMA | {
    "attention_cap": None, "output_cap": None, "query_norm": True, "decoder_unit": "merged",
    "rotary_base": 1e6, "rotary_scale": 8.0, "rotary_window_base": 1e4,
}  # fmt: skip

OPTIONS: dict[str, dict[str, Any]] = {
    "concatenated": {"positions": "concatenated"},
    "marian": {"positions": "marian"},
    "opennmt-tf": {"positions": "opennmt-tf"},
    "fairseq": {"positions": "fairseq"},
    "rotary": {"positions": "rotary", "d_k": 6, "d_v": 5},
    "alibi": {"positions": "alibi"},
    "relative": RELATIVE,
    "rms": {"norm_kind": "rms"},
    "rms-everywhere": {"norm_kind": "rms", "norm": "pre", "embedding_norm": True},
    "gated": {"gated": True, "activation": "swish"},
    "gelu-tanh": {"activation": "gelu_tanh"},
    "grouped": UNEVEN,
    "one-head-of-keys": {"num_kv_heads": 1},
    "alibi-grouped": {"positions": "alibi", "gated": True, **UNEVEN},
    "relative-grouped": {"norm_kind": "rms", "final_norm": True, **RELATIVE, **UNEVEN},
    "t5": T5,
    "umt5": T5 | {"relative_per_layer": True},
    "llama": LLAMA,
}
PAPERS: dict[str, dict[str, Any]] = {
    "paper": {}, "pre-norm": {"norm": "pre"}, "learned": {"positions": "learned"},
    "uneven": {"d_k": 6, "d_v": 3},
}  # fmt: skip
GEMMA = {"t5gemma": T5GEMMA, "t5gemma2": T5GEMMA2}  # which only torch computes
EVERY = PAPERS | OPTIONS | GEMMA


def option_config(**changes: Any) -> ModelConfig:  # noqa: ANN401
    return ModelConfig(
        d_model=20, num_heads=4, d_ff=13, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0,
        src_vocab_size=SRC_VOCAB, tgt_vocab_size=TGT_VOCAB, tied="target", src_pad_id=SRC_PAD,
        tgt_pad_id=TGT_PAD, max_positions=64,
    ).replace(**changes)  # fmt: skip


def option_model(**changes: Any) -> Transformer:  # noqa: ANN401
    """In float64, for use, with weights so large that every part matters."""
    torch.manual_seed(71)
    model = Transformer.from_config(option_config(**changes)).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return model


def option_inputs() -> tuple[Tensor, Tensor]:
    """Source ids (B, S), sentences of `LENGTHS` padded on the right, and target ids (B, T)."""
    generator = torch.Generator().manual_seed(73)
    src = torch.randint(5, SRC_VOCAB, (B, S), generator=generator)
    tgt_in = torch.randint(5, TGT_VOCAB, (B, T), generator=generator)
    for row, length in enumerate(LENGTHS):
        src[row, length:] = SRC_PAD
    return src, tgt_in
