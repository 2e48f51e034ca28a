"""Muon: its polynomials computed anew, its directions against the SVD, its step against torch's own."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from tolerances import BF16, FLOAT32, FLOAT64, Bound, assert_apart, assert_close, close
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from heedful.settings.options import TrainingPrecision
from heedful.training import optimizer
from heedful.training.optimizer import COEFFICIENTS, Muon, orthogonalise

LOWEST = 0.003  # of the singular values, for a norm of 1, that the polynomials bring close to 1
BAND: dict[TrainingPrecision, tuple[float, float]] = {"float32": (0.77, 1.22), "bf16": (0.7, 1.25)}
# Of the directions, beside that of the band: bfloat16 has 8 bits of each number.
ERROR: dict[TrainingPrecision, Bound] = {"float32": FLOAT32.MODEL.at(64), "bf16": BF16.MODEL}
PRECISIONS: tuple[TrainingPrecision, ...] = ("float32", "bf16")
SHAPES = [(48, 48), (300, 300), (40, 80), (40, 160), (80, 40), (260, 520), (520, 260)]

Polynomial = tuple[float, float, float]


def applied(polynomials: list[Polynomial], x: np.ndarray) -> np.ndarray:
    for a, b, c in polynomials:
        x = a * x + b * x**3 + c * x**5
    return x


def test_the_polynomials_bring_values_close_to_one_and_never_beyond_their_interval() -> None:
    values = applied(list(COEFFICIENTS), np.geomspace(LOWEST, 1.0, 10_000))
    assert values.min() == close(0.774, FLOAT64.MODEL.printed(2))
    assert values.max() == close(1.205, FLOAT64.MODEL.printed(2))
    below = applied(list(COEFFICIENTS), np.geomspace(1e-6, LOWEST, 1000))
    assert np.all(np.diff(below) > 0)
    assert below.min() > 0


def matrix_with(values: Tensor, rows: int, columns: int) -> tuple[Tensor, Tensor]:
    """A matrix with these singular values, and the orthogonal one nearest to it."""
    generator = torch.Generator().manual_seed(rows + columns)
    u, _ = torch.linalg.qr(torch.randn(rows, len(values), generator=generator, dtype=torch.float64))
    v, _ = torch.linalg.qr(torch.randn(columns, len(values), generator=generator, dtype=torch.float64))
    return (u * values @ v.T).float(), (u @ v.T).float()


def spread_values(number: int) -> Tensor:
    """From 1 down to a little more than LOWEST times their norm."""
    values = torch.logspace(0, -3, number, dtype=torch.float64)
    return values.clamp_min(1.1 * LOWEST * float(values.norm()))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize(("rows", "columns"), SHAPES)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_singular_values_come_close_to_one_and_vectors_stay(
    rows: int, columns: int, scale: float, precision: TrainingPrecision
) -> None:
    matrix, nearest = matrix_with(spread_values(min(rows, columns)), rows, columns)
    result = orthogonalise(scale * matrix, precision)
    assert result.shape == matrix.shape
    assert result.dtype == matrix.dtype
    u, _, vh = torch.linalg.svd(matrix.double(), full_matrices=False)
    assert_close((u @ vh).float(), nearest, FLOAT32.MODEL)
    inner = u.T @ result.double() @ vh.T  # diagonal where the singular vectors are the same
    values = inner.diagonal()
    low, high = BAND[precision]
    assert low <= values.min() <= values.max() <= high
    assert_close(inner, torch.diag(values), ERROR[precision])
    assert_close(u @ inner @ vh, result.double(), ERROR[precision])


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("decades", [0, 2, 3, 4, 6])
@pytest.mark.parametrize(("rows", "columns"), [(40, 80), (48, 48), (128, 128), (300, 300)])
def test_no_singular_value_overshoots(
    rows: int, columns: int, decades: int, precision: TrainingPrecision
) -> None:
    """A value that rounding lifts beyond a polynomial's interval would diverge; small ones may stay small."""
    values = torch.logspace(0, -decades, min(rows, columns), dtype=torch.float64)
    result = orthogonalise(matrix_with(values, rows, columns)[0], precision)
    assert torch.linalg.svdvals(result.double()).max() <= BAND[precision][1]


@pytest.mark.parametrize("precision", PRECISIONS)
def test_it_is_computed_in_the_precision_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, precision: TrainingPrecision
) -> None:
    used: list[torch.dtype] = []
    by_steps = optimizer._by_steps

    def watched(x: Tensor) -> Tensor:
        used.append(x.dtype)
        return by_steps(x)

    monkeypatch.setattr(optimizer, "_by_steps", watched)
    assert orthogonalise(torch.eye(5), precision).dtype == torch.float32
    assert used == [{"float32": torch.float32, "bf16": torch.bfloat16}[precision]]


@pytest.mark.parametrize(("rows", "columns"), [(5, 10), (40, 160), (260, 520), (300, 300)])
def test_both_ways_agree(rows: int, columns: int) -> None:
    x = matrix_with(spread_values(rows), rows, columns)[0]
    x = x / x.norm()
    assert_close(optimizer._by_gram_matrix(x), optimizer._by_steps(x), ERROR["float32"])


@pytest.mark.parametrize(
    ("shape", "precision", "way"),
    [
        ((40, 79), "float32", "steps"),
        ((40, 80), "float32", "gram"),
        ((80, 40), "float32", "gram"),
        ((40, 80), "bf16", "steps"),
    ],
)
def test_wide_and_tall_matrices_go_by_the_gram_matrix_in_float32(
    monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int], precision: TrainingPrecision, way: str
) -> None:
    taken: list[str] = []

    def watch(name: str, inner: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        def watched(x: Tensor) -> Tensor:
            taken.append(name)
            return inner(x)

        return watched

    monkeypatch.setattr(optimizer, "_by_steps", watch("steps", optimizer._by_steps))
    monkeypatch.setattr(optimizer, "_by_gram_matrix", watch("gram", optimizer._by_gram_matrix))
    orthogonalise(torch.ones(shape), precision)
    assert taken == [way]


@pytest.mark.parametrize("size", [1, 5, 127, 128, 256, 300, 512])
def test_a_symmetric_product_is_the_plain_one(size: int) -> None:
    torch.manual_seed(size)
    x = torch.randn(size, 2 * size + 3)
    assert_close(optimizer._symmetric(x, x.T), x @ x.T, FLOAT32.ROW.at(32))
    gram = x @ x.T / size
    assert_close(optimizer._symmetric(gram, gram), gram @ gram, FLOAT32.ROW.at(32))


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [(5, 7), (48, 160), (160, 48), (300, 300), (301, 777), (520, 512)])
def test_the_multiplications_are_counted_as_they_are_done(
    shape: tuple[int, int], precision: TrainingPrecision
) -> None:
    matrix = torch.ones(shape)
    with FlopCounterMode(display=False) as counter:
        orthogonalise(matrix, precision)
    assert 2 * optimizer.num_multiplications(matrix, precision) == counter.get_total_flops()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("shape", [(4, 4), (4, 8), (300, 300)])
def test_a_zero_matrix_stays_zero(shape: tuple[int, int], precision: TrainingPrecision) -> None:
    assert torch.equal(orthogonalise(torch.zeros(shape), precision), torch.zeros(shape))


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch before 2.9 has no Muon")
def test_a_step_is_that_of_torchs_muon_with_this_direction(
    monkeypatch: pytest.MonkeyPatch, weight_decay: float
) -> None:
    """Momentum, Nesterov's look ahead, decay and scale are torch's; only the direction is exchanged."""
    import torch.optim._muon as theirs

    monkeypatch.setattr(
        theirs, "_zeropower_via_newtonschulz", lambda update, *_: orthogonalise(update, "float32")
    )
    torch.manual_seed(5)
    shapes = [(8, 8), (8, 24), (24, 8)]
    ours, others = ([torch.nn.Parameter(torch.ones(shape)) for shape in shapes] for _ in range(2))
    settings = {"momentum": 0.95, "weight_decay": weight_decay, "precision": "float32"}
    one = Muon([{"params": ours, "lr": 0.0} | settings])
    other = torch.optim.Muon(others, weight_decay=weight_decay, adjust_lr_fn="match_rms_adamw")
    for step in range(1, 6):
        for mine, another in zip(ours, others, strict=True):
            mine.grad = torch.randn_like(mine)
            another.grad = mine.grad.clone()
        for each in (one, other):
            each.param_groups[0]["lr"] = 0.01 * step
            each.step()
        for mine, another in zip(ours, others, strict=True):
            assert_close(mine, another, FLOAT32.MODEL)
    assert_apart(ours[0], torch.ones(8, 8), FLOAT32.MODEL)


def test_a_weight_without_a_gradient_stays() -> None:
    moved, still = (torch.nn.Parameter(torch.ones(3, 5)) for _ in range(2))
    moved.grad = torch.ones(3, 5)
    settings = {"lr": 0.1, "momentum": 0.95, "weight_decay": 0.1, "precision": "float32"}
    optimizer = Muon([{"params": [moved, still]} | settings])
    optimizer.step()
    assert torch.equal(still, torch.ones(3, 5))
    assert not torch.equal(moved, torch.ones(3, 5))
    assert still not in optimizer.state
