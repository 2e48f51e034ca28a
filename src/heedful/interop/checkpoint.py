"""Read weights of other implementations, without executing code."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import InteropError
from heedful.storage.model_files import HALF, check_tensors, read_pickled, read_safetensors

# Keys of the state dict in files that have more than that.
_WRAPPERS = ("model", "state_dict", "model_state_dict", "net", "weights")
_PREFIXES = ("module.", "_orig_mod.")  # of DistributedDataParallel and torch.compile
_RESAVE = "save the weights alone, with torch.save(model.state_dict(), FILE)"


@dataclass(frozen=True)
class Checkpoint:
    """The contents of a checkpoint file.

    Attributes:
        tensors: the weights by name.
        beside: the other contents by key, for example the arguments of the training script.
    """

    tensors: dict[str, Tensor]
    beside: Mapping[str, Any] = field(default_factory=dict)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a file written by `torch.save` or safetensors.

    The file may be a state dict, or a dict with one under a key such as "model" or "state_dict". Half
    precision becomes float32.

    Raises:
        InteropError: there is no such file, reading it would execute code, it has no weights, or its tensors
            are larger than the file.
    """
    if not path.is_file():
        raise InteropError(f"{path}: no such file; give the file that torch.save wrote")
    try:
        contents = read_safetensors(path) if path.suffix == ".safetensors" else read_pickled(path)
        state_dict = _state_dict(contents)
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
    beside = contents if isinstance(contents, Mapping) and state_dict is not contents else {}
    return Checkpoint(tensors, beside)


def _state_dict(contents: object) -> Mapping[str, Any]:
    if isinstance(contents, Mapping):
        for key in _WRAPPERS:
            inner = contents.get(key)
            if isinstance(inner, Mapping) and inner:
                return inner
        if contents:
            return contents
    raise ValueError(f"holds no weights but a {type(contents).__name__}")
