"""Training as a function of a program."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from process_state import changes, process_state
from ten_pairs import write_pairs

from heedful.errors import CheckpointError, ConfigError
from heedful.settings.loading import load_config, parse_override
from heedful.tasks.train import train
from heedful.training.events import Event, WarningEvent


def test_a_run_that_is_killed_before_its_last_bundle_writes_the_same_one_later(tmp_path: Path) -> None:
    """The card too, with the signatures of scores that were computed before."""
    write_pairs(tmp_path)
    settings = {
        "data.src": f"\"{tmp_path}/ten.en\"", "data.tgt": f"\"{tmp_path}/ten.de\"",
        "data.cache_dir": f"\"{tmp_path}/cache\"", "model.d_model": 8, "model.num_heads": 2, "model.d_ff": 8,
        "tokenizer.vocab_size": 200, "batch.tokens": 200, "train.max_steps": 1, "train.processes": 1,
        "valid.decode_sentences": 3,
    }  # fmt: skip
    config = load_config(
        preset="tiny", overrides=[parse_override(f"{key}={value}") for key, value in settings.items()]
    )
    last = train(config, tmp_path / "run").last
    files = {each.name: each.read_bytes() for each in last.iterdir()}
    shutil.rmtree(last)
    train(load_config(tmp_path / "run" / "config.toml"), tmp_path / "run", resume=True)
    assert {each.name: each.read_bytes() for each in last.iterdir()} == files
    assert b"nrefs:1" in files["README.md"]


def test_a_program_that_trains_finds_its_process_as_it_was(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    settings = {
        "data.src": f"\"{tmp_path}/ten.en\"", "data.tgt": f"\"{tmp_path}/ten.de\"",
        "data.cache_dir": f"\"{tmp_path}/cache\"",
        "tokenizer.vocab_size": 200, "batch.tokens": 200, "train.max_steps": 1, "train.processes": 1,
        "train.threads": torch.get_num_threads() + 1, "valid.decode_sentences": 0,
    }  # fmt: skip
    overrides = [parse_override(f"{name}={value}") for name, value in settings.items()]
    before = process_state()
    train(load_config(preset="tiny", overrides=overrides), tmp_path / "run")
    assert changes(before, process_state()) == []


def test_a_missing_gpu_is_named_before_the_text_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    texts = {"data.src": tmp_path / "none.en", "data.tgt": tmp_path / "none.de"}
    overrides = {key: str(path) for key, path in texts.items()} | {"train.device": "cuda"}
    with pytest.raises(ConfigError, match=r"train\.device"):
        train(load_config(preset="tiny", overrides=overrides), tmp_path / "run")


def test_a_run_of_lists_is_resumed_by_its_own_files_or_the_same_lists(tmp_path: Path) -> None:
    pairs = [("a dog", "ein Hund"), ("a cat", "eine Katze")] * 20
    sizes = {
        "model.d_model": 8,
        "model.num_heads": 2,
        "model.d_ff": 8,
        "data.cache_dir": str(tmp_path / "cache"),
    }
    more: dict[str, Any] = {"vocab_size": 40, "tokens": 200, "processes": 1, "decode_sentences": 3}
    train(pairs=pairs, output=tmp_path / "run", preset="tiny", settings=sizes, max_steps=1, **more)
    again = train(output=tmp_path / "run", resume=True, max_steps=2)
    assert again.end.step == 2
    src, tgt = zip(*pairs, strict=True)
    assert train(src=src, tgt=tgt, output=tmp_path / "run", resume=True, max_steps=3).end.step == 3
    with pytest.raises(CheckpointError, match="other data"):
        train(pairs=pairs[:30], output=tmp_path / "run", resume=True, max_steps=4)


def test_new_settings_of_a_finished_run_are_named(tmp_path: Path) -> None:
    pairs = [("a dog", "ein Hund"), ("a cat", "eine Katze")] * 20
    sizes = {
        "model.d_model": 8,
        "model.num_heads": 2,
        "model.d_ff": 8,
        "data.cache_dir": str(tmp_path / "cache"),
    }
    more: dict[str, Any] = {"vocab_size": 40, "tokens": 200, "processes": 1, "decode_sentences": 3}
    train(pairs=pairs, output=tmp_path / "run", preset="tiny", settings=sizes, max_steps=1, **more)

    def warnings(**changes: Any) -> list[str]:  # noqa: ANN401
        events: list[Event] = []
        train(output=tmp_path / "run", resume=True, callbacks=[events.append], **changes)
        return [
            event.message
            for event in events
            if isinstance(event, WarningEvent) and "already" in event.message
        ]

    assert warnings() == []
    [message] = warnings(settings={"schedule.scale": 2.0})
    assert "schedule.scale=2.0" in message
    assert "train.max_steps" in message
    assert warnings(settings={"schedule.scale": 3.0}, max_steps=2) == []


def test_a_tag_that_the_model_lacks_is_refused_before_anything_is_trained(tmp_path: Path) -> None:
    corpora = [{"pairs": [("a", "b")], "tag": ">>de<<", "src_tag": ">>en<<"}]
    events: list[Event] = []
    with pytest.raises(ConfigError, match="src_tag"):
        train(corpora=corpora, output=tmp_path / "run", preset="tiny", callbacks=[events.append])
    assert not any("vocabulary" in str(event) for event in events)
