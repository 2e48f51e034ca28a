"""The native backend: the engine of the native library, on a CPU, for models of the paper's shape."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.backend import Allowed, attention_layer
from heedful.decoding.coverage import CoveringStep
from heedful.decoding.engine import Engine
from heedful.decoding.engine_step import EngineStep, ForcedEngineStep
from heedful.decoding.engine_tokens import EngineShortlist
from heedful.decoding.ensemble import average_steps
from heedful.decoding.steps import StepFunction
from heedful.precision import Precision
from heedful.stored_model import StoredModel
from heedful.threads import num_threads
from heedful.weight_format import weight_shapes

if TYPE_CHECKING:
    from heedful.model import Transformer


class NativeBackend:
    """Steps computed by the native library; see `AttentionBackend`."""

    name = "native"

    def __init__(self, models: "Sequence[Transformer | StoredModel]", precision: Precision) -> None:
        """Pack copies of the models' weights.

        Args:
            models: whose probabilities are averaged; `why_not` has nothing against them.
            precision: "float32", "bf16" or "int8".
        """
        self.precision: Precision = precision
        self._engines = [Engine(model.config, weight_of(model), precision) for model in models]
        self._has_coverage = False  # of its step functions

    @staticmethod
    def why_not(models: "Sequence[Transformer | StoredModel]", precision: Precision) -> str | None:
        """Return the reason why some of the models cannot be computed here; None where all can."""
        reasons = (_why_not_packed(each) or Engine.why_not(each.config, precision) for each in models)
        return next(filter(None, reasons), None)

    @property
    def parallel_batches(self) -> int:
        """The number of threads: each batch has one of its own."""
        return num_threads()

    @contextmanager
    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> Iterator[StepFunction]:
        """See `Backend`."""
        yield self._averaged(
            [
                EngineStep(
                    engine,
                    sources,
                    threads=threads,
                    shortlist=_shortlist(engine, allowed),
                    attention_layer=self._recorded_layer(engine),
                )
                for engine in self._engines
            ],
            sources,
        )

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
        """See `Backend`; it gives what a search sees, to the last bit."""
        yield self._averaged(
            [
                ForcedEngineStep(
                    engine,
                    sources,
                    outputs,
                    start_id=start_id,
                    threads=threads,
                    shortlist=_shortlist(engine, allowed),
                    attention_layer=self._recorded_layer(engine),
                )
                for engine in self._engines
            ],
            sources,
        )

    def covering(self) -> "NativeBackend":
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
        steps = [
            ForcedEngineStep(
                engine, sources, outputs, start_id=start_id, threads=num_threads(),
                attention_layer=attention_layer(engine.num_layers, layer),
            )
            for engine in self._engines
        ]  # fmt: skip
        ends = np.cumsum([len(output) for output in outputs])
        weights = np.split(
            np.mean([step.attention_of_all for step in steps], axis=0, dtype=np.float64), ends[:-1]
        )
        return [each[:, : len(source)] for each, source in zip(weights, sources, strict=True)]

    def _recorded_layer(self, engine: Engine) -> int | None:
        return attention_layer(engine.num_layers, None) if self._has_coverage else None

    def _averaged(
        self, steps: "Sequence[EngineStep | ForcedEngineStep]", sources: Sequence[Sequence[int]]
    ) -> StepFunction:
        step = average_steps(steps)
        if not self._has_coverage:
            return step
        return CoveringStep(step, partial(_mean_attention, steps), lengths=list(map(len, sources)))


def _mean_attention(steps: "Sequence[EngineStep | ForcedEngineStep]") -> NDArray[np.float32]:
    """Return the attention (rows, S) of the latest call of each step function, as a mean."""
    mean: NDArray[np.float32] = np.mean([step.attention for step in steps], axis=0)
    return mean


def _shortlist(engine: Engine, allowed: Allowed) -> EngineShortlist | None:
    return None if allowed is None else EngineShortlist(engine, allowed)


def weight_of(model: "Transformer | StoredModel") -> Callable[[str], NDArray[np.float32]]:
    """Return a function that gives each weight of a model by its name."""
    if isinstance(model, StoredModel):
        return model.weight
    parameters = dict(model.named_parameters())
    return lambda name: parameters[name].detach().numpy()


def _why_not_packed(model: "Transformer | StoredModel") -> str | None:
    """Say why the weights of a model in memory cannot be packed."""
    if isinstance(model, StoredModel):
        return None
    parameters = dict(model.named_parameters())
    if parameters.keys() != weight_shapes(model.config).keys():
        return "layers that were adapted (LoRA) and not merged"
    if {each.device.type for each in parameters.values()} != {"cpu"}:
        return "weights that are not on the CPU"
    if {str(each.dtype) for each in parameters.values()} != {"torch.float32"}:
        return "weights that are not float32"
    return None
