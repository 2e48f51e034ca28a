"""Files of weights from elsewhere: read as data, never executed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import InteropError
from heedful.weight_files import HALF, check_tensors, read_pickled, read_safetensors

# Keys of the state dict, where a file holds more than that.
_WRAPPERS = ("model", "state_dict", "model_state_dict", "net", "weights")
# What wrapping for several processes, or compilation, puts before every name.
_PREFIXES = ("module.", "_orig_mod.")
_RESAVE = "save the weights alone, with torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file.

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
        InteropError: no such file, one that would have to be executed to be read, one without weights, or
            with tensors that take more memory than the file.
    """
    if not path.is_file():
        raise InteropError(f"{path}: no such file; give the file that torch.save wrote")
    try:
        found = read_safetensors(path) if path.suffix == ".safetensors" else read_pickled(path)
        state_dict = _state_dict(found)
        check_tensors(state_dict)
    except ValueError as error:
        raise InteropError(f"{path}: {error}; {_RESAVE}") from error
    tensors: dict[str, Tensor] = {
        name: tensor.detach().float() if tensor.dtype in HALF else tensor.detach()
        for name, tensor in state_dict.items()
    }
    for prefix in _PREFIXES:
        if all(name.startswith(prefix) for name in tensors):
            tensors = {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}
    beside = found if isinstance(found, Mapping) and state_dict is not found else {}
    return Checkpoint(tensors, beside)


def _state_dict(found: object) -> Mapping[str, Any]:
    if isinstance(found, Mapping):
        for key in _WRAPPERS:
            inner = found.get(key)
            if isinstance(inner, Mapping) and inner:
                return inner
        if found:
            return found
    raise ValueError(f"holds no weights but a {type(found).__name__}")
