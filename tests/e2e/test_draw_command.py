"""heedful draw: a picture of each kind from the command line."""

import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from command_line import Outcome, assert_one_clear_line, heedful
from tiny_bundle import PAIRS

from heedful.decoding.translator import Translator
from heedful.errors import install_hint


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The options of the pairs; the directory is the current one."""
    monkeypatch.chdir(tmp_path)
    for name, i in (("s", 0), ("t", 1)):
        Path(name).write_text("".join(pair[i] + "\n" for pair in PAIRS), encoding="utf-8")
    return ["--src", "s", "--tgt", "t"]


def texts(path: str) -> set[str]:
    return {
        "".join(each.itertext()).strip() for each in ET.parse(path).iter("{http://www.w3.org/2000/svg}text")
    }


@pytest.mark.slow
@pytest.mark.usefixtures("text")
def test_parts_of_the_paper_need_nothing_but_their_name() -> None:
    for name in ("positions", "masks", "schedule", "smoothing"):
        assert heedful("draw", name) == Outcome(0, f"{name}.png\n", "")
        assert Path(f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert heedful("draw", name, "-o", f"new/{name}.svg").code == 0
        assert len(texts(f"new/{name}.svg")) > 5


@pytest.mark.slow
@pytest.mark.usefixtures("text")
def test_settings_are_those_of_training() -> None:
    chosen = ["--set", "schedule.name=linear", "--set", "schedule.peak=3e-3", "--set", "train.max_steps=900"]
    assert heedful("draw", "schedule", "--preset", "tiny", "-o", "a.svg", *chosen).code == 0
    assert {"Learning rate, schedule linear", "peak 0.003"} <= texts("a.svg")
    assert heedful("draw", "smoothing", "-o", "a.svg", "--set", "train.label_smoothing=0.3").code == 0
    assert "Label smoothing, ε = 0.3" in texts("a.svg")
    assert heedful("draw", "positions", "-o", "a.svg", "--set", "model.d_model=64").code == 0
    assert "Positional encoding, sinusoidal, d_model 64" in texts("a.svg")
    learned = heedful("draw", "positions", "--preset", "base-e-learned")
    assert_one_clear_line(learned, 1, "only sinusoids can be drawn")
    wrong = heedful("draw", "schedule", "--set", "schedule.nam=linear")
    assert_one_clear_line(wrong, 2, "did you mean")


def test_lengths_are_counted_in_words(text: list[object]) -> None:
    assert heedful("draw", "lengths", *text, "-o", "a.svg").out == "a.svg\n"
    assert {
        "Lengths of 6 sentence pairs, in words",
        f"source: mean {sum(len(src.split()) for src, _ in PAIRS) / 6:.1f}, longest 6",
    } <= texts("a.svg")
    Path("t").write_text("one\n", encoding="utf-8")
    assert_one_clear_line(heedful("draw", "lengths", *text), 1, "first unmatched line: 2")
    assert_one_clear_line(heedful("draw", "lengths", *text, "-o", "s"), 1, "is the input too")


def test_heads_are_drawn_and_listed(run: Path, text: list[object]) -> None:
    outcome = heedful("draw", "heads", run, *text)
    assert (outcome.code, outcome.err) == (0, "wrote heads.png\n")
    rows = [line.split("\t") for line in outcome.out.splitlines()]
    heads = [
        [kind, str(layer), str(head)]
        for kind in ("encoder", "decoder", "cross")
        for layer in (1, 2)
        for head in range(1, 5)
    ]
    assert [row[:3] for row in rows] == heads
    increases = [float(row[3]) for row in rows]
    assert max(increases) > 0.01  # the model knows the sentences by heart, and needs its heads for it
    assert heedful("draw", "heads", run, *text, "--device", "cpu") == outcome
    nowhere = heedful("draw", "heads", run, *text, "--device", "abacus")
    assert_one_clear_line(nowhere, 2, "--device", "abacus")
    fewer = heedful("draw", "heads", run, *text, "--pairs", 1)
    assert [float(line.split("\t")[3]) for line in fewer.out.splitlines()] != increases


def test_a_picture_that_cannot_be_is_refused_before_the_work(
    run: Path, text: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def loaded(*_: object, **__: object) -> None:
        raise AssertionError("a model was loaded before the output was looked at")

    monkeypatch.setattr(Translator, "__init__", loaded)
    commands: list[list[object]] = [["draw", "heads", run, *text], ["draw", "masks"], ["attention", run, "a"]]
    for command in commands:
        assert_one_clear_line(heedful(*command, "-o", "a.pdf"), 1, "a.pdf", "end the name in .png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for command in [*commands, ["plot", run]]:
        outcome = heedful(*command, "-o", "a.svg")
        assert_one_clear_line(outcome, 1, f"plotting needs matplotlib: {install_hint('plot')}")
        assert not Path("a.svg").exists()
