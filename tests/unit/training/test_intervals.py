"""What is due after a step: by counts of steps, or by fractions of a run's minutes."""

from itertools import count
from typing import Any

import pytest

from heedful.settings.run import Config
from heedful.training.schedule import Due, Schedule
from heedful.training.state import Moment, Progress


def settings(valid: dict[str, Any] | None = None, **train: Any) -> Config:  # noqa: ANN401
    limits = {"max_steps": None, "max_minutes": 10.0, "checkpoint_every_steps": 5}
    return Config.model_validate({"train": limits | train, "valid": {"every_steps": 3} | (valid or {})})


def due_after(config: Config, *, step: int, seconds: float, validated_at: float) -> Due:
    progress = Progress(step=step, validated_at=validated_at)
    return Schedule(config).due(Moment(progress, seconds, epoch_length=1))


def times_of_validations(config: Config, *, step: float, validation: float) -> list[float]:
    """The seconds at which validations begin, until the minutes are over."""
    assert config.train.max_minutes is not None
    begun, seconds, validated_at = [], 0.0, 0.0
    for number in count(1):
        if seconds >= 60.0 * config.train.max_minutes:
            return begun
        seconds += step
        due = due_after(config, step=number, seconds=seconds, validated_at=validated_at)
        assert due.checkpoint == due.validation
        if due.validation:
            begun.append(seconds)
            seconds += validation
            validated_at = seconds
    raise AssertionError


@pytest.mark.parametrize(
    "limits", [{"max_steps": 100}, {"max_epochs": 3}, {"max_steps": 100, "max_minutes": None}]
)
def test_runs_with_another_limit_go_by_steps(limits: dict[str, Any]) -> None:
    config = settings(**limits)
    assert not Schedule(config).is_time_based
    for step in range(1, 31):
        due = due_after(config, step=step, seconds=1e9, validated_at=0.0)
        assert due == Due(validation=step % 3 == 0, checkpoint=step % 5 == 0)


@pytest.mark.parametrize("step", [0.7, 7.0, 14.0])
@pytest.mark.parametrize("fraction", [0.05, 0.1, 0.25])
def test_each_multiple_of_the_fraction_is_met_by_the_next_step(step: float, fraction: float) -> None:
    times = times_of_validations(settings({"every_fraction": fraction}), step=step, validation=0.0)
    assert len(times) == round(1 / fraction)
    for number, time in enumerate(times, start=1):
        assert 0.0 <= time - 600.0 * fraction * number <= step


def test_steps_longer_than_the_fraction_are_validated_one_by_one() -> None:
    assert times_of_validations(settings(), step=150.0, validation=0.0) == [150.0, 300.0, 450.0, 600.0]


def test_more_minutes_for_a_resumed_run_move_what_is_due() -> None:
    """Ten minutes were over and validated; of twenty, the next tenth ends after twelve."""
    config = settings(max_minutes=20.0)
    assert not due_after(config, step=1, seconds=719.0, validated_at=603.0).validation
    assert due_after(config, step=1, seconds=720.0, validated_at=603.0).validation
