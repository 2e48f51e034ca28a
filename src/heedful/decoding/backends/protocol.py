"""One backend that exists already, for a generator: another library's, or one of a test."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.steps import StepFunction
from heedful.errors import InputError
from heedful.settings.options import Precision

Allowed = Sequence[NDArray[np.int64]] | None  # for each sentence the ids that may be written; None: all


class Backend(Protocol):
    """Makes step functions. It knows ids only: neither text nor how outputs are searched.

    A backend cannot be made for a model that it does not support; what makes one says so before.
    """

    @property
    def name(self) -> str:
        """The name that users know it by."""
        ...

    @property
    def precision(self) -> Precision:
        """The precision of its matrix multiplications."""
        ...

    @property
    def parallel_batches(self) -> int:
        """How many batches to search at the same time, each in a thread of its own."""
        ...

    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> AbstractContextManager[StepFunction]:
        """Encode a batch and return its step function, to be used inside the block.

        Args:
            sources: ids with the special tokens that the encoder reads; at least one source.
            threads: for this batch; they change no result.
            allowed: for each source the ids that its output may consist of, ascending; None: all.
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
    ) -> AbstractContextManager[StepFunction]:
        """Return a step function for teacher forcing: its input ids are the reference outputs only.

        It gives what `step` gives, up to rounding, and may compute all positions at once.
        """
        ...


@runtime_checkable
class AttentionBackend(Backend, Protocol):
    """A backend that also gives cross-attention weights: of a decoder layer, as a mean over its heads.

    Where no layer is named, it is the last but one (of a single layer, that one): there, alignments come out
    best by themselves, better than in the last layer or as a mean over all layers (Garg et al., 2019; our
    models agree, docs/log.md). Several models have the mean over the models.
    """

    def covering(self) -> Backend:
        """Return the same backend with step functions that also have a coverage (see `Covering`)."""
        ...

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """Return for each output of a batch the weights (T, S) of the steps that predict its tokens.

        Args:
            sources: ids with the special tokens that the encoder reads; at least one source.
            outputs: for each source the ids that the decoder writes, at least one.
            start_id: what the decoder reads first.
            layer: of the decoder, from 1; None: the last but one.
        """
        ...


def attention_layer(num_layers: int, layer: int | None) -> int:
    """Return the index of the decoder layer that attention is taken from: see `AttentionBackend`.

    Raises:
        InputError: the decoder does not have that layer.
    """
    if layer is None:
        return max(num_layers - 2, 0)
    if not 1 <= layer <= num_layers:
        raise InputError(f"layer {layer} does not exist; the decoder has layers 1 to {num_layers}")
    return layer - 1


class BackendChoice(Protocol):
    """The backends of a model or an ensemble, for a generator."""

    @property
    def searching(self) -> Backend:
        """The backend of searches and scores."""
        ...

    @property
    def attending(self) -> AttentionBackend:
        """The backend that gives attention weights of outputs.

        Raises:
            InputError: there is none.
        """
        ...

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be; None: as long as memory allows."""
        ...

    @property
    def vocab_size(self) -> int:
        """The size of the target vocabulary."""
        ...


class SingleBackend:
    """Uses the same backend for every search and score; see `BackendChoice`.

    Attributes:
        searching: the backend.
        vocab_size: of the outputs.
        position_limit: how long a sequence may be; None: as long as memory allows.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        vocab_size: int,
        position_limit: int | None,
    ) -> None:
        """Take a backend.

        Args:
            backend: of the steps.
            vocab_size: of the outputs.
            position_limit: how long a sequence may be.
        """
        self.searching = backend
        self.vocab_size = vocab_size
        self.position_limit = position_limit

    @property
    def attending(self) -> AttentionBackend:
        """See `BackendChoice`.

        Raises:
            InputError: nothing gives the attention of this model.
        """
        if isinstance(self.searching, AttentionBackend):
            return self.searching
        raise InputError(f"engine={self.searching.name!r} records no attention; engine='auto' does")
