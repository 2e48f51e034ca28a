"""The choice of a backend and its precision for given models: as asked for, or the fastest here."""

import sys
import time
from collections.abc import Sequence
from functools import cached_property, partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakKeyDictionary

from heedful.decoding.backend import AttentionBackend, Backend
from heedful.decoding.fastest_precision import Way, fastest, random_sources, try_precisions
from heedful.decoding.native_backend import NativeBackend
from heedful.errors import InputError, MissingExtraError, install_hint
from heedful.free_memory import return_free_memory
from heedful.native import cpu_has_bf16
from heedful.precision import Precision
from heedful.stored_model import StoredModel
from heedful.threads import using_threads

if TYPE_CHECKING:
    from heedful.decoding.torch_backend import TorchBackend
    from heedful.model import Transformer

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
        from heedful.decoding.torch_backend import TorchBackend

        models = [each.model if isinstance(each, StoredModel) else each for each in self.models]
        return TorchBackend(models, precision)


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    return find_spec("torch") is not None
