"""Models of torch and files: bundles are written, weights copied or assigned, files of tensors read.

Only here do storage and torch meet: bundles are read without it (`bundle.py`, `stored_model.py`).
"""

import argparse
import json
import math
import re
import shutil
import warnings
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heedful.errors import BundleError
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.runtime.durable import put_in_place, restore_backup, why_not_written, writing_at
from heedful.runtime.threads import apply_threads
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown
from heedful.settings.run import Config
from heedful.storage.bundle import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT_VERSION,
    WEIGHTS_FILE,
    Bundle,
    file_sha256,
    settings_sha256,
)
from heedful.storage.stored_model import check_fits, one_line, utf_8_name, weight_shapes
from heedful.text import TokenizerPair
from heedful.text.pair import is_file_of_a_pair

HALF = (torch.float16, torch.bfloat16)
_TYPES = (torch.float32, torch.float64, *HALF, torch.int64, torch.int32, torch.uint8, torch.bool)
_MAX_NAME = 500  # characters
_BLOCK = 2**22  # numbers that are written at a time


def save_bundle(bundle: Bundle, path: Path | str, *, card: str) -> None:
    """Write the bundle as a whole, or not at all: under a temporary name first, then renamed.

    Args:
        bundle: what to write; its weights are stored in float32.
        path: the directory to make; one that exists is replaced.
        card: the text of the model card.

    Raises:
        BundleError: the disk is full or cannot be written; an older bundle of that name is still there.
    """
    weights = unique_weights(bundle.model)
    settings: dict[str, Any] = {"config": bundle.config.model_dump(), "scores": dict(bundle.scores)}
    if bundle.calibration is not None:
        settings["calibration"] = bundle.calibration.as_json()
    _save(Path(path), weights, bundle.config, bundle.tokenizers, settings=settings, card=card)


def save_model(model: Transformer, config: Config, path: Path | str, *, card: str) -> None:
    """Write a bundle without tokenizers, for `load_model`; otherwise as `save_bundle`."""
    save_weights(unique_weights(model), config, None, path, card=card)


def save_weights(
    weights: Mapping[str, Tensor],
    config: Config,
    tokenizers: TokenizerPair | None,
    path: Path | str,
    *,
    card: str,
) -> None:
    """Write a bundle of weights that may be read one at a time; otherwise as `save_bundle`.

    Args:
        weights: by the names of `weight_shapes`, a shared matrix under its first name; only one of them
            need be in memory.
        config: of the bundle.
        tokenizers: None: the model works on ids.
        path: the directory to make; one that exists is replaced.
        card: the text of the model card.
    """
    settings = {"config": config.model_dump(), "scores": {}}
    _save(Path(path), weights, config, tokenizers, settings=settings, card=card)


def _save(
    path: Path,
    weights: Mapping[str, Tensor],
    config: Config,
    tokenizers: TokenizerPair | None,
    *,
    settings: Mapping[str, Any],
    card: str,
) -> None:
    temporary = writing_at(path)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        restore_backup(path)
        temporary.mkdir(parents=True)
        if tokenizers is not None:
            tokenizers.save(temporary)
        _write_weights(weights, config, temporary / WEIGHTS_FILE)
        # A path that it names may be no UTF-8.
        (temporary / CARD_FILE).write_text(card, encoding="utf-8", errors="backslashreplace")
        files = sorted(file.name for file in temporary.iterdir() if file.name != CARD_FILE)
        checksums = {name: file_sha256(temporary / name) for name in files} | {
            "settings": settings_sha256(settings)
        }
        description = {"format_version": FORMAT_VERSION, **settings, "sha256": checksums}
        (temporary / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        _keep_what_others_wrote(path, temporary)
        put_in_place(temporary, path)
    except BaseException as error:  # of a weight that is read only now, or of the keyboard, too
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError | SafetensorError):
            raise
        raise BundleError(f"{path}: cannot be written: {why_not_written(error)}") from error


def _write_weights(weights: Mapping[str, Tensor], config: Config, file: Path) -> None:
    """Write a safetensors file in float32, a tensor at a time: its own writer needs all of them at once."""
    shapes = dict(sorted(weight_shapes(config.model).items()))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at multiples of 8
    with file.open("wb") as written:
        written.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            weight = weights[name]
            assert weight.shape == shape, name
            rows = max(_BLOCK * len(weight) // weight.numel(), 1)
            for start in range(0, len(weight), rows):
                part = weight[start : start + rows] if rows < len(weight) else weight
                part = part.detach().to("cpu", torch.float32).contiguous()
                written.write(part.numpy().astype("<f4", copy=False).data)
                del part  # before the next is read
            del weight


def _keep_what_others_wrote(path: Path, temporary: Path) -> None:
    """Bring files that a user put into a bundle into the one that takes its place."""
    if not (path / CONFIG_FILE).is_file():
        return
    for other in path.iterdir():
        is_own = other.name in {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE} or is_file_of_a_pair(other.name)
        if not is_own and not other.is_dir():
            shutil.copy2(other, temporary, follow_symlinks=False)
        elif not is_own:
            shutil.copytree(other, temporary / other.name, symlinks=True)


def unique_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights by name in float32, each shared matrix under its first name only."""
    return {name: weight.detach().float().contiguous() for name, weight in model.named_parameters()}


def load_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy what `unique_weights` gave into a model of the same configuration.

    Raises:
        BundleError: a weight is missing, unknown, or of another shape.
    """
    check_weights(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Compare weights with those of a model. Raises as `load_weights` does."""
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    check_fits(expected, {name: tuple(weight.shape) for name, weight in weights.items()}, origin)


def meta_model(config: ModelConfig) -> Transformer:
    """Build a model on the meta device: its weights have names and shapes, but no values and no memory."""
    with torch.device("meta"), _NoInitialisation():
        model = Transformer.from_config(config)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):  # tables that grow, empty at first
            setattr(module, name, torch.empty_like(buffer, device="cpu"))
    return model


def assign_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Make these tensors a model's weights, by name and without a copy; a shared matrix stays shared.

    Args:
        model: usually from `meta_model`.
        weights: as `model.named_parameters()` names them, a shared one under its first name.
    """
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = {name: nn.Parameter(weights[name].detach()) for name in first_names.values()}
    every = model.named_parameters(remove_duplicate=False)
    model.load_state_dict({name: parameters[first_names[id(each)]] for name, each in every}, assign=True)


def model_from_arrays(config: ModelConfig, weight: Callable[[str], NDArray[np.float32]]) -> Transformer:
    """Build a model in evaluation mode, with arrays of its own for weights.

    Args:
        config: of the model.
        weight: gives the array of each of its weights by name.
    """
    apply_threads()
    model = meta_model(config)
    assign_weights(model, {name: torch.from_numpy(weight(name)) for name in weight_shapes(config)})
    use_fused_ops(model, kernels=False)  # training asks for them
    return model.eval()


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

    Raises:
        ValueError: it cannot be read.
    """
    try:
        with utf_8_name(path) as named:
            tensors: dict[str, Tensor] = load_file(named)
    except (OSError, SafetensorError, UnicodeError) as error:
        raise ValueError(f"cannot be read: {one_line(error)}") from None
    check_tensors(tensors)
    return tensors


def read_pickled(path: Path) -> object:
    """Return what torch.save wrote, on the CPU. Tensors and plain Python objects are read, nothing is run.

    Raises:
        ValueError: it would have to be executed, it is damaged, or larger than its file when unpacked.
    """
    try:
        mapped = zipfile.is_zipfile(path)
        if mapped:
            _check_plain_archive(path)
        # Scripts often store their arguments beside the weights; a Namespace holds data and runs nothing.
        with torch.serialization.safe_globals([argparse.Namespace]), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what matters is refused
            # What is not used, such as the state of an optimiser, stays on the disk.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # of any kind: torch has none of its own
        raise ValueError(f"not weights that can be read without running code ({_reason(error)})") from error


_REFUSED_NAME = re.compile(r"GLOBAL ([\w.]+)")


def _reason(error: Exception) -> str:
    """Return why torch.load or the check before it refuses a file: its own messages are pages of advice."""
    if isinstance(error, _NotPlainError):
        return str(error)
    if isinstance(error, OSError) and error.filename and error.strerror:  # which torch's own have not
        return error.strerror
    if match := _REFUSED_NAME.search(str(error)):
        return f"it asks for {shown(match[1])}"
    return "damaged, or not written by torch.save"


def check_tensors(tensors: Mapping[str, object]) -> None:
    """Refuse what is not made of usual tensors under usual names, whose numbers all stand in the file.

    Raises:
        ValueError: one is not; it is named.
    """
    for name, tensor in tensors.items():
        if not (isinstance(name, str) and isinstance(tensor, Tensor)):
            raise ValueError(f"{shown(name)} is not a tensor but of type {type(tensor).__name__}")
        if len(name) > _MAX_NAME:
            raise ValueError(f"{shown(name)} is a name of {len(name):,} characters")
        if problem := _problem(tensor):
            raise ValueError(f"the tensor {shown(name)} {problem}")


def _problem(tensor: Tensor) -> str | None:
    if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.dtype not in _TYPES:
        return f"is of the kind {tensor.dtype}, {tensor.layout}, {tensor.device}, not of plain numbers"
    if tensor.untyped_storage().nbytes() < tensor.numel() * tensor.itemsize:
        return f"has shape {tuple(tensor.shape)}, but the file holds fewer numbers"
    return None


class _NotPlainError(ValueError):
    """An archive is not what torch.save writes."""


def _check_plain_archive(path: Path) -> None:
    """Refuse a program, and an archive that holds more than its own size; torch.save packs nothing."""
    with zipfile.ZipFile(path) as archive:
        if sum(each.file_size for each in archive.infolist()) > path.stat().st_size:
            raise _NotPlainError("an archive that is larger when it is unpacked")
        if any(name.endswith("/constants.pkl") for name in archive.namelist()):
            raise _NotPlainError("a program of TorchScript")
