"""`use_fused_ops` changes which operations compute a model, and nothing that anybody else sees."""

import copy

import pytest
import torch
from option_models import OPTIONS, T, option_inputs, option_model
from small_models import small_model
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
