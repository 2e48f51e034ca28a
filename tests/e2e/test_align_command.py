"""heedful align: Pharaoh lines from files and stdin."""

import gzip
from pathlib import Path

import pytest
from command_line import Outcome, heedful
from tiny_bundle import PAIRS, save_memorised

from heedful.decoding.alignment import PENULTIMATE, AlignmentMethod
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.translator import Translator
from heedful.storage.bundle import load_bundle

pytestmark = pytest.mark.by_class

SOURCES, TARGETS = ([pair[i] for pair in PAIRS] for i in (0, 1))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("runs") / "demo" / "best").parent


def text(lines: list[str]) -> bytes:
    return "".join(line + "\n" for line in lines).encode()


def assert_one_clear_line(outcome: Outcome, code: int, *parts: str) -> None:
    assert (outcome.code, outcome.err.count("\n")) == (code, 1)
    assert outcome.err.startswith("error: ")
    for part in parts:
        assert part in outcome.err


def expected(run: Path, method: AlignmentMethod = PENULTIMATE, engine: EngineChoice = "auto") -> str:
    """Align with the stored bundle: the model in memory may be packed for a level of another test."""
    sources, targets = zip(*PAIRS, strict=True)
    translator = Translator(load_bundle(run / "best"), engine=engine)
    return "".join(f"{each}\n" for each in translator.align(sources, targets, method=method))


def test_files_and_stdin_are_aligned_line_by_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t.gz").write_bytes(gzip.compress(text(TARGETS)))
    files = ["align", run, "--src", tmp_path / "s", "--tgt"]
    assert heedful(*files, tmp_path / "t.gz") == Outcome(0, expected(run), "")
    assert heedful(*files, "-", stdin=text(TARGETS)) == Outcome(0, expected(run), "")
    chosen = AlignmentMethod(layer=2, shift=True)
    outcome = heedful(*files, tmp_path / "t.gz", "--layer", 2, "--shift", "--output", tmp_path / "out")
    assert outcome == Outcome(0, "", "")
    assert (tmp_path / "out").read_text(encoding="utf-8") == expected(run, chosen) != expected(run)


def test_the_computation_is_chosen_as_for_a_translation(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    files = ["align", run, "--src", tmp_path / "s", "--tgt", "-"]
    chosen = heedful(*files, "--device", "cpu", "--engine", "torch", "--threads", 1, stdin=text(TARGETS))
    assert chosen == Outcome(0, expected(run, engine="torch"), "")
    for option, value in (("device", "abacus"), ("precision", "int3"), ("engine", "steam")):
        outcome = heedful(*files, f"--{option}", value, stdin=text(TARGETS))
        assert_one_clear_line(outcome, 1, f"{option}={value!r}: must be one of")


def test_the_models_own_translations_can_be_aligned(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    translated = heedful("translate", run, stdin=text(SOURCES)).out.encode()
    assert heedful("align", run, "--src", tmp_path / "s", "--tgt", "-", stdin=translated).out == expected(run)


def test_empty_lines_stay_empty_lines(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text([SOURCES[0], "", SOURCES[1]]))
    (tmp_path / "t").write_bytes(text([TARGETS[0], "", ""]))
    outcome = heedful("align", run, "--src", tmp_path / "s", "--tgt", tmp_path / "t")
    assert outcome == Outcome(0, expected(run).split("\n")[0] + "\n\n\n", "")


def test_what_cannot_be_aligned_is_one_clear_line(run: Path, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(text(SOURCES))
    (tmp_path / "t").write_bytes(text(TARGETS[:-1]))
    files = ["align", run, "--src", tmp_path / "s", "--tgt"]
    unequal = heedful(*files, tmp_path / "t", "--output", tmp_path / "out")
    assert_one_clear_line(unequal, 1, "5 lines", "6", "first unmatched line: 6")
    assert not (tmp_path / "out").exists()
    streamed = heedful(*files, "-", stdin=text(TARGETS[:-1]))
    assert_one_clear_line(streamed, 1, "stdin: 5 lines", "first unmatched line: 6")
    assert_one_clear_line(heedful(*files, "-", "--layer", 3), 1, "layer 3", "layers 1 to 2")
    assert_one_clear_line(heedful(*files, tmp_path / "none"), 1, "none: cannot be read")
    assert_one_clear_line(heedful(*files, "-", "--output", tmp_path / "s"), 1, "is the input too")
    assert_one_clear_line(heedful("align", run, "--src", "-", "--tgt", "-"), 2, "cannot both be stdin")
