"""The train command under torchrun: one run, whoever computes it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import heedful
from safetensors.torch import load_file
from ten_pairs import as_options, write_pairs
from tolerances import FLOAT32, assert_close

SETTINGS = {
    "train.max_steps": 6,
    "train.log_every_steps": 2,
    "train.checkpoint_every_steps": 3,
    "train.precision": "float32",
    "train.ema_decay": 0.9,
    "model.dropout": 0.0,
    "batch.tokens": 96,
    "valid.every_steps": 3,
    "valid.decode_sentences": 2,
}
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


FAILING = """
import sys
from heedful.cli.main import main
from heedful.errors import TrainingError
from heedful.training.parallel.process_group import Rank

accumulate = Rank.accumulate

def fail_later(self, plan, **options):
    if self.index == 0 and plan.step == 2:
        raise TrainingError("broken on purpose")
    return accumulate(self, plan, **options)

Rank.accumulate = fail_later
sys.exit(main())
"""


def run(*command: object, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    words = [sys.executable, *map(str, command)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_a_run_under_torchrun_is_the_run_of_one_process(tmp_path: Path) -> None:
    arguments = [*write_pairs(tmp_path), *as_options(SETTINGS)]
    both, alone = tmp_path / "both", tmp_path / "alone"
    outcome = run(*TORCHRUN, "-m", "heedful", "train", *arguments, "--output", both)
    assert outcome.returncode == 0, outcome.stderr
    assert outcome.stdout.split() == [str(both / "best")]
    assert run("-m", "heedful", "train", *arguments, "--output", alone).returncode == 0
    for bundle in ("best", "last"):
        found, wanted = (load_file(path / bundle / "model.safetensors") for path in (both, alone))
        assert found.keys() == wanted.keys()
        for name, weight in wanted.items():
            assert_close(found[name], weight, FLOAT32.TRAINING, note=name)
    kinds = [json.loads(line)["event"] for line in (both / "log.jsonl").read_text().splitlines()]
    assert kinds.count("start") == kinds.count("end") == 1
    assert kinds.count("step") == 3


ADDRESS = {"MASTER_ADDR": "localhost", "MASTER_PORT": "1"}


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "WORLD_SIZE=2, but RANK, MASTER_ADDR, MASTER_PORT not set: torchrun sets RANK"),
        ({"RANK": "0"}, "WORLD_SIZE=2, but MASTER_ADDR, MASTER_PORT not set: torchrun sets RANK"),
        ({"RANK": "first"} | ADDRESS, "RANK='first' is not a number"),
        ({"RANK": "2"} | ADDRESS, "RANK=2 is not below WORLD_SIZE=2"),
        ({"RANK": "0", "WORLD_SIZE": "two"} | ADDRESS, "WORLD_SIZE='two' is not a number"),
    ],
)
def test_half_of_the_environment_of_torchrun_is_one_line(
    variables: dict[str, str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"WORLD_SIZE": "2"} | variables).items():
        monkeypatch.setenv(name, value)
    outcome = heedful("train", *write_pairs(tmp_path), "--output", tmp_path / "run")
    assert outcome.code == 2
    assert outcome.err.startswith(f"error: {message}")
    assert outcome.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_bad_input_under_torchrun_is_one_mistake(tmp_path: Path) -> None:
    arguments = write_pairs(tmp_path)
    (tmp_path / "ten.de").write_text("one line\n")
    outcome = run(*TORCHRUN, "-m", "heedful", "train", *arguments, "--output", tmp_path / "run")
    assert outcome.returncode != 0
    assert outcome.stderr.count("error: ") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_an_error_of_rank_0_in_a_step_ends_all(tmp_path: Path) -> None:
    script = tmp_path / "failing.py"
    script.write_text(FAILING)
    arguments = [*write_pairs(tmp_path), *as_options(SETTINGS), "--output", tmp_path / "run"]
    outcome = run(*TORCHRUN, script, "train", *arguments)
    assert outcome.returncode != 0
    assert [line for line in outcome.stderr.splitlines() if "error: " in line] == ["error: broken on purpose"]
