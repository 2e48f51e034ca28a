"""The orders of sinusoids that Marian's and fairseq's models were trained with."""

import math

import pytest
import torch
from torch import Tensor
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from heedful.model.positions import SinusoidalPositions, sinusoids
from heedful.model.variants import concatenated_sinusoids, fairseq_sinusoids

PAD = 1
SIZES = pytest.mark.parametrize("d_model", [4, 6, 22, 64])
# fairseq computes its angles in float32, which at position 700 is off by as much as this.
FLOAT32_ANGLES = 700 * 2.0**-22


@SIZES
def test_concatenated_sinusoids_are_marians(d_model: int) -> None:
    marian = MarianSinusoidalPositionalEmbedding(600, d_model).create_weight()
    torch.testing.assert_close(concatenated_sinusoids(600, d_model), marian, rtol=0.0, atol=1e-6)


@SIZES
def test_concatenated_sinusoids_are_the_papers_in_another_order(d_model: int) -> None:
    found, paper = concatenated_sinusoids(31, d_model), sinusoids(31, d_model)
    for i in range(d_model // 2):
        assert torch.equal(found[:, i], paper[:, 2 * i])
        assert torch.equal(found[:, d_model // 2 + i], paper[:, 2 * i + 1])


@SIZES
def test_fairseq_sinusoids_are_those_of_m2m100_and_fsmt(d_model: int) -> None:
    """Both count from the padding id, 1, and give padding zeros: a sentence begins at 2."""
    ids = torch.full((1, 600), 7)
    found = fairseq_sinusoids(600, d_model)
    m2m100 = M2M100SinusoidalPositionalEmbedding(600, d_model, padding_idx=PAD)
    assert torch.equal(found, m2m100(ids)[0])
    fsmt = SinusoidalPositionalEmbedding(2, d_model, PAD)  # a table that grows
    assert torch.equal(found, fsmt(ids)[0].detach())


@pytest.mark.parametrize("d_model", [2, 4, 22, 512])
def test_fairseq_sinusoids_equal_their_formula(d_model: int) -> None:
    """The wavelengths are a geometric sequence from 2 pi to 10000 * 2 pi, both included."""
    found, half = fairseq_sinusoids(700, d_model), d_model // 2
    for position, i in [(0, 0), (0, half - 1), (1, half // 2), (13, 0), (699, half - 1), (699, half // 2)]:
        wavelength = 2 * math.pi * (10_000 ** (i / (half - 1)) if half > 1 else 1)
        angle = 2 * math.pi * (position + 2) / wavelength
        assert found[position, i].item() == pytest.approx(math.sin(angle), abs=FLOAT32_ANGLES)
        assert found[position, half + i].item() == pytest.approx(math.cos(angle), abs=FLOAT32_ANGLES)


@pytest.mark.parametrize("formula", [concatenated_sinusoids, fairseq_sinusoids])
def test_either_order_grows_on_demand_and_starts_anywhere(formula: object) -> None:
    assert callable(formula)
    positions = SinusoidalPositions(6, formula)
    wanted: Tensor = formula(1500, 6)
    assert torch.equal(positions(0, 3), wanted[:3])
    assert torch.equal(torch.cat([positions(start, 1) for start in range(1500)]), wanted)


def test_every_position_of_a_bf16_model_differs_in_either_order() -> None:
    for formula in (concatenated_sinusoids, fairseq_sinusoids):
        positions = SinusoidalPositions(512, formula).bfloat16()
        table = positions(0, 1000)
        assert table.dtype == torch.bfloat16
        assert len(table.unique(dim=0)) == 1000
