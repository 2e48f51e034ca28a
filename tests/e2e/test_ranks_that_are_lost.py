"""Ranks of torchrun that die or hang: the job names them, and goes on from the last checkpoint."""

import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

import psutil
import pytest
from safetensors.torch import load_file
from ten_pairs import as_options, write_pairs
from tolerances import FLOAT32, assert_close
from torch import Tensor

from heedful.training import latest_checkpoint

SETTINGS = {
    "train.max_steps": 40,
    "train.log_every_steps": 1,
    "train.checkpoint_every_steps": 2,
    "train.precision": "float32",
    "train.average_checkpoints": 1,
    "batch.tokens": 96,
    "model.dropout": 0.0,
    "valid.every_steps": 100,
    "valid.decode_sentences": 2,
}
# Steps take time in which somebody can be killed; one rank may stay in one; gloo's threads end before Python.
SLOWED = """
import os, subprocess, sys, time
from heedful.cli.main import main
from heedful.training.parallel.process_group import Rank

accumulate = Rank.accumulate

def slowly(self, plan, **options):
    time.sleep(0.2)
    if f"{self.index} {plan.step}" == os.environ.get("HANGS") and plan.step > 1:
        time.sleep(600)
    return accumulate(self, plan, **options)

Rank.accumulate = slowly
try:
    main()
except SystemExit as end:
    threads = subprocess.getoutput(f"cat /proc/{os.getpid()}/task/*/comm")
    sys.exit(end.code or ("gloo" in threads and f"threads are still alive: {threads}"))
"""


@dataclass
class Job:
    """A job of torchrun, and when it wrote each line to stderr."""

    process: subprocess.Popen[str]
    lines: list[tuple[float, str]] = field(default_factory=list)

    def ranks(self) -> dict[int, psutil.Process]:
        """The processes that are alive, by rank."""
        found = {}
        for child in psutil.Process(self.process.pid).children():
            try:
                found[int(child.environ().get("RANK", "-1"))] = child
            except (psutil.Error, ValueError):
                continue
        return {rank: child for rank, child in found.items() if rank >= 0}

    def assert_success(self, seconds: float = 240.0) -> None:
        """Wait for its end, which must be exit code 0."""
        assert self.process.wait(timeout=seconds) == 0, "".join(line for _, line in list(self.lines))

    def wait_for(self, what: str, *, since: float | None = None, seconds: float = 60.0) -> str:
        """Return the first line with a pattern, within so many seconds of a moment, if there is one."""
        end = time.monotonic() + 240.0 if since is None else since + seconds
        while time.monotonic() < end:
            for moment, line in list(self.lines):
                if moment >= (since or 0.0) and re.search(what, line):
                    return line
            time.sleep(0.05)
        raise AssertionError(f"no line with {what!r}:\n" + "".join(line for _, line in self.lines))

    def wait_for_another(self, rank: int, *, than: int) -> None:
        """Wait until torchrun has started a rank again, as it may have been about to do."""
        end = time.monotonic() + 600.0
        while time.monotonic() < end:
            if rank in (ranks := self.ranks()) and ranks[rank].pid != than:
                return
            time.sleep(0.05)
        raise AssertionError("no other process:\n" + "".join(line for _, line in self.lines))


TWO = ("--standalone", "--nproc-per-node", "2")


@contextmanager
def started(
    folder: Path,
    *launch: str,
    parallel: str = "ddp",
    settings: Mapping[str, object] = MappingProxyType({}),
    more: Sequence[str] = (),
    before: Sequence[str] = (),
    **variables: str,
) -> Iterator[Job]:
    """Start a run in folder/run under torchrun; `before` comes before its command."""
    script = folder / "slowed.py"
    script.write_text(SLOWED)
    options = as_options(SETTINGS | {"train.parallel": parallel} | dict(settings))
    words = [*write_pairs(folder), *options, "--output", str(folder / "run"), *more]
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "torch.distributed.run", *launch, str(script), "train", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    job = Job(process)
    assert process.stderr is not None
    lines = iter(process.stderr.readline, "")
    reader = threading.Thread(target=lambda: job.lines.extend((time.monotonic(), each) for each in lines))
    reader.start()
    try:
        yield job
    finally:
        if process.poll() is None:
            for child in [*psutil.Process(process.pid).children(recursive=True), process]:
                child.kill()
        process.wait()
        reader.join()
        process.stderr.close()


def weights(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "run" / "last" / "model.safetensors")


@cache
def undisturbed(parallel: str) -> dict[str, Tensor]:
    """The weights of a run of two ranks in which nothing happens."""
    with TemporaryDirectory() as folder, started(Path(folder), *TWO, parallel=parallel) as job:
        job.assert_success()
        return weights(Path(folder))


def assert_equal(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    assert all(found[name].equal(weight) for name, weight in wanted.items())


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_ten_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    rng, long = random.Random(5), {"train.max_steps": 300}
    whole, disturbed = tmp_path / "whole", tmp_path / "disturbed"
    for folder in (whole, disturbed):
        folder.mkdir()
    with started(whole, *TWO, settings=long) as job:
        job.assert_success(900.0)
    with started(disturbed, *TWO, "--max-restarts", "10", settings=long) as job:
        for _ in range(10):
            time.sleep(rng.uniform(0.0, 10.0))
            while not (ranks := job.ranks()):
                assert job.process.poll() is None, "it ended too soon"
            rank = rng.choice(sorted(ranks))
            killed_at, number = time.monotonic(), ranks[rank].pid
            ranks[rank].kill()
            job.wait_for(rf"rank:? {rank} \(.*\b{number}\b", since=killed_at, seconds=600.0)
            job.wait_for_another(rank, than=number)
        job.assert_success(900.0)
    assert_equal(weights(disturbed), weights(whole))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_rank_that_is_killed_is_named_and_the_restart_goes_on(parallel: str, tmp_path: Path) -> None:
    with started(tmp_path, *TWO, "--max-restarts", "1", parallel=parallel) as job:
        job.wait_for(r"step 9\b")
        victim = job.ranks()[1]
        killed_at = time.monotonic()
        victim.kill()
        line = job.wait_for("error:", since=killed_at)
        assert f"rank 1 ({socket.gethostname()}, process {victim.pid}) ended unexpectedly" in line
        assert "resuming from step 8" in job.wait_for("resuming", since=killed_at)
        job.assert_success()
    assert_equal(weights(tmp_path), undisturbed(parallel))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_is_named(rank: int, tmp_path: Path) -> None:
    with started(tmp_path, *TWO) as job:
        job.wait_for(r"step 9\b")
        victim = job.ranks()[rank]
        stopped_at = time.monotonic()
        victim.suspend()
        line = job.wait_for("error:", since=stopped_at)
        who = rf"rank {rank} \(.*, process {victim.pid}\)"
        assert re.search(rf"error: {who} gave no sign for 20 seconds", line)
        assert job.process.wait(timeout=120) != 0
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is not None


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_in_a_step_is_named(rank: int, tmp_path: Path) -> None:
    with started(tmp_path, *TWO, HANGS=f"{rank} 12") as job:
        job.wait_for(r"step 11\b")
        line = job.wait_for("error:", since=time.monotonic())
        assert re.search(rf"error: rank {rank} \(.*\): no progress for 30 seconds in step 12", line)
        assert job.process.wait(timeout=120) != 0
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") == tmp_path / "run" / "checkpoints" / "step-10"


def _run(*words: str) -> int:
    return subprocess.run(words, capture_output=True, check=False).returncode


@contextmanager
def two_hosts() -> Iterator[list[list[str]]]:
    """Two network namespaces with a cable; yields the beginning of a command in each."""
    names = [f"heedful-{os.getpid()}-{number}" for number in (0, 1)]
    ends = [f"hf{os.getpid()}x{number}" for number in (0, 1)]
    if shutil.which("ip") is None or any(_run("ip", "netns", "add", name) for name in names):
        pytest.skip("no network namespaces: root and iproute2 make them")
    try:
        commands = [["ip", "link", "add", ends[0], "type", "veth", "peer", "name", ends[1]]]
        for number, (name, end) in enumerate(zip(names, ends, strict=True), start=1):
            commands += [
                ["ip", "link", "set", end, "netns", name],
                ["ip", "-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", end],
                ["ip", "-n", name, "link", "set", end, "up"],
                ["ip", "-n", name, "link", "set", "lo", "up"],
            ]
        assert not any(_run(*command) for command in commands)
        yield [["ip", "netns", "exec", name] for name in names]
    finally:
        for name in names:
            _run("ip", "netns", "del", name)


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_two_hosts_are_one(parallel: str, tmp_path: Path) -> None:
    launch = ["--nnodes", "2", "--nproc-per-node", "1", "--rdzv-backend", "c10d"]
    launch += ["--rdzv-endpoint", "10.77.0.1:29500", "--rdzv-id", "two"]
    with two_hosts() as (first, second), ExitStack() as stack:
        jobs = []
        for number, host in enumerate((first, second)):
            own = ["--local-addr", f"10.77.0.{number + 1}", "--rdzv-conf", f"is_host={number == 0}"]
            variables = {"GLOO_SOCKET_IFNAME": f"hf{os.getpid()}x{number}"}
            job = started(tmp_path, *launch, *own, parallel=parallel, before=host, **variables)
            jobs.append(stack.enter_context(job))
        for each in jobs:
            each.assert_success()
    assert_equal(weights(tmp_path), undisturbed(parallel))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_four_ranks_go_on_as_two(parallel: str, tmp_path: Path) -> None:
    with started(tmp_path, "--standalone", "--nproc-per-node", "4", parallel=parallel) as job:
        job.wait_for(r"step 9\b")
        job.ranks()[2].kill()
        assert "error: rank 2 (" in job.wait_for("error:", since=time.monotonic())
    with started(tmp_path, *TWO, parallel=parallel, more=("--resume",)) as job:
        assert "resuming from step 8" in job.wait_for("resuming")
        job.assert_success()
    for name, weight in weights(tmp_path).items():
        assert_close(weight, undisturbed("ddp")[name], FLOAT32.TRAINING)
