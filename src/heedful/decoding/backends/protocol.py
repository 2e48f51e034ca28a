"""The protocol of backends: what computes the steps of searches, and the attention of outputs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.steps import StepFunction
from heedful.errors import InputError
from heedful.settings.options import Precision

Allowed = Sequence[NDArray[np.int64]] | None  # for each sentence the ids that may be written; None: all


class HeadWeights(NamedTuple):
    """The attention weights of each head in each layer, from the first layer to the last.

    Attributes:
        encoder: the encoder's self-attention, (H, S, S).
        decoder: the decoder's, (H, T, T); of the layers that have some.
        cross: of the decoder on the source, (H, T, S).
    """

    encoder: list[NDArray[np.float32]]
    decoder: list[NDArray[np.float32]]
    cross: list[NDArray[np.float32]]


class Backend(Protocol):
    """Makes step functions. It knows ids only: neither text nor how outputs are searched.

    A class that inherits from this one has to define `name`, `step` and `forced_step` alone.

    Attributes:
        name: the name that users know it by.
        precision: of its matrix multiplications.
        device: the kind of device that computes, "cpu" or "cuda".
        records_attention: whether it gives attention weights, and coverage to its step functions.
    """

    name: str
    precision: Precision = "float32"
    device: str = "cpu"
    records_attention: bool = False

    @property
    def parallel_batches(self) -> int:
        """How many batches to search at the same time, each in a thread of its own."""
        return 1

    def step(
        self,
        sources: Sequence[Sequence[int]],
        *,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
    ) -> AbstractContextManager[StepFunction]:
        """Encode a batch and return its step function, to be used inside the block.

        Args:
            sources: ids with the special tokens that the encoder reads; at least one source.
            threads: for this batch; they change no result.
            allowed: for each source the ids that its output may consist of, ascending; None: all.
            coverage: whether to return a `CoverageTracker`; asked for only where attention is recorded.
        """
        ...

    def forced_step(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
    ) -> AbstractContextManager[StepFunction]:
        """Return a step function for teacher forcing: its input ids are the reference outputs only.

        It gives what `step` gives, up to rounding, and may compute all positions at once.
        """
        ...

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """Return for each output of a batch the cross-attention (T, S) of the steps that predict its tokens.

        It is that of a decoder layer, as a mean over its heads. Where no layer is named, it is the last but
        one (of a single layer, that one): there, alignments come out best by themselves, better than in the
        last layer or as a mean over all layers (Garg et al., 2019; our models agree, docs/log.md). Several
        models have the mean over the models.

        Args:
            sources: ids with the special tokens that the encoder reads; at least one source.
            outputs: for each source the ids that the decoder writes, at least one.
            start_id: what the decoder reads first.
            layer: of the decoder, from 1; None: the last but one.

        Raises:
            InputError: there is no such layer, or the backend records no attention.
        """
        raise InputError(f"engine={self.name!r} records no attention; engine='auto' does")

    def head_weights(self, source: Sequence[int], tgt_in: Sequence[int]) -> HeadWeights:
        """Return the attention weights of each head for one sentence pair; of several models, the first's.

        Args:
            source: ids with the special tokens that the encoder reads.
            tgt_in: the ids that the decoder reads, from the start token on.

        Raises:
            InputError: the backend records no attention.
        """
        raise InputError(f"engine={self.name!r} records no attention; engine='auto' does")


def attention_layer(num_layers: int, layer: int | None) -> int:
    """Return the index of the decoder layer that attention is taken from: see `Backend.attention`.

    Raises:
        InputError: the decoder does not have that layer.
    """
    if layer is None:
        return max(num_layers - 2, 0)
    if not 1 <= layer <= num_layers:
        raise InputError(f"layer {layer} does not exist; the decoder has layers 1 to {num_layers}")
    return layer - 1
