import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from heedful.errors import ConfigError
from heedful.settings.loading import load_config, parse_override, to_toml
from heedful.settings.presets import PRESETS, preset
from heedful.settings.run import Config


def write(folder: Path, text: str) -> Path:
    path = folder / "config.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_nothing_given_is_the_papers_base() -> None:
    assert load_config() == Config() == preset("base")


def test_later_layers_win_over_earlier_ones(tmp_path: Path) -> None:
    path = write(tmp_path, "[model]\nd_ff = 100\ndropout = 0.25\n[schedule]\npeak = 3e-4")
    config = load_config(path, preset="small", overrides=[("model.dropout", 0.5), ("train.seed", 7)])
    assert config.model.d_model == 256  # the preset's
    assert config.model.d_ff == 100  # the file's
    assert config.model.dropout == 0.5  # the override's
    assert (config.schedule.name, config.schedule.peak) == ("linear", 3e-4)
    assert config.train.seed == 7


@pytest.mark.parametrize(
    ("file", "overrides", "steps", "fraction"),
    [
        ("", [], 4000, 0.1),  # the preset's
        ("[schedule]\nwarmup_fraction = 0.2", [], 4000, 0.2),
        ("[schedule]\nwarmup_steps = 30", [], 30, None),
        ("", [("schedule.warmup_steps", 30)], 30, None),
        ("[schedule]\nwarmup_steps = 30", [("schedule.warmup_fraction", 0.3)], 4000, 0.3),
        ("", [("schedule.warmup_steps", 30), ("schedule.warmup_fraction", 0.3)], 4000, 0.3),
        ("", [("schedule.warmup_fraction", False)], 4000, None),
    ],
)
def test_a_warm_up_in_steps_replaces_one_in_proportion_below_it_and_the_reverse(
    tmp_path: Path, file: str, overrides: list[tuple[str, Any]], steps: int, fraction: float | None
) -> None:
    schedule = load_config(write(tmp_path, file), preset="small", overrides=overrides).schedule
    assert (schedule.warmup_steps, schedule.warmup_fraction) == (steps, fraction)


@pytest.mark.parametrize("setting", [("schedule.warmup_steps", 30), ("schedule.warmup_fraction", 0.2)])
def test_the_warm_up_of_a_saved_run_can_be_changed_either_way(
    tmp_path: Path, setting: tuple[str, Any]
) -> None:
    saved = write(tmp_path, to_toml(preset("small")))
    assert load_config(saved) == preset("small")
    changed = load_config(saved, overrides=[setting])
    expected = (30, None) if setting[1] == 30 else (4000, 0.2)
    assert (changed.schedule.warmup_steps, changed.schedule.warmup_fraction) == expected
    assert load_config(write(tmp_path, to_toml(changed))) == changed


def test_a_file_may_change_another_file(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "first.toml").write_text('preset = "small"\n[train]\nseed = 3\nmax_epochs = 9')
    (tmp_path / "second.toml").write_text('preset = "below/first.toml"\n[train]\nseed = 4')
    path = write(tmp_path, 'preset = "second.toml"\n[model]\ndropout = 0.0')
    config = load_config(path)
    assert (config.train.seed, config.train.max_epochs, config.model.dropout) == (4, 9, 0.0)
    assert config.optimizer == preset("small").optimizer
    assert load_config(path, preset="tiny").model.d_model == preset("tiny").model.d_model
    assert load_config(path, preset="tiny").train.max_epochs == 9


def test_a_file_may_name_its_preset_and_the_argument_wins(tmp_path: Path) -> None:
    path = write(tmp_path, 'preset = "tiny"')
    assert load_config(path) == preset("tiny")
    assert load_config(path, preset="small") == preset("small")


NESTED = "config.toml: (nested|a number has too many digits)"


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("preset = 'tinny'", "'tinny'.*'tiny'"),
        ("preset = ['tiny']", r'preset=\["tiny"\]'),
        ("[preset]\nname = 'tiny'", 'preset={"name"'),
        ("[preset]", "preset={}"),
        ("preset = ''", "preset ''"),
        ("preset = 'none.toml'", "none.toml"),
        ("preset = 'other.toml'", "other.toml: preset 'config.toml'"),  # each names the other
        ("x =", "config.toml: not valid TOML"),
        ("[model]\nsize = 3", "'model.size'"),
        ("[model.deep]\nd_model = 3", "'model.deep'"),
        ("model = 3", "model=3: "),
        ("a = " + "[" * 50_000, NESTED),
        (".".join("a" * 9000) + " = 1", NESTED),
        ("a = 1" + "0" * 9000, NESTED),
        ("a = " + "{a=" * 9000, NESTED),
    ],
)
def test_a_bad_file_is_one_short_line(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "other.toml").write_text('preset = "config.toml"')
    with pytest.raises(ConfigError, match=named) as caught:
        load_config(write(tmp_path, text))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.toml"):
        load_config(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match=re.escape(str(tmp_path))):
        load_config(tmp_path)
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9")
    with pytest.raises(ConfigError, match=r"latin\.toml: .* 5"):
        load_config(tmp_path / "latin.toml")
    with pytest.raises(ConfigError, match="model"):
        load_config(write(tmp_path, "model = 3"), overrides=[("model.d_model", 4)])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("train.max_steps=2000", ("train.max_steps", 2000)),
        ("model.dropout=0.3", ("model.dropout", 0.3)),
        ("optimizer.eps=1e-9", ("optimizer.eps", 1e-9)),
        ("model.norm=pre", ("model.norm", "pre")),
        ('model.norm="pre"', ("model.norm", "pre")),
        ("train.max_steps=false", ("train.max_steps", False)),
        ("data.src=runs/a=b.txt", ("data.src", "runs/a=b.txt")),
        ("data.src=", ("data.src", "")),
        (" train.seed = 7 ", ("train.seed", 7)),
    ],
)
def test_an_override_is_toml_where_it_can_be_and_text_where_not(text: str, wanted: tuple[str, Any]) -> None:
    assert parse_override(text) == wanted


@pytest.mark.parametrize(
    ("override", "named"),
    [
        *((text, r"section\.key=value") for text in ("train.max_steps", "max_steps=3", "=3", "")),
        ("trian.seed=3", "'trian'.*'train'"),
        ("train.sede=3", "'train.sede'.*'seed'"),
        ("train.seed.x=3", "'train.seed.x'"),
        ("train.seed=x", 'train.seed="x"'),
        ("preset.x=3", "'preset'"),
        ("data.src=a\0b", r'data.src="a\\u0000b"'),
        ("data.src=caf\udce9.en", r'data.src="caf\\udce9.en"'),
        ("train.freeze=a,\udce9", "train.freeze="),
        ("model.dropout=1" + "0" * 400, "model.dropout=10000"),
        ("model.d_model=0x" + "f" * 6000, "model.d_model=<a number of 24,000 bits>"),
        ("model.d_model=" + "[" * 3000, r'model.d_model="\[\[\['),
        ("model." + "x" * 6000 + "=1", "'model.xxxx"),
    ],
)
def test_a_bad_override_is_one_short_line(override: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named) as caught:
        load_config(overrides=[parse_override(override)])
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_survives_the_round_trip(tmp_path: Path, name: str) -> None:
    config = preset(name)
    assert load_config(write(tmp_path, to_toml(config)), preset="base") == config


@settings(max_examples=60)
@example(path='\x7f\x01\\"ü\u2028\r\n', rate=5e-324, steps=None, minutes=None)
@given(
    path=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")),
    rate=st.floats(min_value=1e-300, max_value=1e6),
    steps=st.none() | st.integers(1, 10**12),
    minutes=st.none() | st.floats(min_value=1e-9, max_value=1e9),
)
def test_any_value_survives_the_round_trip(
    tmp_path_factory: pytest.TempPathFactory, path: str, rate: float, steps: int | None, minutes: float | None
) -> None:
    values = {
        "data": {"src": path, "tgt": "b"},
        "schedule": {"name": "constant", "peak": rate},
        "train": {"max_steps": steps, "max_epochs": 3, "checkpoint_every_minutes": minutes},
    }
    config = Config.model_validate(values)
    file = tmp_path_factory.mktemp("round") / "config.toml"
    file.write_text(to_toml(config), encoding="utf-8", newline="")
    assert load_config(file) == config


def test_every_default_is_written_out_and_no_limit_is_false() -> None:
    text = to_toml(Config().replace(train={"max_steps": None, "max_epochs": 2}))
    assert "max_steps = false" in text
    assert "checkpoint_every_minutes = 10.0" in text
    assert "layer_norm_eps = 1e-05" in text
    assert "max_minutes" not in text  # none is its default
    for section, values in Config().model_dump().items():
        assert f"[{section}]" in text
        for key, value in values.items():
            assert value is None or f"\n{key} = " in text


def test_a_preset_that_is_named_says_every_setting_of_the_architecture() -> None:
    everything = set(type(Config().model).model_fields)
    assert load_config(preset="base").model.model_fields_set == everything
    assert load_config().model.model_fields_set == set()
    assert load_config(overrides=[("model.d_ff", 8)]).replace(train={"seed": 3}).model.model_fields_set == {
        "d_ff"
    }


@pytest.mark.parametrize("written", ["encoder.,output.", ["encoder.", "output."], '["encoder.","output."]'])
def test_several_texts_are_a_list_or_have_commas_between_them(written: str | list[str]) -> None:
    override = (
        parse_override(f"train.freeze={written}") if isinstance(written, str) else ("train.freeze", written)
    )
    assert load_config(overrides=[override]).train.freeze == ("encoder.", "output.")
