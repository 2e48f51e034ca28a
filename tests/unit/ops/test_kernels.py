"""When kernels are in use, and what happens where there are none."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from command_line import heedful
from machine_class import need_native
from ten_pairs import write_pairs
from tolerances import BF16, FLOAT32, assert_close
from torch import Tensor, nn

from heedful.errors import InputError
from heedful.model.attention import MultiHeadAttention
from heedful.ops import kernels, use_fused_ops
from heedful.ops.attention import has_weights_kernel, weights_by_kernel
from heedful.ops.fused import FastDropout
from heedful.ops.kernels import residual_norm
from heedful.runtime import native as native_library
from heedful.runtime.threads import using_threads
from heedful.training.loss import fused_linear_cross_entropy, smoothed_cross_entropy


def applied() -> bool:
    with using_threads(1):
        return kernels.kernels_apply_to(torch.zeros(2, 3))


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    none = replace(native_library.native(), level=None, functions=None, why_not="it was left out")
    monkeypatch.setattr(kernels, "native", lambda: none)
    monkeypatch.setattr("heedful.training.parallel.choice.native", lambda: none)


def test_the_library_computes_where_it_is_there() -> None:
    assert applied() == (native_library.native().level is not None)


@pytest.mark.usefixtures("without_library")
def test_without_the_library_torch_computes() -> None:
    assert not applied()


@pytest.mark.usefixtures("without_library")
def test_kernels_that_must_be_native_need_the_library(tmp_path: Path) -> None:
    options = [*write_pairs(tmp_path), "--output", tmp_path / "run", "--set", "train.kernels=native"]
    outcome = heedful("train", *options)
    assert outcome.code == 2
    assert "it was left out" in outcome.err


@pytest.fixture
def in_use() -> Iterator[None]:
    need_native()
    with using_threads(1):
        yield


def normed(x: Tensor) -> Tensor:
    return residual_norm(x, x * 2, FastDropout(0.0), nn.LayerNorm(x.shape[-1]))


def weighed(x: Tensor) -> Tensor:
    heads_BHLK = x.view(2, 1, 3, 8)
    return weights_by_kernel(heads_BHLK, heads_BHLK, torch.ones(1, 1, 3, 3, dtype=torch.bool).tril())


def loss_of(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    targets = torch.arange(6) + 1
    return fused_linear_cross_entropy(
        x, nn.Linear(8, 9), targets, smoothing=0.1, pad_id=0, kernels=True
    ).smoothed


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize("function", [normed, weighed, loss_of])
def test_a_second_derivative_is_refused_and_not_wrong(function: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(1)
    x = torch.randn(6, 8, requires_grad=True)
    function(x).sum().backward()  # once is no matter
    for output in (function(x).sum(), (function(x) ** 2).sum()):
        with pytest.raises(RuntimeError, match="differentiable only once: create_graph=True"):
            torch.autograd.grad(output, x, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable only once"):
        torch.autograd.functional.hessian(lambda each: function(each).sum(), x.detach())


def test_the_plain_formulas_have_second_derivatives() -> None:
    torch.manual_seed(1)
    x, targets = torch.randn(6, 9, dtype=torch.float64, requires_grad=True), torch.arange(6) + 1
    assert torch.autograd.gradgradcheck(
        lambda logits: smoothed_cross_entropy(logits, targets, smoothing=0.1, pad_id=0).smoothed, x
    )


@pytest.mark.usefixtures("in_use")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_sizes_and_ids_that_cannot_be_are_one_line(dtype: torch.dtype) -> None:
    x = torch.zeros(64, dtype=dtype)
    for rows, width in ((-1, 8), (2, 0), (2, -1), (2, kernels.MAX_WIDTH + 1), (2, 2**62)):
        with pytest.raises(InputError, match="masked_softmax"):
            kernels.call("masked_softmax", dtype, x, x, rows, 1, 1, width, 0, 0, 1.0)
    for target in (9, -1, 10**12):
        with pytest.raises(InputError, match="loss_rows"):
            fused_linear_cross_entropy(
                torch.zeros(2, 8, requires_grad=True), nn.Linear(8, 9), torch.tensor([1, target]),
                smoothing=0.1, pad_id=0, kernels=True,
            )  # fmt: skip


@pytest.mark.usefixtures("in_use")
def test_targets_of_another_integer_type_are_the_same_targets() -> None:
    states, output, targets = torch.randn(6, 8), nn.Linear(8, 9), torch.arange(6) + 1
    wanted = fused_linear_cross_entropy(states, output, targets, smoothing=0.1, pad_id=0, kernels=True)
    for other in (targets.int(), torch.stack([targets, targets], dim=1)[:, 0]):
        found = fused_linear_cross_entropy(states, output, other, smoothing=0.1, pad_id=0, kernels=True)
        assert found == wanted


@pytest.mark.usefixtures("in_use")
def test_norms_of_other_shapes_and_types_are_left_to_torch() -> None:
    x = torch.randn(2, 3, 8)
    norm = nn.LayerNorm(8)
    row = torch.randn(1, 1, 8)
    assert_close(residual_norm(row, x, FastDropout(0.0), norm), norm(row + x), FLOAT32.ROW)
    both = nn.LayerNorm((3, 8))
    assert_close(residual_norm(x, x, FastDropout(0.0), both), both(x + x), FLOAT32.ROW)
    half = nn.LayerNorm(8).bfloat16()
    found = residual_norm(x.bfloat16(), x.bfloat16(), FastDropout(0.0), half)
    assert_close(found, half(x.bfloat16() + x.bfloat16()), BF16.ROW)
    with pytest.raises(RuntimeError, match="shape"):
        residual_norm(x, x, FastDropout(0.0), nn.LayerNorm(16))


@pytest.mark.usefixtures("in_use")
def test_masks_of_other_shapes_and_types_have_no_kernel() -> None:
    queries, keys = torch.randn(2, 4, 3, 8), torch.randn(2, 4, 5, 8)
    fits = torch.ones(2, 1, 3, 5, dtype=torch.bool)
    assert has_weights_kernel(queries, keys, fits, None)
    assert has_weights_kernel(queries, keys, fits[:1, :, :1], None)
    others = [
        fits.float(),
        fits[..., :1],
        fits[..., :4],
        fits[:, :, :2],
        fits[[0, 0, 0]],
        fits[0],
        fits.expand(2, 4, 3, 5),
    ]
    assert not any(has_weights_kernel(queries, keys, mask, None) for mask in others)
    attention = MultiHeadAttention(8, 2)
    use_fused_ops(attention, kernels=True)
    x, context = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    one = torch.ones(2, 1, 1, 1, dtype=torch.bool)
    assert_close(attention(x, context, one), attention(x, context, None), FLOAT32.ROW)
    for shape in ((3, 1, 1, 5), (2, 1, 2, 5), (2, 1, 1, 4)):
        with pytest.raises(RuntimeError, match="size"):
            attention(x, context, torch.ones(shape, dtype=torch.bool))
