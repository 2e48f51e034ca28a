"""`use_fused_ops` changes which operations compute a model, and nothing that anybody else sees."""

import copy

import pytest
import torch
from option_models import OPTIONS, T, option_inputs, option_model
from small_models import small_model
from tolerances import FLOAT32, close, sampled
from torch import nn

from heedful.model.attention import MultiHeadAttention, ScaledDotProductAttention
from heedful.model.layers import DecoderLayer, EncoderLayer, Residual
from heedful.ops import use_fused_ops
from heedful.ops.attention import FusedAttention, attention_implementation
from heedful.ops.fused import FastDropout
from heedful.ops.kernels import FusedResidual
from heedful.ops.lora import add_adapters
from heedful.settings.run import LoraConfig


def kinds(model: nn.Module) -> set[type]:
    return {type(module) for module in model.modules()}


def test_a_model_is_made_of_plain_parts_until_it_is_asked_for() -> None:
    model = small_model(attention_dropout=0.1)
    plain, fused = (
        {nn.Dropout, ScaledDotProductAttention, Residual},
        {FastDropout, FusedAttention, FusedResidual},
    )
    assert kinds(model) >= plain
    assert not kinds(model) & fused
    use_fused_ops(model, kernels=True)
    assert kinds(model) >= fused
    assert not kinds(model) & plain


@pytest.mark.parametrize("option", ["paper", *OPTIONS])
def test_a_model_in_use_computes_the_same_to_the_last_bit(option: str) -> None:
    model = option_model(**OPTIONS.get(option, {}))
    names, weights = list(model.state_dict()), list(model.parameters())
    src, tgt_in = option_inputs()
    outputs = []
    for fused in (False, True, True):  # a second time changes nothing
        if fused:
            use_fused_ops(model, kernels=True)
        cache = model.start_cache(model.encode(src))
        outputs.append([model(src, tgt_in), *(model.decode_step(tgt_in[:, t], cache) for t in range(T))])
    for found in outputs[1:]:
        assert all(torch.equal(one, other) for one, other in zip(found, outputs[0], strict=True))
    assert list(model.state_dict()) == names
    assert all(one is other for one, other in zip(model.parameters(), weights, strict=True))


@pytest.mark.parametrize("training", [False, True])
def test_the_mode_of_a_model_stays(training: bool) -> None:
    model = small_model(dropout=0.5).train(training)
    use_fused_ops(model, kernels=False)
    assert {module.training for module in model.modules()} == {training}
    with attention_implementation(model, "eager"):
        model.train(not training)
    assert {module.training for module in model.modules()} == {not training}


def test_a_copy_has_operations_of_its_own() -> None:
    model = small_model()
    use_fused_ops(model, kernels=True)
    twin = copy.deepcopy(model)
    use_fused_ops(twin, kernels=False)
    flags = [{m.kernels for m in each.modules() if isinstance(m, FusedAttention)} for each in (model, twin)]
    assert flags == [{True}, {False}]


def test_layers_are_found_inside_of_wrappers_and_beside_adapters() -> None:
    model = small_model(num_decoder_layers=2)
    add_adapters(model, LoraConfig(rank=2, alpha=2.0, dropout=0.1, targets=("query",)))
    model.decoder.layers[1] = torch.compile(model.decoder.layers[1], backend="eager")
    use_fused_ops(model, kernels=True)
    attentions = [each for each in model.modules() if isinstance(each, MultiHeadAttention)]
    layers = [each for each in model.modules() if isinstance(each, EncoderLayer | DecoderLayer)]
    assert len(attentions) == 1 + 2 * 2
    assert len(layers) == 1 + 2
    assert {type(each.attention) for each in attentions} == {FusedAttention}
    assert {type(each.residual) for each in layers} == {FusedResidual}


def dropped(p: float, x: torch.Tensor, seed: int) -> torch.Tensor:
    torch.manual_seed(seed)
    return FastDropout(p).train()(x)


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_rate_is_met_and_the_mean_is_kept(p: float, dtype: torch.dtype) -> None:
    count = 1_000_003
    y = dropped(p, torch.ones(count, dtype=dtype), seed=1)
    deviation = (p * (1 - p) / count) ** 0.5
    assert y.dtype == dtype
    assert float((y == 0).double().mean()) == close(p, sampled(deviation + 1 / 65_536, 1))
    assert float(y.double().mean()) == close(1.0, sampled(deviation / (1 - p), 1))
    rate = round(p * 65_536) / 65_536
    assert y.unique().tolist() == close([0.0, 1 / (1 - rate)], FLOAT32.ELEMENT)


def test_the_scale_makes_up_for_the_rounding_of_the_rate() -> None:
    p = 1 / 50_000  # met as 1 / 65,536
    assert dropped(p, torch.ones(4, dtype=torch.float64), seed=1).max().item() == 65_536 / 65_535


@pytest.mark.parametrize("p", [0.999995, 1 - 2**-33, 1 - 2**-53])
def test_a_rate_near_one_leaves_some_elements(p: float) -> None:
    torch.manual_seed(1)
    y = FastDropout(p)(torch.ones(64 << 16))
    assert y.unique().tolist() == [0, 1 << 16]
    assert 0.3 < y.mean() < 1.7  # of 64 elements on average


def test_a_half_is_exact_in_bf16_too() -> None:
    y = dropped(0.5, torch.full((5, 7), 3.0, dtype=torch.bfloat16), seed=2)
    assert y.dtype == torch.bfloat16
    assert y.unique().tolist() == [0.0, 6.0]


def test_elements_that_share_random_bits_are_dropped_independently() -> None:
    """64 bits serve four neighbours: whether two of them fall together must be chance."""
    kept = (dropped(0.5, torch.ones(400_000), seed=3) != 0).double().view(-1, 4)
    correlations = torch.corrcoef(kept.T)
    assert float((correlations - torch.eye(4)).abs().max()) < 5 / 100_000**0.5
    assert kept.mean(dim=0).tolist() == close([0.5] * 4, sampled(0.5, len(kept)))


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 3, 5, 7), (5, 0)])
def test_every_size_keeps_its_shape(shape: tuple[int, ...]) -> None:
    assert dropped(0.3, torch.ones(shape), seed=4).shape == shape


def test_an_input_that_is_not_contiguous_is_dropped_like_any_other() -> None:
    x = torch.randn(7, 5)
    assert torch.equal(dropped(0.5, x.T, seed=5), dropped(0.5, x.T.contiguous(), seed=5))


def test_each_call_draws_another_mask_and_a_seed_draws_the_same() -> None:
    x = torch.ones(1000)
    torch.manual_seed(6)
    layer = FastDropout(0.5).train()
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    assert torch.equal(first, dropped(0.5, x, seed=6))
    assert not torch.equal(first, dropped(0.5, x, seed=7))


@pytest.mark.parametrize("p", [0.0, 0.5])
def test_evaluation_is_the_identity_and_draws_nothing(p: float) -> None:
    x = torch.randn(11)
    state = torch.get_rng_state()
    assert FastDropout(p).eval()(x) is x
    assert FastDropout(0.0).train()(x) is x
    assert torch.equal(torch.get_rng_state(), state)


def test_the_gradient_passes_through_the_same_mask() -> None:
    x = torch.randn(1000, dtype=torch.float64, requires_grad=True)
    y = dropped(0.3, x, seed=8)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad * x, y)
