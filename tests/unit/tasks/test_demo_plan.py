"""How long a demo trains on a machine of some speed, and what it says of that."""

import math
import tempfile
from pathlib import Path

import pytest
from tolerances import FLOAT64, close

from heedful.data.phrasebook import phrase_book
from heedful.settings.run import Config
from heedful.tasks import demo as demo_plan
from heedful.tasks.demo import Plan, plan_training, time_steps
from heedful.training.events import EndEvent

ENOUGH = max(demo_plan._BLEU_AFTER)
TWO_AVX2_CORES = 0.17  # seconds of a step in float32, measured: docs/results.md


def test_the_measured_scores_rise_with_the_steps() -> None:
    steps, scores = zip(*demo_plan._BLEU_AFTER.items(), strict=True)
    assert list(steps) == sorted(steps)
    for column in zip(*scores, strict=True):
        assert list(column) == sorted(column)


@pytest.mark.parametrize("slowness", [0.1, 1.0, 1.7])
def test_two_avx2_cores_and_slower_ones_are_expected_to_keep_the_promise(slowness: float) -> None:
    """BLEU 95 and 90; half a minute of the four is over when the steps are timed."""
    plan = plan_training(slowness * TWO_AVX2_CORES, seconds=200.0)
    seen, unseen = plan.expected_bleu
    assert seen >= 95.0
    assert unseen >= 90.0
    assert plan.expected_steps * plan.seconds_per_step < 200.0


def test_a_fast_machine_takes_enough_steps_and_no_more() -> None:
    plan = plan_training(0.01, seconds=200.0)
    assert plan.limits["max_steps"] == plan.expected_steps == ENOUGH
    assert plan.expected_bleu == demo_plan._BLEU_AFTER[ENOUGH]
    assert plan.message.startswith(f"this machine takes about 0.01 s a step: {ENOUGH:,} steps in about ")
    assert "--max-minutes" not in plan.message


def test_a_slow_machine_takes_as_many_steps_as_fit_and_hears_what_more_minutes_would_give() -> None:
    plan = plan_training(1.0, seconds=200.0)
    assert plan.limits["max_steps"] == ENOUGH  # should it turn out to be faster
    assert plan.limits["max_minutes"] == close(plan.seconds / 60.0, FLOAT64.ELEMENT)
    assert 100 <= plan.expected_steps <= plan.seconds < 200.0
    best = demo_plan._BLEU_AFTER[ENOUGH]
    assert plan.expected_bleu < best
    assert plan.message.endswith(
        f" on unseen combinations ({best[0]:.0f} and {best[1]:.0f} with --max-minutes {-(-ENOUGH // 60)})"
    )


def ended(step: int, *, warning: str = "") -> EndEvent:
    return EndEvent(step, 0.5 * step, "reached the limit of 3 minutes", 0, step, step, warning)


def test_a_machine_slower_than_measured_is_named_with_the_minutes_that_it_needs() -> None:
    plan = Plan(0.2, steps=ENOUGH, seconds=168.3)
    assert plan.expected_steps == 841
    assert plan.shortfall(ended(325, warning="training saw 68% of its text; raise train.max_minutes")) == (
        "the machine was slower than measured (325 of 841 steps): the scores are lower than expected; start "
        f"again with --overwrite --max-minutes {math.ceil(ENOUGH * 0.5 / 60)}"
    )
    assert plan.shortfall(ended(800)) == ""


def test_few_steps_that_were_asked_for_have_advice_that_the_demo_can_follow() -> None:
    plan = Plan(0.5, steps=None, seconds=60.0)
    assert plan.shortfall(ended(120, warning="training saw 25% of its text; raise train.max_minutes")) == (
        "training had 120 steps, which are few; start again with --overwrite --max-minutes "
        f"{math.ceil(ENOUGH * 0.5 / 60)}"
    )


def test_a_machine_too_slow_for_anything_still_has_a_plan() -> None:
    plan = plan_training(30.0, seconds=200.0)
    assert plan.expected_steps == 1
    assert plan.seconds == 1.0
    assert 0.0 <= plan.expected_bleu[1] <= plan.expected_bleu[0] < 1.0


def test_minutes_that_are_asked_for_are_the_only_limit() -> None:
    plan = Plan(0.1, steps=None, seconds=600.0)
    assert plan.limits == {"max_steps": None, "max_minutes": 10.0}
    assert plan.expected_steps == 6000
    assert plan.expected_bleu == demo_plan._BLEU_AFTER[ENOUGH]


def test_what_is_expected_lies_between_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    measured = {0: (0.0, 0.0), 100: (50.0, 40.0), 200: (90.0, 80.0)}
    monkeypatch.setattr(demo_plan, "_BLEU_AFTER", measured)
    monkeypatch.setattr(demo_plan, "_ENOUGH_STEPS", 200)
    for steps, wanted in ((50, (25.0, 20.0)), (100, (50.0, 40.0)), (150, (70.0, 60.0)), (300, (90.0, 80.0))):
        assert Plan(1.0, steps=None, seconds=float(steps)).expected_bleu == close(wanted, FLOAT64.ROW)


def test_timing_steps_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = Config.model_validate(
        {
            "model": {
                "d_model": 8,
                "num_heads": 2,
                "d_ff": 8,
                "num_encoder_layers": 1,
                "num_decoder_layers": 1,
            },
            "tokenizer": {"vocab_size": 300},
            "batch": {"tokens": 64},
            "optimizer": {"name": "muon"},
            "train": {"max_steps": 10, "ema_decay": 0.9},
        }
    )
    pairs = phrase_book().train[:200]
    assert time_steps(config, pairs) > 0.0
    left = {path.name for path in tmp_path.iterdir()}
    assert not {name for name in left if name.startswith("heedful")}  # torch may leave a folder of its own
