"""The options that the paper does not have equal loops over single numbers, forward and backward."""

from typing import Any

import pytest
import torch
from naive_options import NaiveWithOptions
from naive_transformer import gradients, values, weigh_and_differentiate, weights_of
from option_models import RELATIVE, option_config
from tolerances import FLOAT64, assert_close, largest
from torch import nn

from heedful.model.transformer import Transformer

B, S, T, V = 2, 7, 5, 11
PAD = 4
LENGTHS = ((7, 4), (3, 5))  # sources, targets
SIZES = {
    "d_model": 5, "num_heads": 4, "d_k": 2, "d_v": 3, "d_ff": 7, "num_encoder_layers": 1,
    "num_decoder_layers": 1, "src_vocab_size": V, "tgt_vocab_size": V, "tied": "all", "tgt_pad_id": PAD,
}  # fmt: skip
RMS, GATED = {"norm_kind": "rms", "layer_norm_eps": 0.01}, {"gated": True, "activation": "swish"}
GROUPED = {"num_kv_heads": 2}
RELATIVE_FURTHER = RELATIVE | {"relative_buckets": 6, "relative_max_distance": 5}


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "d_k": 4},
        {"positions": "alibi"},
        RELATIVE_FURTHER,
        {"positions": "rotary", "norm": "pre", "attention_bias": False, **RMS, **GATED, **GROUPED},
        {"positions": "alibi", "num_kv_heads": 1, **RMS},
        {
            **RELATIVE_FURTHER,
            **RMS,
            **GROUPED,
            "gated": True,
            "num_encoder_layers": 2,
            "num_decoder_layers": 2,
        },
    ],
    ids=["rotary", "alibi", "relative", "rotary-and-more", "alibi-and-more", "relative-and-more"],
)
def test_a_model_with_options_equals_its_formulas_sentence_by_sentence(changes: dict[str, Any]) -> None:
    torch.manual_seed(131)
    config = option_config(**(SIZES | changes))
    model = Transformer.from_config(config).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    src, tgt_in = torch.randint(5, V, (B, S)), torch.randint(5, V, (B, T))
    coefficients = torch.randn(B, T, V, dtype=torch.float64)
    for b in range(B):
        src[b, LENGTHS[0][b] :] = tgt_in[b, LENGTHS[1][b] :] = PAD
        coefficients[b, LENGTHS[1][b] :] = 0.0
    found = model(src, tgt_in)
    (found * coefficients).sum().backward()

    weights = weights_of(model)
    naive = NaiveWithOptions(
        weights, config.num_heads, config.activation, config.norm == "pre", config.layer_norm_eps,
        config.num_kv_heads, config.positions, config.relative_max_distance,
    )  # fmt: skip
    wanted = [
        naive.transformer(src[b, :s].tolist(), tgt_in[b, :t].tolist(), num_layers=config.num_encoder_layers)
        for b, (s, t) in enumerate(zip(*LENGTHS, strict=True))
    ]
    weigh_and_differentiate(
        [row for sentence in wanted for row in sentence],
        torch.cat([coefficients[b, :length] for b, length in enumerate(LENGTHS[1])]),
    )
    for b, length in enumerate(LENGTHS[1]):
        assert_close(found[b, :length].detach(), values(wanted[b]), FLOAT64.MODEL)
    for name, parameter in model.named_parameters():
        wanted_gradient = gradients(weights[name])
        assert_close(parameter.grad, wanted_gradient, FLOAT64.MODEL.at(largest(wanted_gradient)))
