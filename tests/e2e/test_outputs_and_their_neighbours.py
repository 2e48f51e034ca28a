"""What an output must not touch: files beside it, files of the model; and streams that are closed."""

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised

SOURCES = "".join(f"{source}\n" for source, _ in PAIRS)
TARGETS = "".join(f"{target}\n" for _, target in PAIRS)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return save_memorised(tmp_path / "run" / "best").parent


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "source.en"
    path.write_text(SOURCES, encoding="utf-8")
    return path


def test_a_file_that_is_called_unfinished_is_left_alone_though_it_be_the_input(
    run: Path, tmp_path: Path
) -> None:
    mine = tmp_path / "out.unfinished"
    mine.write_text(SOURCES, encoding="utf-8")
    outcome = heedful("translate", run, "-i", mine, "-o", tmp_path / "out")
    assert outcome.code == 0, outcome.err
    assert mine.read_text(encoding="utf-8") == SOURCES
    assert (tmp_path / "out").read_text(encoding="utf-8") == TARGETS
    assert sorted(each.name for each in tmp_path.iterdir()) == ["out", "out.unfinished", "run"]


def test_what_was_rescued_of_an_earlier_command_is_left_alone(run: Path, source: Path) -> None:
    rescued, bad = source.with_name("out.unfinished"), source.with_name("bad.en")
    rescued.write_text("ten hours of work\n", encoding="utf-8")
    bad.write_bytes(SOURCES.encode() + b"\xff\n")
    outcome = heedful("translate", run, "-i", bad, "-o", source.with_name("out"))
    assert outcome.code == 1
    assert "out.unfinished-2)" in outcome.err
    assert rescued.read_text(encoding="utf-8") == "ten hours of work\n"
    assert source.with_name("out.unfinished-2").read_text(encoding="utf-8") == TARGETS


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("translate", "best/model.safetensors"),
        ("evaluate", "best/new"),
        ("attention", "config.toml"),
        ("translate", "log.jsonl"),
    ],
)
def test_no_output_takes_the_place_of_a_file_of_the_model(
    run: Path, source: Path, tmp_path: Path, verb: str, name: str
) -> None:
    (tmp_path / "ref").write_text(TARGETS, encoding="utf-8")
    before = (run / "best" / "model.safetensors").read_bytes()
    given = {
        "translate": ["-i", source],
        "evaluate": ["--src", source, "--ref", tmp_path / "ref"],
        "attention": ["the cat sleeps ."],
    }[verb]
    outcome = heedful(verb, run, *given, "-o", run / name)
    assert outcome.code == 1
    assert f"{run / name}: is a file of the model {run}; write to another file" in outcome.err
    assert (run / "best" / "model.safetensors").read_bytes() == before


def test_other_files_may_be_written_beside_a_model(run: Path, source: Path) -> None:
    assert heedful("translate", run, "-i", source, "-o", run / "mine.de").code == 0
    assert (run / "mine.de").read_text(encoding="utf-8") == TARGETS


def test_a_loop_of_links_is_replaced_by_the_output(run: Path, source: Path, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    outcome = heedful("translate", run, "-i", source, "-o", tmp_path / "a")
    assert outcome.code == 0, outcome.err
    assert (tmp_path / "a").read_text(encoding="utf-8") == TARGETS


def test_directories_with_names_like_those_of_unfinished_ones_are_left_alone(
    run: Path, tmp_path: Path
) -> None:
    for name in (".new.old", ".new.writing"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis").write_text("mine")
    outcome = heedful("export", run, "--to", "marian", "-o", tmp_path / "new")
    assert outcome.code == 0, outcome.err
    for name in (".new.old", ".new.writing"):
        assert (tmp_path / name / "thesis").read_text() == "mine"


def test_a_link_is_no_place_for_a_directory(run: Path, tmp_path: Path) -> None:
    (tmp_path / "new").symlink_to(tmp_path / "nowhere")
    outcome = heedful("export", run, "--to", "marian", "-o", tmp_path / "new")
    assert outcome.code == 1
    assert outcome.err == f"error: {tmp_path / 'new'}: already exists; give another --output\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--length-penalty", "1e300"], "--length-penalty"),
        (["--length-penalty", "inf"], "--length-penalty"),
        (["--beam-size", 100_000], "--beam-size"),
        (["--n-best", 2000], "n_best=2000"),
        (["--engine", "torch", "--precision", "int8"], "error: engine='torch', precision='int8'"),
        (["--n-best", 10**6, "--sample"], "n_best=1000000: must be at most 100,000"),
        (["--threads", 99999999999999999999], "threads=99999999999999999999: this machine has"),
        (["--threads", 3000], "threads=3000: this machine has"),
    ],
)
def test_numbers_beyond_all_measure_are_one_line(
    run: Path, source: Path, options: list[object], message: str
) -> None:
    outcome = heedful("translate", run, "-i", source, *options)
    assert outcome.code in (1, 2)
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.representatives(1)
@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are closed in the POSIX way")
@pytest.mark.parametrize(
    ("closed", "code", "message"),
    [
        ("<&-", 1, "error: stdin: is closed; give a file\n"),
        (f">&- <{os.devnull}", 1, "error: stdout: is closed; give a file with --output\n"),
    ],
)
def test_a_closed_stream_is_one_line(run: Path, closed: str, code: int, message: str) -> None:
    command = f"{sys.executable} -m heedful translate {run} {closed}"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, message)


@pytest.mark.skipif(sys.platform == "win32", reason="descriptors are closed in the POSIX way")
def test_without_stderr_the_work_is_done(run: Path, source: Path) -> None:
    command = f"{sys.executable} -m heedful translate {run} -i {source} 2>&-"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, TARGETS)


def test_a_gzip_file_is_read_whatever_its_name_and_another_is_named(run: Path, source: Path) -> None:
    packed, plain = source.with_name("packed.txt"), source.with_name("plain.gz")
    packed.write_bytes(gzip.compress(SOURCES.encode()))
    plain.write_text(SOURCES, encoding="utf-8")
    assert heedful("translate", run, "-i", packed).out == TARGETS
    outcome = heedful("translate", run, "-i", plain)
    assert outcome.code == 1
    assert (
        outcome.err
        == f"error: {plain}: not a gzip file, although its name ends in .gz; rename or compress it\n"
    )
