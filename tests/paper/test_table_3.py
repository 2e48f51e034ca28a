"""Every row of Table 3 is a preset: what it changes of base, and nothing else."""

from typing import Any

import pytest

from heedful.settings.presets import PRESETS, PUBLISHED, preset
from heedful.settings.run import Config

# As the table prints them; what it leaves empty is as in base.
COLUMNS = ("N", "d_model", "d_ff", "h", "d_k", "d_v", "P_drop", "eps_ls", "steps")
BASE = (6, 512, 2048, 8, 64, 64, 0.1, 0.1, 100_000)
ROWS: dict[str, dict[str, Any]] = {
    "base": {},
    "base-a-1-head": {"h": 1, "d_k": 512, "d_v": 512},
    "base-a-4-heads": {"h": 4, "d_k": 128, "d_v": 128},
    "base-a-16-heads": {"h": 16, "d_k": 32, "d_v": 32},
    "base-a-32-heads": {"h": 32, "d_k": 16, "d_v": 16},
    "base-b-dk16": {"d_k": 16},
    "base-b-dk32": {"d_k": 32},
    "base-c-2-layers": {"N": 2},
    "base-c-4-layers": {"N": 4},
    "base-c-8-layers": {"N": 8},
    "base-c-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "base-c-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "base-c-ff1024": {"d_ff": 1024},
    "base-c-ff4096": {"d_ff": 4096},
    "base-d-dropout0": {"P_drop": 0.0},
    "base-d-dropout0.2": {"P_drop": 0.2},
    "base-d-smoothing0": {"eps_ls": 0.0},
    "base-d-smoothing0.2": {"eps_ls": 0.2},
    "base-e-learned": {},
    "big": {"d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3, "steps": 300_000},
}


def columns(config: Config) -> dict[str, Any]:
    model = config.model
    assert model.num_encoder_layers == model.num_decoder_layers
    sizes = (model.num_encoder_layers, model.d_model, model.d_ff, model.num_heads)
    heads = (model.head_key_size, model.head_value_size)
    rest = (model.dropout, config.train.label_smoothing, config.train.max_steps)
    return dict(zip(COLUMNS, sizes + heads + rest, strict=True))


@pytest.mark.parametrize("name", ROWS)
def test_a_preset_has_the_numbers_of_its_row(name: str) -> None:
    assert columns(preset(name)) == dict(zip(COLUMNS, BASE, strict=True)) | ROWS[name]


@pytest.mark.parametrize("name", ROWS)
def test_a_row_changes_nothing_that_the_table_does_not_name(name: str) -> None:
    differing = {
        f"{section}.{key}"
        for section, values in preset(name).model_dump().items()
        for key, value in values.items()
        if value != Config().model_dump()[section][key]
    }
    named = {
        "N": {"model.num_encoder_layers", "model.num_decoder_layers"},
        "d_model": {"model.d_model"}, "d_ff": {"model.d_ff"}, "h": {"model.num_heads"},
        "d_k": {"model.d_k"}, "d_v": {"model.d_v"}, "P_drop": {"model.dropout"},
        "eps_ls": {"train.label_smoothing"}, "steps": {"train.max_steps"},
    }  # fmt: skip
    wanted = {key for column in ROWS[name] for key in named[column]}
    if name == "base-e-learned":
        wanted = {"model.positions"}
    if name == "big":  # 6.1: the last 20 checkpoints averaged
        wanted |= {"train.average_checkpoints", "train.keep_checkpoints"}
    assert differing == wanted


def test_all_rows_are_there_and_two_presets_for_small_data_and_the_published_systems() -> None:
    assert set(PRESETS) == set(ROWS) | {"tiny", "small"} | set(PUBLISHED)


@pytest.mark.parametrize(
    ("name", "wanted"), [("tiny", (4, 128, 256, 4, 32, 32)), ("small", (3, 256, 1024, 4, 64, 64))]
)
def test_the_small_presets_have_their_sizes(name: str, wanted: tuple[int, ...]) -> None:
    assert tuple(columns(preset(name)).values())[:6] == wanted
