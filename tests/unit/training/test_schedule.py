"""The schedules beside the paper's own, which tests/paper has."""

from typing import Any

import pytest
from tolerances import FLOAT64, close

from heedful.settings.run import Config, ScheduleConfig
from heedful.training.reporting import end_reason, has_learned, pace_message, shortfall
from heedful.training.schedule import Schedule, learning_rate
from heedful.training.state import Moment, Progress


def rate(step: int, progress: float = 0.0, **settings: Any) -> float:  # noqa: ANN401
    config = ScheduleConfig.model_validate({"warmup_steps": 100, "peak": 0.5} | settings)
    return learning_rate(config, step, d_model=512, progress=progress)


@pytest.mark.parametrize("name", ["inverse_sqrt", "constant", "linear", "cosine", "1-sqrt"])
def test_each_schedule_warms_up_in_a_line_to_its_peak(name: str) -> None:
    assert [rate(step, name=name) for step in (1, 50, 99, 100)] == close(
        [0.005, 0.25, 0.495, 0.5], FLOAT64.ROW
    )


@pytest.mark.parametrize("name", ["inverse_sqrt", "constant", "linear", "cosine", "1-sqrt"])
def test_without_warm_up_the_first_step_has_the_peak(name: str) -> None:
    assert rate(1, name=name, warmup_steps=0) == 0.5


def test_constant_stays() -> None:
    assert {rate(step, progress, name="constant") for step in (100, 10**6) for progress in (0.3, 1.0)} == {
        0.5
    }


@pytest.mark.parametrize(
    ("progress", "wanted"), [(0.0, 0.5), (0.4, 0.5), (0.55, 0.375), (0.7, 0.25), (1.0, 0.0), (1.1, 0.0)]
)
def test_linear_falls_over_the_last_part_of_the_run(progress: float, wanted: float) -> None:
    assert rate(200, progress, name="linear", decay_fraction=0.6) == close(wanted, FLOAT64.ROW)


@pytest.mark.parametrize(
    ("progress", "wanted"), [(0.0, 0.5), (0.5, 0.5), (0.625, 0.4267767), (0.75, 0.25), (1.0, 0.0)]
)
def test_cosine_falls_over_the_last_part_of_the_run(progress: float, wanted: float) -> None:
    assert rate(200, progress, name="cosine", decay_fraction=0.5) == close(wanted, FLOAT64.ROW.printed(7))


@pytest.mark.parametrize(
    ("progress", "wanted"), [(0.0, 0.5), (0.5, 0.5), (0.545, 0.35), (0.68, 0.2), (0.905, 0.05), (1.0, 0.0)]
)
def test_1_sqrt_falls_over_the_last_part_of_the_run(progress: float, wanted: float) -> None:
    assert rate(200, progress, name="1-sqrt", decay_fraction=0.5) == close(wanted, FLOAT64.ROW)


@pytest.mark.parametrize("name", ["linear", "cosine", "1-sqrt"])
def test_the_decay_ends_at_the_floor_and_never_rises(name: str) -> None:
    rates = [rate(200, progress / 50, name=name, floor=0.1) for progress in range(51)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 0.5
    assert rates[-1] == close(0.05, FLOAT64.ROW)


def test_the_scale_multiplies_the_papers_rate() -> None:
    once, twice = (rate(7, name="paper", peak=None, scale=scale) for scale in (1.0, 2.0))
    assert twice == close(2 * once, FLOAT64.ROW)


ALL = ["inverse_sqrt", "constant", "linear", "cosine", "1-sqrt"]


@pytest.mark.parametrize("name", ALL)
def test_a_warm_up_in_proportion_rises_with_the_run_and_its_first_rate_is_above_zero(name: str) -> None:
    shares = {"name": name, "warmup_fraction": 0.2, "decay_fraction": 0.8}
    assert 0.0 < rate(1, 0.0, **shares, warmup_steps=0) <= 0.001
    rates = [rate(7, progress, **shares, warmup_steps=0) for progress in (0.05, 0.1, 0.15, 0.2)]
    assert rates == close([0.125, 0.25, 0.375, 0.5], FLOAT64.ROW)


@pytest.mark.parametrize("name", ALL)
def test_a_share_of_a_run_of_steps_is_a_number_of_steps(name: str) -> None:
    """The progress is that before a step: a tenth of 1,000 steps is 100 steps, one step later."""
    for step in range(2, 1000, 7):
        by_share = rate(
            step, (step - 1) / 1000, name=name, warmup_fraction=0.1, decay_fraction=0.6, warmup_steps=0
        )
        by_steps = rate(step - 1, (step - 1) / 1000, name=name, decay_fraction=0.6)
        assert by_share == close(by_steps, FLOAT64.ROW)


def test_a_share_of_the_run_is_of_its_nearest_limit_whatever_the_number_of_steps() -> None:
    for step in (1, 42, 10**6):
        assert (
            rate(step, 0.05, name="linear", warmup_fraction=0.1, decay_fraction=0.7, warmup_steps=0) == 0.25
        )


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
        ({"max_minutes": 0.5}, {}, {}, "train.max_minutes",
         "reached the limit of 30 seconds after 42 steps"),
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
         "about 1,500 steps (10 epochs) of 0.8 s fit into 20 minutes without validations; warm-up: the first "
         "20%"),
        ({"max_steps": 300, "max_minutes": 20}, LINEAR | {"warmup_steps": 30},
         "about 300 steps (2 epochs) of 0.8 s take 4 minutes; warm-up: the first 30"),
        ({"max_epochs": 3}, LINEAR | {"warmup_steps": 600},
         "about 450 steps (3 epochs) of 0.8 s take 6 minutes; warm-up: the first 600, more than there are"),
        ({"max_epochs": 120}, LINEAR | {"warmup_fraction": 0.1},
         "about 18,000 steps (120 epochs) of 0.8 s take 240 minutes without validations; warm-up: the first "
         "10%"),
    ],
)  # fmt: skip
def test_the_pace_says_what_fits(train: dict[str, Any], schedule: dict[str, Any], message: str) -> None:
    config = run(train=train, schedule=schedule)
    assert pace_message(config, Moment(Progress(step=5), 4.0, epoch_length=150), pace=0.8) == message


def test_the_pace_of_a_resumed_run_counts_the_steps_it_had() -> None:
    config = run(train={"max_minutes": 10}, schedule=LINEAR)
    said = pace_message(config, Moment(Progress(step=105), 500.0, epoch_length=100), pace=1.0)
    assert said.startswith("about 205 steps (2 epochs) of 1 s fit into 10 minutes")  # 100 s are left


def test_the_pace_of_a_run_that_hardly_moves_is_in_words_and_names_the_way_out() -> None:
    now = Moment(Progress(step=1), 60.0, epoch_length=20)
    steps = "about 1 step (0.05 epochs) of 60 s fits into"
    warmup = "without validations; warm-up: the first 4,000, more than there are; to learn more"
    assert pace_message(run(train={"max_minutes": 1}), now, pace=60.0) == (
        f"{steps} 1 minute {warmup}, raise train.max_minutes, or take a smaller model (--preset small)"
    )
    adapted = run(train={"max_minutes": 0.11, "init": "base"})  # of a model whose size is fixed
    assert pace_message(adapted, now, pace=60.0) == f"{steps} 6.6 seconds {warmup}, raise train.max_minutes"


def test_the_pace_has_the_seconds_of_a_validation_where_one_was_timed() -> None:
    config = run(train={"max_minutes": 2}, valid={"every_fraction": 0.5})
    now = Moment(Progress(step=5), 5.0, epoch_length=20)
    assert " fit into 2 minutes without validations (40 s each); " in pace_message(
        config, now, pace=1.0, validation=40.0
    )
    once = run(train={"max_minutes": 2}, valid={"every_fraction": 1.0})  # at the end, beyond the minutes
    assert "validations" not in pace_message(once, now, pace=1.0, validation=40.0)


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
        "the model does not translate yet (bleu 0.00): training ended inside its warm-up and saw 42% of its "
        "text; raise train.max_minutes, lower schedule.warmup_steps, or take a smaller model "
        "(--preset small)"
    )
    share = {"schedule": LINEAR | {"warmup_fraction": 0.3}}
    assert told(Progress(step=42, epoch=2), limit="valid.patience", done=0.2, **share) == (
        "training ended inside its warm-up; train for longer, or take a smaller model (--preset small)"
    )
    assert told(Progress(step=42, epoch=2), done=1.0, **share) == ""


def test_a_run_of_less_than_an_epoch_says_how_much_it_saw() -> None:
    progress = Progress(step=5000, next_batch=30, best_scores={"bleu": 20.0})
    assert told(progress, limit="train.max_steps") == (
        "training saw 30% of its text; raise train.max_steps, or take a smaller model (--preset small)"
    )


def test_a_run_is_told_of_a_smaller_model_only_where_there_is_one() -> None:
    progress = Progress(step=5000, next_batch=30)

    def advice(**settings: Any) -> str:  # noqa: ANN401
        return told(progress, **settings).partition("; ")[2]

    width = {"num_heads": 4}
    assert advice(model=width | {"d_model": 256}) == (
        "raise train.max_minutes, or take a smaller model (--preset tiny)"
    )
    assert advice(model=width | {"d_model": 128}) == "raise train.max_minutes"
    assert advice(train={"max_minutes": 3, "init": "base"}) == "raise train.max_minutes"


@pytest.mark.parametrize(
    ("bleu", "chrf", "learned"),
    [(0.0, 5.0, False), (0.99, 12.0, False), (1.0, 12.0, True), (40.0, 60.0, True), (0.0, 33.0, True)],
)
def test_a_model_translates_if_bleu_or_chrf_says_so(bleu: float, chrf: float, learned: bool) -> None:
    assert has_learned({"bleu": bleu, "chrf": chrf}) is learned
    assert has_learned({"nll": 9.0})
