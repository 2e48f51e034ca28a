"""The schedules beside the paper's own, which tests/paper has."""

from typing import Any

import pytest

from heedful.settings.run import ScheduleConfig
from heedful.training.schedule import learning_rate


def rate(step: int, progress: float = 0.0, **settings: Any) -> float:  # noqa: ANN401
    config = ScheduleConfig.model_validate({"warmup_steps": 100, "peak": 0.5} | settings)
    return learning_rate(config, step, d_model=512, progress=progress)


@pytest.mark.parametrize("name", ["inverse_sqrt", "constant", "linear", "cosine", "1-sqrt"])
def test_each_schedule_warms_up_in_a_line_to_its_peak(name: str) -> None:
    assert [rate(step, name=name) for step in (1, 50, 99, 100)] == pytest.approx([0.005, 0.25, 0.495, 0.5])


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
    assert rate(200, progress, name="linear", decay_fraction=0.6) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("progress", "wanted"), [(0.0, 0.5), (0.5, 0.5), (0.625, 0.4267767), (0.75, 0.25), (1.0, 0.0)]
)
def test_cosine_falls_over_the_last_part_of_the_run(progress: float, wanted: float) -> None:
    assert rate(200, progress, name="cosine", decay_fraction=0.5) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("progress", "wanted"), [(0.0, 0.5), (0.5, 0.5), (0.545, 0.35), (0.68, 0.2), (0.905, 0.05), (1.0, 0.0)]
)
def test_1_sqrt_falls_over_the_last_part_of_the_run(progress: float, wanted: float) -> None:
    assert rate(200, progress, name="1-sqrt", decay_fraction=0.5) == pytest.approx(wanted)


@pytest.mark.parametrize("name", ["linear", "cosine", "1-sqrt"])
def test_the_decay_ends_at_the_floor_and_never_rises(name: str) -> None:
    rates = [rate(200, progress / 50, name=name, floor=0.1) for progress in range(51)]
    assert rates == sorted(rates, reverse=True)
    assert rates[0] == 0.5
    assert rates[-1] == pytest.approx(0.05)


def test_the_scale_multiplies_the_papers_rate() -> None:
    once, twice = (rate(7, name="paper", peak=None, scale=scale) for scale in (1.0, 2.0))
    assert twice == pytest.approx(2 * once)


ALL = ["inverse_sqrt", "constant", "linear", "cosine", "1-sqrt"]


@pytest.mark.parametrize("name", ALL)
def test_a_warm_up_in_proportion_rises_with_the_run_and_its_first_rate_is_above_zero(name: str) -> None:
    shares = {"name": name, "warmup_fraction": 0.2, "decay_fraction": 0.8}
    assert 0.0 < rate(1, 0.0, **shares, warmup_steps=0) <= 0.001
    rates = [rate(7, progress, **shares, warmup_steps=0) for progress in (0.05, 0.1, 0.15, 0.2)]
    assert rates == pytest.approx([0.125, 0.25, 0.375, 0.5])


@pytest.mark.parametrize("name", ALL)
def test_a_share_of_a_run_of_steps_is_a_number_of_steps(name: str) -> None:
    """The progress is that before a step: a tenth of 1,000 steps is 100 steps, one step later."""
    for step in range(2, 1000, 7):
        by_share = rate(
            step, (step - 1) / 1000, name=name, warmup_fraction=0.1, decay_fraction=0.6, warmup_steps=0
        )
        by_steps = rate(step - 1, (step - 1) / 1000, name=name, decay_fraction=0.6)
        assert by_share == pytest.approx(by_steps)


def test_a_share_of_the_run_is_of_its_nearest_limit_whatever_the_number_of_steps() -> None:
    for step in (1, 42, 10**6):
        assert (
            rate(step, 0.05, name="linear", warmup_fraction=0.1, decay_fraction=0.7, warmup_steps=0) == 0.25
        )
