"""Names and shapes of weights are those of the model, whatever its options."""

import pytest
from small_models import small_config

from heedful.model.transformer import Transformer
from heedful.storage.stored_model import embedding_names, weight_shapes

OPTIONS: list[dict[str, object]] = [
    {},
    *({"tied": tied} for tied in ("target", "none")),
    *({"positions": positions} for positions in ("learned", "rotary", "alibi", "relative", "fairseq")),
    {"norm": "pre", "norm_kind": "rms", "gated": True, "num_kv_heads": 1},
    {"output_bias": True, "attention_bias": False, "feed_forward_bias": False},
    {"embedding_norm": True, "final_norm": True, "d_k": 6, "d_v": 10},
    {"num_encoder_layers": 3, "num_decoder_layers": 1, "positions": "relative"},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_they_are_the_parameters_of_the_model_in_their_order(options: dict[str, object]) -> None:
    config = small_config(**options)
    model = Transformer.from_config(config)
    expected = {name: tuple(weight.shape) for name, weight in model.named_parameters()}
    assert list(weight_shapes(config).items()) == list(expected.items())


@pytest.mark.parametrize("tied", ["all", "target", "none"])
def test_the_matrices_of_section_3_4_have_these_names(tied: str) -> None:
    config = small_config(tied=tied)
    model = Transformer.from_config(config)
    parameters = dict(model.named_parameters())
    matrices = [
        model.encoder.embedding.tokens.weight, model.decoder.embedding.tokens.weight, model.output.weight,
    ]  # fmt: skip
    assert all(
        parameters[name] is matrix for name, matrix in zip(embedding_names(config), matrices, strict=True)
    )
