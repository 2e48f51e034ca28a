"""Who may write into a run directory, and when."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from small_tokenizers import tagged_pair

from heedful.errors import RunError
from heedful.settings.presets import preset
from heedful.workflows.run_directory import RunDirectory

HOLD = """
import sys
from pathlib import Path
from heedful.workflows.run_directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked(resume=True, overwrite=False):
    print("locked", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    run.write_config(preset("tiny"))
    return run


@contextmanager
def another_process_in(run: RunDirectory) -> "Iterator[subprocess.Popen[bytes]]":
    command = [sys.executable, "-c", HOLD, str(run.path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"locked\n"
        yield process


def enter(run: RunDirectory) -> None:
    with run.locked(resume=True, overwrite=False):
        pass


def test_only_one_process_trains_in_a_directory(run: RunDirectory) -> None:
    run.check(resume=True, overwrite=False)
    with another_process_in(run):
        for attempt in (enter, lambda run: run.check(resume=True, overwrite=False)):
            with pytest.raises(RunError, match="another process is training there") as caught:
                attempt(run)
            assert str(caught.value).startswith(str(run.path))
            assert "\n" not in str(caught.value)
    enter(run)
    run.check(resume=True, overwrite=False)


def test_a_process_that_was_killed_locks_nobody_out(run: RunDirectory) -> None:
    with another_process_in(run) as process:
        process.kill()
        process.wait()
        enter(run)


def test_a_run_that_began_since_the_check_is_not_replaced(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "new")
    run.check(resume=False, overwrite=False)
    assert not run.path.exists()
    run.path.mkdir()
    run.write_config(preset("tiny"))
    with pytest.raises(RunError, match="already has a run"), run.locked(resume=False, overwrite=False):
        pytest.fail("the directory was given")


def test_a_directory_that_cannot_be_locked_is_refused(run: RunDirectory) -> None:
    (run.path / ".lock").mkdir()
    with pytest.raises(RunError, match=r"\.lock: cannot be locked"):
        enter(run)


def begin(run: RunDirectory, *, overwrite: bool = False) -> None:
    """What `train` does with a directory before its first step."""
    run.check(resume=False, overwrite=overwrite)
    with run.locked(resume=False, overwrite=overwrite):
        run.start(preset("tiny"), tagged_pair())


FOREIGN = [
    "checkpoints/of-another-program.pt",
    "checkpoints/step-5/notes.txt",
    "tokenizer/vocab.json",
    "best/photo.png",
    "last/holiday/photo.png",
    "log.jsonl",
    "skipped.tsv",
    "notes.txt",
]


@pytest.mark.parametrize("name", FOREIGN)
def test_a_new_run_takes_no_directory_that_holds_other_files(tmp_path: Path, name: str) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=r"not empty .*--overwrite") as caught:
        begin(RunDirectory(tmp_path / "run"))
    assert "\n" not in str(caught.value)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", FOREIGN)
def test_overwriting_a_run_removes_nothing_else(tmp_path: Path, name: str) -> None:
    run = RunDirectory(tmp_path / "run")
    begin(run)
    file = run.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine", encoding="utf-8")
    if name == "notes.txt":  # beside what a run writes
        begin(run, overwrite=True)
    else:
        with pytest.raises(RunError, match="not written by a run") as caught:
            begin(run, overwrite=True)
        assert str(file.parent if name.startswith("last") else file) in str(caught.value)
        assert run.config_file.exists()
    assert file.read_text(encoding="utf-8") == "mine"


def test_a_link_that_stands_in_the_way_is_neither_followed_nor_removed(tmp_path: Path) -> None:
    run, elsewhere = RunDirectory(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.safetensors").write_text("mine", encoding="utf-8")
    run.path.mkdir()
    (run.path / "best").symlink_to(elsewhere)
    for overwrite in (False, True):
        with pytest.raises(RunError):
            begin(run, overwrite=overwrite)
    assert (elsewhere / "model.safetensors").exists()


def test_a_run_that_was_ended_while_it_began_is_begun_again(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    begin(run)
    run.config_file.unlink()  # the last that is written
    begin(run)
    assert run.config_file.exists()


def test_weights_without_their_settings_are_not_taken_for_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    begin(run)
    run.config_file.unlink()
    (run.checkpoints / "step-5").mkdir(parents=True)
    (run.checkpoints / "step-5" / "model.safetensors").write_text("weights", encoding="utf-8")
    with pytest.raises(RunError, match="not empty"):
        begin(run)
    begin(run, overwrite=True)
    assert not run.checkpoints.exists()


def test_what_the_caller_put_beside_a_run_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run" / "data").mkdir(parents=True)
    begin(RunDirectory(tmp_path / "run", beside=("data",)))
