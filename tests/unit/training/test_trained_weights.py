"""What training may change: by frozen prefixes, and by low-rank adapters."""

from typing import Any

import pytest
import torch
from small_models import small_model
from torch import nn

from heedful.data.batches import collate
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
from heedful.training.optimizer import build_optimizer, choose_trained_weights, num_trained
from heedful.training.step import train_step

LORA = {"rank": 2, "targets": ("query", "outer")}


def chosen(freeze: tuple[str, ...] = (), lora: dict[str, Any] | None = None, **model: Any) -> Transformer:  # noqa: ANN401
    found = small_model(**model)
    choose_trained_weights(found, settings(freeze, lora))
    return found


def settings(freeze: tuple[str, ...] = (), lora: dict[str, Any] | None = None) -> Config:
    return Config.model_validate({"train": {"freeze": freeze, "init": "bundle"}, "lora": lora or {}})


def trained_names(model: nn.Module) -> set[str]:
    return {name for name, weight in model.named_parameters() if weight.requires_grad}


def all_names(model: nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


def step(model: Transformer, config: Config) -> None:
    rows = [(torch.tensor([5, 6, 3]).numpy(), torch.tensor([7, 8, 9, 3]).numpy())]
    batch = collate(rows, src_pad_id=0, tgt_pad_id=0, start_id=2)
    optimizer = build_optimizer(model, config.optimizer, precision="float32")
    train_step(model, optimizer, [batch], config=config, learning_rate=0.1, precision="float32")


def test_everything_is_trained_unless_something_else_is_said() -> None:
    model = chosen()
    assert trained_names(model) == all_names(model)
    assert num_trained(model) == model.num_parameters


def test_a_frozen_prefix_is_what_stays() -> None:
    model = chosen(("encoder.layers.", "decoder.layers.0.cross_attention.query"), tied="none")
    frozen = all_names(model) - trained_names(model)
    assert frozen == {
        name
        for name in all_names(model)
        if name.startswith(("encoder.layers.", "decoder.layers.0.cross_attention.query."))
    }
    assert len(frozen) > 2


@pytest.mark.parametrize("alias", ["encoder.embedding", "decoder.embedding.", "output.weight"])
def test_a_shared_matrix_stays_under_each_of_its_names(alias: str) -> None:
    model = chosen((alias,))
    assert not model.output.weight.requires_grad
    assert num_trained(model) == model.num_parameters - model.output.weight.numel()


def test_a_step_changes_what_is_trained_and_nothing_else() -> None:
    model, before = chosen(("encoder.",)), small_model()
    step(model, settings(("encoder.",)))
    moved = {
        name
        for (name, one), (_, other) in zip(model.named_parameters(), before.named_parameters(), strict=True)
        if not torch.equal(one, other)
    }
    assert moved <= trained_names(model)
    assert {name for name in trained_names(model) if name.endswith("weight")} <= moved


def test_frozen_parts_keep_their_adapters_at_nothing() -> None:
    model = chosen(("encoder.",), LORA)
    assert {name.split(".")[0] for name in trained_names(model)} == {"decoder"}


@pytest.mark.parametrize(
    ("freeze", "lora", "message"),
    [
        (("encodr.",), None, r"^train\.freeze: no .* begins with 'encodr\.'; did you mean 'encoder\.'\?"),
        (("encoder.layer.0",), None, r"did you mean 'encoder\.layers\.'\?"),
        (("x",), None, r"begins with 'x'; there are: decoder\., decoder\.embedding\.,"),
        (("encoder.", "decoder.", "output."), None, "no weight is left to train"),
        ((), {"rank": 2, "targets": ("querry",)}, r"lora\.targets: .* 'querry'; did you mean 'query'\?"),
        ((), {"rank": 2, "targets": ("gate",)}, "'gate'; there are: inner, key, outer, output, query, value"),
    ],
)  # fmt: skip
def test_what_is_not_there_is_one_line_with_what_is(
    freeze: tuple[str, ...], lora: dict[str, Any] | None, message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        chosen(freeze, lora)
    assert "\n" not in str(caught.value)
