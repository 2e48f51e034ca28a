"""Resolve the name of a model: a path, or the id of a model on the Hugging Face hub."""

import difflib
import re
from collections.abc import Callable
from pathlib import Path

from heedful.errors import HubError, InputError, MissingExtraError
from heedful.interop.huggingface.hub import download_bundle, download_source

_PREFIX = "hf:"
_SUFFIXES = {".pt", ".pth", ".bin", ".ckpt", ".safetensors", ".npz", ".onnx", ".json", ".toml", ".gz", ".zip"}
_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>.+))?", re.ASCII)


def local_bundle(name: Path) -> Path:
    """Return the path of a bundle or run; one on the hub is downloaded first.

    An existing path is returned unchanged. Otherwise `user/model`, `user/model@revision`, or either after
    `hf:`, is the id of a model on the hub; without `hf:`, not if there is a directory `user`, or with the
    suffix of a file. The path need not be a bundle: see `resolve_bundle`.

    Raises:
        HubError: the hub has no such bundle, or cannot be reached.
        BundleError: the bundle has a newer format.
        InputError: not a valid id after `hf:`, or a path that does not exist.
        MissingExtraError: it may be an id, and huggingface_hub is not installed.
    """
    return _local(name, download_bundle)


def local_source(name: Path) -> Path:
    """Return the path of a model to import; otherwise as `local_bundle`."""
    return _local(name, download_source)


def hub_repo(name: Path) -> str | None:
    """Return the repository of a name, `user/model`; None for a path.

    >>> hub_repo(Path("hf:user/model@v2"))
    'user/model'
    """
    text = name.as_posix()
    is_path = name.exists() or (not text.startswith(_PREFIX) and _is_meant_as_path(name))
    match = None if is_path else _HUB_ID.fullmatch(text.removeprefix(_PREFIX))
    return match["repo"] if match else None


def _local(name: Path, download: Callable[..., Path]) -> Path:
    text = name.as_posix()
    if name.exists():
        return name
    hub_id = _HUB_ID.fullmatch(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX):
        if hub_id is None:
            raise InputError(f"{text}: not an id of the hub; give hf:user/model or hf:user/model@revision")
        return download(hub_id["repo"], revision=hub_id["revision"])
    if hub_id is None:
        return name
    if _is_meant_as_path(name):
        raise InputError(f"{text}: no such file or directory; {_advice(name)}")
    try:
        return download(hub_id["repo"], revision=hub_id["revision"])
    except (HubError, MissingExtraError) as error:
        raise type(error)(f"there is no {text} here; {error}") from None


def _is_meant_as_path(name: Path) -> bool:
    return name.parent.is_dir() or name.suffix.lower() in _SUFFIXES


def _advice(name: Path) -> str:
    beside = [each.name for each in name.parent.iterdir()] if name.parent.is_dir() else []
    if close := difflib.get_close_matches(name.name, beside, n=1):
        return f"did you mean {name.parent / close[0]}?"
    return f"check the path, or write hf:{name.as_posix()} for a model of the hub"
