from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
import torch
from torch import Tensor

from heedful.errors import InputError
from heedful.model.positions import LearnedPositions, SinusoidalPositions, sinusoids


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
