"""torch.compile for the layers of a model: by default on a GPU where it works, elsewhere on request."""

from contextlib import AbstractContextManager, nullcontext
from functools import cache

import torch
from torch import Tensor

from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.settings.run import TrainConfig


def compiles(settings: TrainConfig, device: torch.device) -> bool:
    """Return whether training compiles layers; by default not on a CPU, where it is slower (docs/log.md).

    Raises:
        ConfigError: it is requested, and no compiler works.
    """
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


def uncompiled(settings: TrainConfig, device: torch.device) -> AbstractContextManager[object]:
    """Run layers eagerly inside the block, so that validation compiles nothing and attention is recorded."""
    return torch.compiler.set_stance("force_eager") if compiles(settings, device) else nullcontext()
