"""Training through the command line: it learns, it can be killed, and a resumed run is the same run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from command_line import assert_one_clear_line, heedful
from huggingface_hub import ModelCard
from markdown_it import MarkdownIt
from safetensors.torch import load_file
from ten_pairs import ENGLISH, GERMAN, as_options, write_pairs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tolerances import FLOAT32, assert_close, close

from heedful.tasks.directory import RunDirectory
from heedful.training.parallel.process_group import SingleProcess, StepPlan
from heedful.training.step import StepMetrics

BY_HEART = {
    "train.max_steps": 120,
    "train.checkpoint_every_steps": 40,
    "model.dropout": 0.0,
    "valid.every_steps": 60,
}

# Everything with a state is on: dropout, moving average, subword sampling, accumulation, validation; and
# the batches still grow when the run is killed.
STATEFUL = {
    "train.max_steps": 60,
    "train.ema_decay": 0.9,
    "train.checkpoint_every_steps": 10,
    "train.log_every_steps": 5,
    "tokenizer.sampling": 0.1,
    "batch.tokens": 96,
    "batch.ramp_from": 1,
    "batch.accumulation": 2,
    "valid.every_steps": 15,
    "valid.decode_sentences": 3,
    "valid.patience": 50,
}


@pytest.fixture(scope="module")
def memorised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("memorised")
    outcome = heedful("train", *write_pairs(directory), *as_options(BY_HEART), "--output", directory / "run")
    assert outcome.code == 0, outcome.err
    return directory


@pytest.mark.by_class
def test_ten_pairs_are_learned_by_heart(memorised: Path) -> None:
    outcome = heedful("translate", memorised / "run", stdin="\n".join([*ENGLISH, ""]).encode())
    assert outcome.out.splitlines() == list(GERMAN)


@pytest.mark.slow
@pytest.mark.by_class
def test_ten_real_pairs_are_learned_by_heart(real_data: Path, tmp_path: Path) -> None:
    arguments = write_pairs(tmp_path)
    for name, side in (("ten.en", "train.en"), ("ten.de", "train.de")):
        lines = (real_data / "multi30k" / side).read_text(encoding="utf-8").splitlines(keepends=True)
        (tmp_path / name).write_text("".join(lines[:10]), encoding="utf-8")
    outcome = heedful("train", *arguments, *as_options(BY_HEART), "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    files = ["--src", tmp_path / "ten.en", "--ref", tmp_path / "ten.de"]
    report = json.loads(heedful("evaluate", tmp_path / "run", *files, "--metric", "exact", "--json").out)
    assert report["exact"] == 100.0
    assert report["sentences"] == 10


def test_a_run_directory_holds_what_the_design_says(memorised: Path) -> None:
    run = memorised / "run"
    bundle_files = {"config.json", "model.safetensors", "tokenizer.model", "README.md"}
    assert {file.name for file in (run / "last").iterdir()} == bundle_files
    assert {file.name for file in (run / "best").iterdir()} == bundle_files | {"verification.json"}
    events = [json.loads(line)["event"] for line in (run / "log.jsonl").read_text().splitlines()]
    assert {"notice", "start", "step", "validation", "checkpoint", "end"} <= set(events)
    card = (run / "best" / "README.md").read_text(encoding="utf-8")
    assert "heedful train --src ten.en --tgt ten.de --preset tiny --set data.cache_dir=cache" in card
    for file in (*(run / "best").iterdir(), *(run / "last").iterdir()):
        assert str(memorised).encode() not in file.read_bytes(), file  # of people and customers
    assert "signature" in card
    assert "version:" in card  # sacreBLEU's
    scores = {result.metric_type: result for result in ModelCard(card).data.eval_results}
    assert scores["sacrebleu"].metric_value == 100.0
    signature = scores["sacrebleu"].metric_args["signature"]
    assert "tok:13a" in signature
    rendered = MarkdownIt().enable("table").parse(card.partition("\n---\n")[2])
    assert signature in [token.content for token in rendered]  # a cell, whole


def test_a_run_is_never_replaced_unasked(memorised: Path) -> None:
    before = (memorised / "run" / "config.toml").read_bytes()
    outcome = heedful("train", *write_pairs(memorised), "--output", memorised / "run")
    assert_one_clear_line(outcome, 1, "--resume")
    assert (memorised / "run" / "config.toml").read_bytes() == before


def test_a_finished_run_can_be_resumed_and_is_finished(memorised: Path) -> None:
    before = load_file(memorised / "run" / "last" / "model.safetensors")
    outcome = heedful("train", "--resume", "--output", memorised / "run")
    assert outcome.code == 0, outcome.err
    assert_same(load_file(memorised / "run" / "last" / "model.safetensors"), before)
    assert outcome.err.splitlines()[-1] == "nothing to do: 120 steps done, train.max_steps=120"


def test_a_run_that_another_process_trains_is_left_to_it(memorised: Path) -> None:
    arguments = [*write_pairs(memorised), *as_options(BY_HEART)]
    before = (memorised / "run" / "config.toml").read_bytes()
    with RunDirectory(memorised / "run").locked(resume=True):
        for option in ("--resume", "--overwrite"):
            outcome = heedful("train", *arguments, option, "--output", memorised / "run")
            assert outcome.code == 1
            assert outcome.err == (
                f"error: {memorised / 'run'}: another process is training there; wait for it, stop it, "
                "or give another --output\n"
            )
    assert (memorised / "run" / "config.toml").read_bytes() == before


def test_resuming_on_other_text_is_refused(memorised: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).write_text("other text\nand more of it\n")
    options = ["--src", tmp_path / "a", "--tgt", tmp_path / "b"]
    outcome = heedful("train", "--resume", *options, "--output", memorised / "run")
    assert outcome.code == 1
    assert "belongs to other data" in outcome.err


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="has no process groups")
def test_a_group_that_is_terminated_leaves_a_checkpoint_of_its_last_step(tmp_path: Path) -> None:
    arguments = [*write_pairs(tmp_path), *as_options(STATEFUL | {"train.processes": 2})]
    run = tmp_path / "run"
    command = [sys.executable, "-m", "heedful", "train", *arguments, "--output", str(run)]
    with (tmp_path / "err").open("wb") as err:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True)
    wait_for(run / "checkpoints" / "step-20", process)
    os.killpg(process.pid, signal.SIGTERM)  # as a scheduler does
    assert process.wait() == 0
    last = logged(run, "checkpoint")[-1]
    assert logged(run, "warning")[-1]["message"] == (
        f"stopped by SIGTERM after step {last['step']}, which is saved; --resume continues from there"
    )
    assert (run / "checkpoints" / str(last["path"])).is_dir()
    assert "Traceback" not in (tmp_path / "err").read_text()


def wait_for(path: Path, process: "subprocess.Popen[bytes]") -> None:
    while not path.exists():
        assert process.poll() is None, "the run ended before it could be killed"
        time.sleep(0.005)


def logged(run: Path, kind: str) -> list[dict[str, object]]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    timings = ("seconds", "tokens_per_second", "progress")
    return [
        {key: value for key, value in event.items() if key not in timings}
        for event in events
        if event["event"] == kind
    ]


def assert_same(found: dict[str, torch.Tensor], expected: dict[str, torch.Tensor]) -> None:
    assert found.keys() == expected.keys()
    for name, weight in expected.items():
        assert torch.equal(found[name], weight), name


def test_an_average_is_the_mean_of_the_checkpoints(memorised: Path) -> None:
    checkpoints = sorted(
        (memorised / "run" / "checkpoints").iterdir(), key=lambda path: int(path.name.removeprefix("step-"))
    )
    output = memorised / "mean"
    outcome = heedful("average", memorised / "run", "--last", len(checkpoints), "--output", output)
    assert outcome.out.splitlines() == [str(path) for path in checkpoints]
    found = load_file(output / "model.safetensors")
    assert ModelCard.load(output / "README.md").data.library_name == "heedful"
    weights = [load_file(path / "model.safetensors") for path in checkpoints]
    assert len(weights) >= 2
    for name, weight in found.items():
        mean = torch.stack([each[name].double() for each in weights]).mean(dim=0)
        assert_close(weight.double(), mean, FLOAT32.ELEMENT)


SETTINGS: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "train.max_steps": 6,
    "train.checkpoint_every_steps": 3,
    "train.processes": 1,
    "batch.tokens": 200,
    "valid.every_steps": 6,
    "valid.decode_sentences": 0,
}


@pytest.fixture(params=[0.0, 0.1])
def arguments(request: pytest.FixtureRequest, tmp_path: Path) -> list[str]:
    """Without and with subword sampling, for which the store keeps the sentences."""
    settings = SETTINGS | {"tokenizer.sampling": request.param}
    return ["train", *write_pairs(tmp_path), *as_options(settings), "--output", str(tmp_path / "run")]


@pytest.fixture
def spoiled(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[int]]:
    """Steps whose loss is no number."""
    steps: set[int] = set()
    take = SingleProcess.step

    def step(self: SingleProcess, plan: StepPlan) -> StepMetrics:
        if plan.step in steps:
            return StepMetrics(*3 * [float("nan")], 6)
        return take(self, plan)

    monkeypatch.setattr(SingleProcess, "step", step)
    yield steps


def rows(run: Path) -> list[list[str]]:
    return [line.split("\t") for line in (run / "skipped.tsv").read_text(encoding="utf-8").splitlines()]


def test_the_sentences_of_a_skipped_step_are_in_a_file_that_the_warning_names(
    arguments: list[str], spoiled: set[int], tmp_path: Path
) -> None:
    spoiled |= {2, 5}
    outcome = heedful(*arguments)
    run = tmp_path / "run"
    assert outcome.code == 0, outcome.err
    warnings = [line for line in outcome.err.splitlines() if "is skipped" in line]
    assert [line.split(":")[1] for line in warnings] == [" step 2 is skipped", " step 5 is skipped"]
    assert all(
        line.endswith(f"is not finite; its sentences are in {run / 'skipped.tsv'}") for line in warnings
    )
    header, *found = rows(run)
    assert header == ["step", "pair", "source", "target"]
    assert {row[0] for row in found} == {"2", "5"}
    assert found == [[step, pair, ENGLISH[int(pair)], GERMAN[int(pair)]] for step, pair, *_ in found]


def test_a_run_whose_weights_are_no_numbers_leaves_no_bundle(tmp_path: Path) -> None:
    """And none when it is resumed after its end."""
    rate = {"schedule.name": "constant", "schedule.peak": 1e6, "schedule.warmup_steps": 0}
    settings = SETTINGS | rate | {"train.max_steps": 2, "optimizer.weight_decay": 1e6}
    run = tmp_path / "run"
    arguments = ["train", *write_pairs(tmp_path), *as_options(settings), "--output", str(run)]
    for resumed in ([], ["--resume"]):
        outcome = heedful(*arguments, *resumed)
        assert outcome.code == 1
        assert outcome.out == ""
        assert outcome.err.splitlines()[-1] == (
            "error: step 2: the loss is not finite; lower schedule.peak=1e+06 or set optimizer.clip_norm=1, "
            "then start anew"
        )
        assert not (run / "best").exists()
        assert not (run / "last").exists()


def test_a_run_that_goes_on_forgets_the_rows_of_steps_that_it_takes_again(
    arguments: list[str], spoiled: set[int], tmp_path: Path
) -> None:
    spoiled |= {2, 5}
    assert heedful(*arguments).code == 0
    run = tmp_path / "run"
    before = rows(run)
    for path in run.glob("checkpoints/step-6/*"):
        path.unlink()
    with (run / "skipped.tsv").open("a", encoding="utf-8") as file:
        file.write("6\t3\tha")  # was being written when the run was killed
    spoiled.clear()
    assert heedful(*arguments, "--resume").code == 0
    assert rows(run) == [row for row in before if row[0] != "5"]


@pytest.mark.representatives(1)
def test_the_file_is_the_runs_own(arguments: list[str], spoiled: set[int], tmp_path: Path) -> None:
    spoiled.add(2)
    assert heedful(*arguments).code == 0
    spoiled.clear()
    assert heedful(*arguments, "--overwrite").code == 0
    file = tmp_path / "run" / "skipped.tsv"
    assert not file.exists()
    assert (tmp_path / "run.old-1" / "skipped.tsv").exists()
    file.write_text("my own notes\n", encoding="utf-8")
    outcome = heedful(*arguments, "--overwrite")
    assert outcome.code == 0
    assert f"the old run is in {tmp_path / 'run.old-2'} now" in outcome.err
    assert (tmp_path / "run.old-2" / "skipped.tsv").read_text(encoding="utf-8") == "my own notes\n"
    assert "run.old-2" in (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8")


@pytest.mark.slow
def test_tensorboard_has_the_curves_of_the_log_after_a_resumption(tmp_path: Path) -> None:
    settings = {"train.max_steps": 8, "train.checkpoint_every_steps": 4, "train.log_every_steps": 2}
    settings |= {"valid.every_steps": 4, "train.processes": 1}
    run, track = tmp_path / "run", ("--track", "tensorboard")
    command = ("train", *write_pairs(tmp_path), *as_options(settings), "--output", run)
    assert heedful(*command, *track).code == 0
    shutil.rmtree(run / "checkpoints" / "step-8")  # as if it had been killed before
    resumed = heedful("train", "--resume", "--output", run, *track)
    assert resumed.code == 0, resumed.err
    assert "resuming from step 4" in resumed.err
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    read = EventAccumulator(str(run / "tensorboard")).Reload()
    for kind, curve, name in (("step", "train/loss", "loss"), ("validation", "validation/bleu", "bleu")):
        logged = [(each["step"], each[name]) for each in events if each["event"] == kind]
        shown = [(each.step, each.value) for each in read.Scalars(curve)]
        assert shown == [(step, close(value, FLOAT32.ELEMENT)) for step, value in logged]
        assert [step for step, _ in shown] == sorted({step for step, _ in shown})
        assert shown[-1][0] == 8


def test_tracking_without_tensorboard_is_one_line_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    run = tmp_path / "run"
    outcome = heedful("train", *write_pairs(tmp_path), "--output", run, "--track", "tensorboard")
    assert_one_clear_line(outcome, 1, "--track tensorboard needs tensorboard: pip install ")
    assert not run.exists()
    unknown = heedful("train", *write_pairs(tmp_path), "--output", run, "--track", "other")
    assert_one_clear_line(unknown, 2, "--track", "tensorboard")
