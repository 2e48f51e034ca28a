"""A run that is killed, stopped or robbed of a process at any moment ends in the weights of any other."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from command_line import heedful
from damaged_files import damage
from faults import ENVIRONMENT, PHASES, Ended, FaultServer, Strike, plan_strikes
from struck_runs import SETTINGS, Whole, assert_the_same, assert_usable, told
from ten_pairs import as_options, write_pairs

from heedful.training.checkpoint import is_complete, list_checkpoints

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

MOST_RESUMPTIONS = 6
# Python prints, and ignores, an exception in a finalizer, such as a signal that strikes in filelock's.
_IN_A_FINALIZER = re.compile(
    r"^Exception ignored in: .*__del__.*\n(?:Traceback .*\n(?: .*\n)*)?\w+: ?\n", re.MULTILINE
)


@pytest.fixture(scope="module")
def server() -> Iterator[FaultServer]:
    with FaultServer.started() as server:
        yield server


@pytest.fixture(scope="module")
def whole(server: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Whole]:
    """Give the run of so many processes, which is made once."""
    made: dict[int, Whole] = {}

    def make(processes: int) -> Whole:
        if processes not in made:
            folder = tmp_path_factory.mktemp(f"whole-{processes}")
            settings = as_options(SETTINGS | {"train.processes": processes})
            arguments = ["train", *write_pairs(folder), *settings]
            ended = server.run(*arguments, "--output", folder / "run", counted=True)
            assert ended.code == 0, ended.err
            made[processes] = Whole(arguments, folder / "run", ended.counts)
        return made[processes]

    return make


def assert_ended_as_asked(ended: Ended, strikes: list[Strike], run: Path) -> None:
    assert len(ended.struck) >= 1, "nothing has struck"
    assert "Traceback" not in _IN_A_FINALIZER.sub("", ended.err)
    (first, *more) = strikes
    if first.whom == "worker":
        assert ended.code in (0, 1)
        assert ended.code == 0 or ended.err.splitlines()[-1].startswith("error: a training process")
    elif first.signal == signal.SIGKILL:
        assert ended.code == -signal.SIGKILL
    elif ended.struck[0].split()[0] not in ("beginning", "resumption", "between"):
        asked = 0 if first.signal == signal.SIGTERM else 130
        assert ended.code in {asked, 0, *((130,) if more else ())}
        if ended.code == asked and not more and not told(run, "end"):
            assert f"stopped by {first.signal.name} after step" in told(run, "warning")[-1]["message"]
            assert ended.err.count("error: ") == (asked == 130)


def resume_to_the_end(server: FaultServer, whole: Whole, run: Path, *, seed: int) -> None:
    """Resume a run, which may be killed now and then while it goes on."""
    rng = random.Random(f"resumptions {seed}")
    for attempt in range(MOST_RESUMPTIONS):
        has_begun = (run / "config.toml").exists()
        arguments = ["train", "--resume"] if has_begun else whole.arguments
        strikes = []
        if attempt < MOST_RESUMPTIONS - 1 and rng.random() < 0.25:
            phase = rng.choice(["step", "resumption", "renaming", "log"])
            strikes = [Strike(phase, rng.randint(1, whole.counts.get(phase, 1000)))]
        ended = server.run(*arguments, "--output", run, strikes=strikes)
        assert_usable(run)
        if ended.code == 0:
            return
        assert ended.struck, ended.err
    pytest.fail("it did not end")


def strike_and_resume(server: FaultServer, whole: Whole, run: Path, *, seed: int, processes: int) -> None:
    strikes = plan_strikes(seed, whole.counts, processes=processes)
    ended = server.run(*whole.arguments, "--output", run, strikes=strikes)
    assert_ended_as_asked(ended, strikes, run)
    assert_usable(run)
    resume_to_the_end(server, whole, run, seed=seed)
    assert_the_same(run, whole.path)


# Kills a run of its own Python in step 11, after the checkpoint of step 8.
KILLED = """
import os, signal
from heedful.cli.main import main
from heedful.training.parallel.process_group import SingleProcess
step = SingleProcess.step
def killed(self, plan):
    if plan.step == 11:
        os.kill(os.getpid(), signal.SIGKILL)
    return step(self, plan)
SingleProcess.step = killed
main()
"""


def test_a_run_that_is_killed_in_a_step_ends_in_the_same_weights(tmp_path: Path) -> None:
    arguments = ["train", *write_pairs(tmp_path), *as_options(SETTINGS | {"train.processes": 1})]
    run, whole = tmp_path / "run", tmp_path / "whole"
    command = [sys.executable, "-c", KILLED, *arguments, "--output", str(run)]
    killed = subprocess.run(
        command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert [each["step"] for each in told(run, "step")][-1] == 10
    assert_usable(run)
    resumed = heedful("train", "--resume", "--output", run)
    assert resumed.code == 0, resumed.err
    assert heedful(*arguments, "--output", whole).code == 0
    assert_the_same(run, whole)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(len(PHASES)))
def test_a_run_that_is_struck_ends_in_the_same_weights(
    server: FaultServer, whole: Callable[[int], Whole], tmp_path: Path, seed: int
) -> None:
    processes = 2 if seed % 4 == 3 else 1
    strike_and_resume(server, whole(processes), tmp_path / "run", seed=seed, processes=processes)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("processes", [1, 2])
def test_many_runs_that_are_struck_end_in_the_same_weights(
    server: FaultServer, whole: Callable[[int], Whole], tmp_path: Path, processes: int
) -> None:
    for seed in range(1000 * processes, 1000 * processes + int(os.environ.get("HEEDFUL_STRIKES", "10"))):
        run = tmp_path / str(seed)
        strike_and_resume(server, whole(processes), run, seed=seed, processes=processes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_run_of_its_own_python_that_is_killed_anywhere_ends_in_the_same_weights(
    whole: Callable[[int], Whole], tmp_path: Path, seed: int
) -> None:
    """After a step, or when a checkpoint is being written, and with workers that are new Pythons."""
    step = random.Random(f"steps {seed}").randint(1, 14)
    wanted, run = whole(1 + seed % 2), tmp_path / "run"
    command = [sys.executable, "-m", "heedful"]
    process = subprocess.Popen(
        [*command, *wanted.arguments, "--output", str(run)],
        env=os.environ | ENVIRONMENT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None:
        if seed < 2 and any(run.glob("checkpoints/.step-*.writing")):
            break
        if seed >= 2 and f'"step": {step},' in _text(run / "log.jsonl"):
            break
        time.sleep(0.0005)
    process.kill()
    process.wait()
    assert_usable(run)
    resumed = subprocess.run(
        [*command, "train", "--resume", "--output", str(run)],
        env=os.environ | ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert resumed.returncode == 0, resumed.stderr
    assert_the_same(run, wanted.path)


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


@pytest.mark.slow
def test_sigterm_ends_a_run_with_exit_code_0_and_sigint_with_130(
    server: FaultServer, whole: Callable[[int], Whole], tmp_path: Path
) -> None:
    one = whole(1)
    for how, code in ((signal.SIGTERM, 0), (signal.SIGINT, 130)):
        run = tmp_path / how.name
        strike = Strike("step", one.counts["step"] // 2, signal=how)
        ended = server.run(*one.arguments, "--output", run, strikes=[strike])
        assert ended.code == code
        assert ended.out == ""
        (message,) = (event["message"] for event in told(run, "warning")[1:])
        last = told(run, "checkpoint")[-1]
        assert message == (
            f"stopped by {how.name} after step {last['step']}, which is saved; --resume continues from there"
        )
        assert f"warning: {message}" in ended.err
        assert is_complete(run / "checkpoints" / last["path"])


@pytest.mark.parametrize("phase", ["step", "validation", "checkpoint"])
@pytest.mark.slow
def test_a_second_signal_ends_a_run_at_once_with_the_earlier_checkpoint(
    server: FaultServer, whole: Callable[[int], Whole], tmp_path: Path, phase: str
) -> None:
    one, run = whole(1), tmp_path / "run"
    at = 2 * one.counts[phase] // 3
    strikes = [Strike(phase, at, signal=signal.SIGTERM), Strike(after=3, signal=signal.SIGTERM)]
    ended = server.run(*one.arguments, "--output", run, strikes=strikes)
    assert (ended.code, len(ended.struck)) == (130, 2)
    assert ended.err.splitlines()[-1] == "error: interrupted"
    assert "stopped by" not in ended.err
    steps = [event["step"] for event in told(run, "step")]
    saved = [int(path.name.removeprefix("step-")) for path in list_checkpoints(run / "checkpoints")]
    assert len(saved) == 2
    assert 0 <= steps[-1] - saved[-1] <= 4
    assert_usable(run)
    resume_to_the_end(server, one, run, seed=0)
    assert_the_same(run, one.path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_run_whose_newest_checkpoint_is_damaged_ends_in_the_same_weights(
    server: FaultServer, whole: Callable[[int], Whole], tmp_path: Path, seed: int
) -> None:
    one, run = whole(1), tmp_path / "run"
    strike = Strike("step", 4 * one.counts["step"] // 5, signal=signal.SIGTERM)
    assert server.run(*one.arguments, "--output", run, strikes=[strike]).code == 0
    *_, before, newest = list_checkpoints(run / "checkpoints")
    damage(newest, seed)
    resumed = server.run("train", "--resume", "--output", run)
    assert resumed.code == 0, resumed.err
    aside = newest.with_name(f"damaged-{newest.name}")
    assert (
        f"warning: damaged (a checksum differs), set aside: {aside}; {before.name} is resumed" in resumed.err
    )
    shutil.rmtree(aside)
    assert_the_same(run, one.path)
