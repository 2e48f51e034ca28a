"""Settings of any kind, and names of checkpoints, damaged: one line or the work."""

import json
import tomllib
from pathlib import Path

import pytest
from damage import CHANGES, Change, changed, few_or_many, json_text, read_many
from hypothesis import strategies as st

from heedful.settings.loading import load_config, parse_override, to_toml
from heedful.settings.run import Config
from heedful.training.checkpoint import latest_checkpoint, list_checkpoints

KEYS = [f"{section}.{key}" for section, values in Config().model_dump().items() for key in values]
ODD_TEXTS = [
    "[" * 3000, "{" * 3000, "0x" + "f" * 6000, "9" * 6000, "\udcff", "\0", "'", "1e999", "nan", "[1, 'a']",
]  # fmt: skip
DEEP = [
    "a = " + "[" * 5000, "a = " + "{a=" * 900, "a." * 3000 + "a = 1", "[" + "a." * 3000 + "a]",
    "a = 0x" + "f" * 6000, 'a = "\\ud800"', "[model]\nd_model = 0x" + "f" * 6000, '[data]\nsrc = "\\u0000"',
]  # fmt: skip


@pytest.mark.slow
@few_or_many
def test_settings_of_other_types(cases: int) -> None:
    def read(changes: list[Change]) -> None:
        damaged = json_text(changed(Config().model_dump(), changes))
        try:
            settings = json.loads(damaged)
        except (ValueError, RecursionError):
            return
        config = Config(**settings if isinstance(settings, dict) else {"model": settings})
        assert tomllib.loads(to_toml(config))

    read_many(cases * 4, CHANGES, read)


@pytest.mark.slow
@few_or_many
def test_settings_on_the_command_line(cases: int) -> None:
    def read(case: tuple[str, str]) -> None:
        key, value = case
        to_toml(load_config(overrides=[parse_override(f"{key}={value}")])).encode()

    keys = st.sampled_from([*KEYS, "model", "a.b", ".", "model.d_model.x"]) | st.text(max_size=9)
    values = st.sampled_from(ODD_TEXTS) | st.text(max_size=20) | st.integers().map(str) | st.floats().map(str)
    read_many(cases * 4, st.tuples(keys, values), read)


@pytest.mark.slow
def test_deep_settings(tmp_path: Path) -> None:
    def read(text: str) -> None:
        (tmp_path / "config.toml").write_text(text)
        load_config(tmp_path / "config.toml")

    read_many(len(DEEP) * 4, st.sampled_from(DEEP), read)


@few_or_many
def test_names_of_checkpoints(cases: int, tmp_path: Path) -> None:
    def read(name: str) -> None:
        path = tmp_path / f"step-{name}"
        path.mkdir()
        try:
            list_checkpoints(tmp_path)
            latest_checkpoint(tmp_path)
        finally:
            path.rmdir()

    names = st.text(st.sampled_from("0123456789²٣-_ ߀"), max_size=60) | st.integers().map(str)
    read_many(cases, names, read)
