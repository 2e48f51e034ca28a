"""Cross-attention of torch's models, as their forward passes go by."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import torch
from torch import Tensor

from heedful.decoding.backend import attention_layer
from heedful.model import Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import DecoderLayer
from heedful.ops.recorder import AttentionRecorder, record_attention


class CrossAttention:
    """The attention of models to the source, as each of their forward passes goes by."""

    def __init__(self, recorders: Sequence[AttentionRecorder]) -> None:
        """Read what is recorded, one recorder for each model."""
        self._recorders = recorders

    def latest(self) -> Tensor:
        """Return the weights (B, T, S) of the latest pass, as a mean over the models, and forget them."""
        of_models = []
        for recorder in self._recorders:
            weights_BHTS = recorder.maps[-1].weights
            recorder.maps.clear()
            at_least_float32 = torch.promote_types(weights_BHTS.dtype, torch.float32)
            of_models.append(weights_BHTS.to(at_least_float32).mean(dim=1))
        return torch.stack(of_models).mean(dim=0)


@contextmanager
def listen_to(models: Sequence[Transformer], layer: int | None = None) -> Iterator[CrossAttention]:
    """Listen to the forward passes inside the block, to a layer as `AttentionBackend` counts them."""
    with ExitStack() as stack:
        yield CrossAttention(
            [stack.enter_context(record_attention(_cross_attention(model, layer))) for model in models]
        )


def _cross_attention(model: Transformer, layer: int | None) -> MultiHeadAttention:
    layers = model.decoder.layers
    chosen = cast("DecoderLayer", layers[attention_layer(len(layers), layer)])  # or a wrapper of one
    return chosen.cross_attention
