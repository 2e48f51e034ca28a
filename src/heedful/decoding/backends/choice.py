"""The choice of a backend and its precision for given models: as asked for, or by a table."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

from heedful.decoding.backends.native import NativeBackend
from heedful.decoding.backends.protocol import Backend
from heedful.errors import InputError, MissingExtraError, install_hint
from heedful.runtime.native import cpu_has_bf16, native
from heedful.runtime.threads import return_free_memory
from heedful.settings.options import Precision
from heedful.storage.stored_model import StoredModel

if TYPE_CHECKING:
    from heedful.decoding.backends.torch import TorchBackend
    from heedful.model.transformer import Transformer

PrecisionChoice = Literal["auto", Precision]
EngineChoice = Literal["auto", "native", "torch"]

# For "auto": the fastest precision of the native engine that loses at most about 0.1 BLEU, by the level of
# the library, as measured in docs/performance.md; float32 at levels where nothing was measured.
FASTEST: dict[str, Precision] = {
    "avx2": "int8",
    "avx_vnni": "int8",
    "avx512": "int8",
    "avx512_vnni": "int8",
    "avx512_bf16": "int8",
    "amx": "int8",
}


def choose_backend(
    models: "Sequence[Transformer | StoredModel]",
    *,
    precision: PrecisionChoice = "float32",
    engine: EngineChoice = "auto",
) -> Backend:
    """Return the backend of a model or an ensemble: the native engine where it can be used, else torch.

    Args:
        models: whose probabilities are averaged, all on one device.
        precision: of matrix multiplications; "auto" is that of the table `FASTEST` in the native engine, and
            in torch bf16 on CPUs with instructions for it.
        engine: "native", "torch", or either.

    Raises:
        InputError: a precision or an engine that does not exist, or that cannot compute these models here.
        MissingExtraError: torch would be needed, and is not installed.
    """
    for name, value, known in (("precision", precision, PrecisionChoice), ("engine", engine, EngineChoice)):
        if value not in get_args(known):
            raise InputError(f"{name}={value!r}: must be one of {', '.join(map(repr, get_args(known)))}")
    reason = "engine='torch' is asked for"
    if engine != "torch":
        fastest = FASTEST.get(native().level or "", "float32") if precision == "auto" else precision
        why_not = NativeBackend.why_not(models, fastest)
        if why_not is None:
            backend = NativeBackend(models, fastest)
            return_free_memory()
            return backend
        reason = f"precision='auto': {why_not}" if precision == "auto" and not has_torch() else why_not
    if engine != "native" and precision != "int8":
        return _torch_backend(models, precision, because=f"{reason}; ")
    if engine == "torch":
        raise InputError(
            f"engine='torch', precision={precision!r}: torch has float32, bf16 and fp16; "
            "int8 is for engine='auto', on a CPU"
        )
    raise InputError(
        f"engine={engine!r}, precision={precision!r}: not possible here: {reason}; "
        "engine='torch' computes every model, in float32, bf16 and fp16"
    )


def has_torch() -> bool:
    """Return whether torch is installed, without importing it."""
    return find_spec("torch") is not None


def _torch_backend(
    models: "Sequence[Transformer | StoredModel]", precision: PrecisionChoice, *, because: str
) -> "TorchBackend":
    """Return the torch backend; stored models are loaded into torch by the first one."""
    if not has_torch():
        raise MissingExtraError(f"{because}this needs torch: {install_hint('torch')}")
    from heedful.decoding.backends.torch import TorchBackend

    loaded = [each.model if isinstance(each, StoredModel) else each for each in models]
    backend = TorchBackend(loaded, "float32" if precision == "auto" else precision)
    if precision == "auto" and backend.device == "cpu" and cpu_has_bf16():
        return TorchBackend(loaded, "bf16")
    return backend
