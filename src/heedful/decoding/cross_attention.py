"""Cross-attention during decoding, and how much of the source it has covered.

The attention is that of the last decoder layer but one (of a single layer, that one), as a mean over its
heads: there, alignments come out best by themselves, better than in the last layer or as a mean over all
layers (Garg et al., 2019; our models agree, docs/log.md). Several models have the mean over the models.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.steps import NextTokens, StepFunction
from heedful.model import Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import DecoderLayer
from heedful.ops.recorder import AttentionRecorder, record_attention

_LEAST = torch.finfo(torch.float32).tiny  # instead of a 0, which only rounding makes: its logarithm is finite


class CrossAttention:
    """The attention of models to the source, as each of their forward passes goes by."""

    def __init__(self, recorders: Sequence[AttentionRecorder]) -> None:
        """Read what is recorded, one recorder for each model."""
        self._recorders = recorders

    def latest(self) -> Tensor:
        """The weights (B, T, S) of the latest pass of each model, as a mean; they are then forgotten."""
        of_models = []
        for recorder in self._recorders:
            weights_BHTS = recorder.maps[-1].weights
            recorder.maps.clear()
            at_least_float32 = torch.promote_types(weights_BHTS.dtype, torch.float32)
            of_models.append(weights_BHTS.to(at_least_float32).mean(dim=1))
        return torch.stack(of_models).mean(dim=0)


@contextmanager
def listen_to(models: Sequence[Transformer]) -> Iterator[CrossAttention]:
    """Listen to the forward passes inside the block."""
    with ExitStack() as stack:
        yield CrossAttention(
            [stack.enter_context(record_attention(_cross_attention(model))) for model in models]
        )


def _cross_attention(model: Transformer) -> MultiHeadAttention:
    layers = model.decoder.layers
    layer = cast("DecoderLayer", layers[max(len(layers) - 2, 0)])  # or a wrapper, which has its parts
    return layer.cross_attention


class CoveringStep:
    """A step function that sums up what its rows attend to (GNMT: Wu et al., 2016, equation 14)."""

    def __init__(self, step: StepFunction, attention: CrossAttention, *, lengths: Sequence[int]) -> None:
        """Wrap a step function that has no input ids yet, of sources of these lengths."""
        self._step = step
        self._attention = attention
        is_padding_BS = torch.arange(max(lengths)) >= torch.tensor(lengths)[:, None]
        self._sums_BS = is_padding_BS.to(torch.float32)  # what pads counts as covered

    def __call__(self, last_ids: NDArray[np.int64]) -> NextTokens:
        """See `StepFunction`."""
        tokens = self._step(last_ids)
        weights_BS = self._attention.latest()[:, 0]
        self._sums_BS = self._sums_BS.to(weights_BS) + weights_BS
        return tokens

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        self._step.reorder(rows)
        self._sums_BS = self._sums_BS[torch.as_tensor(rows).to(self._sums_BS.device, non_blocking=True)]

    def coverage(self) -> NDArray[np.float64]:
        """See `Covering`."""
        covered_BS = self._sums_BS.clamp(min=_LEAST, max=1.0)
        return covered_BS.cpu().double().log().sum(dim=-1).numpy()
