"""The demo with a small book and a small model: what it leaves, and what it says first."""

import json
import sys
from pathlib import Path

import pytest
from command_line import heedful

from heedful.data.phrasebook import PhraseBook, phrase_book
from heedful.errors import RunError
from heedful.tasks import demo as module
from heedful.tasks.demo import demo
from heedful.training.events import EndEvent


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first pages of the book, and a model that is trained in a second."""
    model = {"d_model": 8, "num_heads": 2, "d_ff": 8, "num_encoder_layers": 1, "num_decoder_layers": 1}
    settings = {f"model.{key}": value for key, value in model.items()} | {
        "tokenizer.vocab_size": 300,
        "batch.tokens": 256,
        "decode.beam_size": 2,
        "decode.max_length": 5,
    }
    monkeypatch.setattr(module, "_SETTINGS", (*module._SETTINGS, *settings.items()))
    book = phrase_book()
    few = PhraseBook(book.train[:300], book.valid[:10], book.test[:10], book.unseen[:5])
    monkeypatch.setattr(module, "phrase_book", lambda: few)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_demo_leaves_text_a_model_scores_and_a_picture(tmp_path: Path) -> None:
    report = demo(tmp_path / "run", max_minutes=0.005)
    assert {path.name for path in (tmp_path / "run/data").iterdir()} == {
        f"{part}.{side}" for part in ("train", "valid", "test", "unseen") for side in ("en", "de")
    }
    assert len((tmp_path / "run/data/train.en").read_text(encoding="utf-8").splitlines()) == 300
    assert set(report.scores) == set(report.unseen) == {"bleu", "chrf", "exact"}
    assert len(report.examples) == 6
    assert (report.bundle / "model.safetensors").exists()
    assert report.picture == tmp_path / "run/attention.png"
    assert report.picture.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("steps", "advises"), [(900, False), (450, True), (0, True)])
def test_a_training_that_ends_early_names_the_options_of_the_demo(steps: int, *, advises: bool) -> None:
    end = EndEvent(steps, 90.0, "train.max_minutes", 0, 0, steps)
    assert ("--overwrite --max-minutes" in module._advice(end)) == advises


@pytest.mark.slow
def test_without_matplotlib_the_attention_is_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    report = demo(tmp_path / "run", max_minutes=0.005)
    assert report.picture == tmp_path / "run/attention.html"
    assert "<html" in report.picture.read_text(encoding="utf-8")
    assert not (tmp_path / "run/attention.png").exists()


def test_a_run_that_is_there_is_kept(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/config.toml").write_text("", encoding="utf-8")
    with pytest.raises(RunError, match="run"):
        demo(tmp_path / "run", max_minutes=0.005)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.toml"]


@pytest.mark.slow
def test_the_command_prints_the_report(tmp_path: Path) -> None:
    arguments = ("demo", "--output", tmp_path / "run", "--max-minutes", 0.01)
    outcome = heedful(*arguments, "--json")
    assert outcome.code == 0
    assert json.loads(outcome.out)["attention"] == str(tmp_path / "run/attention.png")
    again = heedful(*arguments, "--overwrite")
    assert f"attention: {tmp_path / 'run/attention.png'}" in again.out
