"""Who may write into a run directory, and when."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import Mock

import pytest
from small_tokenizers import tagged_pair

from heedful.errors import RunError
from heedful.runtime.durable import new_directory
from heedful.settings.loading import load_config
from heedful.settings.presets import preset
from heedful.tasks.directory import RunDirectory

HOLD = """
import sys
from pathlib import Path
from heedful.tasks.directory import RunDirectory
with RunDirectory(Path(sys.argv[1])).locked(resume=True):
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
    with run.locked(resume=True):
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
    with pytest.raises(RunError, match="already exists, with a run"), run.locked(resume=False):
        pytest.fail("the directory was given")


def test_whatever_is_there_is_refused_in_the_same_words(tmp_path: Path) -> None:
    """As `new_directory` does for other commands: that it exists, and what to give."""
    trained, other, clean = (tmp_path / name for name in ("trained", "other", "clean"))
    for directory in (trained, other, clean):
        directory.mkdir()
    RunDirectory(trained).write_config(preset("tiny"))
    (other / "notes").touch()
    for path in (trained, other):
        with pytest.raises(RunError) as caught:
            RunDirectory(path).check(resume=False, overwrite=False)
        message = str(caught.value)
        assert message.startswith(f"{path}: already exists, with ")
        assert "; give another --output, " in message
        assert "--overwrite to rename this one" in message
        assert ("`heedful train --resume` to continue it" in message) == (path == trained)
    with pytest.raises(RunError, match="clean: already exists; give another --output"), new_directory(clean):
        pytest.fail("the directory was given")


def test_a_new_directory_that_cannot_be_written_is_the_same_error_for_every_command(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match="out: cannot be written"), new_directory(tmp_path / "file" / "out"):
        pytest.fail("the directory was given")


def test_a_directory_that_cannot_be_locked_is_refused(run: RunDirectory) -> None:
    (run.path / ".lock").mkdir()
    with pytest.raises(RunError, match=r"\.lock: cannot be locked"):
        enter(run)


def begin(run: RunDirectory, *, overwrite: bool = False) -> Path | None:
    """What `train` does with a directory before its first step."""
    run.check(resume=False, overwrite=overwrite)
    old = run.set_aside() if overwrite else None
    with run.locked(resume=False):
        run.start(preset("tiny"), tagged_pair())
    return old


FOREIGN = [
    "checkpoints/step-5/notes.txt",
    "tokenizer/vocab.json",
    "best/photo.png",
    "log.jsonl",
    "notes.txt",
    ".config.toml.heedful-writing",
]


def written(folder: Path) -> dict[str, bytes]:
    return {str(each.relative_to(folder)): each.read_bytes() for each in folder.rglob("*") if each.is_file()}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_new_run_takes_no_directory_that_holds_other_files(tmp_path: Path, name: str) -> None:
    file = tmp_path / "run" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(RunError, match=r"already exists, with .*--overwrite") as caught:
        begin(RunDirectory(tmp_path / "run"))
    assert "\n" not in str(caught.value)
    assert file.read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("name", FOREIGN)
def test_overwriting_renames_what_is_there_and_removes_nothing(tmp_path: Path, name: str) -> None:
    run = RunDirectory(tmp_path / "run")
    begin(run)
    file = run.path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("mine", encoding="utf-8")
    before = written(run.path)
    for number in (1, 2):
        assert begin(run, overwrite=True) == tmp_path / f"run.old-{number}"
    assert written(tmp_path / "run.old-1") == before
    assert not file.exists() or name.startswith("tokenizer")
    assert run.config_file.exists()


@pytest.mark.parametrize("there", [None, ".lock"])
def test_overwriting_nothing_renames_nothing(tmp_path: Path, there: str | None) -> None:
    if there:
        (tmp_path / "run").mkdir()
        (tmp_path / "run" / there).touch()
    assert begin(RunDirectory(tmp_path / "run"), overwrite=True) is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_directory_behind_a_link_is_renamed_beside_itself(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    begin(RunDirectory(disk / "run"))
    (tmp_path / "run").symlink_to(disk / "run")
    assert begin(RunDirectory(tmp_path / "run"), overwrite=True) == disk / "run.old-1"
    assert (tmp_path / "run").is_symlink()
    assert (disk / "run" / "config.toml").exists()


def test_a_run_in_which_another_process_trains_is_not_renamed(run: RunDirectory) -> None:
    with another_process_in(run), pytest.raises(RunError, match="another process is training there"):
        run.set_aside()
    assert run.config_file.exists()


def test_the_current_directory_is_not_renamed(run: RunDirectory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(run.path)
    for path in (run.path, Path()):
        with pytest.raises(RunError, match="is the current directory"):
            RunDirectory(path).set_aside()
    assert run.config_file.exists()


def test_a_link_that_stands_in_the_way_is_neither_followed_nor_removed(tmp_path: Path) -> None:
    run, elsewhere = RunDirectory(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "model.safetensors").write_text("mine", encoding="utf-8")
    run.path.mkdir()
    (run.path / "best").symlink_to(elsewhere)
    with pytest.raises(RunError):
        begin(run)
    assert begin(run, overwrite=True) == tmp_path / "run.old-1"
    assert (tmp_path / "run.old-1" / "best").is_symlink()
    assert (elsewhere / "model.safetensors").exists()


def test_a_run_that_was_ended_while_it_began_is_begun_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = RunDirectory(tmp_path / "run")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RunDirectory, "write_config", Mock(side_effect=KeyboardInterrupt))
        begin(run)  # ended before the last that is written
    begin(run)
    assert {path.name for path in run.path.iterdir()} == {".lock", "config.toml", "tokenizer"}


def test_weights_without_their_settings_are_not_taken_for_nothing(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "run")
    begin(run)
    run.config_file.unlink()
    (run.path / "checkpoints" / "step-5").mkdir(parents=True)
    (run.path / "checkpoints" / "step-5" / "model.safetensors").write_text("weights", encoding="utf-8")
    with pytest.raises(RunError, match="already exists, with"):
        begin(run)
    old = begin(run, overwrite=True)
    assert not (run.path / "checkpoints").exists()
    assert old is not None
    assert (old / "checkpoints" / "step-5" / "model.safetensors").exists()


def test_what_the_caller_put_beside_a_run_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / "run" / "data").mkdir(parents=True)
    begin(RunDirectory(tmp_path / "run", extra_files=("data",)))


def test_a_directory_that_the_system_does_not_rename_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("kept")
    busy = OSError(errno.EBUSY, "device or resource busy")  # as of a mount point
    monkeypatch.setattr(Path, "rename", Mock(side_effect=busy))
    with pytest.raises(RunError, match=r"run: cannot be renamed.*busy.*give another --output"):
        RunDirectory(tmp_path / "run").set_aside()
    assert (tmp_path / "run" / "mine").read_text() == "kept"


def test_the_commands_of_a_run_stand_above_its_configuration(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path)
    assert run.commands() == []
    commands = ["heedful train --src a", "heedful train --resume -o $'two\\x0alines'"]
    run.write_config(preset("tiny"), commands)
    assert run.commands() == commands
    assert load_config(run.config_file) == preset("tiny")
    run.config_file.write_text("# a note of the user\n" + run.config_file.read_text(encoding="utf-8"))
    assert run.commands() == commands
    run.write_config(preset("tiny"))
    assert run.commands() == []
