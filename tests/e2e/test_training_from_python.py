"""Training with several processes from programs of all kinds, which need no `if __name__ == "__main__":`."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import own_losses
import psutil
import pytest
from ten_pairs import as_options, write_pairs
from tolerances import FLOAT64, close

from heedful.errors import ConfigError, StopTraining
from heedful.settings.loading import load_config, parse_override, to_toml
from heedful.settings.run import Config
from heedful.tasks.train import train
from heedful.training.events import Event, StepEvent

SETTINGS: dict[str, object] = {
    "train.max_steps": 4,
    "train.log_every_steps": 1,
    "valid.decode_sentences": 0,
    "batch.tokens": 96,
}
PROGRAM = """
import sys
from pathlib import Path
from heedful.settings.loading import load_config
from heedful.tasks.train import train
from own_losses import doubled

config = load_config(Path({config!r}))
schedule = lambda step, done: 0.001 * step + 0.01 * done
train(config, Path({output!r}), loss=doubled, schedule=schedule)
"""
GUARD = 'if __name__ == "__main__":\n    '
# Python imports this module first, in every process.
AT_THE_START = """
import os, sys, time
if "--multiprocessing-fork" in sys.orig_argv:
    with open({file!r}, "w") as file:
        file.write(str(os.getpid()))
    {action}
"""


def settings_file(folder: Path, **changes: object) -> Path:
    """A recipe for the ten pairs."""
    options = [*write_pairs(folder), *as_options(SETTINGS | {"train.processes": 2} | changes)]
    files = [f"data.src={folder / 'ten.en'}", f"data.tgt={folder / 'ten.de'}"]
    overrides = [parse_override(each) for each in [*files, *options[options.index("--set") + 1 :: 2]]]
    file = folder / "recipe.toml"
    file.write_text(to_toml(load_config(preset="tiny", overrides=overrides)), encoding="utf-8")
    return file


def program(folder: Path, kind: str, output: Path) -> tuple[list[str], str]:
    """The command and the standard input of a program of a kind that trains."""
    source = PROGRAM.format(config=str(settings_file(folder)), output=str(output))
    if kind == "guarded":
        source = source.replace("\ntrain(", f"\n{GUARD}train(")
    file = folder / "program.py"
    file.write_text(source, encoding="utf-8")
    arguments = {"option": ["-c", source], "stdin": ["-"], "module": ["-m", "program"]}
    return [sys.executable, *arguments.get(kind, [str(file)])], source if kind == "stdin" else ""


def environment(*folders: Path) -> dict[str, str]:
    paths = [*map(str, folders), str(Path(own_losses.__file__).parent), *sys.path]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def logged(run: Path) -> list[dict[str, float]]:
    lines = (run / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "step"]


@pytest.mark.slow
def test_a_program_trains_the_same_model_with_and_without_a_guard(tmp_path: Path) -> None:
    weights = set()
    for kind in ("guarded", "script", "option", "stdin", "module"):
        folder = tmp_path / kind
        folder.mkdir()
        command, stdin = program(folder, kind, folder / "run")
        done = subprocess.run(
            command, input=stdin, cwd=folder, env=environment(), capture_output=True, text=True, timeout=300,
            check=False,
        )  # fmt: skip
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), done.stderr
        weights.add((folder / "run" / "last" / "model.safetensors").read_bytes())
        steps = logged(folder / "run")
        rates = [0.001 * step + 0.01 * (step - 1) / 4 for step in range(1, 5)]
        assert [step["learning_rate"] for step in steps] == close(rates, FLOAT64.ROW)
        assert [step["loss"] / step["nll"] for step in steps] == close([2.0] * 4, FLOAT64.MODEL)
    assert len(weights) == 1


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_program_whose_worker_does_not_start(tmp_path: Path, number: signal.Signals) -> None:
    command, _ = program(tmp_path, "script", tmp_path / "run")
    note = tmp_path / "started"
    hang = AT_THE_START.format(file=str(note), action="time.sleep(3600)")
    (tmp_path / "sitecustomize.py").write_text(hang, encoding="utf-8")
    with subprocess.Popen(command, env=environment(tmp_path), stderr=subprocess.DEVNULL) as process:
        while not (note.exists() and note.read_text()):
            assert process.poll() is None
        worker = psutil.Process(int(note.read_text()))
        process.send_signal(number)
        assert process.wait(timeout=120) != 0
    assert psutil.wait_procs([worker], timeout=60)[1] == []


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_starts_ends_the_program(tmp_path: Path) -> None:
    command, _ = program(tmp_path, "script", tmp_path / "run")
    end = AT_THE_START.format(file=str(tmp_path / "started"), action="os.kill(os.getpid(), 9)")
    (tmp_path / "sitecustomize.py").write_text(end, encoding="utf-8")
    done = subprocess.run(
        command,
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 1
    assert re.match(r"heedful\.errors\.TrainingError: a training process ended", done.stderr.splitlines()[-1])


def config_of(folder: Path, **changes: object) -> Config:
    return load_config(settings_file(folder, **changes))


def test_a_loss_that_workers_cannot_import_is_refused_before_there_is_a_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="<lambda>"):
        train(config_of(tmp_path), tmp_path / "run", loss=lambda *both: own_losses.doubled(*both))
    assert not (tmp_path / "run" / "config.toml").exists()


def test_a_callback_ends_training_and_a_loss_acts(tmp_path: Path) -> None:
    def stop(event: Event) -> None:
        if isinstance(event, StepEvent) and event.step == 2:
            raise StopTraining

    one = {"train.processes": 1}
    result = train(
        config_of(tmp_path, **one),
        tmp_path / "run",
        loss=own_losses.doubled,
        callbacks=[stop],
    )
    assert result.end.step == 2
    assert (result.last / "model.safetensors").is_file()
    ratios = [step["loss"] / step["nll"] for step in logged(tmp_path / "run")]
    assert ratios == close([2.0] * 2, FLOAT64.MODEL)
