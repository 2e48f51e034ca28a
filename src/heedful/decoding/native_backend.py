"""The native backend: the compiled engine, on a CPU, for models of the paper's shape."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch

from heedful.decoding.backend import Allowed, Precision
from heedful.decoding.engine import Engine
from heedful.decoding.engine_step import EngineStep, ForcedEngineStep
from heedful.decoding.engine_tokens import EngineShortlist
from heedful.decoding.ensemble import average_steps
from heedful.decoding.steps import StepFunction
from heedful.model import Transformer


class NativeBackend:
    """Steps computed by the native library; see `Backend`."""

    name = "compiled"

    def __init__(self, models: Sequence[Transformer], precision: Precision) -> None:
        """Pack copies of the models' weights.

        Args:
            models: whose probabilities are averaged; `why_not` has nothing against them.
            precision: "float32", "bf16" or "int8".
        """
        self.precision: Precision = precision
        self._engines = [Engine(model, precision) for model in models]

    @staticmethod
    def why_not(models: Sequence[Transformer], precision: Precision) -> str | None:
        """Return the reason why some of the models cannot be computed here; None where all can."""
        return next(filter(None, (Engine.why_not(model, precision) for model in models)), None)

    @property
    def parallel_batches(self) -> int:
        """As many as torch has threads: each batch has one of its own."""
        return torch.get_num_threads()

    @contextmanager
    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> Iterator[StepFunction]:
        """See `Backend`."""
        yield average_steps(
            [
                EngineStep(engine, sources, threads=threads, shortlist=_shortlist(engine, allowed))
                for engine in self._engines
            ]
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
        yield average_steps(
            [
                ForcedEngineStep(
                    engine,
                    sources,
                    outputs,
                    start_id=start_id,
                    threads=threads,
                    shortlist=_shortlist(engine, allowed),
                )
                for engine in self._engines
            ]
        )


def _shortlist(engine: Engine, allowed: Allowed) -> EngineShortlist | None:
    return None if allowed is None else EngineShortlist(engine, allowed)
