"""3.5: PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), PE(pos, 2i + 1) = cos of the same."""

import math

import pytest
import torch
from tolerances import FLOAT32, assert_close, close

from heedful.model.positions import SinusoidalPositions, sinusoids

# Worked out with a calculator for d_model = 4 (angles pos and pos / 100) and 512.
GOLDEN = [
    (4, 0, [0.0, 1.0, 0.0, 1.0]),
    (4, 1, [0.8414709848, 0.5403023059, 0.0099998333, 0.9999500004]),
    (4, 2, [0.9092974268, -0.4161468365, 0.0199986667, 0.9998000067]),
    (4, 100, [-0.5063656411, 0.8623188723, 0.8414709848, 0.5403023059]),
    (512, 1, [0.8414709848, 0.5403023059, 0.8218562126, 0.5696950087]),
]


@pytest.mark.parametrize(("d_model", "position", "wanted"), GOLDEN)
def test_encodings_have_their_golden_values(d_model: int, position: int, wanted: list[float]) -> None:
    row = sinusoids(position + 1, d_model)[position]
    assert row[: len(wanted)].tolist() == close(wanted, FLOAT32.ELEMENT)


def test_sine_and_cosine_interleave_and_share_their_angle() -> None:
    table = sinusoids(50, 22).double()
    sines, cosines = table[:, 0::2], table[:, 1::2]
    assert_close(sines**2 + cosines**2, torch.ones(50, 11, dtype=torch.float64), FLOAT32.ELEMENT)
    assert table[0].tolist() == [0.0, 1.0] * 11


def test_wavelengths_run_from_two_pi_to_10_000_times_two_pi() -> None:
    d_model = 512
    slowest = torch.arctan2(*sinusoids(2, d_model)[1, -2:].double()).item()
    assert torch.arctan2(*sinusoids(2, d_model)[1, :2].double()).item() == close(1.0, FLOAT32.ELEMENT)
    assert slowest == close(10_000 ** -(510 / 512), FLOAT32.ELEMENT.at(1e-4))


@pytest.mark.parametrize("offset", [1, 7, 100])
def test_the_encoding_at_an_offset_is_a_linear_function_of_the_encoding(offset: int) -> None:
    """The same rotation of each pair of dimensions, wherever in the sequence."""
    d_model = 22
    table = sinusoids(300, d_model).double()
    shift = torch.zeros(d_model, d_model, dtype=torch.float64)
    for i in range(0, d_model, 2):
        angle = offset / 10_000 ** (i / d_model)
        shift[i, i] = shift[i + 1, i + 1] = math.cos(angle)
        shift[i, i + 1], shift[i + 1, i] = math.sin(angle), -math.sin(angle)
    assert_close(table[offset:], table[:-offset] @ shift.T, FLOAT32.ELEMENT)


def test_every_position_of_a_bf16_model_has_its_own_encoding() -> None:
    """An angle in bf16 tells 797 of 5,000 positions apart; angles are float64, and rounded last."""
    positions = SinusoidalPositions(64).bfloat16()
    table = positions(0, 5000)
    assert table.dtype == torch.bfloat16
    assert len(torch.unique(table.float(), dim=0)) == 5000
    assert torch.equal(table, sinusoids(5000, 64).bfloat16())
    assert len(torch.unique(torch.arange(5000).bfloat16())) == 797
