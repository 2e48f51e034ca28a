"""R-Drop (Liang et al., 2021) in pieces, against its equations in torch's functions and plain autograd."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from small_models import small_model
from tolerances import BF16, FLOAT64, assert_apart, assert_close, close, largest
from torch import Tensor, nn

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.settings.run import TrainConfig
from heedful.training.loss import fused_linear_cross_entropy
from heedful.training.step import accumulate_gradients, batch_loss

D, V, PAD = 5, 11, 0
Losses = tuple[Tensor, Tensor]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(41)


def papers_loss(first: Tensor, second: Tensor, ids: Tensor, *, smoothing: float, alpha: float) -> Losses:
    """Equations 2 to 4, summed over tokens: both losses plus α times half of both divergences; the nll."""
    q = torch.full_like(first, smoothing / (V - 1)).index_fill(1, torch.tensor(PAD), 0.0)
    q = q.scatter_add(1, ids[:, None], torch.full_like(first[:, :1], 1 - smoothing))
    entropies = F.cross_entropy(first, q, reduction="sum") + F.cross_entropy(second, q, reduction="sum")
    nll = F.cross_entropy(first, ids, reduction="sum") + F.cross_entropy(second, ids, reduction="sum")
    one, other = first.log_softmax(dim=-1), second.log_softmax(dim=-1)
    there = F.kl_div(one, other, log_target=True, reduction="sum")
    back = F.kl_div(other, one, log_target=True, reduction="sum")
    return entropies + alpha * (there + back) / 2, nll.detach()


def direct(states: Tensor, output: nn.Linear, ids: Tensor, *, smoothing: float, alpha: float) -> Losses:
    logits = output(states)
    return papers_loss(logits[::2], logits[1::2], ids, smoothing=smoothing, alpha=alpha)


def projected(states: Tensor, output: nn.Linear, ids: Tensor, *, smoothing: float, alpha: float) -> Losses:
    twice = ids.repeat_interleave(2)
    return fused_linear_cross_entropy(states, output, twice, smoothing=smoothing, pad_id=PAD, r_drop=alpha)


def with_gradients(
    loss: Callable[..., Losses], states: Tensor, output: nn.Linear, ids: Tensor, **numbers: float
) -> list[Tensor]:
    states = states.detach().clone().requires_grad_()
    output.zero_grad()
    smoothed, nll = loss(states, output, ids, **numbers)
    (0.37 * smoothed).backward()
    leaves = (states, *output.parameters())
    return [smoothed.detach(), nll, *(leaf.grad.clone() for leaf in leaves if leaf.grad is not None)]


def material(count: int, *, width: int = D, bias: bool = True) -> tuple[Tensor, nn.Linear, Tensor]:
    """States of two passes that differ, a matrix, and ids that are no padding."""
    output = nn.Linear(width, V, bias=bias).double()
    return 3 * torch.randn(2 * count, width, dtype=torch.float64), output, torch.randint(1, V, (count,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("alpha", [0.7, 5.0])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("count", [1, 7, 256, 256 + 3])
def test_the_loss_in_pieces_is_the_papers(smoothing: float, alpha: float, bias: bool, count: int) -> None:
    states, output, ids = material(count, bias=bias)
    found = with_gradients(projected, states, output, ids, smoothing=smoothing, alpha=alpha)
    wanted = with_gradients(direct, states, output, ids, smoothing=smoothing, alpha=alpha)
    assert len(found) == len(wanted) == (5 if bias else 4)
    bound = FLOAT64.MODEL.at(largest(*wanted[2:]))  # of gradients
    for one, other in zip(found, wanted, strict=True):
        assert_close(one, other, bound)


def test_under_bf16_it_is_near_the_one_in_float64() -> None:
    states, output, ids = material(300, width=64)
    states[1::2] = states[::2] + 0.3 * states[1::2]  # as near to each other as two passes are
    wanted = with_gradients(direct, states, output, ids, smoothing=0.1, alpha=5.0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = with_gradients(projected, states.bfloat16(), output.float(), ids, smoothing=0.1, alpha=5.0)
    for one, other in zip(found[:2], wanted[:2], strict=True):
        assert one.dtype == torch.float32
        assert_close(one.double(), other, BF16.ROW.averaged(300))
    for one, other in zip(found[2:], wanted[2:], strict=True):
        assert float((one.double() - other).norm() / other.norm()) < 0.02


def small_batch(seed: int = 41) -> Batch:
    torch.manual_seed(seed)
    src, tgt_in, tgt_out = (torch.randint(1, V, (3, length)) for length in (7, 5, 5))
    for ids in (tgt_in, tgt_out):
        ids[1, 2:] = PAD
    src[2, 4:] = PAD
    return Batch(src, tgt_in, tgt_out, num_tgt_tokens=12)


def gradients(model: Transformer, loss: Tensor) -> list[Tensor]:
    model.zero_grad()
    loss.backward()
    return [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]


@pytest.mark.parametrize("alpha", [0.5, 5.0])
def test_a_batch_is_passed_twice_under_different_dropout(alpha: float) -> None:
    """Half of the paper's loss: a mean over passes, so that it compares with the loss of one pass."""
    model, batch = small_model(dropout=0.3, word_dropout=0.2).double().train(), small_batch()
    torch.manual_seed(43)
    found = batch_loss(model, batch, TrainConfig(label_smoothing=0.1, r_drop=alpha))
    found_gradients = gradients(model, found.smoothed)
    torch.manual_seed(43)
    logits = model(torch.cat([batch.src, batch.src]), torch.cat([batch.tgt_in, batch.tgt_in]))
    real = batch.tgt_out != PAD
    first, second = logits[:3][real], logits[3:][real]
    assert_apart(first, second, FLOAT64.MODEL)
    smoothed, nll = papers_loss(first, second, batch.tgt_out[real], smoothing=0.1, alpha=alpha)
    assert_close(found.smoothed, smoothed / 2, FLOAT64.MODEL)
    assert_close(found.nll, nll / 2, FLOAT64.MODEL)
    for one, other in zip(found_gradients, gradients(model, smoothed / 2), strict=True):
        assert_close(one, other, FLOAT64.MODEL)


def test_where_dropout_drops_nothing_two_passes_are_one() -> None:
    """Neither tokens nor losses count twice."""
    found = []
    for alpha in (5.0, 0.0):
        model, batches = small_model(dropout=0.0).double(), [small_batch(47), small_batch(53)]
        sums = accumulate_gradients(model, batches, TrainConfig(r_drop=alpha), precision="float32")
        found.append((sums, [weight.grad for weight in model.parameters()]))
    (twice, its_gradients), (once, other_gradients) = found
    assert twice.num_tgt_tokens == once.num_tgt_tokens == 24
    assert twice.smoothed == close(once.smoothed, FLOAT64.MODEL)
    assert twice.nll == close(once.nll, FLOAT64.MODEL)
    for one, other in zip(its_gradients, other_gradients, strict=True):
        assert_close(one, other, FLOAT64.MODEL)
