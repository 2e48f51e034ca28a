"""A sweep is a run for each value: the same as alone; its directory, and a checkpoint, can be evaluated."""

import json
import math
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful
from ten_pairs import as_options, write_pairs

import heedful as library
from heedful.tasks.seeds import SeedsResult
from heedful.tasks.sweep import SweepPoint, SweepResult
from heedful.tasks.training import TrainResult
from heedful.training.events import EndEvent

QUICK = {
    "model.d_model": 8, "model.num_heads": 2, "model.d_ff": 8, "train.max_steps": 2, "train.processes": 1,
    "batch.tokens": 96, "valid.decode_sentences": 2,
}  # fmt: skip
RUN = TrainResult(Path("best"), Path("last"), EndEvent(1, 1.0, "", 0, 1, 1))


def weights(bundle: Path) -> bytes:
    return (bundle / "model.safetensors").read_bytes()


def sweep_of(metric: str, *scores: float) -> SweepResult:
    results = [SeedsResult({1: RUN}, {1: {metric: score}}) for score in scores]
    return SweepResult([SweepPoint({"x": n}, result) for n, result in enumerate(results)], metric)


@pytest.mark.parametrize(
    ("metric", "scores", "best"),
    [("nll", (2.0, 1.0, 3.0), 1), ("bleu", (2.0, 1.0, 3.0), 2), ("bleu", (2.0, math.nan, math.inf), 0)],
)
def test_the_best_point_has_the_lowest_nll_or_the_highest_other_score(
    metric: str, scores: tuple[float, ...], best: int
) -> None:
    assert sweep_of(metric, *scores).best.settings == {"x": best}


def test_a_point_that_lacks_a_run_is_not_the_best() -> None:
    both = SeedsResult({1: RUN, 2: RUN}, {1: {"bleu": 1.0}, 2: {"bleu": 2.0}})
    one = SeedsResult({1: RUN}, {1: {"bleu": 9.0}})
    sweep = SweepResult([SweepPoint({"x": 1}, one), SweepPoint({"x": 2}, both)], "bleu")
    assert sweep.best.settings == {"x": 2}


def test_each_run_of_a_sweep_is_the_run_of_its_settings(tmp_path: Path) -> None:
    arguments = ["train", *write_pairs(tmp_path), *as_options(QUICK | {"schedule.name": "constant"})]
    output = tmp_path / "rates"
    both = [*arguments, "--sweep", "schedule.peak=0.001,0.01", "--seeds", "1,2", "-o", output, "--json"]
    outcome = heedful(*both)
    assert outcome.code == 0, outcome.err
    table = json.loads((output / "sweep.json").read_text(encoding="utf-8"))
    assert [point["settings"] for point in table["points"]] == [
        {"schedule.peak": 0.001},
        {"schedule.peak": 0.01},
    ]
    bests = [Path(run["best"]) for point in table["points"] for run in point["runs"]]
    assert len({weights(best) for best in bests}) == 4
    alone = [*arguments, "--set", "schedule.peak=0.01", "--set", "train.seed=2", "-o", tmp_path / "alone"]
    assert heedful(*alone).code == 0
    assert weights(tmp_path / "alone" / "best") == weights(bests[3])

    before = [(best / "model.safetensors").stat().st_mtime_ns for best in bests]
    assert heedful(*both, "--resume").code == 0
    assert [(best / "model.safetensors").stat().st_mtime_ns for best in bests] == before

    text = ["--src", tmp_path / "ten.en", "--ref", tmp_path / "ten.de", "--json"]
    report = heedful("evaluate", output, *text)
    assert report.code == 0, report.err
    assert report.out.count("seed-2") >= 2
    plotted = heedful("plot", output, "-o", tmp_path / "curves.png")
    assert plotted.code == 0, plotted.err


def test_a_checkpoint_and_an_ensemble_are_evaluated(tmp_path: Path) -> None:
    every_step = {"train.checkpoint_every_steps": 1, "train.keep_checkpoints": 2}
    run = tmp_path / "run"
    trained = heedful("train", *write_pairs(tmp_path), *as_options(QUICK | every_step), "-o", run)
    assert trained.code == 0, trained.err
    text = ["--src", tmp_path / "ten.en", "--ref", tmp_path / "ten.de", "--json"]
    last = heedful("evaluate", run / "last", *text)
    checkpoint = heedful("evaluate", run / "checkpoints" / "step-2", *text)
    assert (last.code, checkpoint.code) == (0, 0), checkpoint.err
    assert json.loads(checkpoint.out)["bleu"] == json.loads(last.out)["bleu"]
    twice = heedful("evaluate", run / "last", "--ensemble", run / "last", *text)
    assert twice.code == 0, twice.err
    assert json.loads(twice.out)["bleu"] == json.loads(last.out)["bleu"]
    assert_one_clear_line(heedful("evaluate", run / "checkpoints" / "step-9", *text), 1, "step-9")

    rows = library.read_log(run)
    validations = [row for row in rows if row["event"] == "validation"]
    assert [row["step"] for row in validations][-1] == 2
    assert all(not isinstance(value, dict) for row in rows for value in row.values())
    pandas = pytest.importorskip("pandas")
    assert len(pandas.DataFrame(rows)) == len(rows)


def test_bad_sweeps_are_one_line(tmp_path: Path) -> None:
    arguments = ["train", *write_pairs(tmp_path), *as_options(QUICK), "-o", tmp_path / "runs"]
    for sweep, named in (
        ("schedule.peak=0.1", "schedule.peak"),
        ("schedule.peek=1,2", "schedule.pe"),
        ("no", "no"),
    ):
        assert_one_clear_line(heedful(*arguments, "--sweep", sweep), 2, named)
    assert not (tmp_path / "runs").exists()
