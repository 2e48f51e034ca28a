"""The same training with several seeds: each run is the run of its seed, and the table is of all."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_one_clear_line, heedful
from ten_pairs import as_options, write_pairs
from tolerances import FLOAT64, assert_close, close

from heedful.tasks.seeds import SeedsResult
from heedful.tasks.train import train
from heedful.tasks.training import TrainResult
from heedful.training.events import EndEvent

QUICK = {
    "model.d_model": 8, "model.num_heads": 2, "model.d_ff": 8, "train.max_steps": 2, "train.processes": 1,
    "batch.tokens": 96, "valid.decode_sentences": 2,
}  # fmt: skip


def weights(bundle: Path) -> bytes:
    return (bundle / "model.safetensors").read_bytes()


def result_of(*rows: dict[str, float]) -> SeedsResult:
    run = TrainResult(Path("best"), Path("last"), EndEvent(1, 1.0, "", 0, 1, 1))
    return SeedsResult(dict.fromkeys(range(len(rows)), run), dict(enumerate(rows)))


def test_mean_and_deviation_are_those_of_a_sample() -> None:
    values = np.random.default_rng(1).normal(30.0, 2.0, (5, 2))
    result = result_of(*({"bleu": bleu, "nll": nll} for bleu, nll in values.tolist()))
    assert_close([*result.mean.values()], values.mean(axis=0), FLOAT64.ROW.at(30.0))
    assert_close([*result.deviation.values()], values.std(axis=0, ddof=1), FLOAT64.ROW.at(30.0))


def test_a_score_that_a_run_lacks_has_no_mean() -> None:
    result = result_of({"nll": 1.0, "bleu": 3.0, "chrf": 1.0}, {"nll": 2.0, "bleu": float("inf")})
    assert (result.mean, list(result.deviation)) == ({"nll": 1.5}, ["nll"])


def test_each_run_is_the_run_of_its_seed_and_only_missing_ones_are_trained_again(tmp_path: Path) -> None:
    arguments = ["train", *write_pairs(tmp_path), *as_options(QUICK)]
    both = [*arguments, "--seeds", "4,7", "-o", tmp_path / "runs", "--json"]
    outcome = heedful(*both)
    assert outcome.code == 0, outcome.err
    table = json.loads(outcome.out)
    best = {seed: tmp_path / "runs" / f"seed-{seed}" / "best" for seed in (4, 7)}
    trained = {seed: weights(path) for seed, path in best.items()}
    assert trained[4] != trained[7]
    assert [row["best"] for row in table["runs"]] == [str(path) for path in best.values()]
    assert json.loads((tmp_path / "runs" / "seeds.json").read_text(encoding="utf-8")) == table

    assert heedful(*arguments, "--set", "train.seed=7", "-o", tmp_path / "alone").code == 0
    assert weights(tmp_path / "alone" / "best") == trained[7]

    (tmp_path / "runs" / "seed-7").rename(tmp_path / "elsewhere")
    left_alone = (best[4] / "model.safetensors").stat()
    assert_one_clear_line(heedful(*both), 1, "seed-4", "--resume")
    assert json.loads(heedful(*both, "--resume").out) == table
    assert weights(best[7]) == trained[7]
    assert (best[4] / "model.safetensors").stat().st_mtime_ns == left_alone.st_mtime_ns
    changed = heedful(*both, "--resume", "--set", "optimizer.clip_norm=0.25")
    assert_one_clear_line(changed, 2, "optimizer.clip_norm")
    card = (best[7] / "README.md").read_text(encoding="utf-8")
    assert card.count(f"{table['mean']['nll']:.3f}") == 1  # of each score, the table has one mean
    assert "| 4 |" in card


def test_the_seeds_of_a_training_in_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = QUICK | {"tokenizer.vocab_size": 200, "train.threads": 1, "data.cache_dir": "cache"}
    output = tmp_path / "runs"
    result = train(src="ten.en", tgt="ten.de", preset="tiny", output=output, settings=settings, seeds=[1, 2])
    nll = [scores["nll"] for scores in result.scores.values()]
    assert result.mean["nll"] == close(sum(nll) / 2, FLOAT64.ROW)
    assert [run.best for run in result.runs.values()] == [output / "seed-1/best", output / "seed-2/best"]
    again = train(output=output, resume=True, max_steps=3, seeds=[1, 2, 3])
    assert [run.end.step for run in again.runs.values()] == [3, 3, 3]


@pytest.mark.parametrize("seeds", ["1", "1,1", "1,-1"])
def test_seeds_that_cannot_be_are_refused(seeds: str, tmp_path: Path) -> None:
    outcome = heedful("train", *write_pairs(tmp_path), "--seeds", seeds, "-o", tmp_path / "runs")
    assert_one_clear_line(outcome, 2, "seed")
    assert not (tmp_path / "runs").exists()
