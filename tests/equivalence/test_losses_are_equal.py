"""The loss three ways: written out number by number, torch's own, and the one that never holds all logits."""

import math
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from naive_transformer import gradients, numbers
from scalars import Number, differentiate, divide, exp, log, minus, times, total
from tolerances import BF16, FLOAT32, FLOAT64, assert_close, close, largest
from torch import Tensor, nn

from heedful.training.loss import fused_linear_cross_entropy, smoothed_cross_entropy

N, D, V, PAD = 7, 5, 11, 3
SMOOTHINGS = pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.7])


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(17)


def targets(count: int = N, vocab_size: int = V) -> Tensor:
    ids = torch.randint(0, vocab_size - 1, (count,))
    return ids + (ids >= PAD).long()  # anything but padding


@SMOOTHINGS
def test_the_loss_is_the_written_out_cross_entropy(smoothing: float) -> None:
    logits, wanted_ids = torch.randn(N, V, dtype=torch.float64, requires_grad=True), targets()
    found = smoothed_cross_entropy(logits, wanted_ids, smoothing=smoothing, pad_id=PAD)
    found.smoothed.backward()

    naive_logits, losses, nlls = numbers(logits), [], []
    for row, wanted_id in zip(naive_logits, wanted_ids.tolist(), strict=True):
        powers = [exp(logit) for logit in row]
        log_probs = [log(divide(power, total(powers))) for power in powers]
        q = [0.0 if i == PAD else smoothing / (V - 1) for i in range(V)]
        q[wanted_id] += 1 - smoothing
        assert sum(q) == close(1.0, FLOAT64.ROW)
        losses.append(minus(Number(0.0), total(times(p, w) for p, w in zip(log_probs, q, strict=True))))
        nlls.append(-log_probs[wanted_id].value)
    loss = total(losses)
    differentiate(loss)
    assert found.smoothed.item() == close(loss.value, FLOAT64.ROW)
    assert found.nll.item() == close(sum(nlls), FLOAT64.ROW)
    assert_close(logits.grad, gradients(naive_logits), FLOAT64.ROW)


@SMOOTHINGS
def test_the_loss_is_torchs_with_the_share_of_padding_taken_out(smoothing: float) -> None:
    """torch spreads its ε over all V, padding too: its ε V / (V - 1) gives the others what they get here."""
    logits, wanted_ids = torch.randn(N, V, dtype=torch.float64), targets()
    theirs = smoothing * V / (V - 1)
    log_probs = logits.log_softmax(-1)
    nll = F.cross_entropy(logits, wanted_ids, reduction="sum")
    on_padding = -log_probs[:, PAD].sum() * smoothing / (V - 1)
    wanted = F.cross_entropy(logits, wanted_ids, reduction="sum", label_smoothing=theirs)
    wanted = wanted + (theirs - smoothing) * nll - on_padding
    found = smoothed_cross_entropy(logits, wanted_ids, smoothing=smoothing, pad_id=PAD)
    assert_close(found.smoothed, wanted, FLOAT32.ROW)
    assert_close(found.nll, nll, FLOAT32.ROW)


def projected(smoothing: float) -> Callable[[Tensor, nn.Linear, Tensor], tuple[Tensor, Tensor]]:
    return lambda states, output, ids: fused_linear_cross_entropy(
        states, output, ids, smoothing=smoothing, pad_id=PAD
    )


def direct(smoothing: float) -> Callable[[Tensor, nn.Linear, Tensor], tuple[Tensor, Tensor]]:
    return lambda states, output, ids: smoothed_cross_entropy(
        output(states), ids, smoothing=smoothing, pad_id=PAD
    )


def with_gradients(
    loss: Callable[[Tensor, nn.Linear, Tensor], tuple[Tensor, Tensor]],
    states: Tensor,
    output: nn.Linear,
    ids: Tensor,
) -> list[Tensor]:
    """The smoothed loss, the nll, and the gradients of a multiple of the first."""
    states = states.detach().clone().requires_grad_()
    output.zero_grad()
    smoothed, nll = loss(states, output, ids)
    (0.37 * smoothed).backward()
    leaves = (states, *output.parameters())
    return [smoothed.detach(), nll.detach(), *(leaf.grad.clone() for leaf in leaves if leaf.grad is not None)]


@SMOOTHINGS
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, N, 256, 256 * 2 + 3])
def test_the_loss_in_pieces_is_the_loss(smoothing: float, bias: bool, count: int) -> None:
    output = nn.Linear(D, V, bias=bias).double()
    if bias:
        nn.init.normal_(output.bias)
    states, ids = torch.randn(count, D, dtype=torch.float64), targets(count)
    found = with_gradients(projected(smoothing), states, output, ids)
    wanted = with_gradients(direct(smoothing), states, output, ids)
    assert len(found) == len(wanted) == (5 if bias else 4)
    bound = FLOAT64.MODEL.at(largest(*wanted[2:]))  # of gradients
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, bound)


@pytest.mark.parametrize("bias", [False, True])
def test_the_loss_in_pieces_under_bf16_is_near_the_loss_in_float32(bias: bool) -> None:
    width, vocab_size, count = 64, 101, 300
    output = nn.Linear(width, vocab_size, bias=bias)
    states, ids = torch.randn(count, width), targets(count, vocab_size)
    wanted = with_gradients(direct(0.1), states, output, ids)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = with_gradients(projected(0.1), states.bfloat16(), output, ids)
    for one, other in zip(found[:2], wanted[:2], strict=True):
        assert one.dtype == torch.float32  # sums are not taken in bf16
        assert_close(one, other, BF16.ROW.averaged(count))
    for one, other in zip(found[2:], wanted[2:], strict=True):
        assert float((one.float() - other).norm() / other.norm()) < 0.01
    assert found[3].dtype == torch.float32


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_padding_gets_no_share_so_its_improbability_costs_nothing(smoothing: float) -> None:
    logits = torch.zeros(2, V, dtype=torch.float64)
    logits[:, PAD] = -600.0
    ids = torch.tensor([0, V - 1])
    states, output = torch.eye(2, dtype=torch.float64), nn.Linear(2, V, bias=False).double()
    output.weight = nn.Parameter(logits.T)
    for loss in (direct(smoothing), projected(smoothing)):
        smoothed, nll = loss(states, output, ids)
        assert smoothed.item() == close(nll.item(), FLOAT64.ROW)
        assert nll.item() == close(2 * math.log(V - 1), FLOAT64.ROW)


@pytest.mark.parametrize("bias", [True, False])
def test_a_frozen_matrix_gets_no_gradient_and_changes_no_other(bias: bool) -> None:
    output, wanted_ids = nn.Linear(D, V, bias=bias).double(), targets()
    states = torch.randn(N, D, dtype=torch.float64, requires_grad=True)
    projected(0.1)(states, output, wanted_ids)[0].backward()
    wanted, states.grad = states.grad, None
    output.zero_grad()
    output.requires_grad_(requires_grad=False)
    projected(0.1)(states, output, wanted_ids)[0].backward()
    assert torch.equal(states.grad, wanted)
    assert all(parameter.grad is None for parameter in output.parameters())
