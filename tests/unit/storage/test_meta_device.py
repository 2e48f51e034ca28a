"""A model without values, and the tensors that become its weights."""

import json
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from small_models import assert_same_weights, small_config, small_model

from heedful.model.transformer import Transformer
from heedful.storage.torch_weights import (
    assign_weights,
    check_tensors,
    meta_model,
    read_pickled,
    read_safetensors,
    unique_weights,
)
from heedful.storage.weights_file import SafetensorsArrays, weight_shapes

SRC, TGT_IN = torch.tensor([[5, 3, 0]]), torch.tensor([[2, 7]])


@pytest.mark.parametrize("tied", ["all", "target", "embeddings", "none"])
@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "alibi", "relative", "relative per layer"])
def test_a_meta_model_with_the_weights_of_a_model_is_that_model(tied: str, positions: str) -> None:
    kind, _, each = positions.partition(" ")
    model = small_model(
        tied=tied, positions=kind, relative_per_layer=bool(each), norm="pre", output_bias=True
    ).eval()
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


def write_header(path: Path, header: Any, content: bytes = b"") -> Path:  # noqa: ANN401
    """A safetensors file: the length of its header, the header, the numbers."""
    text = json.dumps(header).encode() if not isinstance(header, bytes) else header
    path.write_bytes(struct.pack("<Q", len(text)) + text + content)
    return path


def entry(dtype: str, shape: list[int], *offsets: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets or [0, 4]}


def test_shapes_are_read_without_the_numbers(tmp_path: Path) -> None:
    save_file({"a": torch.ones(2, 3), "b": torch.ones(0, 5), "c": torch.ones(())}, tmp_path / "x")
    assert SafetensorsArrays(tmp_path / "x").shapes == {"a": (2, 3), "b": (0, 5), "c": ()}
    assert torch.equal(read_safetensors(tmp_path / "x")["a"], torch.ones(2, 3))


@pytest.mark.parametrize(
    "header",
    [
        {"w": entry("F32", [2**62])},
        {"w": entry("F32", [2**40, 2**40])},
        {"w": entry("F32", [1], 0, 2**60)},
        {"w": entry("F32", [-1])},
        {"w": entry("F32", [1], 2, 6)},
        {"w": entry("F99", [1])},
        {"w": {}},
        {"w": []},
        [],
        b"[" * 100_000,
        b"\xff" * 50,
        b"",
    ],
)
def test_a_header_that_its_file_does_not_bear_out_is_a_phrase(tmp_path: Path, header: Any) -> None:  # noqa: ANN401
    path = write_header(tmp_path / "x", header, b"\0\0\0\0")
    for read in (SafetensorsArrays, read_safetensors):
        with pytest.raises(ValueError, match="cannot be read") as caught:
            read(path)
        assert "\n" not in str(caught.value)


def test_a_header_longer_than_the_file_takes_no_memory(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(struct.pack("<Q", 2**62) + b"{}")
    with pytest.raises(ValueError, match="cannot be read"):
        SafetensorsArrays(tmp_path / "x")


@pytest.mark.parametrize("dtype", ["I64", "BOOL", "U8"])
def test_shapes_are_those_of_floats(tmp_path: Path, dtype: str) -> None:
    path = write_header(tmp_path / "x", {"w": entry(dtype, [0], 0, 0)})
    with pytest.raises(ValueError, match=f"'w' is of type {dtype}, not of floats"):
        SafetensorsArrays(path)


def test_what_would_have_to_be_run_is_not_read(tmp_path: Path) -> None:
    torch.save({"f": torch.nn.Linear}, tmp_path / "x")
    with pytest.raises(ValueError, match="not weights that can be read without running code") as caught:
        read_pickled(tmp_path / "x")
    assert "\n" not in str(caught.value)


def test_names_are_texts_and_no_longer_than_names() -> None:
    check_tensors({"a": torch.ones(2)})
    for tensors, problem in (
        ({1: torch.ones(2)}, "1 is not a tensor"),
        ({"a" * 501: torch.ones(2)}, "501 characters"),
    ):
        with pytest.raises(ValueError, match=problem):
            check_tensors(tensors)  # type: ignore[arg-type]
