"""Models that CTranslate2 itself describes and writes, with random weights, and its files by the byte."""

import json
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs import TransformerSpec
from numpy.typing import NDArray

from heedful.runtime.threads import restored_threads

D_MODEL, D_FF, HEADS = 32, 64, 4
WORDS = ["<unk>", "<blank>", "<s>", "</s>", *(f"▁w{i}" for i in range(27))]
Variables = dict[str, NDArray[Any]]
_CODES = {"<f4": 0, "|i1": 1, "<i2": 2, "<i4": 3, "<f2": 4}


class Weights:
    """Random numbers of a size at which every part of a model matters."""

    def __init__(self, seed: int) -> None:
        self._generator = np.random.default_rng(seed)

    def matrix(self, *shape: int) -> NDArray[np.float32]:
        return self._generator.normal(0, 0.3, shape).astype(np.float32)

    def linear(self, spec: Any, rows: int, columns: int, *, bias: bool) -> None:  # noqa: ANN401
        spec.weight = self.matrix(rows, columns)
        if bias:
            spec.bias = self.matrix(rows)

    def norm(self, spec: Any, *, rms: bool) -> None:  # noqa: ANN401
        spec.gamma = 1 + self.matrix(D_MODEL)
        if not rms:
            spec.beta = self.matrix(D_MODEL)


def random_spec(
    *,
    src_words: Sequence[str] = WORDS,
    tgt_words: Sequence[str] | None = None,
    tied: bool = True,
    bias: bool = True,
    output_bias: bool = True,
    scale_embeddings: object = None,
    table: NDArray[np.float32] | None = None,
    seed: int = 1,
    **kind: Any,  # noqa: ANN401
) -> TransformerSpec:
    """A model as CTranslate2's converter of OpenNMT-py describes it, but for the changes."""
    weights, rms = Weights(seed), kind.get("rms_norm", False)
    spec = TransformerSpec.from_config(kind.pop("num_layers", (2, 2)), HEADS, **kind)
    for stack, words in ((spec.encoder, src_words), (spec.decoder, tgt_words or src_words)):
        embeddings = stack.embeddings if stack is spec.decoder else stack.embeddings[0]
        embeddings.weight = weights.matrix(len(words), D_MODEL)
        if tied and tgt_words is None and stack is spec.decoder:
            embeddings.weight = spec.encoder.embeddings[0].weight
        if table is not None:
            stack.position_encodings.encodings = table
        if scale_embeddings is not None:
            stack.scale_embeddings = scale_embeddings
        for name in ("layer_norm", "layernorm_embedding"):
            if hasattr(stack, name):
                weights.norm(getattr(stack, name), rms=rms)
        for layer in stack.layer:
            _fill_layer(layer, weights, bias=bias, rms=rms)
    weights.linear(spec.decoder.projection, len(tgt_words or src_words), D_MODEL, bias=output_bias)
    if tied:
        spec.decoder.projection.weight = spec.decoder.embeddings.weight
    spec.register_source_vocabulary(list(src_words))
    spec.register_target_vocabulary(list(tgt_words or src_words))
    return spec


def _fill_layer(layer: Any, weights: Weights, *, bias: bool, rms: bool) -> None:  # noqa: ANN401
    attentions = [(layer.self_attention, (3, 1))]
    if hasattr(layer, "attention"):
        attentions.append((layer.attention, (1, 2, 1)))
    for attention, sizes in attentions:
        weights.norm(attention.layer_norm, rms=rms)
        for linear, size in zip(attention.linear, sizes, strict=True):
            weights.linear(linear, size * D_MODEL, D_MODEL, bias=bias)
    weights.norm(layer.ffn.layer_norm, rms=rms)
    weights.linear(layer.ffn.linear_0, D_FF, D_MODEL, bias=bias)
    if hasattr(layer.ffn, "linear_0_noact"):
        weights.linear(layer.ffn.linear_0_noact, D_FF, D_MODEL, bias=bias)
    weights.linear(layer.ffn.linear_1, D_MODEL, D_FF, bias=bias)


def interleaved(length: int) -> NDArray[np.float32]:
    """The paper's sinusoids, as OpenNMT-py stores them."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, D_MODEL, 2) / D_MODEL)
    return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(length, -1).astype(np.float32)


def save(spec: TransformerSpec, directory: Path, quantization: str | None = None) -> Path:
    spec.validate()
    spec.optimize(quantization=quantization)
    directory.mkdir(parents=True)
    spec.save(str(directory))
    return directory


def translator(directory: Path, *, compute_type: str = "float32") -> ctranslate2.Translator:
    """CTranslate2 with that model; by itself it sets the threads of OpenMP, which are torch's too."""
    with restored_threads():
        return ctranslate2.Translator(str(directory), compute_type=compute_type, intra_threads=1)


def read_binary(file: Path) -> tuple[str, int, Variables, list[tuple[str, str]]]:
    """Return the kind and revision of a model.bin of version 6, its variables and aliases."""
    content, at = file.read_bytes(), 0

    def number(kind: str) -> int:
        nonlocal at
        at += struct.calcsize(f"<{kind}")
        return int(struct.unpack_from(f"<{kind}", content, at - struct.calcsize(f"<{kind}"))[0])

    def text() -> str:
        nonlocal at
        size = number("H")
        at += size
        return content[at - size : at - 1].decode()

    assert number("I") == 6
    spec, revision, variables = text(), number("I"), {}
    types = {code: name for name, code in _CODES.items()}
    for _ in range(number("I")):
        name, shape = text(), [number("I") for _ in range(number("B"))]
        kind, size = types[number("B")], number("I")
        variables[name] = np.frombuffer(content[at : at + size], kind).reshape(shape)
        at += size
    aliases = [(text(), text()) for _ in range(number("I"))]
    assert at == len(content)
    return spec, revision, variables, aliases


def write_binary(
    file: Path,
    spec: str,
    revision: int,
    variables: Variables,
    aliases: list[tuple[str, str]],
    version: int = 6,
) -> None:
    """Write a model.bin; without aliases before version 3, and with flags for config.json before 6."""
    if version < 3:
        variables = variables | {alias: variables[name] for alias, name in aliases}
        variables |= {
            f"{alias}_scale": variables[f"{name}_scale"]
            for alias, name in aliases
            if f"{name}_scale" in variables
        }
    parts = [struct.pack("<I", version), _text(spec), struct.pack("<II", revision, len(variables))]
    for name, array in variables.items():
        kind = _CODES[array.dtype.str]
        parts += [_text(name), struct.pack(f"<B{array.ndim}I", array.ndim, *array.shape)]
        header = (kind, array.nbytes) if version >= 4 else (array.itemsize, array.size)
        parts += [struct.pack("<BI", *header), array.tobytes()]
    if version >= 3:
        parts.append(struct.pack("<I", len(aliases)))
        parts += [_text(name) for pair in aliases for name in pair]
    file.write_bytes(b"".join(parts))


def _text(text: str) -> bytes:
    return struct.pack("<H", len(text.encode()) + 1) + text.encode() + b"\0"


def changed_binary(directory: Path, change: Callable[[Variables], None], version: int = 6) -> None:
    """Rewrite the model.bin of a directory."""
    spec, revision, variables, aliases = read_binary(directory / "model.bin")
    change(variables)
    (directory / "model.bin").unlink()  # it may be mapped
    write_binary(directory / "model.bin", spec, revision, variables, aliases, version)


def changed_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    settings = json.loads(file.read_text(encoding="utf-8")) | changes
    file.write_text(json.dumps(settings), encoding="utf-8")
