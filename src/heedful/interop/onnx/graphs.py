"""The two graphs of an exported model: the encoder, and a decoder step.

Both call the model's own modules, like `Transformer.encode` and `decode_step`. A graph is stateless, so
caches are inputs and outputs; and its lengths are dynamic, so positions are computed or looked up instead of
cached.
"""

import copy
import math
from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.errors import InteropError
from heedful.model import Transformer
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.cache import DecoderCache, KeyValueCache, LayerCache, Projection
from heedful.nn.layers import DecoderLayer
from heedful.nn.positions import (
    AttentionPositions,
    LearnedPositions,
    NoPositions,
    SinusoidalPositions,
    sinusoids,
)
from heedful.variants.relative_positions import BucketedBiases, RotaryPositions, relative_distances
from heedful.variants.sinusoids import concatenated_sinusoids, fairseq_sinusoids

InputPositions = SinusoidalPositions | LearnedPositions | NoPositions


class EncoderGraph(nn.Module):
    """Maps source ids to the mask, keys and values of the memory."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> tuple[Tensor, ...]:
        """Encode ids (B, S), padded on the right.

        Returns:
            The padding mask (B, S), bool, True = a token; then for each decoder layer the keys (B, H, S, d_k)
            and values (B, H, S, d_v) of its cross-attention.
        """
        memory = self.model.encode(src)
        memories: list[Tensor] = []
        for layer in self.model.decoder.layers:
            memories += cast("DecoderLayer", layer).cross_attention.keys_and_values(memory.states)
        return memory.mask[:, 0, 0], *memories


class DecoderStepGraph(nn.Module):
    """Maps the last id of each row to the log-probabilities of the next."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, source_mask: Tensor, memories: Sequence[Tensor], pasts: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Decode one step.

        Args:
            ids: (B,).
            source_mask: (B, S), from the encoder.
            memories: from the encoder, keys and values in turn.
            pasts: of each layer the keys (B, H, P, d_k) and values (B, H, P, d_v) of the P previous ids.

        Returns:
            Log-probabilities (B, V), then the `pasts` of the next step, of length P + 1.
        """
        layers = []
        for i in range(0, len(pasts), 2):
            layers.append(LayerCache(FunctionalCache(*pasts[i : i + 2]), KeyValueCache()))
            layers[-1].memory.tensors = tuple(memories[i : i + 2])
        no_states = source_mask.new_empty(0)  # not needed: their keys and values are inputs
        cache = DecoderCache(layers, no_states, source_mask[:, None, None])
        cache.length = layers[0].target.length
        log_probs = self.model.decode_step(ids, cache).log_softmax(dim=-1)
        return log_probs, *(tensor for layer in layers for tensor in layer.target.tensors)


class FunctionalCache(KeyValueCache):
    """A self-attention cache that concatenates instead of writing in place."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.tensors = (keys, values)
        self.length = keys.shape[2]

    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        """Add one position and return all of them."""
        keys, values = (
            torch.cat(pair, dim=2) for pair in zip(self.tensors, project(context, self.length), strict=True)
        )
        self.tensors = (keys, values)
        return keys, values


class ComputedSinusoids(SinusoidalPositions):
    """Sinusoids that the graph computes, without a table; fairseq's in float32."""

    rates: Tensor

    def __init__(self, positions: SinusoidalPositions) -> None:
        d_model = positions.table.shape[1]
        super().__init__(d_model, positions.formula)
        half = torch.arange(d_model // 2, dtype=torch.float64)
        if self.formula in (sinusoids, concatenated_sinusoids):
            self.first, rates = 0, 10_000 ** -(2 * half / d_model)
        elif self.formula is fairseq_sinusoids:
            self.first, rates = 2, torch.exp(half.float() * -(math.log(10_000) / max(1, d_model // 2 - 1)))
        else:
            name = getattr(self.formula, "__name__", repr(self.formula))
            raise InteropError(f"onnx: positions by {name} cannot be exported; export --to another engine")
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, start: int, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ..., in float32."""
        pair = _sines_and_cosines(self.first + start, length, self.rates)
        if self.formula is sinusoids:
            return torch.stack(pair, dim=-1).flatten(1)
        return torch.cat(pair, dim=1)


class LookedUpPositions(LearnedPositions):
    """Learned vectors by index; the caller of the graph must respect their maximum."""

    def __init__(self, positions: LearnedPositions) -> None:
        super().__init__(positions.weight.shape[1], 0)
        self.weight = positions.weight

    def forward(self, start: int, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ..."""
        return F.embedding(torch.arange(start, start + length), self.weight)


class ComputedRotations(RotaryPositions):
    """Rotary positions without float64 cosines, which not every engine has."""

    def rotate(self, heads: Tensor, start: int) -> Tensor:
        """See `AttentionPositions`."""
        length, d_k = heads.shape[-2:]
        rates = 10_000 ** -(torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        sines, cosines = _sines_and_cosines(start, length, rates)
        first, second = heads.chunk(2, dim=-1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


class DistanceBiases(AttentionPositions):
    """T5's biases by distance instead of bucket: engines round the logarithm differently.

    All distances from `max_distance` on have the same bias, and in a decoder all to the right.
    """

    biases: Tensor

    def __init__(self, positions: BucketedBiases) -> None:
        super().__init__()
        self.furthest = max(positions.max_distance, positions.num_buckets)
        distances = torch.arange(-self.furthest, self.furthest + 1)
        self.register_buffer("biases", positions.weight.detach()[positions.buckets(distances)])

    def bias(self, start: int, num_queries: int, num_keys: int, like: Tensor) -> Tensor:
        """See `AttentionPositions`."""
        distances = relative_distances(start, num_queries, num_keys, like.device)
        rows = distances.clamp(-self.furthest, self.furthest) + self.furthest
        return F.embedding(rows, self.biases).permute(2, 0, 1)


def exportable(model: Transformer) -> Transformer:
    """Return a copy in float32, on the CPU and in evaluation mode, with positions that can be exported.

    Raises:
        InteropError: a part of the model cannot be exported.
    """
    model = copy.deepcopy(model).to("cpu", torch.float32).eval()
    for stack in (model.encoder, model.decoder):
        stack.embedding.positions = _input_positions(stack.embedding.positions)
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            part.positions = _attention_positions(part.positions)
    return model.eval()


def _input_positions(positions: InputPositions) -> InputPositions:
    if isinstance(positions, SinusoidalPositions):
        return ComputedSinusoids(positions)
    return LookedUpPositions(positions) if isinstance(positions, LearnedPositions) else positions


def _attention_positions(positions: AttentionPositions) -> AttentionPositions:
    if isinstance(positions, BucketedBiases):
        return DistanceBiases(positions)
    return ComputedRotations() if isinstance(positions, RotaryPositions) else positions


def _sines_and_cosines(start: int, length: int, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Return sines and cosines (length, N) of position times rate (N,), from `start` on, in float32.

    They are computed in the type of the rates. Float64 cosines are shifted sines, as ONNX Runtime (up to
    version 1.22 at least) has no others.
    """
    positions = torch.arange(start, start + length, dtype=rates.dtype)
    angles = positions[:, None] * rates
    cosines = angles.cos() if rates.dtype == torch.float32 else (angles + math.pi / 2).sin()
    return angles.sin().float(), cosines.float()
