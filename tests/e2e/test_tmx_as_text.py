"""TMX wherever parallel text is taken."""

import json
from pathlib import Path

import pytest
from command_line import heedful, text
from tiny_bundle import PAIRS, SOURCES, TARGETS

from heedful import Translator, evaluate
from heedful.documents.memory import TmxWriter

pytestmark = pytest.mark.by_class


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    """A memory with the pairs, which says it is translated from English."""
    path = tmp_path / "pairs.tmx"
    with path.open("wb") as stream:
        writer = TmxWriter(stream, src="en-GB", tgt="de-DE")
        for source, target in PAIRS:
            writer.write(source, target)
        writer.finish()
    return path


@pytest.fixture
def lines(tmp_path: Path) -> tuple[Path, Path]:
    src, tgt = tmp_path / "s.en", tmp_path / "t.de"
    src.write_bytes(text(SOURCES))
    tgt.write_bytes(text(TARGETS))
    return src, tgt


@pytest.mark.parametrize("verb", ["score", "align"])
def test_pairs_of_a_memory_are_those_of_lines(
    run: Path, memory: Path, lines: tuple[Path, Path], verb: str
) -> None:
    of_lines = heedful(verb, run, "--src", lines[0], "--tgt", lines[1])
    of_memory = heedful(verb, run, "--src", memory, "--tgt", memory)
    assert of_memory.code == 0, of_memory.err
    assert of_memory.out == of_lines.out
    assert of_memory.out.count("\n") == len(PAIRS)


def test_a_memory_is_a_test_set(run: Path, memory: Path, lines: tuple[Path, Path]) -> None:
    for system in ([run], ["--hyp", lines[1]]):
        outcome = heedful(
            "evaluate", *system, "--src", memory, "--ref", memory, "--metric", "exact", "--json"
        )
        assert outcome.code == 0, outcome.err
        assert json.loads(outcome.out)["exact"] == 100


def test_a_memory_is_a_test_set_in_python(run: Path, memory: Path) -> None:
    translator = Translator.load(run)
    assert (
        evaluate(translator, src=memory, ref=str(memory), metric="exact", resamples=0).scores["exact"] == 100
    )


def test_a_memory_is_inspected_and_cleaned(memory: Path, tmp_path: Path) -> None:
    outcome = heedful("inspect", memory, "--fix", tmp_path / "clean")
    assert outcome.code == 0, outcome.err
    assert f"pairs     {len(PAIRS)}" in outcome.out
    written = (tmp_path / "clean" / "train.tsv").read_text(encoding="utf-8")
    assert written == "".join(f"{source}\t{target}\n" for source, target in PAIRS)


TINY = ("--preset", "tiny", "--set", "tokenizer.vocab_size=60", "--set", "train.max_steps=1")


def test_a_memory_is_trained_on_and_prepared(memory: Path, tmp_path: Path, run: Path) -> None:
    for name, files in (("one", ["--pairs", memory]), ("both", ["--src", memory, "--tgt", memory])):
        outcome = heedful("train", *files, "--output", tmp_path / name, *TINY, "--set", "train.device=cpu")
        assert f"{len(PAIRS)} pairs in {memory}; 0 left out" in outcome.err
    outcome = heedful(
        "prepare", "--pairs", memory, "-o", tmp_path / "ids", "--set", f"tokenizer.bundle={run / 'best'}"
    )
    assert outcome.code == 0, outcome.err
    assert outcome.err.endswith("shards prepared: 1\n")


@pytest.mark.parametrize("verb", ["score", "align", "train"])
def test_a_memory_is_never_lines(
    run: Path, memory: Path, lines: tuple[Path, Path], tmp_path: Path, verb: str
) -> None:
    model = ["--output", tmp_path / "new", *TINY] if verb == "train" else [run]
    outcome = heedful(verb, *model, "--src", memory, "--tgt", lines[1])
    assert outcome.code != 0
    assert "is TMX, not lines of text; give it as source and as target both, or as --pairs" in outcome.err


def test_a_student_learns_from_the_sources_of_a_memory(run: Path, memory: Path, tmp_path: Path) -> None:
    student = ["--output", tmp_path / "student", *TINY, "--set", "train.device=cpu"]
    settings = ["--set", "data.allow_overlap=true", "--set", "valid.decode_sentences=2", "--threads", "1"]
    outcome = heedful("distill", run, "--src", memory, "--tgt", memory, *student, *settings)
    assert outcome.code == 0, outcome.err
    made = tmp_path / "student" / "synthetic"
    assert (made / "sources.txt").read_text(encoding="utf-8").splitlines() == SOURCES
    assert (made / "translated").read_text(encoding="utf-8").splitlines() == TARGETS
