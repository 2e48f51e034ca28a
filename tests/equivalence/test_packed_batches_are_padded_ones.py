"""Training on packed rows gives the loss and the gradients of padded batches, and computes no padding."""

from typing import Any

import pytest
import torch
from fake_gpu import fake_gpu, varlen_attn
from option_models import EVERY, option_config, option_model
from tolerances import BF16, FLOAT64, assert_close, close, largest
from torch import Tensor

from heedful.data.batches import Batch, collate
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.attention import has_plain_self_attention
from heedful.ops.packing import packed_states
from heedful.settings.model import ModelConfig
from heedful.settings.options import TrainingPrecision
from heedful.settings.run import TrainConfig
from heedful.training.step import accumulate_gradients

SRC_LENGTHS, TGT_LENGTHS = (7, 2, 5), (3, 11, 1)
IN_ATTENTION = {"rotary", "alibi", "relative"}  # positions that attention sees by itself
PACKED = TrainConfig(compile=False)
PADDED = TrainConfig(compile=True)  # only disables packing: nothing here compiles the layers


def batch_of(config: ModelConfig) -> Batch:
    draw = torch.Generator().manual_seed(5)
    sides = ((SRC_LENGTHS, config.src_vocab_size), (TGT_LENGTHS, config.tgt_vocab_size))
    ids = [
        [torch.randint(5, size, (length,), generator=draw).tolist() for length in lengths]
        for lengths, size in sides
    ]
    pads = {"src_pad_id": config.src_pad_id, "tgt_pad_id": config.tgt_pad_id}
    return collate(list(zip(*ids, strict=True)), **pads, start_id=2, length_multiple=4)


def trained(
    model: Transformer, settings: TrainConfig, precision: TrainingPrecision = "float32"
) -> tuple[float, dict[str, Tensor]]:
    """Return the loss of a batch, and its gradients."""
    model.zero_grad()
    sums = accumulate_gradients(model, [batch_of(model.config)], settings, precision=precision)
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return sums.smoothed, {name: gradient.double().cpu() for name, gradient in gradients.items()}


def inputs_of(model: Transformer) -> tuple[Tensor, Tensor, Tensor]:
    """Return source, decoder input, and which of the target's tokens are real."""
    batch = batch_of(model.config)
    return batch.src, batch.tgt_in, batch.tgt_out != model.config.tgt_pad_id


@pytest.mark.parametrize(
    "name", [name for name, changes in EVERY.items() if changes.get("positions") not in IN_ATTENTION]
)
def test_states_and_gradients_are_those_of_padded_batches(name: str) -> None:
    model = option_model(**EVERY[name]).train()
    src, tgt_in, is_real = inputs_of(model)
    states = packed_states(model, src, tgt_in, is_real)
    wanted = model.decode(tgt_in, model.encode(src))[is_real]
    assert_close(states, wanted, FLOAT64.MODEL)
    factors = torch.randn_like(wanted)
    gradients, wanted_gradients = (
        torch.autograd.grad((each * factors).sum(), list(model.parameters()), allow_unused=True)
        for each in (states, wanted)
    )
    for gradient, other in zip(gradients, wanted_gradients, strict=True):
        assert_close(gradient, other, FLOAT64.MODEL.at(largest(*wanted_gradients)))


@pytest.mark.parametrize("name", [*EVERY, "ssru"])
def test_models_whose_attention_knows_positions_are_not_packed(name: str) -> None:
    changes = EVERY.get(name, {"decoder_unit": "ssru"})
    model = Transformer.from_config(option_config(**changes))
    assert has_plain_self_attention(model) == (
        changes.get("positions") not in IN_ATTENTION and name != "ssru"
    )


def test_layers_compute_no_padding() -> None:
    model, rows = option_model(), []
    for stack in (model.encoder, model.decoder):
        stack.layers[0].feed_forward.register_forward_hook(lambda _, x, __: rows.append(x[0].shape))
    packed_states(model, *inputs_of(model))
    assert rows == [(1, sum(SRC_LENGTHS), 20), (1, sum(TGT_LENGTHS), 20)]


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_packed_batch_may_have_no_target(device: str) -> None:
    """A rank that has no row of a batch computes one without targets."""
    with fake_gpu(), torch.autocast(device, torch.bfloat16):
        model = option_model(d_model=16, num_heads=2).float().to(device)
        src, tgt_in, is_real = (each.to(device) for each in inputs_of(model))
        states = packed_states(model, src, tgt_in, torch.zeros_like(is_real))
        assert states.shape == (0, 16)
        states.sum().backward()
        assert all(weight.grad is None or not weight.grad.any() for weight in model.parameters())


def test_a_cpu_computes_padded_batches() -> None:
    model, rows = option_model(), []
    model.encoder.layers[0].feed_forward.register_forward_hook(lambda _, x, __: rows.append(x[0].shape))
    trained(model, PACKED)
    assert rows == [(len(SRC_LENGTHS), 8, 20)]


def test_a_model_is_as_before_after_a_batch_that_fails() -> None:
    model = option_model()
    before = {name: type(part) for name, part in model.named_modules()}
    src, tgt_in, is_real = inputs_of(model)
    with pytest.raises(IndexError):
        packed_states(model, src, torch.full_like(tgt_in, model.config.tgt_vocab_size), is_real)
    assert {name: type(part) for name, part in model.named_modules()} == before
    assert not model.encoder.embedding._forward_hooks and not model.decoder.embedding._forward_hooks


def test_attention_of_variable_length_is_that_of_padded_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def recorded(*arguments: Any, **options: Any) -> Tensor:  # noqa: ANN401
        calls.append(options["window_size"])
        return varlen_attn(*arguments, **options)

    torch.manual_seed(3)
    model = Transformer.from_config(option_config(d_model=16, num_heads=2))  # FlashAttention takes d_k = 8
    use_fused_ops(model, kernels=True)
    with fake_gpu():
        monkeypatch.setattr("torch.nn.attention.varlen.varlen_attn", recorded)
        model.to("cuda")
        loss, gradients = trained(model, PACKED, "bf16")
        assert calls == [(-1, -1)] * 2 + [(-1, 0), (-1, -1)] * 2
        wanted_loss, wanted = trained(model, PADDED, "bf16")
    assert len(calls) == 6
    assert loss == close(wanted_loss, BF16.ROW)
    largest = max(float(each.abs().max()) for each in wanted.values())
    for each, gradient in gradients.items():
        assert_close(gradient, wanted[each], BF16.ROW.at(largest), note=each)
