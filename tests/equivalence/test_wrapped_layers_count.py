"""Layers that somebody has wrapped or adapted are computed like any other, and never left out."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from machine_class import need_native
from option_models import T, option_inputs, option_model
from tolerances import FLOAT64, assert_close
from torch import Tensor, nn

from heedful.decoding.backends.native import NativeBackend
from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.ops.lora import add_adapters, merge_layers
from heedful.settings.run import LoraConfig


class Wrapper(nn.Module):
    """Like those of sharded training and activation checkpoints: calls and attributes pass through."""

    def __init__(self, wrapped: nn.Module) -> None:
        super().__init__()
        self.wrapped = wrapped
        self.calls = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("wrapped"), name)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:  # noqa: ANN401
        self.calls += 1
        result: Tensor = self.wrapped(*args, **kwargs)
        return result


def compiled(layer: nn.Module) -> nn.Module:
    module: nn.Module = torch.compile(layer, backend="eager")
    return module


@pytest.fixture(autouse=True)
def nothing_compiled() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def cached_logits(model: Transformer, src: Tensor, tgt_in: Tensor) -> Tensor:
    cache = model.start_cache(model.encode(src))
    return torch.stack([model.decode_step(tgt_in[:, t], cache) for t in range(T)], dim=1)


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("wrap", [Wrapper, compiled])
@pytest.mark.slow
def test_a_model_with_wrapped_layers_is_the_same_model(wrap: Callable[[nn.Module], nn.Module]) -> None:
    model = option_model()
    src, tgt_in = option_inputs()
    wrapped = copy.deepcopy(model)
    for stack in (wrapped.encoder, wrapped.decoder):
        for i, layer in enumerate(stack.layers):
            stack.layers[i] = wrap(layer)
    with torch.no_grad():
        assert_close(wrapped(src, tgt_in), model(src, tgt_in), FLOAT64.MODEL)
        found = cached_logits(wrapped, src, tgt_in)
        assert_close(found, cached_logits(model, src, tgt_in), FLOAT64.MODEL)
    for stack in (wrapped.encoder, wrapped.decoder):
        assert [layer.calls for layer in stack.layers if isinstance(layer, Wrapper)] in (
            [],
            [2, 2],
            [1 + T] * 2,
        )


def test_the_attention_of_wrapped_layers_is_recorded() -> None:
    model = option_model()
    model.decoder.layers[0] = Wrapper(model.decoder.layers[0])
    with record_attention(model) as recorder:
        model(*option_inputs())
    assert len(recorder.maps) == 2 + 2 * 2


@pytest.mark.parametrize("targets", [("query",), ("inner",), ("outer",)])
def test_the_engine_computes_no_adapted_layer_as_if_it_were_plain(targets: tuple[str, ...]) -> None:
    need_native()
    model = option_model(d_model=32, d_ff=32).float()
    assert NativeBackend.why_not([model], "float32") is None
    add_adapters(model, LoraConfig(rank=2, alpha=2.0, targets=targets))
    assert NativeBackend.why_not([model], "float32") == "layers that were adapted (LoRA) and not merged"
    merge_layers(model)
    assert NativeBackend.why_not([model], "float32") is None
