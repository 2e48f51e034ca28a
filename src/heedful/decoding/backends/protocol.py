"""The protocol of backends: what computes the steps of searches, and the attention of outputs."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from heedful.decoding.steps import Floats, Ids, Ints, Singles, StepFunction
from heedful.errors import InputError
from heedful.settings.model import ModelConfig
from heedful.settings.options import Precision
from heedful.storage.adapter import Adapter

Allowed = Sequence[Ints] | None  # for each sentence the ids of its shortlist; None: all
Adapters = Sequence[Adapter | None]  # of each sentence; (): no sentence has one


class HeadWeights(NamedTuple):
    """The attention weights of each head in each layer, from the first layer to the last.

    A merged decoder (T5Gemma 2) has one attention over the source and the target so far: `cross` and
    `decoder` are its two parts, and a row of both adds up to 1.

    Attributes:
        encoder: the encoder's self-attention, (H, S, S).
        decoder: the decoder's self-attention, (H, T, T), for the layers that have it.
        cross: the decoder's attention to the source, (H, T, S).
    """

    encoder: list[Singles]
    decoder: list[Singles]
    cross: list[Singles]


class Backend(Protocol):
    """Makes step functions. It only knows ids: no text, and no search.

    A class that inherits from this one only has to define `name`, `step` and `forced_step`.

    Attributes:
        name: the name for users.
        precision: the precision of its matrix multiplications.
        device: the kind of device that computes, "cpu" or "cuda".
        records_attention: whether it has attention weights, and coverage for its step functions.
        has_adapters: whether sentences of a batch may have adapters; else the argument is never given.
        parallel_batches: the number of batches to search at the same time, each in its own thread; None: one
            for each thread that computes.
    """

    name: str
    precision: Precision = "float32"
    device: str = "cpu"
    records_attention: bool = False
    has_adapters: bool = False
    parallel_batches: int | None = 1

    def step(
        self,
        sources: Ids,
        *,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
        adapters: Adapters = (),
    ) -> AbstractContextManager[StepFunction]:
        """Encode a batch and return its step function, to be used inside the block.

        Args:
            sources: the ids that the encoder reads, special tokens included; at least one source.
            threads: the number of threads for this batch; they change no result.
            allowed: for each source the ids that its output may have, ascending; None: all.
            coverage: whether to return a `CoverageTracker`; only if the backend records attention.
            adapters: the adapter of each source; a batch may have different ones.
        """
        ...

    def forced_step(
        self,
        sources: Ids,
        outputs: Ids,
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
        adapters: Adapters = (),
    ) -> AbstractContextManager[StepFunction]:
        """Return a step function for teacher forcing: its input ids are the reference outputs only.

        It equals `step` up to rounding, and may compute all positions at once.
        """
        ...

    def attention(
        self,
        sources: Ids,
        outputs: Ids,
        *,
        start_id: int,
        layer: int | None = None,
        adapters: Adapters = (),
    ) -> list[Floats]:
        """Return for each output of a batch the cross-attention (T, S) of the steps that predict its tokens.

        It is the mean over heads of one decoder layer, and over the models of an ensemble. By default these
        are the heads that were trained to align words (`model.alignment_layer`). Without such heads, it is
        the last layer but one (or the only one), because it then gives the best alignments: better than the
        last layer or the mean over all layers (Garg et al., 2019; our models agree, docs/log.md).

        Args:
            sources: the ids that the encoder reads, special tokens included; at least one source.
            outputs: for each source the ids that the decoder writes, at least one.
            start_id: the first input of the decoder.
            layer: the decoder layer, from 1, with all its heads; None: the default.
            adapters: the adapter of each source.

        Raises:
            InputError: there is no such layer, or the backend records no attention.
        """
        raise InputError(f"engine={self.name!r} records no attention; engine='auto' does")

    def head_weights(self, source: Sequence[int], tgt_in: Sequence[int]) -> HeadWeights:
        """Return the attention weights of each head for one sentence pair; of an ensemble, the first model's.

        Args:
            source: the ids that the encoder reads, special tokens included.
            tgt_in: the ids that the decoder reads, start token included.

        Raises:
            InputError: the backend records no attention.
        """
        raise InputError(f"engine={self.name!r} records no attention; engine='auto' does")


def attention_heads(config: ModelConfig, layer: int | None) -> tuple[int, int]:
    """Return the index of the decoder layer to read attention from, and how many of its first heads to read.

    See `Backend.attention`.

    Raises:
        InputError: the decoder does not have that layer.
    """
    num_layers = config.num_decoder_layers
    if layer is None:
        if config.alignment_layer is not None:
            return config.alignment_layer - 1, config.alignment_heads
        return max(num_layers - 2, 0), config.num_heads
    if not 1 <= layer <= num_layers:
        raise InputError(f"layer {layer} does not exist; the decoder has layers 1 to {num_layers}")
    return layer - 1, config.num_heads
