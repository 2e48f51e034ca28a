"""The torch backend: every model, on every device that torch has."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.backend import Allowed
from heedful.decoding.coverage import CoveringStep
from heedful.decoding.cross_attention import listen_to
from heedful.decoding.ensemble import average_steps
from heedful.decoding.steps import StepFunction
from heedful.decoding.torch_steps import ForcedStep, ModelStep, RestrictedStep
from heedful.model import Transformer
from heedful.precision import Precision, torch_dtype
from heedful.text.padding import pad


class TorchBackend:
    """Steps computed by torch; see `AttentionBackend`."""

    name = "torch"
    parallel_batches = 1  # torch shares each operation out over its threads

    def __init__(self, models: Sequence[Transformer], precision: Precision) -> None:
        """Use models that are on one device.

        Args:
            models: whose probabilities are averaged.
            precision: "float32", "bf16" or "fp16".
        """
        self.precision: Precision = precision
        self._models = models
        self._has_coverage = False  # of its step functions
        self._device = next(models[0].parameters()).device
        self._vocab_size = models[0].config.tgt_vocab_size

    @contextmanager
    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> Iterator[StepFunction]:
        """See `Backend`; the threads are all those of torch."""
        del threads
        recorded = self._models if self._has_coverage else []
        with self._inference(), listen_to(recorded) as attention:
            step = self._restricted(
                [ModelStep(model, self._pad(sources, model)) for model in self._models], allowed
            )
            if self._has_coverage:
                lengths = list(map(len, sources))
                step = CoveringStep(step, lambda: attention.latest()[:, 0], lengths=lengths)
            yield step

    @contextmanager
    def forced_step(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
    ) -> Iterator[StepFunction]:
        """See `Backend`.

        In float32 all positions are computed at once, which differs from a search by rounding alone. In bf16
        and fp16 that would be too much: they step as in a search, and so does what has a coverage.
        """
        if self.precision != "float32" or self._has_coverage:
            with self.step(sources, threads=threads, allowed=allowed) as step:
                yield step
            return
        with self._inference():
            steps = [
                ForcedStep(model, self._pad(sources, model), outputs, start_id=start_id)
                for model in self._models
            ]
            yield self._restricted(steps, allowed)

    def covering(self) -> "TorchBackend":
        """See `AttentionBackend`."""
        other = copy(self)
        other._has_coverage = True
        return other

    def attention(
        self,
        sources: Sequence[Sequence[int]],
        outputs: Sequence[Sequence[int]],
        *,
        start_id: int,
        layer: int | None = None,
    ) -> list[NDArray[np.float64]]:
        """See `AttentionBackend`."""
        with self._inference(), listen_to(self._models, layer) as attention:
            for model in self._models:
                ForcedStep(model, self._pad(sources, model), outputs, start_id=start_id)
            weights_BTS = attention.latest().cpu().double().numpy()
        return [
            weights_TS[: len(output), : len(source)]
            for weights_TS, output, source in zip(weights_BTS, outputs, sources, strict=True)
        ]

    def _restricted(self, steps: Sequence[StepFunction], allowed: Allowed) -> StepFunction:
        if allowed is not None:
            steps = [
                RestrictedStep(step, allowed, vocab_size=self._vocab_size, device=self._device)
                for step in steps
            ]
        return average_steps(steps)

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Compute without dropout and gradients; afterwards models that were in training mode are again."""
        were_training = [model.training for model in self._models]
        for model in self._models:
            model.eval()
        try:
            with torch.inference_mode(), self._autocast():
                yield
        finally:
            for model, was_training in zip(self._models, were_training, strict=True):
                model.train(was_training)

    def _pad(self, sources: Sequence[Sequence[int]], model: Transformer) -> Tensor:
        return torch.from_numpy(pad(sources, model.config.src_pad_id)).to(self._device)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "bf16" or self.precision == "fp16":
            return torch.autocast(self._device.type, dtype=torch_dtype(self.precision))
        return nullcontext()
