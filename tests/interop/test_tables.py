"""The notation of tables of weights, in both directions, and what a table of settings refuses."""

from pathlib import Path
from typing import Any

import pytest
import torch
from imported_models import SYSTEMS, imported, random_model
from small_models import small_model
from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import Conversion, scaled
from heedful.interop.fairseq import BIAS, rows
from heedful.interop.keys import Keys, allowed, columns, named
from heedful.interop.tables import Table, Transform
from heedful.interop.vocabulary import TypedSettings


def moved(table: Table, *names: str, rows: int = 6) -> Conversion:
    tensors = {name: torch.full((rows, 2), float(i)) for i, name in enumerate(names, start=1)}
    conversion = Conversion(tensors, layout="x", origin=Path("x"), settings={})
    table.move(conversion)
    return conversion


def values(conversion: Conversion) -> dict[str, float]:
    return {name: float(tensor[0, 0]) for name, tensor in conversion.moved.items()}


@pytest.mark.parametrize("row", ["a", "a b c d", "a output other", "{a,b} {query,key,value}", "a.weight # x"])
def test_a_row_that_cannot_be_read_is_named(row: str) -> None:
    with pytest.raises(InteropError, match=row.split()[0].replace("{", r"\{").partition(",")[0]):
        assert Table(row).rules == ()


def test_lists_and_numbers_make_a_row_for_each_item() -> None:
    table = Table("""
        {stack}.{i}.                    {stack}.layers.{i}.
            {a,b}                       {query,key}
        encoder.{i}.{c,d}.w             encoder.layers.{i}.{x,y}.weight  {as_is,twice}
    """, transforms={"twice": Transform(lambda tensor: tensor * 2)})  # fmt: skip
    names = ("encoder.0.a.weight", "encoder.1.b.weight", "decoder.0.b.bias", "encoder.1.c.w", "encoder.1.d.w")
    assert values(moved(table, *names)) == {
        "encoder.layers.0.query.weight": 1.0,
        "encoder.layers.1.key.weight": 2.0,
        "decoder.layers.0.key.bias": 3.0,
        "encoder.layers.1.x.weight": 4.0,
        "encoder.layers.1.y.weight": 10.0,
    }


def test_the_first_name_in_the_file_counts_and_a_tensor_may_be_used_twice() -> None:
    table = Table("head|shared  output\n shared  tokens\n old.weight  -\n")
    assert values(moved(table, "shared.weight", "old.weight")) == {"output.weight": 1.0, "tokens.weight": 1.0}
    assert values(moved(table, "shared.weight", "head.weight"))["output.weight"] == 2.0
    assert not moved(table, "shared.weight", "old.weight").left
    assert [*moved(table, "shared.weight", "new.weight").left] == ["new.weight"]
    every = Table("shared  tokens\n x.*  -\n")
    assert [*moved(every, "shared.weight", "x.a", "x.b.c", "y.x.a").left] == ["y.x.a"]


def test_the_last_layer_may_have_a_row_of_its_own() -> None:
    table = Table(
        "l.{last}.n  l.{last}.norm  half\n l.{i}.n  l.{i}.norm\n", {"half": Transform(lambda t: t / 2)}
    )
    assert values(moved(table, "l.0.n.weight", "l.1.n.weight")) == {
        "l.1.norm.weight": 1.0,
        "l.0.norm.weight": 1.0,
    }


def test_parts_are_split_and_joined() -> None:
    split, joined = Table("qkv  [query,key,value]"), Table("head.[0,1].v  value")
    parts = moved(split, "qkv.weight").moved
    assert {name: len(part) for name, part in parts.items()} == {
        f"{name}.weight": 2 for name in ("query", "key", "value")
    }
    assert moved(joined, "head.0.v.weight", "head.1.v.weight").moved["value.weight"].shape == (12, 2)
    with pytest.raises(InteropError, match=r"7 rows of 'qkv\.weight'"):
        moved(split, "qkv.weight", rows=7)
    back = split.export({name: torch.ones(2, 2) for name in parts}, {})
    assert {name: tensor.shape for name, tensor in back.items()} == {"qkv.weight": (6, 2)}


def test_an_export_comes_back_equal() -> None:
    model = small_model(output_bias=True, tied="none")
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    with torch.no_grad():
        weights["output.bias"] += 0.5
    halved = Transform(lambda tensor: scaled(tensor, 2.0), lambda tensor: tensor / 2)
    table = Table(f"lm_head.weight  output.weight  halved\n{rows(shared=False)}{BIAS}", {"halved": halved})
    layers = {f"{stack}": getattr(model.config, f"num_{stack}_layers") for stack in ("encoder", "decoder")}
    theirs = table.export(weights, layers)
    assert theirs["final_logits_bias"].shape == (1, model.config.tgt_vocab_size)
    settings = {"num_heads": model.config.num_heads, "d_k": model.config.d_k, "d_v": model.config.d_v}
    settings = {key: value for key, value in settings.items() if value is not None}
    back = table.read(Conversion(theirs, layout="x", origin=Path("x"), settings=settings))
    assert {name: tensor.shape for name, tensor in back.weights.items()} == {
        name: tensor.shape for name, tensor in weights.items()
    }
    assert all(torch.equal(back.weights[name] + 0, tensor) for name, tensor in weights.items())


@pytest.mark.parametrize("name", ["annotated", "fairseq"])
def test_a_bias_that_one_layer_lacks_is_named(name: str) -> None:
    tensors: dict[str, Tensor] = dict(random_model(SYSTEMS[name]).state_dict())
    lost = next(key for key in tensors if "layers.1." in key and key.endswith("bias"))
    del tensors[lost]
    with pytest.raises(InteropError, match=f"{lost}.*missing"):
        imported(SYSTEMS[name], tensors)


KEYS = Keys(
    read=columns("heads num_heads\ndrop dropout attention_dropout"),
    choices={
        "act": named("activation", {"ReLU": "relu", "GELU": "gelu"}),
        "is_gelu": {None: {}, True: {"activation": "gelu"}},
    },
    equal=("ffn",),
    fixed=allowed("0 moe"),
    ignored=("lr",),
    defaults={"act": "ReLU"},
)


def test_settings_are_read_by_their_table() -> None:
    found = KEYS.settings(TypedSettings({"heads": 3, "drop": 0.1, "lr": 1, "moe": None}, "file"), ignored=())
    assert found == {"num_heads": 3, "dropout": 0.1, "attention_dropout": 0.1, "activation": "relu"}


@pytest.mark.parametrize(
    "changes",
    [
        {"heads": 0}, {"heads": "3"}, {"act": "tanh"}, {"act": ["ReLU"]}, {"is_gelu": True}, {"moe": 2},
        {"encoder_ffn": 3}, {"other": 1},
    ],
)  # fmt: skip
def test_settings_that_cannot_be_followed_are_named(changes: dict[str, Any]) -> None:
    with pytest.raises(InteropError, match=next(iter(changes))):
        KEYS.settings(TypedSettings({"heads": 3} | changes, "file"), ignored=())
