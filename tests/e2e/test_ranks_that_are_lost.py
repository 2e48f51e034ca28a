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

from heedful.training.checkpoint import latest_checkpoint

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
# All ranks wait in the steps of HOLDS until there is a file with that number: in an odd step before their
# part, in an even one after it. One rank may stay in a step; gloo's threads end before Python.
HELD = """
import os, pathlib, subprocess, sys, time
from heedful.cli.main import main
from heedful.training.parallel.process_group import Rank

accumulate = Rank.accumulate

def hold(step):
    released = pathlib.Path(__file__).with_name(f"released-{step}")
    while str(step) in os.environ.get("HOLDS", "").split() and not released.exists():
        time.sleep(0.01)

def held(self, plan, **options):
    if f"{self.index} {plan.step}" == os.environ.get("HANGS"):
        time.sleep(600)
    if plan.step % 2:
        hold(plan.step)
    sums = accumulate(self, plan, **options)
    if plan.step % 2 == 0:
        hold(plan.step)
    return sums

Rank.accumulate = held
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
    folder: Path
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

    def assert_success(self) -> None:
        """Wait for its end, which must be exit code 0."""
        assert self.process.wait() == 0, "".join(line for _, line in list(self.lines))

    def wait_for(self, what: str, *, since: float = 0.0) -> str:
        """Wait for a line with a pattern, written after a moment, and return it."""
        while True:
            has_ended = self.process.poll() is not None
            for moment, line in list(self.lines):
                if moment >= since and re.search(what, line):
                    return line
            assert not has_ended, f"no line with {what!r}:\n" + "".join(line for _, line in self.lines)
            time.sleep(0.02)

    def kill(self, rank: int, *, in_step: int) -> tuple[float, psutil.Process]:
        """Kill a rank in a step in which it is held, and let the others go on; return when, and which."""
        self.wait_for(rf"step {in_step - 1}\b")
        victim, killed_at = self.ranks()[rank], time.monotonic()
        victim.kill()
        (self.folder / f"released-{in_step}").touch()
        return killed_at, victim


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
    script = folder / "held.py"
    script.write_text(HELD)
    options = as_options(SETTINGS | {"train.parallel": parallel} | dict(settings))
    words = [*write_pairs(folder), *options, "--output", str(folder / "run"), *more]
    process = subprocess.Popen(
        [*before, sys.executable, "-m", "torch.distributed.run", *launch, str(script), "train", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
        stderr=subprocess.PIPE,
        text=True,
    )
    job = Job(process, folder)
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
@pytest.mark.timeout(900)
def test_four_kills_change_nothing(tmp_path: Path) -> None:
    rng = random.Random(5)
    steps = sorted(rng.sample(range(3, 40), 4))
    with started(tmp_path, *TWO, "--max-restarts", "4", HOLDS=" ".join(map(str, steps))) as job:
        for step in steps:
            rank = rng.choice([0, 1])
            killed_at, victim = job.kill(rank, in_step=step)
            job.wait_for(rf"rank:? {rank} \(.*\b{victim.pid}\b", since=killed_at)
        job.assert_success()
    assert_equal(weights(tmp_path), undisturbed("ddp"))


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_a_rank_that_is_killed_is_named_and_the_restart_goes_on(parallel: str, tmp_path: Path) -> None:
    with started(tmp_path, *TWO, "--max-restarts", "1", parallel=parallel, HOLDS="10") as job:
        killed_at, victim = job.kill(1, in_step=10)
        line = job.wait_for("error:", since=killed_at)
        assert f"rank 1 ({socket.gethostname()}, process {victim.pid}) ended unexpectedly" in line
        assert "resuming from step 8" in job.wait_for("resuming", since=killed_at)
        job.assert_success()
    assert_equal(weights(tmp_path), undisturbed(parallel))


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_is_stopped_is_named(rank: int, tmp_path: Path) -> None:
    with started(tmp_path, *TWO, HOLDS="10") as job:
        job.wait_for(r"step 9\b")
        victim = job.ranks()[rank]
        stopped_at = time.monotonic()
        victim.suspend()
        (tmp_path / "released-10").touch()
        line = job.wait_for("error:", since=stopped_at)
        who = rf"rank {rank} \(.*, process {victim.pid}\)"
        assert re.search(rf"error: {who} gave no sign for 20 seconds", line)
        assert job.process.wait() != 0
    assert latest_checkpoint(tmp_path / "run" / "checkpoints") is not None


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_hangs_in_a_step_is_named(rank: int, tmp_path: Path) -> None:
    with started(tmp_path, *TWO, HANGS=f"{rank} 12") as job:
        line = job.wait_for("error:")
        assert re.search(rf"error: rank {rank} \(.*\): no progress for 30 seconds in step 12", line)
        assert job.process.wait() != 0
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
    with started(tmp_path, "--standalone", "--nproc-per-node", "4", parallel=parallel, HOLDS="10") as job:
        killed_at, _ = job.kill(2, in_step=10)
        assert "error: rank 2 (" in job.wait_for("error:", since=killed_at)
    with started(tmp_path, *TWO, parallel=parallel, more=("--resume",)) as job:
        assert "resuming from step 8" in job.wait_for("resuming")
        job.assert_success()
    for name, weight in weights(tmp_path).items():
        assert_close(weight, undisturbed("ddp")[name], FLOAT32.TRAINING)
