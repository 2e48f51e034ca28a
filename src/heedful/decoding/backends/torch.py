"""The torch backend: every model, on every device that torch has."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from typing_extensions import override

from heedful.decoding.backends.adapted_rows import AdaptedRows, AdaptedStep
from heedful.decoding.backends.cuda_graphs import GraphDecoder
from heedful.decoding.backends.protocol import Adapters, Allowed, Backend, HeadWeights, attention_heads
from heedful.decoding.scoring import CoverageTracker
from heedful.decoding.steps import (
    SPARE,
    EnsembleStep,
    Floats,
    Ids,
    Ints,
    Singles,
    StepFunction,
    StoredTokens,
    best_first,
    check_numbers,
)
from heedful.errors import InputError
from heedful.model.layers import DecoderLayer
from heedful.model.transformer import Transformer
from heedful.ops.attention import AttentionRecorder, has_plain_self_attention, record_attention
from heedful.ops.graphs import GRAPHS_VARIABLE, GraphPool, Record
from heedful.ops.kernels import torch_dtype
from heedful.runtime.native import on_or_off
from heedful.settings.options import Precision
from heedful.text.tokenizer import pad

_ATTENTION_NAME = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention")


NO_MAPS = (
    "the cross-attention of this model is a custom class that records no weights; inherit from "
    "ScaledDotProductAttention and pass them through its dropout, or use no coverage and no attention"
)


class CrossAttention:
    """The cross-attention of models in each forward pass."""

    def __init__(self, recorders: Sequence[tuple[AttentionRecorder, int]]) -> None:
        """Read from a recorder for each model, and of each the number of first heads to read."""
        self._recorders = recorders

    def latest(self) -> Tensor:
        """Return the mean weights (B, T, S) of the latest pass, over heads and models, and delete them."""
        of_models = []
        for recorder, num_heads in self._recorders:
            if not recorder.maps:
                raise InputError(NO_MAPS)
            weights_BHTS = recorder.maps[-1].weights
            recorder.maps.clear()
            at_least_float32 = torch.promote_types(weights_BHTS.dtype, torch.float32)
            of_models.append(weights_BHTS[:, :num_heads].to(at_least_float32).mean(dim=1))
        return torch.stack(of_models).mean(dim=0)


@contextmanager
def record_cross_attention(
    models: Sequence[Transformer], *, layer: int | None = None
) -> Iterator[CrossAttention]:
    """Record a layer in the forward passes of the block; for the layer, see `Backend.attention`."""
    with ExitStack() as stack:
        recorders = []
        for model in models:
            index, num_heads = attention_heads(model.config, layer)
            chosen = cast("DecoderLayer", model.decoder.layers[index])  # or a wrapper of one
            recorders.append((stack.enter_context(record_attention(chosen.cross_attention)), num_heads))
        yield CrossAttention(recorders)


_NUMBERS_AT_ONCE = 1 << 22  # log-probabilities at once, 16 MiB in float32, or one position
_ROWS_MULTIPLE = 64


class TorchTokens(StoredTokens):
    """Next-token log-probabilities in a tensor on any device: see `NextTokens`."""

    @override
    def top(self, count: int, suppressed: Sequence[int], *, renormalize: bool = False) -> tuple[Floats, Ints]:
        """Make one transfer from the device, and more only for rows with many ties.

        Logits in bfloat16 often tie.
        """
        log_probs, vocab_size = self._log_probs, self.vocab_size
        if renormalize:
            known = torch.tensor([i for i in suppressed if i < vocab_size], device=log_probs.device)
            log_probs = log_probs.index_fill(-1, known.long(), -torch.inf).log_softmax(-1)
        needed = min(count + len(suppressed), vocab_size)
        best = torch.topk(log_probs, min(needed + SPARE, vocab_size), dim=-1)
        # One transfer: ids are exact in float32, as vocabularies are far smaller than 2 ** 24.
        packed = torch.stack((best.values, best.indices.to(best.values.dtype))).cpu().numpy()
        values, ids = packed[0].astype(np.float64), packed[1].astype(np.int64)
        check_numbers(values)
        if values.shape[1] > needed:
            tied = np.flatnonzero(values[:, -1] == values[:, needed - 1])
            if len(tied):  # topk may keep any of the tied ids: sort these rows in full
                rows = log_probs[torch.as_tensor(tied, device=log_probs.device)]
                ordered = torch.sort(rows, dim=-1, descending=True, stable=True)
                ids[tied] = ordered.indices[:, : ids.shape[1]].cpu().numpy()
                values[tied] = ordered.values[:, : ids.shape[1]].cpu().numpy()
        if suppressed:
            values = np.where(np.isin(ids, suppressed), -np.inf, values)
        return best_first(values, ids, count)


class RestrictedStep(StepFunction):
    """A step function with a restricted vocabulary for each sentence.

    Other tokens have log-probability -inf, and the rest is renormalised. If all tokens are allowed, nothing
    changes, to the last bit.
    """

    def __init__(
        self,
        step: StepFunction,
        allowed: Sequence[Ints],
        *,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """Wrap a step function that has no input ids yet; `allowed` has the ids of each sentence."""
        is_out = torch.ones(len(allowed), vocab_size, dtype=torch.bool)
        for row, ids in zip(is_out, allowed, strict=True):
            row[torch.from_numpy(ids)] = False
        self._step = step
        self._is_out = is_out.to(device)

    @override
    def __call__(self, last_ids: Ints) -> TorchTokens:
        left = self._step(last_ids).log_probs().masked_fill(self._is_out, -torch.inf)
        is_some_out = self._is_out.any(dim=-1, keepdim=True)
        return TorchTokens(left - left.logsumexp(dim=-1, keepdim=True).masked_fill(~is_some_out, 0.0))

    @override
    def reorder(self, rows: Ints) -> None:
        self._step.reorder(rows)
        self._is_out = self._is_out[torch.as_tensor(rows).to(self._is_out.device, non_blocking=True)]


class ModelStep(StepFunction):
    """The step function of a Transformer, over the key/value cache of its decoder."""

    def __init__(self, model: Transformer, src: Tensor, *, record: Record | None = None) -> None:
        """Encode `src` (B, S), padded with the model's source pad id.

        Args:
            model: on its device.
            src: on the same device.
            record: records steps as CUDA graphs, if the model allows it: `GraphPool.record`.
        """
        self._device = src.device
        memory = model.encode(src)
        if record is not None and has_plain_self_attention(model.decoder):
            decoder = GraphDecoder(model, memory, record=record)
            self._decode, self._reorder = decoder.decode_step, decoder.reorder
        else:
            cache = model.start_cache(memory)
            self._decode, self._reorder = partial(model.decode_step, cache=cache), cache.reorder

    @override
    def __call__(self, last_ids: Ints) -> "TorchTokens":
        ids = torch.as_tensor(last_ids).to(self._device, non_blocking=True)
        return TorchTokens(_log_softmax(self._decode(ids)))

    @override
    def reorder(self, rows: Ints) -> None:
        self._reorder(torch.as_tensor(rows))


class ForcedStep(StepFunction):
    """The step function of a Transformer in teacher forcing.

    All states are computed at once, but log-probabilities for a few positions at a time: there is never a
    tensor (B, T, V).
    """

    def __init__(self, model: Transformer, src: Tensor, outputs: Ids, *, start_id: int) -> None:
        """Encode `src` (B, S), padded with the model's source pad id, and decode the outputs."""
        longest = max(map(len, outputs))
        tgt_in = torch.full((len(outputs), longest), start_id)  # the padding is never read
        for row, output in zip(tgt_in, outputs, strict=True):
            row[1 : len(output)] = torch.tensor(output[:-1])
        self._model = model
        self._states_TBD = model.decoder(tgt_in.to(src.device), model.encode(src)).transpose(0, 1)
        self._rows = torch.arange(len(outputs), device=src.device)
        self._ready: list[Tensor] = []  # log-probabilities (rows, V) of the positions that come next
        self._ready_rows = self._rows

    @override
    def __call__(self, last_ids: Ints) -> "TorchTokens":
        """Return what may follow the next token of the reference; `last_ids` are ignored."""
        if not self._ready:
            num_rows = len(self._rows)
            num_positions = max(1, _NUMBERS_AT_ONCE // (num_rows * self._model.config.tgt_vocab_size))
            states_ND = self._states_TBD[:num_positions, self._rows].flatten(0, 1)
            self._states_TBD = self._states_TBD[num_positions:]
            # Repeated shapes are prepared once; for bfloat16 GEMMs, each shape takes many megabytes.
            filled = F.pad(states_ND, (0, 0, 0, -len(states_ND) % _ROWS_MULTIPLE))
            log_probs = _log_softmax(self._model.project(filled)[: len(states_ND)])
            self._ready = list(log_probs.view(-1, num_rows, log_probs.shape[-1]).unbind())
            self._ready_rows = torch.arange(num_rows, device=log_probs.device)
        return TorchTokens(self._ready.pop(0)[self._ready_rows])

    @override
    def reorder(self, rows: Ints) -> None:
        chosen = torch.as_tensor(rows).to(self._rows.device, non_blocking=True)
        self._rows, self._ready_rows = self._rows[chosen], self._ready_rows[chosen]


def _log_softmax(logits: Tensor) -> Tensor:
    """Return log-probabilities (..., V), in float32, or in float64 for a float64 model."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return torch.log_softmax(logits, dim=-1)


class TorchBackend(Backend):
    """Steps computed by torch, one batch at a time: all threads share each operation."""

    name = "torch"
    records_attention = True
    has_adapters = True

    def __init__(self, models: Sequence[Transformer], precision: Precision) -> None:
        """Use models that are on one device.

        Args:
            models: the models of an ensemble, or one.
            precision: "float32", "bf16" or "fp16".
        """
        self.precision: Precision = precision
        self._models = models
        self._device = next(models[0].parameters()).device
        self.device = self._device.type
        uses_graphs = self.device == "cuda" and on_or_off(GRAPHS_VARIABLE) == "on"
        self._record = GraphPool().record if uses_graphs else None
        self._vocab_size = models[0].config.tgt_vocab_size

    @contextmanager
    def step(
        self,
        sources: Ids,
        *,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
        adapters: Adapters = (),
    ) -> Iterator[StepFunction]:
        """Return the steps of a search; torch uses all of its threads."""
        del threads
        recorded = self._models if coverage else []
        record = (
            None if coverage or any(adapters) else self._record
        )  # Python records coverage, and adapts rows
        with self._adapted(adapters) as rows, record_cross_attention(recorded) as attention:
            steps: list[StepFunction] = [
                ModelStep(model, self._pad(sources, model), record=record) for model in self._models
            ]
            step = self._restricted([AdaptedStep(each, rows) for each in steps] if rows else steps, allowed)
            if coverage:
                lengths = list(map(len, sources))
                step = CoverageTracker(step, lambda: attention.latest()[:, 0], lengths=lengths)
            yield step

    @contextmanager
    def forced_step(
        self,
        sources: Ids,
        outputs: Ids,
        *,
        start_id: int,
        threads: int = 1,
        allowed: Allowed = None,
        coverage: bool = False,
        adapters: Adapters = (),
    ) -> Iterator[StepFunction]:
        """Return the steps of given outputs.

        In float32 all positions are computed at once, which differs from a search by rounding only. In bf16
        and fp16 the difference would be too large, so they step as in a search, and so does coverage. If
        torch sums in another order for another number of rows or threads, a log-probability may still differ
        by the rounding of its precision: in fp16 by some thousandths.
        """
        if self.precision != "float32" or coverage:
            how: Any = {"threads": threads, "allowed": allowed, "coverage": coverage, "adapters": adapters}
            with self.step(sources, **how) as step:
                yield step
            return
        with self._adapted(adapters):
            steps = [
                ForcedStep(model, self._pad(sources, model), outputs, start_id=start_id)
                for model in self._models
            ]
            yield self._restricted(steps, allowed)

    def attention(
        self,
        sources: Ids,
        outputs: Ids,
        *,
        start_id: int,
        layer: int | None = None,
        adapters: Adapters = (),
    ) -> list[Floats]:
        """Return the cross-attention of outputs, recorded from one pass of each model."""
        with self._adapted(adapters), record_cross_attention(self._models, layer=layer) as attention:
            for model in self._models:
                ForcedStep(model, self._pad(sources, model), outputs, start_id=start_id)
            weights_BTS = attention.latest().cpu().double().numpy()
        return [
            weights_TS[: len(output), : len(source)]
            for weights_TS, output, source in zip(weights_BTS, outputs, sources, strict=True)
        ]

    def head_weights(self, source: Sequence[int], tgt_in: Sequence[int]) -> HeadWeights:
        """Return the weights of each head, recorded from one pass of the first model."""
        with self._inference(), record_attention(self._models[0]) as recorder:
            self._models[0](*(torch.tensor([ids], device=self._device) for ids in (source, tgt_in)))
        of_kind: dict[tuple[str, str], list[tuple[int, Singles]]] = defaultdict(list)
        is_merged = self._models[0].config.decoder_unit == "merged"
        for each in recorder.maps:
            if match := _ATTENTION_NAME.fullmatch(each.name):
                stack, number, kind = match.groups()
                weights = each.weights[0].float().cpu().numpy()
                if is_merged and stack == "decoder":  # the source comes first
                    of_kind[stack, "cross"].append((int(number), weights[..., : len(source)]))
                    weights = weights[..., len(source) :]
                of_kind[stack, kind].append((int(number), weights))
        kinds = (("encoder", "self"), ("decoder", "self"), ("decoder", "cross"))
        if len(of_kind["decoder", "cross"]) < len(self._models[0].decoder.layers):
            raise InputError(NO_MAPS)
        return HeadWeights(*([of_layer for _, of_layer in sorted(of_kind[kind])] for kind in kinds))

    def _restricted(self, steps: Sequence[StepFunction], allowed: Allowed) -> StepFunction:
        if allowed is not None:
            steps = [
                RestrictedStep(step, allowed, vocab_size=self._vocab_size, device=self._device)
                for step in steps
            ]
        return steps[0] if len(steps) == 1 else EnsembleStep(steps)

    @contextmanager
    def _adapted(self, adapters: Adapters) -> Iterator[AdaptedRows | None]:
        """Compute as `_inference` does, with the adapter of each row; yield the rows if there is one."""
        with self._inference():
            if not any(adapters):
                yield None
                return
            rows = AdaptedRows(adapters, self._device)
            with rows.hooked(self._models[0]):
                yield rows

    @contextmanager
    def _inference(self) -> Iterator[None]:
        """Compute without dropout and gradients; afterwards models that were in training mode are again."""
        were_training = [model.training for model in self._models]
        for model in self._models:
            model.eval()
        try:
            with torch.inference_mode(), self._autocast():
                yield
        finally:
            for model, was_training in zip(self._models, were_training, strict=True):
                model.train(was_training)

    def _pad(self, sources: Ids, model: Transformer) -> Tensor:
        return torch.from_numpy(pad(sources, model.config.src_pad_id)).to(self._device)

    def _autocast(self) -> AbstractContextManager[object]:
        if self.precision == "bf16" or self.precision == "fp16":
            return torch.autocast(self._device.type, dtype=torch_dtype(self.precision))
        return nullcontext()
