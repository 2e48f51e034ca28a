"""The choice of a backend and its precision for given models: as requested, or by a table.

If the table names a precision below float32, the loss that it costs is computed: the mean divergence of
next-token probabilities from float32, in nats per token. On Multi30k, BLEU falls by 12 to 13 for each nat of
validation loss (docs/log.md), so `MAX_LOSS` stands for 0.13 BLEU. Nothing is timed: the same models on the
same class of CPU always get the same backend.
"""

import logging
import math
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from heedful.decoding.backends.native import NativeBackend, change_of
from heedful.decoding.backends.protocol import Backend
from heedful.decoding.steps import Ints, Singles, on_host
from heedful.errors import InputError, MissingExtraError, install_hint
from heedful.runtime.native import BF16_VARIABLE, call_libc, cpu_has_bf16, native, on_or_off
from heedful.settings.options import EngineChoice, Precision, PrecisionChoice
from heedful.storage.bundle import StoredModel

if TYPE_CHECKING:
    from heedful.decoding.backends.torch import TorchBackend
    from heedful.model.transformer import Transformer

_log = logging.getLogger("heedful.model")  # not the log of searches: a service shows it

AnyBackend = TypeVar("AnyBackend", bound=Backend)

# For "auto": the fastest precision of the native engine by the level of the library, as measured in
# docs/performance.md; at other levels, float32.
FASTEST: dict[str, Precision] = {
    "avx2": "int8",
    "avx_vnni": "int8",
    "avx512": "int8",
    "avx512_vnni": "int8",
    "avx512_bf16": "int8",
    "amx": "int8",
}
MAX_LOSS = 0.01  # nats for each token
_SENTENCES, _LENGTH, _POSITIONS = 8, 16, 8


def choose_backend(
    models: "Sequence[Transformer | StoredModel]",
    *,
    precision: PrecisionChoice = "float32",
    engine: EngineChoice = "auto",
) -> Backend:
    """Return the backend of a model or an ensemble: the native engine if it can be used, else torch.

    A model with a part that is not heedful's own (`ops/changes.py`) is computed by torch, and the log names
    the part.

    Args:
        models: the models of an ensemble, or one, on one device.
        precision: the precision of matrix multiplications. "auto": in the native engine, the precision of the
            table `FASTEST`; in torch, bf16 on CPUs with instructions for it. Both only if these models do not
            lose too much.
        engine: "native", "torch", or "auto" for either.

    Raises:
        InputError: a precision or an engine that cannot compute these models here.
        MissingExtraError: torch is needed and not installed.
    """
    models = [each.built or each if isinstance(each, StoredModel) else each for each in models]
    on_or_off(BF16_VARIABLE)  # a mistake in it is reported even if nothing depends on it
    reason = "engine='torch' is asked for"
    if engine != "torch":
        fastest = FASTEST.get(native().level or "", "float32") if precision == "auto" else precision
        why_not = NativeBackend.why_not(models, fastest)
        if why_not is None:
            backend = NativeBackend(models, fastest)
            if precision == "auto" and fastest != "float32":
                backend = _of_little_loss(NativeBackend(models, "float32"), backend, models)
            call_libc("malloc_trim", 0)  # what packing has used
            return backend
        reason = f"precision='auto': {why_not}" if precision == "auto" and not has_torch() else why_not
        if engine == "auto" and (change := next(filter(None, map(change_of, models)), None)):
            _log.warning("%s: not heedful's own; torch computes the model as it is", change)
    if engine != "native" and precision != "int8":
        return _torch_backend(models, precision, because=f"{reason}; ")
    only = "torch has float32, bf16 and fp16; int8 is for engine='auto', on a CPU"
    other = f"not possible here: {reason}; engine='torch' computes every model, in float32, bf16 and fp16"
    raise InputError(f"engine={engine!r}, precision={precision!r}: {only if engine == 'torch' else other}")


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    return find_spec("torch") is not None


def _torch_backend(
    models: "Sequence[Transformer | StoredModel]", precision: PrecisionChoice, *, because: str
) -> "TorchBackend":
    """Return the torch backend, which loads stored models into torch."""
    if not has_torch():
        raise MissingExtraError(f"{because}this needs torch: {install_hint('torch')}")
    from heedful.decoding.backends.torch import TorchBackend

    loaded = [each.model if isinstance(each, StoredModel) else each for each in models]
    backend = TorchBackend(loaded, "float32" if precision == "auto" else precision)
    if precision == "auto" and backend.device == "cpu" and cpu_has_bf16():
        return _of_little_loss(backend, TorchBackend(loaded, "bf16"), loaded)
    return backend


def _of_little_loss(
    exact: AnyBackend, fast: AnyBackend, models: "Sequence[Transformer | StoredModel]"
) -> AnyBackend:
    """Return the fast backend, or the exact one if the fast one loses more than `MAX_LOSS`."""
    return fast if loss_of(fast, exact, models) <= MAX_LOSS else exact


def loss_of(fast: Backend, exact: Backend, models: "Sequence[Transformer | StoredModel]") -> float:
    """Return the mean of sum p (log p - log q), in nats per token; infinite if it is not a number.

    p are the probabilities of the exact backend, q of the fast one, for the greedy outputs of the exact one
    on fixed random sentences.

    Args:
        fast: a backend of the models.
        exact: a float32 backend of the models.
        models: the models.
    """
    limits = [each.config.max_positions for each in models if each.config.positions == "learned"]
    size = min(each.config.src_vocab_size for each in models)
    ids = np.random.default_rng(0).integers(0, size, (_SENTENCES, min([_LENGTH, *limits])))
    pad_id = models[0].config.src_pad_id
    ids[ids == pad_id] = (pad_id + 1) % size
    sources = ids.tolist()
    exact_log_probs = _log_probs(exact, sources, [None] * min([_POSITIONS, *limits]))
    written = [of_step.argmax(axis=-1) for of_step in exact_log_probs]
    p, q = np.stack(exact_log_probs), np.stack(_log_probs(fast, sources, written))
    mean = float((np.exp(p) * (p - q)).sum(axis=-1).mean())
    return math.inf if math.isnan(mean) else mean


def _log_probs(backend: Backend, sources: list[list[int]], written: "Sequence[Ints | None]") -> list[Singles]:
    """Return each step's log-probabilities after the written tokens; None: after its own best token."""
    steps: list[Singles] = []
    last = np.ones(len(sources), dtype=np.int64)
    with backend.step(sources) as step:
        for ids in written:
            steps.append(on_host(step(last).log_probs()).astype(np.float32, copy=False))
            last = steps[-1].argmax(axis=-1) if ids is None else ids
    return steps
