"""Files of weights, read without torch.

`weight_shapes` is the format: the name and shape of each weight that a configuration asks for.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from heedful.errors import BundleError
from heedful.settings.model import SHARED_EMBEDDINGS, SHARED_OUTPUT, ModelConfig
from heedful.settings.parsing import shown

Shape = tuple[int, ...]

_FLOATS = ("F64", "F32", "F16", "BF16")


def check_fits(expected: Mapping[str, Shape], stored: Mapping[str, Shape], origin: Path) -> None:
    """Compare names and shapes of weights; a BundleError names one that is missing, unknown or different."""
    belongs = "the file does not belong to its configuration"
    problem = None
    if unknown := stored.keys() - expected.keys():
        problem = f"{shown(min(unknown))} is unknown: no class of this model has it; {belongs}"
    elif missing := expected.keys() - stored.keys():
        problem = f"{shown(min(missing))} is missing; {belongs}"
    elif others := [name for name, shape in expected.items() if shape != stored[name]]:
        name = others[0]
        problem = f"{name!r} has shape {stored[name]}, the configuration says {expected[name]}"
    if problem:
        raise BundleError(f"{origin}: weight {problem}")


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of each weight by its name, in the order of the model's parameters."""
    shapes: dict[str, Shape] = {}
    d_model, shift = config.d_model, config.norm_kind == "layer"  # RMSNorm has no bias
    for stack, vocab_size, depth in (
        ("encoder", config.src_vocab_size, config.num_encoder_layers),
        ("decoder", config.tgt_vocab_size, config.num_decoder_layers),
    ):
        if stack == "encoder" or config.tied not in SHARED_EMBEDDINGS:
            shapes |= _shapes(f"{stack}.embedding.tokens", vocab_size, d_model)
        if config.positions == "learned":
            shapes |= _shapes(f"{stack}.embedding.positions", config.max_positions, d_model)
        if config.embedding_norm in (True, stack):
            shapes |= _shapes(f"{stack}.embedding.norm", d_model, bias=shift)
        for number in range(depth):
            for part, weights in _layer_shapes(config, stack, is_first=number == 0).items():
                name = f"{stack}.layers.{number}.{part}"
                shapes |= {f"{name}.{inner}": shape for inner, shape in weights.items()}
                for norm in ("_norm.before", "_norm.after") if config.norm == "both" else ("_norm",):
                    shapes |= _shapes(f"{name}{norm}", d_model, bias=shift)
        if config.norm != "post" or config.final_norm:
            shapes |= _shapes(f"{stack}.final_norm", d_model, bias=shift)
    if config.tied not in SHARED_OUTPUT:
        shapes |= _shapes("output", config.tgt_vocab_size, d_model)
    if config.output_bias:
        shapes["output.bias"] = (config.tgt_vocab_size,)
    return shapes


def embedding_names(config: ModelConfig) -> tuple[str, str, str]:
    """Return the names of the source embedding, the target embedding and the output matrix (3.4)."""
    src, tgt = (f"{stack}.embedding.tokens.weight" for stack in ("encoder", "decoder"))
    tgt = src if config.tied in SHARED_EMBEDDINGS else tgt
    return src, tgt, tgt if config.tied in SHARED_OUTPUT else "output.weight"


def _layer_shapes(config: ModelConfig, stack: str, *, is_first: bool) -> dict[str, dict[str, Shape]]:
    """Return the shapes of each sub-layer of a layer, without norms."""
    d_model, d_ff, bias = config.d_model, config.d_ff, config.feed_forward_bias
    parts = {"self_attention": _attention_shapes(config)}
    if (stack, config.decoder_unit) == ("decoder", "ssru"):
        unit = _shapes("input", d_model, d_model) | _shapes("forget", d_model, d_model, bias=True)
        parts["self_attention"] = unit
    elif config.positions == "relative" and (is_first or config.relative_per_layer):
        parts["self_attention"] |= _shapes("positions", config.relative_buckets, config.num_heads)
    if stack == "decoder" and config.decoder_unit != "merged":
        parts["cross_attention"] = _attention_shapes(config)
    parts["feed_forward"] = _shapes("inner", d_ff, d_model, bias=bias)
    parts["feed_forward"] |= _shapes("outer", d_model, d_ff, bias=bias)
    if config.gated:
        parts["feed_forward"] |= _shapes("gate", d_ff, d_model, bias=bias)
    return parts


def _attention_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shapes of the projections (3.2.2)."""
    num_kv_heads, bias = config.num_kv_heads or config.num_heads, config.attention_bias
    d_model, keys, values = config.d_model, config.head_key_size, config.head_value_size
    shapes = _shapes("query", config.num_heads * keys, d_model, bias=bias)
    shapes |= _shapes("key", num_kv_heads * keys, d_model, bias=bias)
    shapes |= _shapes("value", num_kv_heads * values, d_model, bias=bias)
    shapes |= _shapes("output", d_model, config.num_heads * values, bias=bias)
    return shapes | (_shapes("query_norm", keys) | _shapes("key_norm", keys) if config.query_norm else {})


def _shapes(name: str, *shape: int, bias: bool = False) -> dict[str, Shape]:
    """Return the shape of a weight as torch stores it, outputs first, and the shape of its bias."""
    return {f"{name}.weight": shape} | ({f"{name}.bias": shape[:1]} if bias else {})


class SafetensorsArrays:
    """The arrays of a safetensors file, all of floats, each read when it is asked for.

    Attributes:
        shapes: the shape of each array by its name.
    """

    def __init__(self, path: Path) -> None:
        """Open a file; a ValueError says why it cannot be read, or what else it holds."""
        self._path = path
        self._state = _state(path) or (0, 0, 0)
        with readable(path) as named:
            file: Any = safe_open(named, framework="np")
            parts = {name: file.get_slice(name) for name in [*file.keys()]}
            self.shapes: dict[str, Shape] = {name: tuple(each.get_shape()) for name, each in parts.items()}
        self._file = file
        for name, part in parts.items():
            if part.get_dtype() not in _FLOATS:
                raise ValueError(f"{shown(name)} is of type {part.get_dtype()}, not of floats")

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return _reopened, (self._path, self._state)

    def __deepcopy__(self, memo: object) -> "SafetensorsArrays":
        return self  # nothing of it changes

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return a copy of an array, in float32; a ValueError also if the file was written to meanwhile."""
        now = _state(self._path)
        if now is not None and now[0] == self._state[0] and now != self._state:  # the same file, changed
            raise ValueError("was written to while it was read")
        with readable(self._path):
            array: NDArray[np.generic] = self._file.get_tensor(name)
        return array.astype(np.float32, copy=False)


def _reopened(path: Path, state: tuple[int, int, int]) -> SafetensorsArrays:
    """Open the file of a model that came from another process; a BundleError if it is not that file."""
    if _state(path) != state:
        raise BundleError(f"{path}: is not the file any more that the model was loaded from; load it again")
    return SafetensorsArrays(path)


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return a file's inode, size and time of change; None if there is none any more."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


@contextmanager
def readable(path: Path) -> Iterator[Path]:
    """Yield `utf_8_name` of a file; an error of reading it in the block becomes a ValueError."""
    try:
        with utf_8_name(path) as named:
            yield named
    except (OSError, SafetensorError, UnicodeError, TypeError, AttributeError) as error:
        raise ValueError(f"cannot be read: {one_line(error)}") from None


@contextmanager
def utf_8_name(path: Path) -> Iterator[Path]:
    """Give a path to the same file that is UTF-8, for safetensors knows no others."""
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        with tempfile.TemporaryDirectory() as folder:
            link = Path(folder, "link")
            link.symlink_to(path.absolute())
            yield link
    else:
        yield path


def one_line(error: Exception) -> str:
    """Return the beginning of the first line of an error's message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:120]
