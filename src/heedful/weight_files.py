"""Files of tensors, read as data and never executed: safetensors, and what torch.save writes.

Who reads adds the name of the file and what to do: every problem is a `ValueError` whose message is a phrase.
"""

import argparse
import zipfile
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from heedful.parsing import shown
from heedful.safetensors_files import one_line, utf_8_name

HALF = (torch.float16, torch.bfloat16)
_TYPES = (torch.float32, torch.float64, *HALF, torch.int64, torch.int32, torch.uint8, torch.bool)
_MAX_NAME = 500  # characters


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
            _check_not_packed(path)
        # Scripts often store their arguments beside the weights; a Namespace holds data and runs nothing.
        with torch.serialization.safe_globals([argparse.Namespace]):
            # What is not used, such as the state of an optimiser, stays on the disk.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    except Exception as error:  # of any kind: torch has none of its own
        raise ValueError(f"not weights that can be read without running code ({one_line(error)})") from error


def check_tensors(tensors: Mapping[str, object]) -> None:
    """Refuse what is not made of usual tensors under usual names, whose numbers all stand in the file.

    Raises:
        ValueError: one is not; it is named.
    """
    for name, tensor in tensors.items():
        if not (isinstance(name, str) and isinstance(tensor, Tensor)):
            raise ValueError(f"{shown(name)} is no tensor but of type {type(tensor).__name__}")
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


def _check_not_packed(path: Path) -> None:
    """Refuse an archive that holds more than its own size; torch.save packs nothing."""
    with zipfile.ZipFile(path) as archive:
        if sum(each.file_size for each in archive.infolist()) > path.stat().st_size:
            raise ValueError("an archive that is larger when it is unpacked")
