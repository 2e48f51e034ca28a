"""Models exported to CTranslate2, in the user's cache."""

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import platformdirs

from heedful.bundle import Bundle
from heedful.decoding.native_backend import weight_of
from heedful.durable import why_not_written
from heedful.errors import InteropError
from heedful.precision import Precision
from heedful.text.framing import Framing
from heedful.weight_format import weight_shapes

_NUM_KEPT = 4  # exported models in the user's cache: those that were in use last
_PREFIX = "ctranslate2-"
_FORMAT = "heedful-ctranslate2-1"  # a part of the name: another way to export never meets an old directory
COMPUTE_TYPES: dict[Precision, str] = {
    "float32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
    "int8": "int8",
}


def cached_export(bundle: Bundle, precision: Precision) -> Path:
    """Return the directory of the exported model; it is exported where it is not there, or not any more.

    It is in the user's cache, where the four that were in use last are kept.

    Raises:
        InteropError: it cannot be written.
    """
    cache = platformdirs.user_cache_path("heedful")
    path = cache / f"{_PREFIX}{_fingerprint(bundle, precision)}"
    if not path.is_dir():
        try:
            _export(bundle, precision, path)
        except OSError as error:
            raise InteropError(f"{cache}: the model cannot be written: {why_not_written(error)}") from error
        _remove_unused(cache)
    with suppress(OSError):
        os.utime(path)
    return path


def _export(bundle: Bundle, precision: Precision, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as temporary:
        from heedful.interop.ctranslate2.export import export_ctranslate2  # which needs torch

        complete = Path(temporary) / "model"
        quantization = None if precision == "float32" else COMPUTE_TYPES[precision]
        export_ctranslate2(bundle, complete, quantization=quantization)
        try:
            complete.rename(path)
        except OSError:
            if not path.is_dir():  # otherwise somebody else was faster, with the same
                raise


def _remove_unused(cache: Path) -> None:
    """Remove all exported models but those that were in use last, and what killed processes left of theirs.

    One that another process has loaded is in its memory, and one that it is about to load is among the last.
    Each vanishes as a whole, before its files are removed.
    """
    by_use = sorted(cache.glob(f"{_PREFIX}*"), key=_last_use, reverse=True)
    for path in by_use[_NUM_KEPT:]:
        with (
            suppress(OSError),  # another process is removing it, or has it open where that matters
            tempfile.TemporaryDirectory(
                dir=cache, prefix=f"{_PREFIX}removed.", ignore_cleanup_errors=True
            ) as removed,
        ):
            path.rename(Path(removed) / path.name)


def _last_use(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:  # it is gone
        return 0


def _fingerprint(bundle: Bundle, precision: Precision) -> str:
    """Return a hash of all that the export depends on."""
    framing = Framing.of(bundle.config, bundle.tokenizers)
    settings = [
        *(_FORMAT, precision, bundle.config.model.model_dump(), bundle.tokenizers.fingerprint()),
        *(framing.start_id, framing.src_suffix),
    ]
    digest = hashlib.sha256(json.dumps(settings).encode())
    weight = weight_of(bundle.network)
    for name in weight_shapes(bundle.config.model):
        digest.update(name.encode() + weight(name).tobytes())
    return digest.hexdigest()[:40]
