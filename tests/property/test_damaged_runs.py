"""Run directories, damaged: checkpoints, logs, and the verbs that read them."""

import hashlib
import io
import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import heedful
from damage import (
    CHANGES,
    WOUNDS,
    Change,
    Wound,
    changed,
    few_or_many,
    json_text,
    read_many,
    replaced,
    wounded,
)
from hypothesis import strategies as st
from small_models import small_model
from tiny_bundle import memorised, save_memorised

from heedful.analysis.curves import draw_curves, read_curves
from heedful.settings.loading import to_toml
from heedful.settings.run import OptimizerConfig
from heedful.training.averaging import MovingAverage, average_weights
from heedful.training.checkpoint import (
    TrainingState,
    latest_checkpoint,
    list_checkpoints,
    load_checkpoint,
    save_checkpoint,
)
from heedful.training.events import EventLog
from heedful.training.optimizer import build_optimizer
from heedful.training.state import Progress

SRC, TGT_IN = torch.tensor([[5, 7, 3, 0]]), torch.tensor([[2, 6, 9]])
STEP = {"event": "step", "seconds": 0.5, "nll": 2.5, "learning_rate": 0.1, "tokens_per_second": 9}
EVENTS: list[dict[str, Any]] = [
    {"event": "start", "step": 0, "seconds": 0.0},
    STEP | {"step": 1, "loss": 3.0},
    {"event": "validation", "step": 1, "seconds": 1.0, "nll": 2.0, "perplexity": 7.4, "bleu": 1.5},
    STEP | {"step": 2, "loss": 2.0},
]


def resumable(optimizer: str) -> TrainingState:
    model = small_model(1)
    built = build_optimizer(model, OptimizerConfig.model_validate({"name": optimizer}), precision="float32")
    return TrainingState(model, built, MovingAverage(model, 0.9), Progress(), "data")


def take_step(world: TrainingState) -> None:
    world.progress.step += 1
    world.model.train()(SRC, TGT_IN).pow(2).mean().backward()
    world.optimizer.step()
    world.optimizer.zero_grad()
    assert world.average is not None
    world.average.update(dict(world.model.named_parameters()), world.progress.step)


def right_checksums(path: Path) -> bytes:
    names = ("average.safetensors", "model.safetensors", "state.pt")
    return json.dumps(
        {name: hashlib.sha256((path / name).read_bytes()).hexdigest() for name in names}
    ).encode()


@pytest.mark.representatives(1)
@pytest.mark.parametrize("optimizer", ["adam", "muon"])
@few_or_many
def test_checkpoints(cases: int, optimizer: str, tmp_path: Path) -> None:
    world = resumable(optimizer)
    take_step(world)
    path = save_checkpoint(world, tmp_path)
    state = torch.load(path / "state.pt", weights_only=True)
    contents = {file: file.read_bytes() for file in sorted(path.iterdir())}

    def read(case: tuple[Path, list[Wound], list[Change], int]) -> None:
        file, wounds, changes, form = case
        damaged = wounded(contents[file], wounds)
        if form < 2:
            file, buffer = path / "state.pt", io.BytesIO()
            torch.save(changed(state, changes), buffer, _use_new_zipfile_serialization=form == 0)
            damaged = buffer.getvalue()
        with replaced(file, damaged), ExitStack() as stack:
            if form < 4 and file.name != "checksums.json":
                stack.enter_context(replaced(path / "checksums.json", right_checksums(path)))
            latest_checkpoint(tmp_path)
            average_weights([path, path])
            again = resumable(optimizer)
            load_checkpoint(path, again)
            if type(again.progress.step) is int:
                take_step(again)

    read_many(cases * 4, st.tuples(st.sampled_from([*contents]), WOUNDS, CHANGES, st.integers(0, 4)), read)


@few_or_many
def test_logs(cases: int, tmp_path: Path) -> None:
    file = tmp_path / "log.jsonl"
    text = "".join(json.dumps(event) + "\n" for event in EVENTS).encode()

    def read(case: tuple[list[Wound], list[Change], int]) -> None:
        wounds, changes, form = case
        damaged = changed(EVENTS, changes)
        lines = damaged if isinstance(damaged, list) else [damaged]
        content = "".join(json_text(line) + "\n" for line in lines).encode()
        file.write_bytes(content if form % 2 else wounded(text, wounds))
        try:
            curves = read_curves(file)
        finally:
            EventLog(file).drop_after(1)
        if form < 2:
            draw_curves(dict.fromkeys(["A run", "Another"][: form + 1], curves), tmp_path / "curves.png")

    read_many(cases * 2, st.tuples(WOUNDS, CHANGES, st.integers(0, 39)), read)


@few_or_many
def test_names_of_checkpoints(cases: int, tmp_path: Path) -> None:
    def read(name: str) -> None:
        path = tmp_path / f"step-{name}"
        path.mkdir()
        try:
            list_checkpoints(tmp_path)
            latest_checkpoint(tmp_path)
        finally:
            path.rmdir()

    names = st.text(st.sampled_from("0123456789²٣-_ ߀"), max_size=60) | st.integers().map(str)
    read_many(cases, names, read)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which everything is there that verbs read."""
    path = tmp_path_factory.mktemp("runs") / "run"
    save_memorised(path / "best")
    (path / "config.toml").write_text(to_toml(memorised().config), encoding="utf-8")
    (path / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in EVENTS), encoding="utf-8")
    save_checkpoint(resumable("adam"), path / "checkpoints")
    return path


@few_or_many
@pytest.mark.slow
def test_the_command_line_says_it_in_one_line(cases: int, run: Path) -> None:
    files = [file for file in sorted(run.rglob("*")) if file.is_file()]
    contents = {file: file.read_bytes() for file in files}
    state = run / "checkpoints" / "step-0" / "state.pt"
    commands = [
        ["inspect", run],
        ["inspect", run / "best", "--json"],
        ["plot", run, "--output", run.parent / "x.png"],
        ["translate", run, "--max-length", "3"],
        ["average", run, "--last", "1", "--output", run.parent / "mean"],
        ["import", state, "--layout", "torch", "--output", run.parent / "new"],
        ["train", "--resume", "--output", run],
    ]

    def read(case: tuple[Path, list[Wound], int]) -> None:
        file, wounds, number = case
        with replaced(file, wounded(contents[file], wounds)):
            outcome = heedful(*commands[number], stdin=b"the cat sleeps .\n")
        assert outcome.code in (0, 1, 2)
        if outcome.code:
            assert outcome.err.startswith("error: ")
            assert outcome.err.count("\n") == 1
        for made in ("mean", "new"):
            assert not (run.parent / made).exists() or outcome.code == 0

    damage = st.tuples(st.sampled_from(files), WOUNDS, st.integers(0, len(commands) - 1))
    read_many(cases, damage, read)
