"""Weights in torch: copied or assigned to models, read from files and checked."""

import argparse
import re
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heedful.errors import BundleError, OptionError
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.changes import changed_parts, changes_by_code
from heedful.runtime.threads import apply_threads
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown
from heedful.storage.weights_file import Shape, check_fits, readable

HALF = (torch.float16, torch.bfloat16)
_TYPES = (torch.float32, torch.float64, *HALF, torch.int64, torch.int32, torch.uint8, torch.bool)
_MAX_NAME = 500  # characters
_MAX_DIMENSIONS = 8


def unique_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights by name in float32, each shared matrix under its first name only.

    Raises:
        BundleError: a module has a buffer in its state, which is no weight and would be lost.
    """
    if not isinstance(model, nn.Module):
        raise OptionError(f"model: {type(model).__name__} given: must be a Transformer")
    names = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    if buffers := sorted(model.state_dict().keys() - names):
        raise BundleError(
            f"{buffers[0]}: bundles and checkpoints hold no buffers; make it a Parameter with "
            "requires_grad=False, or register it with persistent=False"
        )
    return {name: weight.detach().float().contiguous() for name, weight in model.named_parameters()}


def saved_parts(model: Transformer) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return what a bundle has of a model: `unique_weights`, and the parts that are not heedful's own."""
    return unique_weights(model), changed_parts(model)


def load_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy what `unique_weights` gave into a model of the same configuration: see `check_fits`."""
    check_weights(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Compare the names and shapes of weights with a model's: see `check_fits`."""
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    check_fits(expected, {name: tuple(weight.shape) for name, weight in weights.items()}, origin)


def meta_model(config: ModelConfig) -> Transformer:
    """Build a model on the meta device: its weights have names and shapes, but no values and no memory.

    With parts of plugins, which may compute tables of their own, it is built on the CPU.
    """
    with torch.device("cpu" if config.plugged else "meta"), _NoInitialisation():
        model = Transformer.from_config(config)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):
            if buffer.is_meta:  # a table that grows, empty at first
                setattr(module, name, torch.empty_like(buffer, device="cpu"))
    return model


def assign_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Make these tensors the weights of a model, usually from `meta_model`, by name and without a copy.

    A shared matrix, which is under its first name, stays shared. Which weights are trained stays as it is.
    """
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = {name: nn.Parameter(weights[name].detach()) for name in first_names.values()}
    every = model.named_parameters(remove_duplicate=False)
    model.load_state_dict({name: parameters[first_names[id(each)]] for name, each in every}, assign=True)


def model_from_arrays(config: ModelConfig, weight: Callable[[str], NDArray[np.float32]]) -> Transformer:
    """Build a model in evaluation mode; `weight` returns the array of a weight by its name."""
    apply_threads()
    model = meta_model(config)
    assign_weights(model, {name: torch.from_numpy(weight(name)) for name, _ in model.named_parameters()})
    use_fused_ops(model, kernels=False)  # training asks for them
    return model.eval()


def changes_and_shapes(config: ModelConfig) -> tuple[dict[str, str], dict[str, Shape]]:
    """Return what differs from heedful's own in a model that is built here, and the shapes of its weights."""
    weights = meta_model(config).named_parameters()
    return changes_by_code(config), {name: tuple(weight.shape) for name, weight in weights}


class _NoInitialisation(TorchFunctionMode):
    """Leaves out what draws random numbers: on the meta device it would change nothing, and take seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call the function, or return the tensor that it would fill."""
        kwargs = kwargs or {}
        if func.__name__ in {"normal_", "uniform_", "kaiming_uniform_"}:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file by name; they stay on the disk until they are used.

    A ValueError says why the file cannot be read.
    """
    with readable(path) as named:
        tensors: dict[str, Tensor] = load_file(named)
    check_tensors(tensors)
    return tensors


def read_pickled(path: Path) -> object:
    """Return what torch.save wrote, on the CPU. Tensors and plain Python objects are read, nothing is run.

    Raises:
        ValueError: it would have to be executed, it is damaged, or larger than its file when unpacked.
    """
    reason, cause = "", None
    try:
        mapped = zipfile.is_zipfile(path)
        reason = _why_not_plain(path) if mapped else ""
        # Scripts often store their arguments beside the weights; a Namespace holds data and runs nothing.
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is refused
            if not reason:  # what is not used, such as the state of an optimiser, stays on the disk
                return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # torch has no exception for it
        reason, cause = _reason(error), error
    raise ValueError(f"not weights that can be read without running code ({reason})") from cause


_REFUSED_NAME = re.compile(r"GLOBAL ([\w.]+)")


def _reason(error: Exception) -> str:
    """Return why torch.load refuses a file: its own messages are pages of advice."""
    if isinstance(error, OSError) and error.filename and error.strerror:  # which torch's own have not
        return error.strerror
    if match := _REFUSED_NAME.search(str(error)):
        return f"it asks for {shown(match[1])}"
    return "damaged, or not written by torch.save"


def check_tensors(tensors: Mapping[str, object]) -> None:
    """Refuse anything but usual tensors under usual names, with all of their numbers in the file.

    A ValueError names the first.
    """
    for name, tensor in tensors.items():
        if problem := _problem(name, tensor):
            raise ValueError(f"{shown(name)} {problem}")


def _problem(name: object, tensor: object) -> str | None:
    if not (isinstance(name, str) and isinstance(tensor, Tensor)):
        return f"is not a tensor but of type {type(tensor).__name__}"
    if len(name) > _MAX_NAME:
        return f"is a name of {len(name):,} characters"
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.dtype not in _TYPES:
        return f"is a tensor of {tensor.dtype}, {tensor.layout}, {tensor.device}, not of plain numbers"
    if tensor.dim() > _MAX_DIMENSIONS:
        return f"has {tensor.dim()} dimensions; weights have one to four"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.itemsize:
        return f"is a tensor of shape {tuple(tensor.shape)}, but the file holds fewer numbers"
    return None


def _why_not_plain(path: Path) -> str:
    """Return why an archive is not what torch.save writes, which packs nothing; empty: it is."""
    with zipfile.ZipFile(path) as archive:
        if sum(each.file_size for each in archive.infolist()) > path.stat().st_size:
            return "an archive that is larger when it is unpacked"
        is_program = any(name.endswith("/constants.pkl") for name in archive.namelist())
        return "a program of TorchScript" if is_program else ""
