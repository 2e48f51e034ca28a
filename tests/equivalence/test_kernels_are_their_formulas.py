"""The native kernels, at every level, against the operations of torch that they stand for."""

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from machine_class import as_class, every_level, need_level
from tolerances import FLOAT32, assert_close, format_of, largest
from torch import Tensor, nn

from heedful.model.attention import attention_weights
from heedful.model.transformer import Transformer
from heedful.ops import kernels, use_fused_ops
from heedful.ops.attention import weights_by_kernel
from heedful.ops.fused import FastDropout
from heedful.ops.kernels import residual_norm
from heedful.runtime.threads import using_threads
from heedful.settings.model import ModelConfig
from heedful.training.loss import fused_linear_cross_entropy

DTYPES = (torch.float32, torch.bfloat16)


@pytest.fixture(autouse=True, params=every_level())
def in_use(request: pytest.FixtureRequest) -> Iterator[None]:
    need_level(request.param)
    with as_class(level=request.param, threads=1):
        yield


def leaf(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_()


def norm_of(width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width, eps=1e-5)
    nn.init.normal_(norm.weight)
    nn.init.normal_(norm.bias)
    return norm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1, 7, 64, 130])
def test_residual_norm_is_layer_norm_of_the_sum(dtype: torch.dtype, width: int) -> None:
    torch.manual_seed(1)
    norm, dropout = norm_of(width), FastDropout(0.0)
    x, h, grad = (torch.randn(3, 5, width).to(dtype) for _ in range(3))
    ours, wide = [leaf(x), leaf(h)], [leaf(x.float()), leaf(h.float())]
    found = residual_norm(*ours, dropout, norm)
    found.backward(grad)
    found_weights = [norm.weight.grad, norm.bias.grad]
    norm.zero_grad()
    wanted = norm(wide[0] + wide[1])
    wanted.backward(grad.float())
    assert found.dtype == dtype
    pairs = [
        (found, wanted),
        *((one.grad, other.grad) for one, other in zip(ours, wide, strict=True)),
        *zip(found_weights, [norm.weight.grad, norm.bias.grad], strict=True),
    ]
    for one, other in pairs:
        scale = largest(other) * (1 if width > 1 else norm.eps**-0.5)
        assert_close(one.float(), other, format_of(dtype).ROW.at(scale))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_residual_norm_drops_what_its_backward_pass_drops(p: float) -> None:
    torch.manual_seed(2)
    norm, dropout = norm_of(64), FastDropout(p)
    x, h = leaf(torch.randn(40, 25, 64)), leaf(torch.randn(40, 25, 64))
    found = residual_norm(x, h, dropout, norm)
    found.backward(torch.randn_like(found))
    assert x.grad is not None
    assert h.grad is not None
    factor = h.grad / x.grad
    kept = factor > 0.5
    assert_close(factor[kept], torch.full_like(factor[kept], 1 / (1 - p)), FLOAT32.ELEMENT)
    assert not h.grad[~kept].any()
    assert_close(found, norm(x + h * kept / (1 - p)), FLOAT32.ROW)


@pytest.mark.parametrize("p", [0.1, 0.3])
def test_residual_norm_drops_at_random(p: float) -> None:
    torch.manual_seed(3)
    norm, dropout = nn.LayerNorm(128), FastDropout(p)

    def kept() -> Tensor:
        h = leaf(torch.randn(1000, 128))
        residual_norm(torch.randn(1000, 128), h, dropout, norm).backward(torch.randn(1000, 128))
        assert h.grad is not None
        return (h.grad != 0).float()

    one, other = kept(), kept()
    deviation = (p * (1 - p)) ** 0.5
    by_chance = 5 * deviation  # of a mean over n elements: divided by sqrt(n)
    assert (one.mean() - (1 - p)).abs() < by_chance / 128_000**0.5
    assert (one.mean(0) - (1 - p)).abs().max() < by_chance / 1000**0.5
    assert (one.mean(1) - (1 - p)).abs().max() < by_chance / 128**0.5
    centred = one - one.mean()
    for shifted in (centred.roll(1, 0), centred.roll(1, 1), other - other.mean()):
        assert (centred * shifted).mean().abs() < 5 * deviation**2 / 128_000**0.5
    torch.manual_seed(3)
    assert torch.equal(kept(), one)


@pytest.mark.parametrize("p", [0.999995, 1 - 2**-33, 1 - 2**-53])
def test_residual_norm_takes_a_rate_near_one(p: float) -> None:
    torch.manual_seed(4)
    norm, dropout = norm_of(64), FastDropout(p)
    x, h = leaf(torch.randn(40, 25, 64)), leaf(torch.randn(40, 25, 64))
    found = residual_norm(x, h, dropout, norm)
    found.backward(torch.ones_like(found))
    assert h.grad is not None
    assert x.grad is not None
    dropped = (h.grad == 0).all(-1)
    assert dropped.float().mean() > 0.9
    assert_close(found[dropped], norm(x[dropped]), FLOAT32.ROW)
    assert x.grad.isfinite().all()


def test_residual_norm_drops_nothing_in_evaluation() -> None:
    norm, dropout = nn.LayerNorm(16), FastDropout(0.5).eval()
    x, h = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    assert_close(residual_norm(x, h, dropout, norm), norm(x + h), FLOAT32.ROW)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (5, 7), (16, 16), (20, 33), (3, 100)])
@pytest.mark.parametrize("mask_shape", ["padding", "causal", "any"])
def test_weights_are_the_papers(dtype: torch.dtype, queries: int, keys: int, mask_shape: str) -> None:
    torch.manual_seed(4)
    masks = {
        "padding": torch.rand(3, 1, 1, keys) < 0.6,  # some rows have no choice at all
        "causal": torch.ones(1, 1, queries, keys, dtype=torch.bool).tril(),
        "any": torch.rand(3, 1, queries, keys) < 0.3,
    }
    mask = masks[mask_shape]
    q, k = torch.randn(3, 2, queries, 8).to(dtype) * 3, torch.randn(3, 2, keys, 8).to(dtype) * 3
    grad = torch.randn(3, 2, queries, keys).to(dtype)
    ours, wide = [leaf(q), leaf(k)], [leaf(q.float()), leaf(k.float())]
    found = weights_by_kernel(*ours, mask)
    found.backward(grad)
    wanted = attention_weights(*wide, mask)
    wanted.backward(grad.float())
    assert found.dtype == dtype
    assert not found[~mask.expand_as(found)].any()
    for one, other in [(found, wanted), *zip([x.grad for x in ours], [x.grad for x in wide], strict=True)]:
        scale = 3 * largest(other)
        assert_close(one.float(), other, format_of(dtype).ROW.at(scale))


@pytest.mark.parametrize("dtype", DTYPES)
def test_loss_and_its_gradients_are_the_formulas(dtype: torch.dtype) -> None:
    torch.manual_seed(5)
    output = nn.Linear(24, 1000)
    nn.init.normal_(output.weight)
    states, targets = torch.randn(900, 24), torch.randint(1, 1000, (900,))
    results = []
    for wanted in (True, False):
        x = leaf(states)
        output.zero_grad()
        enabled = dtype == torch.bfloat16
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = fused_linear_cross_entropy(x, output, targets, smoothing=0.1, pad_id=0, kernels=wanted)
        loss.smoothed.backward()
        results.append([loss.smoothed.detach(), loss.nll, x.grad, output.weight.grad, output.bias.grad])
    for one, other in zip(*results, strict=True):
        assert_close(one, other, format_of(dtype).ROW.at(largest(other)))


def test_extreme_logits_have_the_loss_of_torch() -> None:
    output = nn.Linear(2, 4, bias=False)
    with torch.no_grad():
        output.weight.copy_(torch.tensor([[0.0, 0.0], [500.0, 0.0], [-500.0, 3.0], [20.0, 1.0]]))
    states, targets = torch.tensor([[1.0, 1.0], [-1.0, 2.0]]), torch.tensor([2, 1])
    loss = fused_linear_cross_entropy(states, output, targets, smoothing=0.0, pad_id=0, kernels=True)
    assert_close(loss.nll, F.cross_entropy(output(states), targets, reduction="sum"), FLOAT32.ROW)


def test_a_model_has_the_gradients_that_it_has_without_kernels() -> None:
    torch.manual_seed(6)
    config = ModelConfig(
        d_model=32, num_heads=4, d_ff=48, num_encoder_layers=2, num_decoder_layers=2, dropout=0.0,
        src_vocab_size=50, tgt_vocab_size=50,
    )  # fmt: skip
    model = Transformer.from_config(config).train()
    src, tgt = torch.randint(1, 50, (4, 9)), torch.randint(1, 50, (4, 6))
    src[1, 5:] = 0
    gradients = []
    for wanted in (True, False):
        model.zero_grad()
        use_fused_ops(model, kernels=wanted)
        states = model.decoder(tgt, model.encode(src)).flatten(0, 1)
        loss = fused_linear_cross_entropy(
            states, model.output, tgt.flatten(), smoothing=0.1, pad_id=0, kernels=wanted
        )
        loss.smoothed.backward()
        gradients.append([weight.grad for weight in model.parameters()])
    for one, other in zip(*gradients, strict=True):
        assert_close(one, other, FLOAT32.MODEL)


def test_other_tensors_stay_with_torch() -> None:
    assert kernels.kernels_apply_to(torch.zeros(2, 3))
    assert not kernels.kernels_apply_to(torch.zeros(2, 3, dtype=torch.float64))
    assert not kernels.kernels_apply_to(torch.zeros(2, kernels.MAX_WIDTH + 1))
    with using_threads(2):
        assert not kernels.kernels_apply_to(torch.zeros(2, 3))
