"""Why a run ended, how much fits into it, and what it says of itself when it was too short."""

from typing import Any

import pytest

from heedful.settings.run import Config
from heedful.training.checkpoint import Progress
from heedful.training.reporting import end_reason, has_learned, pace_message, shortfall
from heedful.training.schedule import Moment, Schedule

LINEAR = {"name": "linear", "peak": 1e-3, "decay_fraction": 0.7}


def run(**sections: Any) -> Config:  # noqa: ANN401
    return Config.model_validate({"train": {"max_steps": None} | sections.pop("train", {}), **sections})


@pytest.mark.parametrize(
    ("train", "valid", "progress", "limit", "reason"),
    [
        ({"max_steps": 42}, {}, {}, "train.max_steps", "reached the limit of 42 steps"),
        ({"max_minutes": 3.5}, {}, {}, "train.max_minutes",
         "reached the limit of 3.5 minutes after 42 steps"),
        ({"max_epochs": 2}, {}, {"epoch": 2}, "train.max_epochs",
         "reached the limit of 2 epochs after 42 steps"),
        ({"max_steps": 99}, {"patience": 3}, {"stale_validations": 3}, "valid.patience",
         "3 validations without a better nll after 42 steps"),
    ],
)  # fmt: skip
def test_the_reason_names_the_limit_and_the_steps(
    train: dict[str, Any], valid: dict[str, Any], progress: dict[str, Any], limit: str, reason: str
) -> None:
    config = run(train=train, valid=valid)
    assert Schedule(config).reached_limit(Moment(Progress(step=42, **progress), 3.5 * 60, 1)) == limit
    assert end_reason(config, limit, step=42, steps_taken=42) == reason


def test_a_run_that_was_over_already_names_the_setting() -> None:
    config = run(train={"max_steps": 50})
    assert Schedule(config).reached_limit(Moment(Progress(step=102), 17.0, 1)) == "train.max_steps"
    assert (
        end_reason(config, "train.max_steps", step=102, steps_taken=0) == "102 steps done, train.max_steps=50"
    )


@pytest.mark.parametrize(
    ("train", "schedule", "message"),
    [
        ({"max_minutes": 20}, LINEAR | {"warmup_fraction": 0.2},
         "about 1,500 steps (10 epochs) fit into 20 minutes, 0.8 s each; warm-up: the first 20%"),
        ({"max_steps": 300, "max_minutes": 20}, LINEAR | {"warmup_steps": 30},
         "about 300 steps (2 epochs) take 4 minutes, 0.8 s each; warm-up: the first 30"),
        ({"max_epochs": 3}, LINEAR | {"warmup_steps": 600},
         "about 450 steps (3 epochs) take 6 minutes, 0.8 s each; warm-up: the first 600, more than there "
         "are"),
        ({"max_epochs": 120}, LINEAR | {"warmup_fraction": 0.1},
         "about 18,000 steps (120 epochs) take 240 minutes, 0.8 s each; warm-up: the first 10%"),
    ],
)  # fmt: skip
def test_the_pace_says_what_fits(train: dict[str, Any], schedule: dict[str, Any], message: str) -> None:
    config = run(train=train, schedule=schedule)
    assert pace_message(config, Moment(Progress(step=5), 4.0, epoch_length=150), pace=0.8) == message


def test_the_pace_of_a_resumed_run_counts_the_steps_it_had() -> None:
    config = run(train={"max_minutes": 10}, schedule=LINEAR)
    said = pace_message(config, Moment(Progress(step=105), 500.0, epoch_length=100), pace=1.0)
    assert said.startswith("about 205 steps (2 epochs) fit into 10 minutes, 1 s each")  # 100 s are left


def told(progress: Progress, *, limit: str = "train.max_minutes", done: float = 1.0, **settings: Any) -> str:  # noqa: ANN401
    config = run(**({"train": {"max_minutes": 3}} | settings))
    seen = progress.epoch + progress.next_batch / 100
    return shortfall(config, progress, limit=limit, done=done, seen=seen)


def test_a_run_that_was_long_enough_has_nothing_to_say() -> None:
    progress = Progress(step=5000, epoch=3, best_scores={"bleu": 20.0})
    assert told(progress) == ""
    assert told(Progress(step=5000, epoch=1, best_scores={"nll": 2.0})) == ""  # nothing was decoded


def test_a_run_that_ends_inside_its_warm_up_says_so_and_what_to_do() -> None:
    short = {"schedule": LINEAR | {"warmup_steps": 600}}
    assert told(Progress(step=42, next_batch=42, best_scores={"bleu": 0.0}), **short) == (
        "the model does not translate yet (BLEU 0.00): training ended inside its warm-up and saw 42% of its "
        "text; raise train.max_minutes, lower schedule.warmup_steps, or take a smaller preset"
    )
    share = {"schedule": LINEAR | {"warmup_fraction": 0.3}}
    assert told(Progress(step=42, epoch=2), limit="valid.patience", done=0.2, **share) == (
        "training ended inside its warm-up; train for longer, or take a smaller preset"
    )
    assert told(Progress(step=42, epoch=2), done=1.0, **share) == ""


def test_a_run_of_less_than_an_epoch_says_how_much_it_saw() -> None:
    progress = Progress(step=5000, next_batch=30, best_scores={"bleu": 20.0})
    assert told(progress, limit="train.max_steps") == (
        "training saw 30% of its text; raise train.max_steps, or take a smaller preset"
    )


@pytest.mark.parametrize(("bleu", "learned"), [(0.0, False), (0.99, False), (1.0, True), (40.0, True)])
def test_a_bleu_below_one_is_no_translation(bleu: float, learned: bool) -> None:
    assert has_learned({"bleu": bleu}) is learned
    assert has_learned({"nll": 9.0})
