"""The choice of a backend and its precision for given models: as asked for, or the fastest here."""

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.backends.protocol import AttentionBackend, Backend
from heedful.decoding.steps import Start, on_host
from heedful.errors import InputError, MissingExtraError, install_hint
from heedful.runtime.native import cpu_has_bf16
from heedful.runtime.threads import return_free_memory, using_threads
from heedful.settings.options import Precision
from heedful.storage.stored_model import StoredModel

if TYPE_CHECKING:
    from heedful.decoding.backends.torch import TorchBackend
    from heedful.model.transformer import Transformer

MAX_LOSS = 0.01  # nats for each token
MIN_GAIN = 1.1  # times the speed of what is more exact; less is not worth it, and may be the machine's noise
_ORDER: tuple[Precision, ...] = ("float32", "bf16", "int8")  # the more exact ones first
Way = tuple[Literal["native", "torch"], Precision]  # what computes, and in which precision
_SENTENCES, _BEAM, _POSITIONS = 8, 4, 8
_ROUNDS = 3


@dataclass(frozen=True)
class Trial:
    """Time and quality of some steps in one precision.

    Attributes:
        seconds: that a step took, for `_SENTENCES` sentences with `_BEAM` rows each; the least of all rounds.
        loss: the mean divergence from float32, in nats for each token.
    """

    seconds: float
    loss: float


Clock = Callable[[], float]


def random_sources(vocab_size: int, *, pad_id: int, most: int | None) -> list[list[int]]:
    """Return eight random sentences of 16 tokens, or `most` where models take no more; always the same."""
    length = 16 if most is None else min(16, most)
    ids = np.random.default_rng(0).integers(0, vocab_size, (_SENTENCES, length))
    ids[ids == pad_id] = (pad_id + 1) % vocab_size
    return [row.tolist() for row in ids]


def try_precisions(
    starts: Mapping[Way, Start], *, num_positions: int | None, clock: Clock = time.perf_counter
) -> dict[Way, Trial]:
    """Take steps in each way, in turns, with the tokens that float32 finds the most probable.

    Args:
        starts: of each way, the first of which is in float32; `random_sources` from their beginning.
        num_positions: the longest output that the models can write; None is no limit.
        clock: in seconds; that of a thread does not count what others compute meanwhile.
    """
    num_positions = _POSITIONS if num_positions is None else min(_POSITIONS, num_positions)
    exact = _log_probs(next(iter(starts.values())), [None] * num_positions)
    written = [each.argmax(axis=-1) for each in exact]
    losses = {name: _divergence(exact, _log_probs(start, written)) for name, start in starts.items()}
    rounds = [
        {name: _seconds(start, written, clock) for name, start in starts.items()} for _ in range(_ROUNDS)
    ]
    return {
        name: Trial(float(np.min([each[name] for each in rounds], axis=0).mean()), losses[name])
        for name in starts
    }


def fastest(trials: Mapping[Way, Trial]) -> Way:
    """The fastest way of those that cost no quality; the more exact, then the first where that is no gain."""
    ways = sorted(trials, key=lambda way: _ORDER.index(way[1]))
    best = ways[0]
    for way in ways[1:]:
        trial = trials[way]
        if trial.loss <= MAX_LOSS and trial.seconds * MIN_GAIN < trials[best].seconds:
            best = way
    return best


def _log_probs(start: Start, written: Sequence[NDArray[np.int64] | None]) -> list[NDArray[np.float32]]:
    """Return each step's log-probabilities after the tokens written before; None: its own best."""
    steps: list[NDArray[np.float32]] = []
    last = np.ones(_SENTENCES, dtype=np.int64)
    with start() as step:
        for ids in written:
            steps.append(on_host(step(last).log_probs()).astype(np.float32, copy=False))
            last = steps[-1].argmax(axis=-1) if ids is None else ids
    return steps


def _seconds(start: Start, written: Sequence[NDArray[np.int64]], clock: Clock) -> list[float]:
    """How long each step takes, the choice of candidates included; there are as many rows as in a beam."""
    taken = []
    last = np.ones(_SENTENCES, dtype=np.int64)
    with start() as step:
        for position, ids in enumerate(written):
            start_time = clock()
            step(last).top(_BEAM + 1, ())
            taken.append(clock() - start_time)
            last = ids.repeat(_BEAM)
            if position == 0:
                step.reorder(np.arange(_SENTENCES).repeat(_BEAM))
    return taken


def _divergence(exact: Sequence[NDArray[np.float32]], other: Sequence[NDArray[np.float32]]) -> float:
    """Return the mean of sum p (log p - log q); infinite where it is not a number."""
    each = [(np.exp(p) * (p - q)).sum(axis=-1) for p, q in zip(exact, other, strict=True)]
    mean = float(np.stack(each).mean())
    return math.inf if math.isnan(mean) else mean


PrecisionChoice = Literal["auto", Precision]
EngineChoice = Literal["auto", "native", "torch"]

# What "auto" has chosen, while the first of the models lives: of an engine, and all models by identity.
_chosen: "WeakKeyDictionary[Transformer | StoredModel, dict[tuple[object, ...], Way]]" = WeakKeyDictionary()


class Backends:
    """The backends of a model or an ensemble, each made when it is first needed."""

    def __init__(
        self,
        models: "Sequence[Transformer | StoredModel]",
        *,
        precision: PrecisionChoice,
        engine: EngineChoice,
    ) -> None:
        """Prepare; see `Translator` for the arguments.

        Raises:
            InputError: a precision or an engine that does not exist.
        """
        for name, value, known in (
            ("precision", precision, PrecisionChoice),
            ("engine", engine, EngineChoice),
        ):
            if value not in get_args(known):
                raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, get_args(known)))}")
        self.models = models
        self.precision_choice: PrecisionChoice = precision
        self._engine: EngineChoice = engine

    @cached_property
    def searching(self) -> AttentionBackend:
        """The backend of searches and scores.

        Raises:
            InputError: the engine that is asked for cannot compute these models here.
        """
        engine, precision = self._engine, self.precision
        if self.precision_choice == "auto" and engine == "auto":
            engine = self._fastest_way[0]
        reason: str | None = "engine='torch' is asked for"
        if engine != "torch":
            reason = NativeBackend.why_not(self.models, precision)
            if reason is None:
                backend = NativeBackend(self.models, precision)
                return_free_memory()
                return backend
        if engine != "native" and precision != "int8":
            return self._torch_backend(precision, because=f"{reason}; ")
        if engine == "torch":
            raise InputError(
                f"engine='torch', precision={precision!r}: torch has float32, bf16 and fp16; "
                "int8 is for engine='auto', on a CPU"
            )
        raise InputError(
            f"engine={self._engine!r}, precision={self.precision_choice!r}: not possible here: {reason}; "
            "engine='torch' computes every model, in float32, bf16 and fp16"
        )

    @property
    def attending(self) -> AttentionBackend:
        """The backend that gives attention weights: the same as that of searches."""
        return self.searching

    @property
    def device(self) -> str:
        """The kind of device that computes: "cpu" or "cuda"."""
        model = self.models[0]
        return "cpu" if isinstance(model, StoredModel) else next(model.parameters()).device.type

    @property
    def precision(self) -> Precision:
        """The precision in use; "auto" is tried out when this is first asked, once for a model."""
        return self.precision_choice if self.precision_choice != "auto" else self._fastest_way[1]

    @property
    def position_limit(self) -> int | None:
        """The longest sequence that all models have learned positions for; None: no limit."""
        configs = [model.config for model in self.models]
        return min((each.max_positions for each in configs if each.positions == "learned"), default=None)

    @property
    def vocab_size(self) -> int:
        """The size of the target vocabulary, which all models share."""
        return self.models[0].config.tgt_vocab_size

    @property
    def src_vocab_size(self) -> int:
        """The number of source ids that every model has."""
        return min(model.config.src_vocab_size for model in self.models)

    @cached_property
    def _fastest_way(self) -> Way:
        key = (self._engine, *map(id, self.models))
        known = _chosen.setdefault(self.models[0], {})
        if key not in known:
            known[key] = self._fastest()
        return known[key]

    def _fastest(self) -> Way:
        """Try out what can compute these models, each with one thread on a CPU."""
        config, most = self.models[0].config, self.position_limit
        sources = random_sources(config.src_vocab_size, pad_id=config.src_pad_id, most=most)
        starts = {way: partial(self._backend(way).step, sources) for way in self._possible_ways()}
        # A thread's own clock is too coarse on Windows, and stands still while a GPU computes.
        is_wall = sys.platform == "win32" or self.device != "cpu"
        clock = time.perf_counter if is_wall else time.thread_time
        with using_threads(1):  # as the engine does for each batch
            return fastest(try_precisions(starts, num_positions=most, clock=clock))

    def _backend(self, way: Way) -> Backend:
        engine, precision = way
        return Backends(self.models, precision=precision, engine=engine).searching

    def _possible_ways(self) -> list[Way]:
        """List what can compute these models, float32 first. Nothing that a CPU emulates is tried."""
        # Without fp16: a CPU is slow in it, and random sources do not show what overflows.
        names: Sequence[Precision] = ("float32", "bf16", "int8")
        ways: list[Way] = []
        if self._engine != "torch":
            ways += [("native", each) for each in names if NativeBackend.why_not(self.models, each) is None]
        if self._engine == "native":
            return ways or [("native", "float32")]
        if ways and not has_torch():
            return ways
        ways.append(("torch", "float32"))
        if self.device != "cpu" or cpu_has_bf16():
            ways.append(("torch", "bf16"))
        return ways

    def _torch_backend(self, precision: Precision, *, because: str = "") -> "TorchBackend":
        """Return the torch backend; stored models are loaded into torch by the first one."""
        if not has_torch():
            raise MissingExtraError(f"{because}this needs torch: {install_hint('torch')}")
        from heedful.decoding.backends.torch import TorchBackend

        models = [each.model if isinstance(each, StoredModel) else each for each in self.models]
        return TorchBackend(models, precision)


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    return find_spec("torch") is not None
