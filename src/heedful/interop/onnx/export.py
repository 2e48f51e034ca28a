"""Export a bundle to ONNX: two graphs, tokenizer files, settings, and a README."""

import copy
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from typing_extensions import override

from heedful.errors import install_hint, needing
from heedful.interop.exporting import refuse_changed, write_readme
from heedful.interop.onnx.runtime import ENCODER_FILE, SETTINGS_FILE, STEP_FILE, onnx_settings
from heedful.model.attention import (
    DecoderCache,
    KeyValueCache,
    LayerCache,
    Memory,
    Projection,
)
from heedful.model.layers import DecoderLayer
from heedful.model.positions import (
    AttentionPositions,
    LearnedPositions,
    SinusoidalPositions,
    sinusoids,
)
from heedful.model.transformer import Transformer
from heedful.model.variants import (
    BucketedBiases,
    OffsetSinusoids,
    RotaryPositions,
    concatenated_sinusoids,
    relative_distances,
)
from heedful.runtime.durable import new_directory
from heedful.storage.bundle import Bundle

if TYPE_CHECKING:
    from torch.onnx import ONNXProgram

OPSET = 18  # the native one of torch's exporter; others need a conversion


def export_onnx(bundle: Bundle, output: Path) -> None:
    """Write a model as ONNX files for `OnnxTranslator`, or any program with ONNX Runtime.

        encoder.onnx        src (B, S) -> source_mask (B, S), and for each layer i of the decoder
                            memory_keys_i (B, H, S, d_k) and memory_values_i (B, H, S, d_v)
        decoder_step.onnx   ids (B,), the encoder's outputs, past_keys_i (B, H, P, d_k) and past_values_i
                            (B, H, P, d_v) -> log_probs (B, V), and keys_i and values_i of P + 1 positions
        onnx_model.json     special ids and the default search: `OnnxSettings`
        README.md           how to use them; the tokenizer files are in the same directory

    B, S and P are dynamic; P is 0 at the first step. Weights are float32. Those of a graph above 2 GB, the
    limit of the format, are in a separate file.

    Args:
        bundle: the model; it is not changed.
        output: the directory to create, atomically.

    Raises:
        RunError: the output exists.
        InteropError: a part of the model cannot be exported.
        MissingExtraError: onnx or onnxscript is not installed.
    """
    with needing("exporting to ONNX needs onnx and onnxscript", extra="interop"):
        for name in ("onnx", "onnxscript"):
            import_module(name)
    refuse_changed(bundle.model, "onnx")
    model = exportable(bundle.model)
    settings = onnx_settings(bundle)
    end = "Lengths are not limited."
    if settings.max_positions is not None:
        end = f"Source and target may have at most {settings.max_positions:,} tokens."
    with new_directory(output) as directory:
        encoder, step = export_graphs(model)
        encoder.save(directory / ENCODER_FILE)
        step.save(directory / STEP_FILE)
        bundle.tokenizers.save(directory)
        (directory / SETTINGS_FILE).write_text(settings.model_dump_json(indent=2) + "\n", encoding="utf-8")
        write_readme(
            directory,
            _README,
            model.config,
            beam_size=bundle.config.decode.beam_size,
            src_pad_id=settings.src_pad_id,
            install=install_hint("interop"),
            end=end,
        )


class EncoderGraph(nn.Module):
    """Maps source ids to the mask, keys and values of the memory."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, src: Tensor) -> tuple[Tensor, ...]:
        """Encode ids (B, S), padded on the right.

        Returns:
            The padding mask (B, S), bool, True = a token; then for each decoder layer the keys (B, H, S, d_k)
            and values (B, H, S, d_v) of its cross-attention.
        """
        memory = self.model.encode(src)
        memories: list[Tensor] = []
        for layer in self.model.decoder.layers:
            memories += cast("DecoderLayer", layer).cross_attention.keys_and_values(memory.states)
        return memory.mask[:, 0, 0], *memories


class DecoderStepGraph(nn.Module):
    """Maps the last id of each row to the log-probabilities of the next."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, ids: Tensor, source_mask: Tensor, memories: Sequence[Tensor], pasts: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        """Decode one step.

        Args:
            ids: (B,).
            source_mask: (B, S), from the encoder.
            memories: keys and values of the memory, layer by layer.
            pasts: for each layer, the keys (B, H, P, d_k) and values (B, H, P, d_v) of the P previous ids.

        Returns:
            Log-probabilities (B, V), then the `pasts` of the next step, of length P + 1.
        """
        layers = []
        for i in range(0, len(pasts), 2):
            layers.append(LayerCache(FunctionalCache(*pasts[i : i + 2]), KeyValueCache()))
            layers[-1].memory.tensors = tuple(memories[i : i + 2])
        no_states = source_mask.new_empty(0)  # not needed: their keys and values are inputs
        cache = DecoderCache(layers, Memory(no_states, source_mask[:, None, None]))
        cache.length = layers[0].target.length
        log_probs = self.model.decode_step(ids, cache).log_softmax(dim=-1)
        return log_probs, *(tensor for layer in layers for tensor in layer.target.tensors)


def export_graphs(model: Transformer) -> tuple["ONNXProgram", "ONNXProgram"]:
    """Trace encoder and decoder step of an `exportable` model; the example sizes are arbitrary."""
    encoder, step = EncoderGraph(model), DecoderStepGraph(model)
    src = torch.zeros(2, 3, dtype=torch.int64)
    with torch.no_grad():
        source_mask, *memories = encoder(src)
    pasts = [memory.new_zeros(*memory.shape[:2], 5, memory.shape[3]) for memory in memories]
    source, memory, past = {0: "batch", 1: "source"}, {0: "batch", 2: "source"}, {0: "batch", 2: "past"}
    memory_names, past_names, present_names = (
        [f"{prefix}{part}_{i}" for i in range(len(model.decoder.layers)) for part in ("keys", "values")]
        for prefix in ("memory_", "past_", "")
    )
    encoder_program = _trace(
        encoder, (src,), (source,), input_names=["src"], output_names=["source_mask", *memory_names]
    )
    step_program = _trace(
        step,
        (src[:, 0], source_mask, memories, pasts),
        ({0: "batch"}, source, [memory] * len(memories), [past] * len(pasts)),
        input_names=["ids", "source_mask", *memory_names, *past_names],
        output_names=["log_probs", *present_names],
    )
    return encoder_program, step_program


def _trace(
    graph: EncoderGraph | DecoderStepGraph,
    examples: tuple[Any, ...],
    dynamic_shapes: tuple[Any, ...],
    *,
    input_names: Sequence[str],
    output_names: Sequence[str],
) -> "ONNXProgram":
    with _quiet():
        program = torch.onnx.export(
            graph.eval(),
            examples,
            dynamo=True,
            dynamic_shapes=dynamic_shapes,
            input_names=input_names,
            output_names=output_names,
            opset_version=OPSET,
            verbose=False,
        )
    assert program is not None
    for node in program.model.graph:
        node.metadata_props.clear()  # lines and paths of the Python source
    return program


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the exporter's logs and warnings, which are for its developers."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


class FunctionalCache(KeyValueCache):
    """A self-attention cache that concatenates instead of writing in place."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.tensors = (keys, values)
        self.length = keys.shape[2]

    def update(self, project: Projection, context: Tensor) -> tuple[Tensor, Tensor]:
        """Add one position and return all of them."""
        keys, values = (
            torch.cat(pair, dim=2) for pair in zip(self.tensors, project(context, self.length), strict=True)
        )
        self.tensors = (keys, values)
        return keys, values


class ComputedSinusoids(SinusoidalPositions):
    """Sinusoids that the graph computes, without a table; those with an offset in float32."""

    rates: Tensor

    def __init__(self, positions: SinusoidalPositions) -> None:
        d_model = positions.table.shape[1]
        super().__init__(d_model, positions.formula)
        half = torch.arange(d_model // 2, dtype=torch.float64)
        if self.formula in (sinusoids, concatenated_sinusoids):
            self.first, rates = 0, 10_000 ** -(2 * half / d_model)
        else:
            assert isinstance(self.formula, OffsetSinusoids)
            self.first, rates = self.formula.offset, self.formula.rates(d_model)
        self.register_buffer("rates", rates, persistent=False)

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ..., in float32."""
        pair = _sines_and_cosines(self.first + start, length, self.rates)
        if self.formula is sinusoids:
            return torch.stack(pair, dim=-1).flatten(1)
        return torch.cat(pair, dim=1)


class LookedUpPositions(LearnedPositions):
    """Learned vectors by index; the caller of the graph must respect their maximum."""

    def __init__(self, positions: LearnedPositions) -> None:
        super().__init__(positions.weight.shape[1], 0)
        self.weight = positions.weight

    def forward(self, start: int | Tensor, length: int) -> Tensor:
        """Return the vectors (length, D) of positions start, start + 1, ..."""
        return F.embedding(start + torch.arange(length), self.weight)


class ComputedRotations(RotaryPositions):
    """Rotary positions without float64 cosines, which not every engine has."""

    @override
    def rotate(self, heads: Tensor, start: int) -> Tensor:
        length, d_k = heads.shape[-2:]
        rates = 10_000 ** -(torch.arange(0, d_k, 2, dtype=torch.float64) / d_k)
        sines, cosines = _sines_and_cosines(start, length, rates)
        first, second = heads.chunk(2, dim=-1)
        return torch.cat([first * cosines - second * sines, second * cosines + first * sines], dim=-1)


class DistanceBiases(AttentionPositions):
    """T5's biases by distance instead of bucket: engines round the logarithm differently.

    All distances from `max_distance` on have the same bias, and in a decoder all to the right.
    """

    biases: Tensor

    def __init__(self, positions: BucketedBiases) -> None:
        super().__init__()
        self.furthest = max(positions.max_distance, positions.num_buckets)
        distances = torch.arange(-self.furthest, self.furthest + 1)
        self.register_buffer("biases", positions.weight.detach()[positions.buckets(distances)])

    @override
    def bias(self, start: int, num_queries: int, num_keys: int, like: Tensor) -> Tensor:
        distances = relative_distances(start, num_queries, num_keys, like.device)
        rows = distances.clamp(-self.furthest, self.furthest) + self.furthest
        return F.embedding(rows, self.biases).permute(2, 0, 1)


_EXPORTABLE: Mapping[type, Callable[[Any], nn.Module]] = {
    SinusoidalPositions: ComputedSinusoids,
    LearnedPositions: LookedUpPositions,
    BucketedBiases: DistanceBiases,
    RotaryPositions: lambda _: ComputedRotations(),
}


def exportable(model: Transformer) -> Transformer:
    """Return a copy in float32, on the CPU and in evaluation mode, with positions that can be exported."""
    model = copy.deepcopy(model).to("cpu", torch.float32)
    for part in model.modules():
        replace = _EXPORTABLE.get(type(getattr(part, "positions", None)))
        if replace is not None:
            part.positions = replace(part.positions)
    return model.eval()


def _sines_and_cosines(start: int | Tensor, length: int, rates: Tensor) -> tuple[Tensor, Tensor]:
    """Return sines and cosines (length, N) of position times rate (N,), from `start` on, in float32.

    They are computed in the type of the rates. Float64 cosines are shifted sines, as ONNX Runtime (up to
    version 1.22 at least) has no others.
    """
    positions = start + torch.arange(length, dtype=rates.dtype)
    angles = positions[:, None] * rates
    cosines = angles.cos() if rates.dtype == torch.float32 else (angles + math.pi / 2).sin()
    return angles.sin().float(), cosines.float()


_README = Template("""# Transformer $size, as ONNX

Exported with heedful, with weights in float32. With heedful's extra `interop` ($install):

```python
from heedful.interop.onnx.runtime import OnnxTranslator

translator = OnnxTranslator.load(".")  # where this file is
print(translator.translate(["..."], beam_size=$beam_size))
```

## Without heedful

`encoder.onnx` takes `src` (B, S) and returns `source_mask` (B, S), `memory_keys_i` (B, H, S, K) and
`memory_values_i` (B, H, S, L). `decoder_step.onnx` takes `ids` (B), all outputs of the encoder, and the cache
of the previous tokens, `past_keys_i` (B, H, P, K) and `past_values_i` (B, H, P, L); it returns `log_probs`
(B, V) of the next token, and in `keys_i` and `values_i` the cache of the next step. B is the number of rows,
S of source tokens, P of previous tokens, 0 at first; i is the index of a decoder layer.

Ids are int64, the mask is bool, everything else is float32. Shorter rows of `src` are padded with $src_pad_id
on the right. $end
The other files have the tokenizer and, in `onnx_model.json`, the special ids and the search that the model
was exported with.

Greedy search over the ids of a text, after `pip install onnxruntime`:

```python
import json

import numpy as np
from onnxruntime import InferenceSession

encoder, decoder = InferenceSession("encoder.onnx"), InferenceSession("decoder_step.onnx")
memories = [output.name for output in encoder.get_outputs()]
pasts = {each.name: each.shape for each in decoder.get_inputs() if each.name.startswith("past_")}
with open("onnx_model.json") as file:
    model = json.load(file)


def greedy(source_ids):
    src = np.array([model["src_prefix"] + source_ids + model["src_suffix"]])
    inputs = dict(zip(memories, encoder.run(None, {"src": src})))
    inputs |= {name: np.zeros((1, heads, 0, size), np.float32) for name, (_, heads, _, size) in pasts.items()}
    search = model["search"]
    limit = int(np.ceil((search["max_length_ratio"] or 1) * src.shape[1])) + search["max_length_offset"]
    limits = [limit, search["max_length"], model["max_positions"]]
    last = min(limit for limit in limits if limit) - 1
    forced = {last: search["forced_last_id"], 0: search["forced_first_id"]}
    ids = [model["start_id"]]
    for step in range(last + 1):
        log_probs, *present = decoder.run(None, {"ids": np.array(ids[-1:])} | inputs)
        inputs |= dict(zip(pasts, present))
        log_probs[:, search["suppressed_ids"]] = -np.inf
        is_free = forced.get(step) is None
        ids.append(int(log_probs.argmax()) if is_free else forced[step])
        if ids[-1] == model["eos_id"]:
            break
    return ids[1:]
```
""")
