"""A learning rate is found without a training, for new models and for those to fine-tune."""

import json
import math
from pathlib import Path

import pytest
from command_line import heedful
from ten_pairs import as_options, write_pairs
from tiny_bundle import SHOWN_PAIRS, save_memorised
from tolerances import FLOAT64, close

from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.tasks.learning_rate import settings_for
from heedful.tasks.train import train
from heedful.training.events import Event
from heedful.training.schedule import learning_rate

QUICK = {
    "model.d_model": 8, "model.num_heads": 2, "model.d_ff": 8, "train.processes": 1, "batch.tokens": 96,
    "valid.decode_sentences": 0,
}  # fmt: skip


@pytest.mark.parametrize("is_new", [True, False], ids=["new", "init"])
def test_the_command_finds_a_rate_that_can_be_set(
    is_new: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = [*write_pairs(tmp_path), *as_options(QUICK)]
    if not is_new:
        save_memorised(tmp_path / "base", SHOWN_PAIRS)
        cache = as_options({"data.cache_dir": "cache", "train.processes": 1})
        arguments = [*arguments[:4], "--init", "base", *cache]
    monkeypatch.chdir(tmp_path)
    outcome = heedful("train", *arguments, "--find-lr", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    best = min(found["tested"], key=lambda each: each["nll"])
    assert best["nll"] < found["before"]
    assert found["rate"] == best["rate"]
    [(key, value)] = found["settings"].items()
    assert (key, math.log10(value)) == (
        "schedule.peak",
        close(math.log10(best["rate"]), FLOAT64.ROW.printed(2)),
    )
    assert load_config(preset="tiny", overrides={key: value}).schedule.peak == value
    assert not (tmp_path / "runs").exists()


def test_the_setting_for_the_schedule_of_the_paper_has_that_rate_at_the_end_of_its_warm_up() -> None:
    [(key, scale)] = settings_for(3e-4, Config()).items()
    config = load_config(overrides={key: scale})
    peak = learning_rate(config.schedule, config.schedule.warmup_steps, d_model=config.model.d_model)
    assert peak == close(3e-4, FLOAT64.ROW.at(0.0).printed(5))


def test_a_schedule_of_ones_own_needs_no_range_test(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    save_memorised(tmp_path / "base", SHOWN_PAIRS)
    settings = {
        "data.src": str(tmp_path / "ten.en"), "data.tgt": str(tmp_path / "ten.de"), "train.max_steps": 1,
        "data.cache_dir": str(tmp_path / "cache"), "train.init": str(tmp_path / "base"), "train.processes": 1,
        "valid.decode_sentences": 0,
    }  # fmt: skip
    for schedule in (None, lambda step, done: 1e-3):
        said: list[Event] = []
        run = tmp_path / f"run-{schedule is None}"
        train(
            load_config(overrides=settings),
            run,
            callbacks=[said.append],
            schedule=schedule,
        )
        is_found = load_config(run / "config.toml").schedule.peak != 0.0
        assert (is_found, any("schedule.peak" in str(event) for event in said)) == (schedule is None,) * 2
