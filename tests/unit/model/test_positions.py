import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from tolerances import FLOAT32, FLOAT64, assert_close, close
from torch import Tensor
from transformers.models.fsmt.modeling_fsmt import SinusoidalPositionalEmbedding
from transformers.models.m2m_100.modeling_m2m_100 import M2M100SinusoidalPositionalEmbedding
from transformers.models.marian.modeling_marian import MarianSinusoidalPositionalEmbedding

from heedful.decoding.backends.engine import SINUSOIDS as ENGINE_SINUSOIDS
from heedful.errors import InputError
from heedful.model.positions import LearnedPositions, SinusoidalPositions, sinusoids
from heedful.model.transformer import SINUSOIDS
from heedful.model.variants import OffsetSinusoids, concatenated_sinusoids
from heedful.settings.model import SINUSOID_OFFSETS


def test_sinusoids_grow_on_demand_and_what_was_there_stays() -> None:
    positions = SinusoidalPositions(6)
    first = positions(0, 3).clone()
    grown = positions(0, 5003)
    assert grown.shape == (5003, 6)
    assert torch.equal(grown[:3], first)
    assert torch.equal(grown, sinusoids(5003, 6))
    assert torch.equal(positions(4999, 4), grown[4999:])


def test_a_step_at_a_time_equals_all_at_once() -> None:
    positions = SinusoidalPositions(6)
    steps = torch.cat([positions(start, 1) for start in range(1500)])
    assert torch.equal(steps, sinusoids(1500, 6))


def test_sinusoids_are_not_in_the_weight_file_and_are_not_trained() -> None:
    positions = SinusoidalPositions(6)
    positions(0, 3)
    assert dict(positions.state_dict()) == {}
    assert list(positions.parameters()) == []


@pytest.mark.parametrize("context", [torch.inference_mode, torch.no_grad])
def test_a_table_that_grew_in_translation_serves_training(context: Callable[[], torch.no_grad]) -> None:
    positions = SinusoidalPositions(6)
    with context():
        positions(0, 7)
    x = torch.randn(7, 6, requires_grad=True)
    ((x + positions(0, 7)) ** 2).sum().backward()
    assert x.grad is not None


def test_learned_positions_are_rows_of_one_matrix_and_get_gradients() -> None:
    positions = LearnedPositions(6, max_positions=11)
    torch.nn.init.normal_(positions.weight)
    assert torch.equal(positions(2, 3), positions.weight[2:5])
    positions(2, 3).sum().backward()
    assert positions.weight.grad is not None
    assert positions.weight.grad.sum(dim=1).tolist() == [0, 0, 6, 6, 6, 0, 0, 0, 0, 0, 0]


@pytest.mark.parametrize(("start", "length"), [(0, 12), (11, 1), (7, 5)])
def test_beyond_learned_positions_there_is_one_clear_line(start: int, length: int) -> None:
    positions = LearnedPositions(6, max_positions=11)
    positions(0, 11)
    message = "a sequence of 12 tokens is longer than the 11 learned positions .* model.max_positions"
    with pytest.raises(InputError, match=message):
        positions(start, length)


class _Overtaken(SinusoidalPositions):
    """Between the long table's arrival and its use, another thread puts a short one in its place."""

    def __init__(self) -> None:
        self.short_is_ready, self.may_go_on, self.short_is_there = Event(), Event(), Event()
        super().__init__(6, self._formula)

    def _formula(self, length: int, d_model: int) -> Tensor:
        if length == 512:
            self.short_is_ready.set()
            assert self.may_go_on.wait(10)
        return sinusoids(length, d_model)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if isinstance(value, Tensor) and len(value) > 512:
            self.may_go_on.set()
            assert self.short_is_there.wait(10)


def test_threads_that_grow_the_table_get_their_own_positions() -> None:
    positions = _Overtaken()

    def short() -> Tensor:
        found = positions(0, 7)
        positions.short_is_there.set()
        return found

    with ThreadPoolExecutor(1) as other:
        future = other.submit(short)
        assert positions.short_is_ready.wait(10)
        assert torch.equal(positions(1990, 10), sinusoids(2000, 6)[1990:])
        assert torch.equal(future.result(), sinusoids(7, 6))
    assert torch.equal(positions(0, 3000), sinusoids(3000, 6))


PAD = 1
SIZES = pytest.mark.parametrize("d_model", [4, 6, 22, 64])


@SIZES
def test_concatenated_sinusoids_are_those_of_marian_in_transformers(d_model: int) -> None:
    marian = MarianSinusoidalPositionalEmbedding(600, d_model).create_weight()
    assert_close(concatenated_sinusoids(600, d_model), marian, FLOAT32.ELEMENT)


@SIZES
def test_fairseq_sinusoids_are_those_of_m2m100_and_fsmt(d_model: int) -> None:
    """Both count from the padding id, 1, and give padding zeros: a sentence begins at 2."""
    ids = torch.full((1, 600), 7)
    found = SINUSOIDS["fairseq"](600, d_model)
    m2m100 = M2M100SinusoidalPositionalEmbedding(600, d_model, padding_idx=PAD)
    assert torch.equal(found, m2m100(ids)[0])
    fsmt = SinusoidalPositionalEmbedding(2, d_model, PAD)  # a table that grows
    assert torch.equal(found, fsmt(ids)[0].detach())


@SIZES
@pytest.mark.parametrize(("name", "first"), [("marian", 0), ("opennmt-tf", 1), ("fairseq", 2)])
def test_sinusoids_with_an_offset_are_rows_of_one_table(name: str, first: int, d_model: int) -> None:
    """The table is of transformers' M2M100, which does not use its first rows."""
    table = M2M100SinusoidalPositionalEmbedding.get_embedding(603, d_model)
    assert torch.equal(SINUSOIDS[name](600, d_model), table[first : first + 600])


def test_sinusoids_of_marian_differ_from_those_of_marian_in_transformers() -> None:
    """By 1.9% of their norm at position 30, and 32% at 512, as measured with Marian itself."""
    ours, theirs = SINUSOIDS["marian"](513, 512), concatenated_sinusoids(513, 512)
    differences = (ours - theirs).norm(dim=1) / theirs.norm(dim=1)
    assert differences[30].item() == close(0.019, FLOAT64.ELEMENT.printed(3))
    assert differences[512].item() == close(0.32, FLOAT64.ELEMENT.printed(2))


@pytest.mark.parametrize("offset", SINUSOID_OFFSETS.values())
@pytest.mark.parametrize("d_model", [2, 4, 22, 512])
def test_sinusoids_with_an_offset_equal_their_formula(d_model: int, offset: int) -> None:
    """The wavelengths are a geometric sequence from 2 pi to 10000 * 2 pi, both included."""
    found, half = OffsetSinusoids(offset)(700, d_model), d_model // 2
    for position, i in [(0, 0), (0, half - 1), (1, half // 2), (13, 0), (699, half - 1), (699, half // 2)]:
        wavelength = 2 * math.pi * (10_000 ** (i / (half - 1)) if half > 1 else 1)
        angle = 2 * math.pi * (position + offset) / wavelength
        assert found[position, i].item() == close(math.sin(angle), FLOAT32.ELEMENT.at(1 + angle))
        assert found[position, half + i].item() == close(math.cos(angle), FLOAT32.ELEMENT.at(1 + angle))


@pytest.mark.parametrize("formula", SINUSOIDS.values(), ids=SINUSOIDS)
def test_any_order_grows_on_demand_and_starts_anywhere(formula: object) -> None:
    assert callable(formula)
    positions = SinusoidalPositions(6, formula)
    wanted: Tensor = formula(1500, 6)
    assert torch.equal(positions(0, 3), wanted[:3])
    assert torch.equal(torch.cat([positions(start, 1) for start in range(1500)]), wanted)


def test_every_position_of_a_bf16_model_differs_in_any_order() -> None:
    for formula in SINUSOIDS.values():
        positions = SinusoidalPositions(512, formula).bfloat16()
        table = positions(0, 1000)
        assert table.dtype == torch.bfloat16
        assert len(table.unique(dim=0)) == 1000


@pytest.mark.parametrize("d_model", [2, 6, 128, 512])
@pytest.mark.parametrize("name", SINUSOIDS)
def test_they_are_equal_but_for_the_last_bits(name: str, d_model: int) -> None:
    ours, models = ENGINE_SINUSOIDS[name](700, d_model), SINUSOIDS[name](700, d_model).numpy()
    assert ours.dtype == models.dtype
    # The paper's angles are in float64; the others in float32, up to 700.
    assert_close(ours, models, FLOAT32.ELEMENT.at(700 if name in SINUSOID_OFFSETS else 1))
