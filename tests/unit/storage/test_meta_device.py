"""A model without values, and the tensors that become its weights."""

import sys

import pytest
import torch
from small_models import assert_same_weights, small_config, small_model

from heedful.model.transformer import Transformer
from heedful.storage.model_files import assign_weights, meta_model, unique_weights
from heedful.storage.stored_model import weight_shapes

SRC, TGT_IN = torch.tensor([[5, 3, 0]]), torch.tensor([[2, 7]])


@pytest.mark.parametrize("tied", ["all", "target", "none"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "alibi", "relative"])
def test_a_meta_model_with_the_weights_of_a_model_is_that_model(tied: str, positions: str) -> None:
    model = small_model(tied=tied, positions=positions, norm="pre", output_bias=True).eval()
    loaded = meta_model(model.config)
    assert {parameter.device.type for parameter in loaded.parameters()} == {"meta"}
    weights = unique_weights(model)
    assign_weights(loaded, weights)
    assert_same_weights(loaded, model)
    assert torch.equal(loaded.eval()(SRC, TGT_IN), model(SRC, TGT_IN))
    assert [name for name, _ in loaded.named_parameters()] == list(weights)


def test_assigned_tensors_are_not_copied_and_shared_ones_stay_shared() -> None:
    weights = unique_weights(small_model())
    loaded = meta_model(small_config())
    assign_weights(loaded, weights)
    tokens = loaded.encoder.embedding.tokens.weight
    assert tokens is loaded.output.weight is loaded.decoder.embedding.tokens.weight
    assert tokens.data_ptr() == weights["encoder.embedding.tokens.weight"].data_ptr()
    assert tokens.requires_grad


def test_a_meta_model_draws_no_random_numbers_and_loads_no_compiler() -> None:
    state = torch.get_rng_state()
    loaded = set(sys.modules)
    meta_model(small_config())
    assert torch.equal(torch.get_rng_state(), state)
    assert not {name for name in set(sys.modules) - loaded if name.startswith("torch._dynamo")}


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "relative"])
@pytest.mark.parametrize(("num_encoder_layers", "num_decoder_layers"), [(1, 4), (3, 2), (2, 1)])
def test_the_shapes_of_many_layers_are_known_from_two(
    positions: str, num_encoder_layers: int, num_decoder_layers: int
) -> None:
    config = small_config(
        positions=positions,
        num_encoder_layers=num_encoder_layers,
        num_decoder_layers=num_decoder_layers,
        norm="pre",
        output_bias=True,
    )
    model = Transformer.from_config(config)
    assert weight_shapes(config) == {name: tuple(each.shape) for name, each in model.named_parameters()}
