"""Files of weights from elsewhere: read as data, never executed."""

import argparse
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from heedful.errors import InteropError

# Under what the state dict is found, where a file holds more than that.
_WRAPPERS = ("model", "state_dict", "model_state_dict", "net", "weights")
# What wrapping for several processes, or compilation, puts before every name.
_PREFIXES = ("module.", "_orig_mod.")
_RESAVE = "save the weights alone, with torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class Checkpoint:
    """What a file holds.

    Attributes:
        tensors: the weights by name.
        beside: what else stands there under names, for example the arguments of the script that trained them.
    """

    tensors: dict[str, Tensor]
    beside: Mapping[str, Any] = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file written by `torch.save` or safetensors.

    The file may be a state dict, or a dict that has one under "model", "state_dict" and the like. Numbers of
    half precision become float32.

    Raises:
        InteropError: no such file, one that would have to be executed to be read, or one without weights.
    """
    if not path.is_file():
        raise InteropError(f"{path}: no such file; give the file that torch.save wrote")
    tensors: dict[str, Tensor] = {}
    found = _load(path)
    state_dict = _state_dict(path, found)
    for name, tensor in state_dict.items():
        if not isinstance(tensor, Tensor):
            raise InteropError(
                f"{path}: {name!r} is no tensor but of type {type(tensor).__name__}; {_RESAVE}"
            )
        half = tensor.dtype in (torch.float16, torch.bfloat16)
        tensors[str(name)] = tensor.detach().float() if half else tensor.detach()
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    return Checkpoint(tensors, {} if state_dict is found else found)


def _load(path: Path) -> Any:  # noqa: ANN401
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        # Scripts often store their arguments beside the weights; a Namespace holds data and runs nothing.
        with torch.serialization.safe_globals([argparse.Namespace]):
            # What is not used, such as the state of an optimiser, stays on the disk.
            mapped = zipfile.is_zipfile(path)
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except (OSError, SafetensorError) as error:
        raise InteropError(f"{path}: cannot be read: {error}") from error
    except Exception as error:  # of many kinds: a pickle that asks for code, a broken archive, text
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise InteropError(
            f"{path}: not weights that can be read without running code ({reason[:120]}); {_RESAVE}"
        ) from error


def _state_dict(path: Path, found: Any) -> Mapping[str, Any]:  # noqa: ANN401
    if isinstance(found, Mapping):
        for key in _WRAPPERS:
            inner = found.get(key)
            if isinstance(inner, Mapping) and inner:
                return inner
        if found:
            return found
    raise InteropError(f"{path}: holds no weights but a {type(found).__name__}; {_RESAVE}")
