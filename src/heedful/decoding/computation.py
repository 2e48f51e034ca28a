"""What computes the steps of a search: torch, or the compiled engine where it can."""

import ctypes
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property, partial
from typing import Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.cross_attention import CoveringStep, listen_to
from heedful.decoding.engine import Engine, EnginePrecision
from heedful.decoding.engine_step import EngineStep, ForcedEngineStep
from heedful.decoding.engine_tokens import EngineShortlist
from heedful.decoding.ensemble import EnsembleStep
from heedful.decoding.fastest_precision import Way, fastest, made_up_sources, try_precisions
from heedful.decoding.step_function import ForcedStep, ModelStep, RestrictedStep, StepFunction
from heedful.errors import InputError
from heedful.model import Transformer
from heedful.native import cpu_has_bf16

PrecisionChoice = Literal["auto", "float32", "bf16", "fp16", "int8"]
EngineChoice = Literal["auto", "compiled", "torch"]
Allowed = Sequence[NDArray[np.int64]] | None  # for each sentence the ids that may be written; None: all

_ROUNDED = {"bf16": torch.bfloat16, "fp16": torch.float16}

# What "auto" has found, while the first of the models lives: of an engine, and all models by identity.
_found: WeakKeyDictionary[Transformer, dict[tuple[object, ...], Way]] = WeakKeyDictionary()


class Computation:
    """The models of a translator, and how they are computed."""

    def __init__(
        self,
        models: Sequence[Transformer],
        *,
        precision: PrecisionChoice,
        engine: EngineChoice,
        covers: bool = False,
    ) -> None:
        """Choose; see `Translator` for the arguments, and `covering` for `covers`.

        Raises:
            InputError: a precision or an engine that does not exist.
        """
        for name, value, known in (
            ("precision", precision, PrecisionChoice),
            ("engine", engine, EngineChoice),
        ):
            if value not in get_args(known):
                raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, get_args(known)))}")
        self._models = models
        self._wanted: PrecisionChoice = precision
        self._engine: EngineChoice = engine
        self._covers = covers
        self._device = next(models[0].parameters()).device

    @property
    def precision(self) -> EnginePrecision:
        """What matrices are multiplied in; "auto" is tried out the first time, and found once for a model."""
        return self._wanted if self._wanted != "auto" else self._fastest_way[1]

    @cached_property
    def _fastest_way(self) -> Way:
        key = (self._engine, *map(id, self._models))
        known = _found.setdefault(self._models[0], {})
        if key not in known:
            known[key] = self._fastest()
        return known[key]

    @property
    def engine_in_use(self) -> str:
        """What computes: "compiled" or "torch"."""
        return "compiled" if self._engines else "torch"

    @property
    def batches_at_once(self) -> int:
        """How many batches to search at a time: each takes one thread of the engine, all of torch's."""
        return torch.get_num_threads() if self._engines else 1

    @cached_property
    def covering(self) -> "Computation":
        """The same, with steps that say how much of their sources is covered (see `CoveringStep`), in torch.

        Raises:
            InputError: the compiled engine is asked for, or int8, which only that has: it gives no attention.
        """
        if self._engine == "compiled" or self._wanted == "int8":
            raise InputError(
                f"engine={self._engine!r}, precision={self._wanted!r}: no coverage penalty there: the "
                "compiled engine gives no attention; engine='torch' does, in float32, bf16 and fp16"
            )
        return Computation(self._models, precision=self._wanted, engine="torch", covers=True)

    @property
    def position_limit(self) -> int | None:
        """How long a sequence may be where a model has learned positions."""
        configs = [model.config for model in self._models]
        return min((each.max_positions for each in configs if each.positions == "learned"), default=None)

    @property
    def vocab_size(self) -> int:
        """Of the outputs; that of all models."""
        return self._models[0].config.tgt_vocab_size

    @property
    def src_vocab_size(self) -> int:
        """How many source ids every model has."""
        return min(model.config.src_vocab_size for model in self._models)

    @contextmanager
    def step(
        self, sources: Sequence[Sequence[int]], *, threads: int = 1, allowed: Allowed = None
    ) -> Iterator[StepFunction]:
        """Give the step function of a batch of framed sources, to be used inside the block.

        Args:
            sources: at least one.
            threads: of the engine; they change no result.
            allowed: for each source the ids that its output may be written with, ascending; None: all.

        Raises:
            InputError: the engine that is asked for cannot compute these models here.
        """
        if self._engines:
            yield _together(
                [
                    EngineStep(engine, sources, threads=threads, shortlist=shortlist)
                    for engine, shortlist in self._shortlisted(allowed)
                ]
            )
            return
        with self._torch(), listen_to(self._models if self._covers else []) as attention:
            steps = [ModelStep(model, self._pad(sources, model)) for model in self._models]
            step = self._restricted(steps, allowed)
            yield CoveringStep(step, attention, lengths=list(map(len, sources))) if self._covers else step

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
        """Give the step function of a batch as `step` does, to feed it the given outputs and nothing else.

        It says what a search sees: the engine to the last digit, though it computes all places at once, as
        torch does in float32, where that differs by rounding alone. In bfloat16 and float16 that is too much,
        and torch steps as in a search; where coverage counts, too.
        """
        if self._engines:
            found = (
                ForcedEngineStep(
                    engine, sources, outputs, start_id=start_id, threads=threads, shortlist=shortlist
                )
                for engine, shortlist in self._shortlisted(allowed)
            )
            yield _together(list(found))
            return
        if self.precision != "float32" or self._covers:
            with self.step(sources, allowed=allowed) as step:
                yield step
            return
        with self._torch():
            steps = [
                ForcedStep(model, self._pad(sources, model), outputs, start_id=start_id)
                for model in self._models
            ]
            yield self._restricted(steps, allowed)

    def _shortlisted(self, allowed: Allowed) -> Iterator[tuple[Engine, EngineShortlist | None]]:
        """Each engine, and the part of its output layer that writes the allowed ids; None: all of it."""
        for engine in self._engines:
            yield engine, None if allowed is None else EngineShortlist(engine, allowed)

    def _restricted(self, steps: Sequence[StepFunction], allowed: Allowed) -> StepFunction:
        """Torch's step functions as one, whose outputs are written with the allowed ids."""
        if allowed is None:
            return _together(steps)
        return _together(
            [RestrictedStep(step, allowed, vocab_size=self.vocab_size, device=self._device) for step in steps]
        )

    def attention(
        self, sources: Sequence[Sequence[int]], outputs: Sequence[Sequence[int]], *, start_id: int
    ) -> list[NDArray[np.float64]]:
        """What each token of a batch of outputs attends to: of each the weights (T, S), computed in torch."""
        with self._torch(), listen_to(self._models) as attention:
            for model in self._models:
                ForcedStep(model, self._pad(sources, model), outputs, start_id=start_id)
            weights_BTS = attention.latest().cpu().double().numpy()
        return [
            weights_TS[: len(output), : len(source)]
            for weights_TS, output, source in zip(weights_BTS, outputs, sources, strict=True)
        ]

    @contextmanager
    def _torch(self) -> Iterator[None]:
        """Let torch compute without dropout and gradients; afterwards its models train on, if they did."""
        were_training = [model.training for model in self._models]
        for model in self._models:
            model.eval()
        try:
            with torch.inference_mode(), self._autocast():
                yield
        finally:
            for model, was_training in zip(self._models, were_training, strict=True):
                model.train(was_training)

    @cached_property
    def _engines(self) -> list[Engine]:
        """The compiled engine of each model, where it is wanted and can compute them all; otherwise none."""
        engine = self._engine
        if self._wanted == "auto" and engine == "auto":
            engine = self._fastest_way[0]
        if engine == "torch" and self.precision != "int8":
            return []
        found = (Engine.why_not(model, self.precision) for model in self._models)
        reasons = [reason for reason in found if reason]
        if not reasons and engine != "torch":
            engines = [Engine(model, self.precision) for model in self._models]
            _return_free_memory()
            return engines
        if engine == "auto" and self.precision != "int8":
            return []
        reason = reasons[0] if reasons else "engine='torch' is asked for"
        raise InputError(
            f"engine={self._engine!r}, precision={self.precision!r}: not possible here: {reason}; "
            "engine='torch' computes every model, in float32, bf16 and fp16"
        )

    def release_models(self) -> list[Transformer]:
        """Let go of the models where the engine has copies of their weights; what is in their place."""
        if self._engines:
            self._models = [model.outline(model.config) for model in self._models]
            _return_free_memory()
        return list(self._models)

    def _possible_ways(self) -> list[Way]:
        """What can compute these models here, the first in float32. Nothing that a CPU emulates is tried."""
        # Without fp16: a CPU is slow in it, and made-up sources do not tell what overflows.
        names: Sequence[EnginePrecision] = ("float32", "bf16", "int8")
        ways: list[Way] = []
        if self._engine != "torch":
            possible = [each for each in names if not any(Engine.why_not(m, each) for m in self._models)]
            ways += [("compiled", each) for each in possible]
        if self._engine == "compiled":
            return ways or [("compiled", "float32")]
        ways.append(("torch", "float32"))
        if self._device.type != "cpu" or cpu_has_bf16():
            ways.append(("torch", "bf16"))
        return ways

    def _fastest(self) -> Way:
        """Try out what can compute these models, each with one thread on a CPU."""
        config, most = self._models[0].config, self.position_limit
        sources = made_up_sources(config.src_vocab_size, pad_id=config.src_pad_id, most=most)
        ways = {
            way: Computation(self._models, precision=way[1], engine=way[0]) for way in self._possible_ways()
        }
        starts = {way: partial(each.step, sources) for way, each in ways.items()}
        # A thread's own clock is too coarse there, and stands still while a GPU computes.
        is_wall = sys.platform == "win32" or self._device.type != "cpu"
        clock = time.perf_counter if is_wall else time.thread_time
        with _one_thread():
            return fastest(try_precisions(starts, places=most, clock=clock))

    def _pad(self, sources: Sequence[Sequence[int]], model: Transformer) -> Tensor:
        src = torch.full((len(sources), max(map(len, sources))), model.config.src_pad_id)
        for row, ids in enumerate(sources):
            src[row, : len(ids)] = torch.tensor(ids)
        return src.to(self._device)

    def _autocast(self) -> AbstractContextManager[object]:
        dtype = _ROUNDED.get(self.precision)
        return torch.autocast(self._device.type, dtype=dtype) if dtype else nullcontext()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Let torch compute with one thread, as the engine does for each batch."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _together(steps: Sequence[StepFunction]) -> StepFunction:
    return steps[0] if len(steps) == 1 else EnsembleStep(steps)


def _return_free_memory() -> None:
    """Give the system what the C library keeps for later: packing leaves more of it than the weights take."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
    if trim is not None:
        trim(0)
