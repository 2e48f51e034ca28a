"""heedful draw heads, and pictures that cannot be written."""

import sys
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful
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
    commands: list[list[object]] = [["draw", "heads", run, *text], ["attention", run, "a"]]
    for command in commands:
        assert_one_clear_line(heedful(*command, "-o", "a.pdf"), 1, "a.pdf", "end the name in .png")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    for command in [*commands, ["plot", run]]:
        outcome = heedful(*command, "-o", "a.svg")
        assert_one_clear_line(outcome, 1, f"plotting needs matplotlib: {install_hint('plot')}")
        assert not Path("a.svg").exists()
