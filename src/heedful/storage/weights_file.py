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
    """Compare names and shapes of weights.

    Raises:
        BundleError: a weight is missing, unknown, or of another shape.
    """
    if unknown := stored.keys() - expected.keys():
        raise BundleError(
            f"{origin}: weight {shown(min(unknown))} is unknown: no class of this model has it; the file "
            "does not belong to its configuration"
        )
    if missing := expected.keys() - stored.keys():
        raise BundleError(
            f"{origin}: weight {shown(min(missing))} is missing; the file does not belong to its "
            "configuration"
        )
    for name, shape in expected.items():
        if shape != stored[name]:
            raise BundleError(
                f"{origin}: weight {name!r} has shape {stored[name]}, the configuration says {shape}"
            )


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of each weight by its name, in the order of the model's parameters."""
    shapes = dict(_embedding("encoder", config, config.src_vocab_size))
    shapes |= _stack("encoder", config, config.num_encoder_layers, ["self_attention"])
    shapes |= _embedding("decoder", config, config.tgt_vocab_size, shared=config.tied in SHARED_EMBEDDINGS)
    attentions = ["self_attention"] + ["cross_attention"] * (config.decoder_unit != "merged")
    shapes |= _stack("decoder", config, config.num_decoder_layers, attentions)
    if config.tied not in SHARED_OUTPUT:
        shapes["output.weight"] = (config.tgt_vocab_size, config.d_model)
    if config.output_bias:
        shapes["output.bias"] = (config.tgt_vocab_size,)
    return shapes


def embedding_names(config: ModelConfig) -> tuple[str, str, str]:
    """Return the names of the source embedding, the target embedding and the output matrix (3.4)."""
    src, tgt = (f"{stack}.embedding.tokens.weight" for stack in ("encoder", "decoder"))
    tgt = src if config.tied in SHARED_EMBEDDINGS else tgt
    return src, tgt, tgt if config.tied in SHARED_OUTPUT else "output.weight"


def _embedding(
    stack: str, config: ModelConfig, vocab_size: int, *, shared: bool = False
) -> Iterator[tuple[str, Shape]]:
    if not shared:
        yield f"{stack}.embedding.tokens.weight", (vocab_size, config.d_model)
    if config.positions == "learned":
        yield f"{stack}.embedding.positions.weight", (config.max_positions, config.d_model)
    if config.embedding_norm in (True, stack):
        yield from _norm(f"{stack}.embedding.norm", config)


def _stack(stack: str, config: ModelConfig, depth: int, attentions: list[str]) -> Iterator[tuple[str, Shape]]:
    for i in range(depth):
        layer = f"{stack}.layers.{i}"
        for name in attentions:
            own = i == 0 or config.relative_per_layer
            has_biases = config.positions == "relative" and name == "self_attention" and own
            if (stack, name, config.decoder_unit) == ("decoder", "self_attention", "ssru"):
                yield from _linear(f"{layer}.{name}.input", config.d_model, config.d_model, bias=False)
                yield from _linear(f"{layer}.{name}.forget", config.d_model, config.d_model, bias=True)
            else:
                yield from _attention(f"{layer}.{name}", config, has_biases=has_biases)
            yield from _sublayer_norm(f"{layer}.{name}_norm", config)
        yield from _feed_forward(f"{layer}.feed_forward", config)
        yield from _sublayer_norm(f"{layer}.feed_forward_norm", config)
    if config.norm != "post" or config.final_norm:
        yield from _norm(f"{stack}.final_norm", config)


def _attention(name: str, config: ModelConfig, *, has_biases: bool) -> Iterator[tuple[str, Shape]]:
    """Yield the projections of 3.2.2, and the biases of relative positions, which all layers share."""
    num_kv_heads = config.num_kv_heads or config.num_heads
    keys, values = num_kv_heads * config.head_key_size, num_kv_heads * config.head_value_size
    d_model, bias = config.d_model, config.attention_bias
    yield from _linear(f"{name}.query", d_model, config.num_heads * config.head_key_size, bias=bias)
    yield from _linear(f"{name}.key", d_model, keys, bias=bias)
    yield from _linear(f"{name}.value", d_model, values, bias=bias)
    yield from _linear(f"{name}.output", config.num_heads * config.head_value_size, d_model, bias=bias)
    if config.query_norm:
        for part in ("query", "key"):
            yield f"{name}.{part}_norm.weight", (config.head_key_size,)
    if has_biases:
        yield f"{name}.positions.weight", (config.relative_buckets, config.num_heads)


def _feed_forward(name: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    bias = config.feed_forward_bias
    yield from _linear(f"{name}.inner", config.d_model, config.d_ff, bias=bias)
    yield from _linear(f"{name}.outer", config.d_ff, config.d_model, bias=bias)
    if config.gated:
        yield from _linear(f"{name}.gate", config.d_model, config.d_ff, bias=bias)


def _linear(name: str, num_in: int, num_out: int, *, bias: bool) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (num_out, num_in)
    if bias:
        yield f"{name}.bias", (num_out,)


def _sublayer_norm(name: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    for each in (f"{name}.before", f"{name}.after") if config.norm == "both" else (name,):
        yield from _norm(each, config)


def _norm(name: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    yield f"{name}.weight", (config.d_model,)
    if config.norm_kind == "layer":
        yield f"{name}.bias", (config.d_model,)


def safetensors_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor in a safetensors file, all of floats, without reading the numbers.

    Raises:
        ValueError: it cannot be read, or holds something else.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        with utf_8_name(path) as named, safe_open(named, framework="np") as file:
            names = file.keys()
            for name in names:
                part = file.get_slice(name)
                if part.get_dtype() not in _FLOATS:
                    raise ValueError(f"{shown(name)} is of type {part.get_dtype()}, not of floats")
                shapes[name] = tuple(part.get_shape())
    except (OSError, SafetensorError, UnicodeError) as error:
        raise ValueError(f"cannot be read: {one_line(error)}") from None
    return shapes


class SafetensorsArrays:
    """The arrays of a safetensors file, each read when it is asked for."""

    def __init__(self, path: Path) -> None:
        """Open a file of floats.

        Raises:
            ValueError: it cannot be read.
        """
        self._path = path
        self._state = _state(path) or (0, 0, 0)
        try:
            with utf_8_name(path) as named:
                self._file: Any = safe_open(named, framework="np")
        except (OSError, SafetensorError, UnicodeError) as error:
            raise ValueError(f"cannot be read: {one_line(error)}") from None

    def __getitem__(self, name: str) -> NDArray[np.float32]:
        """Return a copy of an array, in float32.

        Raises:
            ValueError: it cannot be read, or the file was written to since it was opened.
        """
        now = _state(self._path)
        if now is not None and now[0] == self._state[0] and now != self._state:  # the same file, changed
            raise ValueError("was written to while it was read")
        try:
            array: NDArray[np.generic] = self._file.get_tensor(name)
        except (OSError, SafetensorError, TypeError, AttributeError) as error:
            raise ValueError(f"{shown(name)} cannot be read: {one_line(error)}") from None
        return array.astype(np.float32, copy=False)


def _state(path: Path) -> tuple[int, int, int] | None:
    """Return a file's inode, size and time of change; None where there is none any more."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_size, status.st_mtime_ns


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
