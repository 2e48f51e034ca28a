"""Record attention maps through hooks."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from heedful.model.attention import MultiHeadAttention
from heedful.ops.attention import attention_implementation


@dataclass(frozen=True)
class AttentionMap:
    """The weights (B, H, T, S) of one attention, named as in the weight file."""

    name: str
    weights: Tensor


@dataclass(frozen=True)
class AttentionRecorder:
    """The maps of all recorded forward passes, in the order of computation."""

    maps: list[AttentionMap] = field(default_factory=list)


@contextmanager
def record_attention(model: nn.Module) -> Iterator[AttentionRecorder]:
    """Record the attention maps of all forward passes inside the `with` block.

    Attention is eager inside the block, so on a GPU outputs may differ by rounding.

    Example:
        with record_attention(model) as recorder:
            model(src, tgt_in)
        recorder.maps[-1].name  # 'decoder.layers.5.cross_attention'
    """
    recorder = AttentionRecorder()

    def hook_into(name: str, attention: MultiHeadAttention) -> RemovableHandle:
        def record(_: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            recorder.maps.append(AttentionMap(name, inputs[0].detach().clone()))

        return attention.attention.dropout.register_forward_pre_hook(record)

    hooks = [
        hook_into(name, part) for name, part in model.named_modules() if isinstance(part, MultiHeadAttention)
    ]
    try:
        with attention_implementation(model, "eager"):
            yield recorder
    finally:
        for hook in hooks:
            hook.remove()
