"""Which files a command may write, and how: whole or not at all, never over what it reads."""

import errno
import gzip
import os
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing import get_context
from pathlib import Path
from threading import Thread

import pytest
from tiny_bundle import save_memorised

from heedful.errors import CorpusError, InputError, OptionError, RunError
from heedful.runtime.durable import (
    atomic_output,
    is_replaceable,
    new_directory,
    new_file_beside,
    write_atomically,
)
from heedful.tasks.output_checks import check_output, check_outputs_differ


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory: an input `s` with a link and a hard link to it, a closed folder, a run."""
    monkeypatch.chdir(tmp_path)
    Path("s").write_bytes(b"source\n")
    Path("link").symlink_to("s")
    Path("twin").hardlink_to("s")
    Path("closed").mkdir(mode=0o500)
    best = save_memorised(tmp_path / "run" / "best")
    (best.parent / "config.toml").write_bytes((best / "config.json").read_bytes())
    return tmp_path


@pytest.fixture
def descriptors(folder: Path) -> Iterator[dict[str, int]]:
    """Descriptors as the shell opens them: `s` for reading, `s` for appending, another for appending."""
    modes = {"<s": ("s", os.O_RDONLY), ">>s": ("s", os.O_APPEND | os.O_WRONLY)}
    modes |= {">>out": ("out", os.O_CREAT | os.O_APPEND | os.O_WRONLY)}
    opened = {name: os.open(*how) for name, how in modes.items()}
    yield opened
    for number in opened.values():
        os.close(number)


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        *[(name, "is the input too") for name in ("s", "./s", "link", "twin")],
        ("closed", "is a directory"),
        ("none/out", "there is no directory"),
        ("s/out", "there is no directory"),
        ("closed/out", "permission denied"),
        ("run/best/model.safetensors", "is a file of the model"),
        ("run/best/new", "is a file of the model"),
        ("run/config.toml", "is a file of the model"),
        ("run/log.jsonl", "is a file of the model"),
        ("/dev/fd/99", "bad file descriptor"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused(folder: Path, output: str, reason: str) -> None:
    if output == "closed/out" and not os.geteuid():
        pytest.skip("root may write everywhere")
    with pytest.raises(InputError, match=reason) as refusal:
        check_output(Path(output), inputs=[Path("s"), None], models=[Path("run")])
    assert str(refusal.value).startswith(f"{Path(output)}: ")


def test_files_that_can_be_written_are_accepted(folder: Path) -> None:
    Path("old").touch()
    for output in ("old", "new", "run/mine.de", os.devnull, "-"):
        check_output(Path(output), inputs=[Path("s")], models=[Path("run")])
    check_output(Path("none/deep/out"), makes_folder=True)


def test_the_input_is_refused_as_an_output_if_the_shell_opened_it(descriptors: dict[str, int]) -> None:
    read, appended = (Path(f"/dev/fd/{descriptors[name]}") for name in ("<s", ">>s"))
    for source, output in ((read, "s"), (read, "link"), (Path("s"), appended), (read, appended)):
        with pytest.raises(InputError, match="is the input too"):
            check_output(Path(output), inputs=[source])
    with pytest.raises(InputError, match="cannot be written"):
        check_output(read)


def test_an_open_descriptor_is_appended_to(descriptors: dict[str, int]) -> None:
    path = Path(f"/dev/fd/{descriptors['>>out']}")
    os.write(descriptors[">>out"], b"before\n")
    check_output(path, inputs=[Path("s")])
    assert not is_replaceable(path)
    with atomic_output(path) as stream:
        stream.write(b"text\n")
    os.write(descriptors[">>out"], b"after\n")
    assert Path("out").read_bytes() == b"before\ntext\nafter\n"


@pytest.mark.parametrize("other", ["out", "./out", "out.unfinished", "out.unfinished-2", "out.translations"])
def test_two_outputs_differ(folder: Path, other: str) -> None:
    with pytest.raises(OptionError, match="--output"):
        check_outputs_differ({"--output": Path("out"), "--to-tmx": Path(other)})
    check_outputs_differ({"--output": Path("out"), "--to-tmx": Path("out2"), "--report": None})


def test_a_file_is_replaced_whole_and_keeps_its_mode(folder: Path) -> None:
    Path("old").write_bytes(b"precious\n")
    Path("old").chmod(0o640)
    before = names()
    with pytest.raises(OSError, match="full"), atomic_output(Path("old")) as stream:
        stream.write(b"new")
        raise OSError("full")
    assert Path("old").read_bytes() == b"precious\n"
    write_atomically(Path("old"), "new")
    assert (Path("old").read_bytes(), Path("old").stat().st_mode & 0o777) == (b"new", 0o640)
    assert names() == before


def test_the_error_of_a_full_disk_names_the_file(folder: Path) -> None:
    before = names()
    for number in (errno.ENOSPC, errno.EFBIG):
        with pytest.raises(OSError, match="new"), atomic_output(Path("new")):
            raise OSError(number, "full")
    assert names() == before


def write_often(path: str, letter: str) -> None:
    """Write a file of one letter twenty times; it is refused while another process writes it."""
    written = 0
    while written < 20:
        with suppress(RunError):
            write_atomically(Path(path), letter * 100_000)
            written += 1


def test_processes_never_write_into_one_file(folder: Path) -> None:
    context = get_context("spawn")
    writers = [context.Process(target=write_often, args=("f", letter)) for letter in "ab"]
    for writer in writers:
        writer.start()
    seen = set[str]()
    while any(writer.is_alive() for writer in writers):
        if Path("f").exists():
            seen.add("".join(sorted(set(Path("f").read_text()))))
    assert [writer.exitcode for writer in writers] == [0, 0]
    assert seen <= {"a", "b"}
    assert [name for name in names() if name.startswith(".")] == []


def test_a_file_that_ends_in_lock_is_the_users(folder: Path) -> None:
    Path(".f.lock").write_bytes(b"precious\n")
    write_atomically(Path("f"), "new")
    assert Path(".f.lock").read_bytes() == b"precious\n"


def test_a_file_that_cannot_be_renamed_leaves_the_old_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("old").write_bytes(b"precious\n")

    def failing(self: Path, target: Path) -> object:
        raise OSError(28, "No space left on device", str(target))

    monkeypatch.setattr(Path, "replace", failing)
    with pytest.raises(OSError, match="old"):
        write_atomically(Path("old"), "new")
    assert Path("old").read_bytes() == b"precious\n"


@pytest.mark.parametrize("empty", [b"", gzip.compress(b"", mtime=0)])
def test_text_before_an_error_is_kept_beside_the_output(folder: Path, empty: bytes) -> None:
    for content, is_kept in ((b"text\n", True), (empty, False)):
        unfinished = new_file_beside(Path("out"))
        with (
            pytest.raises(CorpusError, match=r"out\.unfinished" if is_kept else "bad line$"),
            atomic_output(Path("out"), temporary=unfinished, keep=True) as stream,
        ):
            stream.write(content)
            raise CorpusError("bad line")
        assert unfinished.exists() == is_kept
        assert not Path("out").exists()


def test_an_earlier_unfinished_file_is_left_alone(folder: Path) -> None:
    Path("out.unfinished").write_bytes(b"ten hours of work\n")
    assert new_file_beside(Path("out")) == Path("out.unfinished-2")
    assert Path("out.unfinished").read_bytes() == b"ten hours of work\n"


def test_a_pipe_is_written_to(folder: Path) -> None:
    os.mkfifo("pipe")
    found: list[bytes] = []
    reader = Thread(target=lambda: found.append(Path("pipe").read_bytes()), daemon=True)
    reader.start()
    check_output(Path("pipe"))
    write_atomically(Path("pipe"), "text")
    reader.join(60)
    assert Path("pipe").is_fifo()
    assert found == [b"text"]


def test_a_new_directory_is_complete_or_absent(folder: Path) -> None:
    for name in (".new.old", ".new.writing"):
        Path(name).mkdir()
    before = names()
    with pytest.raises(ValueError, match="no"), new_directory(Path("new")):
        raise ValueError("no")
    assert names() == before
    with new_directory(Path("new")) as writing:
        (writing / "file").touch(0o600)
    assert names() == sorted([*before, "new"])
    Path("ordinary").touch()
    assert Path("new/file").stat().st_mode == Path("ordinary").stat().st_mode
    Path("dangling").symlink_to("nowhere")
    for name in ("new", "dangling", "s"):
        with pytest.raises(RunError, match=name), new_directory(Path(name)):
            pass
