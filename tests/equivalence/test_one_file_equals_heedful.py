"""docs/examples/one_file_transformer.py, the file for readers to copy, computes what heedful computes."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from tolerances import FLOAT32, assert_close, largest

from heedful import Transformer

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SIZES = {"d_model": 24, "num_heads": 3, "d_ff": 29}
SRC = torch.tensor([[4, 8, 6, 11, 9, 3], [5, 12, 3, 0, 0, 0]])
TGT_IN = torch.tensor([[2, 7, 7, 10], [2, 5, 0, 0]])


@pytest.fixture
def one_file(monkeypatch: pytest.MonkeyPatch) -> Any:  # noqa: ANN401
    monkeypatch.syspath_prepend(EXAMPLES)
    return __import__("one_file_transformer")


@pytest.fixture
def pair(one_file: Any) -> tuple[Transformer, torch.nn.Module]:  # noqa: ANN401
    """A model of heedful with weights far from where they begin, and the one file's with the same."""
    torch.manual_seed(1)
    depth = {"num_encoder_layers": 2, "num_decoder_layers": 2}
    model = Transformer(src_vocab_size=13, tgt_vocab_size=13, **SIZES, **depth).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.1 * torch.randn_like(weight)
    other = one_file.Transformer(13, num_layers=2, **SIZES).eval()
    other.load_state_dict(model.state_dict())
    return model, other


def test_logits_and_gradients_are_equal(pair: tuple[Transformer, torch.nn.Module]) -> None:
    real = TGT_IN != 0
    wanted, found = (each(SRC, TGT_IN)[real] for each in pair)
    assert_close(found, wanted, FLOAT32.MODEL)
    wanted.square().mean().backward()
    found.square().mean().backward()
    of_model, of_other = (dict(each.named_parameters()) for each in pair)
    assert of_model.keys() == of_other.keys()
    for name, weight in of_model.items():
        assert weight.grad is not None
        assert_close(of_other[name].grad, weight.grad, FLOAT32.MODEL.at(largest(weight.grad)), note=name)


def test_each_token_of_an_output_is_the_most_probable_one(pair: tuple[Transformer, Any]) -> None:
    model, other = pair
    ids = other.generate(SRC, 9)
    logits = model(SRC, torch.cat([torch.full((2, 1), 2), ids[:, :-1]], dim=1))
    assert ids.tolist() == logits.argmax(dim=-1).tolist()


def test_it_is_the_base_model_of_the_paper(one_file: Any) -> None:  # noqa: ANN401
    with torch.device("meta"):
        weights = one_file.Transformer(37_000).state_dict()
        base = Transformer(src_vocab_size=37_000, tgt_vocab_size=37_000).state_dict()
    assert {name: each.shape for name, each in weights.items()} == {
        name: each.shape for name, each in base.items()
    }


@pytest.mark.slow
def test_it_learns_to_reverse() -> None:
    command = [sys.executable, EXAMPLES / "one_file_transformer.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "[0, 1, 2, 3, 4, 5] -> [5, 4, 3, 2, 1, 0]" in done.stdout
