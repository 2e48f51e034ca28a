"""How a training computes: the precision of matrix multiplications, native kernels, compiled layers.

Weights and optimiser state are always float32.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, Self

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.kernels import torch_dtype
from heedful.runtime.native import cpu_has_bf16, why_no_bf16
from heedful.settings.options import TrainingPrecision
from heedful.settings.run import TrainConfig

_TIMED_SIZE = 128  # rows and columns of the timed matrices: a few milliseconds if bfloat16 is emulated


@dataclass(frozen=True)
class Execution:
    """How one process trains a model: decided once, from its settings and its device.

    `kernels`: native kernels compute if they support the tensors; `compiles`: torch.compile compiles the
    layers.
    """

    device: torch.device
    precision: TrainingPrecision
    kernels: bool
    compiles: bool

    @classmethod
    def of(cls, settings: TrainConfig, device: torch.device) -> Self:
        """Decide by the settings, and by what this machine can do."""
        precision = resolve_precision(settings.precision, device)
        return cls(device, precision, settings.kernels != "torch", compiles(settings, device))

    def apply(self, model: Transformer) -> None:
        """Change a model on its device accordingly, in place; the names of weights stay."""
        use_fused_ops(model, kernels=self.kernels)
        if self.compiles:
            compile_layers(model)

    def eagerly(self) -> AbstractContextManager[object]:
        """Run compiled layers eagerly in the block: nothing more is compiled, and attention is recorded."""
        return torch.compiler.set_stance("force_eager") if self.compiles else nullcontext()


def training_device(name: str) -> torch.device:
    """Return the device of "auto", "cpu" or "cuda" on this machine."""
    if name == "cuda" and not torch.cuda.is_available():
        raise ConfigError('train.device="cuda": torch finds no GPU here; use "cpu"')
    gpu = name == "cuda" or (name == "auto" and torch.cuda.is_available())
    return torch.device("cuda" if gpu else "cpu")


def resolve_precision(setting: Literal["auto", TrainingPrecision], device: torch.device) -> TrainingPrecision:
    """Return the precision of a setting; "auto" is bf16 if the device has instructions for it."""
    if setting != "auto":
        return setting
    if device.type == "cuda":
        has_bf16 = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        has_bf16 = device.type == "cpu" and cpu_has_bf16()
    return "bf16" if has_bf16 else "float32"


def emulation_warning(precision: TrainingPrecision, device: torch.device) -> str | None:
    """Return a warning if a CPU emulates bf16 and is slower for it, else None."""
    if precision != "bf16" or device.type != "cpu" or (reason := why_no_bf16()) is None:
        return None
    cost = _time_matmul(torch.bfloat16) / _time_matmul(torch.float32)
    if cost <= 1.0:  # HEEDFUL_ISA restricts heedful's own kernels, not torch
        return None
    return (
        f"train.precision=bf16: {reason}: a matrix multiplication takes {cost:.1f} times as long as in "
        "float32; take train.precision=float32"
    )


def _time_matmul(dtype: torch.dtype) -> float:
    """Return the shortest time of a few small matrix multiplications, in seconds."""
    matrix = torch.ones(_TIMED_SIZE, _TIMED_SIZE, dtype=dtype)
    seconds = []
    for _ in range(4):
        start = time.perf_counter()
        matrix @ matrix
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def autocast(precision: TrainingPrecision, device: torch.device) -> AbstractContextManager[object]:
    """Return a context in which forward passes multiply matrices in that precision.

    On a GPU the casts of weights are not kept: there is no second use, and a CUDA graph cannot keep them.
    """
    if precision == "float32":
        return nullcontext()
    return torch.autocast(device.type, dtype=torch_dtype(precision), cache_enabled=device.type != "cuda")


@contextmanager
def float32_matmul_precision(precision: TrainingPrecision, device: torch.device) -> Iterator[None]:
    """Set how a GPU multiplies float32 matrices inside the block; a CPU is not affected.

    With float32 they are exactly float32, even if the caller allows less; with bf16 TensorFloat-32 may be
    used, which has more digits than bf16.
    """
    if device.type != "cuda":
        yield
        return
    before = torch.get_float32_matmul_precision()
    # Newer versions of torch have a setting of their own for each library, which the older one overwrites.
    backends = torch.backends.cuda, torch.backends.mkldnn
    libraries: list[Any] = [getattr(backend, "matmul", None) for backend in backends]
    of_libraries = [(lib, lib.fp32_precision) for lib in libraries if hasattr(lib, "fp32_precision")]
    torch.set_float32_matmul_precision("high" if precision == "bf16" else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
        for library, was in of_libraries:
            library.fp32_precision = was


def compiles(settings: TrainConfig, device: torch.device) -> bool:
    """Return whether training compiles layers; by default not on a CPU, where it is slower (docs/log.md)."""
    if settings.compile is False or (settings.compile == "auto" and device.type != "cuda"):
        return False
    problem = _problem_of_compiler(device)
    if problem and settings.compile is True:
        raise ConfigError(
            f"train.compile=true: torch.compile does not work here ({problem}); install a C++ compiler, "
            "for a GPU Triton too, or set train.compile=false"
        )
    return not problem


@cache
def _problem_of_compiler(device: torch.device) -> str:
    """Compile a small function for a device; return the first line of the error, or nothing."""

    def small(x: Tensor) -> Tensor:
        return x.exp() + 1.0

    try:
        torch.compile(small, options={"fx_graph_cache": False})(torch.ones(2, device=device))
    except Exception as error:  # compilers and their dependencies fail in many ways
        return str(error).strip().partition("\n")[0] or type(error).__name__
    return ""


def compile_layers(model: Transformer) -> None:
    """Compile every layer at its first call, in place; no weight gets another name.

    The layers of a stack share one graph, which serves all batch sizes and lengths.
    """
    for layer in (*model.encoder.layers, *model.decoder.layers):
        layer.compile(dynamic=True)
