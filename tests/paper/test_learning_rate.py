"""5.3, equation 3: lr = d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)."""

import math

import pytest
from tolerances import FLOAT64, close

from heedful.settings.run import ScheduleConfig
from heedful.training.schedule import learning_rate

PAPER = ScheduleConfig()


@pytest.mark.parametrize(
    ("step", "d_model", "wanted"),
    [
        (1, 512, 1.7469281e-7),
        (4000, 512, 6.9877124e-4),
        (16_000, 512, 3.4938562e-4),
        (100_000, 512, 1.3975425e-4),
        (4000, 1024, 4.9410588e-4),
        (300_000, 1024, 5.7054433e-5),
    ],
)
def test_the_rate_has_the_values_of_equation_3(step: int, d_model: int, wanted: float) -> None:
    digits = 7 - math.floor(math.log10(wanted))  # eight of them count
    assert learning_rate(PAPER, step, d_model=d_model) == close(wanted, FLOAT64.ELEMENT.printed(digits))


def test_the_highest_rate_of_base_is_6_99e_4_at_step_4000() -> None:
    rates = {step: learning_rate(PAPER, step, d_model=512) for step in range(1, 100_001, 1)}
    assert max(rates, key=rates.__getitem__) == 4000
    assert f"{rates[4000]:.2e}" == "6.99e-04"


def test_the_rate_rises_in_a_line_and_falls_as_the_inverse_square_root() -> None:
    first = learning_rate(PAPER, 1, d_model=512)
    for step in (2, 3, 1000, 3999, 4000):
        assert learning_rate(PAPER, step, d_model=512) == close(step * first, FLOAT64.ELEMENT)
    highest = learning_rate(PAPER, 4000, d_model=512)
    for factor in (1, 2, 4, 25, 100):
        assert learning_rate(PAPER, 4000 * factor, d_model=512) == close(
            highest * factor**-0.5, FLOAT64.ELEMENT
        )


def test_where_training_stands_in_its_run_does_not_matter() -> None:
    rates = {learning_rate(PAPER, 5000, d_model=512, progress=progress) for progress in (0.0, 0.5, 1.0)}
    assert len(rates) == 1
