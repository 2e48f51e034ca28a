"""A full disk, a directory that may not be written, no memory, no reader: one line, and nothing is lost."""

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from faults import Ended, FaultServer, Strike
from struck_runs import SETTINGS, Whole, assert_the_same, assert_usable
from ten_pairs import as_options, write_pairs

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="uses what Linux has")

KIB, MIB = 1 << 10, 1 << 20


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer.started() as server:
        yield server


@pytest.fixture(scope="module")
def whole(server: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    folder = tmp_path_factory.mktemp("whole")
    arguments = ["train", *write_pairs(folder), *as_options(SETTINGS | {"train.processes": 1})]
    ended = server.run(*arguments, "--output", folder / "run", counted=True)
    assert ended.code == 0, ended.err
    return Whole(arguments, folder / "run", ended.counts)


def assert_one_line(ended: Ended, code: int, message: str) -> None:
    assert ended.code == code, ended.err
    *before, last = ended.err.splitlines()
    assert last.startswith("error: ")
    assert message in last
    assert not any(line.startswith("error: ") for line in before), ended.err
    assert "Traceback" not in ended.err
    assert ended.out == ""


def stop_in_the_middle(server: FaultServer, whole: Whole, run: Path) -> None:
    strike = Strike("step", whole.counts["step"] // 2, signal=signal.SIGTERM)
    ended = server.run(*whole.arguments, "--output", run, strikes=[strike])
    assert ended.code == 0, ended.err
    assert not (run / "last").exists()


def resume(server: FaultServer, whole: Whole, run: Path) -> None:
    begun = (run / "config.toml").exists()
    ended = server.run(*(["train", "--resume"] if begun else whole.arguments), "--output", run)
    assert ended.code == 0, ended.err
    assert_the_same(run, whole.path)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [6_000, 8_000, 20_000, 40_000])
def test_a_file_that_cannot_grow_is_one_line_and_the_run_goes_on_later(
    server: FaultServer, whole: Whole, tmp_path: Path, limit: int
) -> None:
    run = tmp_path / "run"
    ended = server.run(*whole.arguments, "--output", run, file_size=limit)
    assert_one_line(ended, 1, "")
    assert_usable(run)
    resume(server, whole, run)


@contextmanager
def small_disk(folder: Path, *, kib: int) -> Iterator[Callable[[str], None]]:
    """Mount a disk of a size; gives what mounts it again with other options."""
    folder.mkdir()

    def mount(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("nothing may be mounted here")

    mount(f"size={kib}k")
    try:
        yield lambda options: mount(f"remount,{options}")
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill_and_resume(server: FaultServer, whole: Whole, folder: Path, *, kib: int) -> str:
    """Train on a disk of a size; return the file or directory that found it full."""
    with small_disk(folder, kib=kib) as mount_again:
        run = folder / "run"
        ended = server.run(*whole.arguments, "--output", run)
        assert_one_line(ended, 1, str(run))
        said = ended.err.splitlines()[-1]
        assert "no space left on" in said.lower()
        assert_usable(run)
        again = server.run("train", "--resume", "--output", run)  # as full as before
        assert again.code in (1, 2)
        assert "Traceback" not in again.err
        assert_usable(run)
        mount_again("size=50m")
        resume(server, whole, run)
        return said.split(":")[1]


@pytest.mark.slow
def test_a_disk_of_any_size_is_full_at_any_write(server: FaultServer, whole: Whole, tmp_path: Path) -> None:
    found = {fill_and_resume(server, whole, tmp_path / str(kib), kib=kib) for kib in range(8, 480, 8)}
    assert len(found) > 5


@pytest.mark.slow
def test_a_disk_that_became_read_only_is_one_line(server: FaultServer, whole: Whole, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", kib=50_000) as mount_again:
        run = tmp_path / "disk" / "run"
        stop_in_the_middle(server, whole, run)
        mount_again("ro")
        assert_one_line(server.run("train", "--resume", "--output", run), 1, ".lock: cannot be locked")
        ended = server.run(*whole.arguments, "--output", tmp_path / "disk" / "other")
        assert_one_line(ended, 1, f"{tmp_path / 'disk' / 'other'}: read-only file system")
        assert_usable(run)
        mount_again("rw")
        resume(server, whole, run)


@pytest.mark.parametrize(
    ("closed", "message"),
    [
        ("", "run: permission denied"),
        ("run", "run/config.toml: permission denied"),
        ("run/checkpoints", "cannot be written: permission denied; allow that, then --resume"),
    ],
)
@pytest.mark.slow
def test_what_may_not_be_written_is_named(
    server: FaultServer, whole: Whole, tmp_path: Path, closed: str, message: str
) -> None:
    run, arguments = tmp_path / "run", whole.arguments
    if closed:
        stop_in_the_middle(server, whole, run)
        arguments = ["train", "--resume"]
    (tmp_path / closed).chmod(0o555)
    ended = server.run(*arguments, "--output", run, permissions=True)
    (tmp_path / closed).chmod(0o755)
    assert_one_line(ended, 1, message)
    assert_usable(run)
    resume(server, whole, run)


@pytest.fixture
def hides_shared_memory(server: FaultServer) -> None:
    if server.run("--version", no_shared_memory=True).code:
        pytest.skip("nothing may be mounted here")


@pytest.mark.slow
@pytest.mark.usefixtures("hides_shared_memory")
def test_without_shared_memory_two_processes_are_refused_and_one_trains(
    server: FaultServer, whole: Whole, tmp_path: Path
) -> None:
    two = [*whole.arguments, "--set", "train.processes=2", "--output", str(tmp_path / "two")]
    assert_one_line(server.run(*two, no_shared_memory=True), 2, "train.processes=2 needs")
    # As many as pay off, which would be two for batches of this size.
    settings = {"train.processes": 0, "train.threads": 2, "batch.tokens": 25_000, "batch.ramp_from": "false"}
    left = [*whole.arguments, *as_options(settings), "--output", str(tmp_path / "left")]
    ended = server.run(*left, no_shared_memory=True)
    assert ended.code == 0, ended.err


@pytest.mark.slow
def test_a_result_that_nobody_reads_is_on_the_disk(server: FaultServer, whole: Whole, tmp_path: Path) -> None:
    ended = server.run(*whole.arguments, "--output", tmp_path / "run", closed=1)
    assert ended.code == 1
    assert "error" not in ended.err
    assert_the_same(tmp_path / "run", whole.path)


@pytest.mark.slow
def test_a_model_for_which_few_addresses_are_left_is_refused(
    server: FaultServer, whole: Whole, tmp_path: Path
) -> None:
    arguments = [*whole.arguments, "--set", "model.d_ff=900000", "--output", str(tmp_path / "run")]
    assert_one_line(server.run(*arguments, address_space=900 * MIB), 2, "parameters need")
    assert not (tmp_path / "run").exists()
