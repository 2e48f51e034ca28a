"""The native backend: the engine of the native library, on a CPU, for the paper's models and T5's."""

import ctypes
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from heedful.decoding.backends.engine import FIRST_POSITIONS, Engine, address_of
from heedful.decoding.backends.protocol import Adapters, Allowed, Backend, HeadWeights, attention_heads
from heedful.decoding.scoring import CoverageTracker
from heedful.decoding.steps import (
    ArrayTokens,
    EnsembleStep,
    Floats,
    Ids,
    Ints,
    NextTokens,
    Singles,
    StepFunction,
    check_numbers,
)
from heedful.runtime.native import Attention, Past, Shortlist
from heedful.runtime.threads import num_threads
from heedful.settings.options import Precision
from heedful.storage.bundle import StoredModel
from heedful.storage.weights_file import weight_shapes

if TYPE_CHECKING:
    from heedful.model.transformer import Transformer

_GROUP_SIZE = 8  # sentences: enough rows for a matrix multiplication, and not too many tokens


class EngineShortlist:
    """The shortlists of a batch's sentences, with the weights of their tokens packed for an engine.

    A few sentences form a group. The logits of all tokens of a group are computed for each of its sentences,
    but the softmax and the best tokens of a sentence only use its own tokens, in the order of the ids. So the
    log-probabilities have the same bits in any group.
    """

    def __init__(self, engine: Engine, allowed: Sequence[Ints]) -> None:
        """Pack the weights.

        Args:
            engine: the engine with the output layer.
            allowed: for each sentence the ids that it may have, ascending; at least one.
        """
        groups, indices = [], []
        for first in range(0, len(allowed), _GROUP_SIZE):
            is_in = np.zeros(engine.vocab_size, dtype=bool)
            ids_of_group = np.concatenate(allowed[first : first + _GROUP_SIZE])
            is_in[ids_of_group] = True
            groups.append(np.flatnonzero(is_in))
            indices.append((is_in.cumsum(dtype=np.int32) - np.int32(1))[ids_of_group])
        layers, arrays = zip(*map(engine.pick, groups), strict=True)
        outputs = (type(layers[0]) * len(layers))(*layers)
        own = (
            *(np.concatenate(groups), np.cumsum([0, *map(len, groups)], dtype=np.int64)),
            *(np.concatenate(indices), np.cumsum([0, *map(len, allowed)], dtype=np.int64)),
        )
        self._referenced = outputs, arrays, own
        addresses = ctypes.addressof(outputs), *(each.ctypes.data for each in own)
        self._pointers = Shortlist(_GROUP_SIZE, len(allowed), *addresses)
        self.address = ctypes.addressof(self._pointers)  # of a HeedfulShortlist


class EngineTokens(NextTokens):
    """Next-token log-probabilities, computed on demand: see `NextTokens`."""

    def __init__(
        self,
        engine: Engine,
        states: Singles,
        sentences: Ints,
        *,
        shortlist: EngineShortlist | None = None,
        threads: int = 1,
    ) -> None:
        self.vocab_size = engine.vocab_size
        self._engine = engine
        self._states = states
        self._threads = threads
        self._referenced = sentences, shortlist  # kept as long as their addresses
        # The addresses of the shortlist and of each row's sentence; None: the whole vocabulary.
        self._candidates = (None, None) if shortlist is None else (shortlist.address, sentences.ctypes.data)

    @override
    def top(self, count: int, suppressed: Sequence[int], *, renormalize: bool = False) -> tuple[Floats, Ints]:
        count = min(count, self.vocab_size)
        values = np.empty((len(self._states), count), np.float32)
        ids = np.empty((len(self._states), count), np.int64)
        if len(ids):
            never = [i for i in suppressed if 0 <= i < self.vocab_size]
            self._engine.call(
                *("top", self._threads, address_of(self._states), len(ids), *self._candidates, count),
                *((ctypes.c_int64 * len(never))(*never), len(never), renormalize),
                *(address_of(values), address_of(ids)),
            )
        check_numbers(values)
        return values.astype(np.float64), ids

    @override
    def log_probs(self) -> Singles:
        result = np.empty((len(self._states), self.vocab_size), np.float32)
        if len(result):
            rows = address_of(self._states), len(result)
            self._engine.call("log_probs", self._threads, *rows, *self._candidates, address_of(result))
        return result

    @override
    def with_log_probs(self, log_probs: NDArray[np.floating]) -> ArrayTokens:
        return ArrayTokens(log_probs)

    @override
    def __getitem__(self, rows: Ints) -> "EngineTokens":
        sentences, shortlist = self._referenced
        return EngineTokens(
            self._engine, self._states[rows], sentences[rows], shortlist=shortlist, threads=self._threads
        )


class EngineStep(StepFunction):
    """The steps of an engine, which never copy or move keys and values of earlier positions.

    These stay where they were computed. A table has their address for each position of each output, and only
    the table is reordered.
    """

    def __init__(
        self,
        engine: Engine,
        sources: Ids,
        *,
        threads: int = 1,
        shortlist: EngineShortlist | None = None,
        recorded: tuple[int, int] | None = None,
        of_heads: bool = False,
        adapters: Adapters = (),
    ) -> None:
        """Encode sources, one row each.

        Args:
            engine: the engine of the model.
            sources: the ids that the encoder reads, special tokens included.
            threads: the number of threads that share a step.
            shortlist: the shortlist of the sources.
            recorded: the layer (from 0) that records its cross-attention, and how many of its first heads;
                None: no layer does.
            of_heads: whether to record the attention of each head: in `encoder_heads`, and for the latest
                call in `self_heads` and `cross_heads`, (rows, layers, H, keys).
            adapters: the adapter of each source.
        """
        self._engine = engine
        self._attention = recorded
        # The engine writes the mean over all heads; of some heads, it is computed here.
        self._is_mean = recorded is not None and recorded[1] == engine.num_heads
        self._of_heads = of_heads
        self._longest = max(map(len, sources))
        self.attention = np.zeros((0, self._longest), np.float32)  # (rows, S) of the latest call
        self.encoder_heads = self.self_heads = self.cross_heads = np.zeros((0, 0, 0, 0), np.float32)
        self._threads = threads
        self._shortlist = shortlist
        self._starts = np.cumsum([0, *map(len, sources)], dtype=np.int64)
        ids = np.concatenate([np.asarray(source, dtype=np.int64) for source in sources])
        weights = None
        if of_heads:
            shape = (len(ids), engine.num_encoder_layers, engine.num_heads, self._longest)
            self.encoder_heads = np.zeros(shape, np.float32)
            weights = ctypes.byref(Attention(0, self._longest, None, address_of(self.encoder_heads), None))
        width, positions = 2 * engine.attention_width, engine.positions("encoder", self._longest)
        self._memory = [np.empty((len(ids), width), np.float32) for _ in range(engine.num_layers)]
        tables = [None if adapter is None else engine.adapter_table(adapter) for adapter in adapters]
        self._tables = adapters, tables  # kept as long as their addresses
        addresses = [None if table is None else table.address for table in tables]
        self._adapters = (ctypes.c_void_p * len(tables))(*addresses) if any(tables) else None
        self._memory_pointers = (ctypes.c_void_p * len(self._memory))(*map(address_of, self._memory))
        engine.call(
            *("encode", threads, address_of(ids), address_of(self._starts), len(sources)),
            *(address_of(positions), len(positions), self._memory_pointers, weights),
            self._adapters,
        )
        self._sentences = self._rows = np.arange(len(sources))
        self._lengths = np.zeros(len(sources), np.int64)  # the number of input ids of each output so far
        self._end = 0  # at least the length of the longest output
        self._keys_and_values: list[Singles] = []  # of each step; the table points to them
        self._table = np.zeros((len(sources), FIRST_POSITIONS), np.intp)  # addresses by position
        self._past = self._pointers()

    @override
    def __call__(self, last_ids: Ints) -> EngineTokens:
        self._end += 1
        tokens = self._decode(last_ids, self._rows, self._lengths)
        self._lengths += 1
        return tokens

    def decode_all(self, ids: Ints, counts: Ints) -> EngineTokens:
        """Decode several input ids of each row at once, with the same bits as one by one.

        Args:
            ids: (N,) int64, the ids of the first row, then of the second, and so on.
            counts: (rows,), the number of input ids in each row, at least 1; they sum to N.

        Returns:
            The next tokens of the N ids.
        """
        firsts = self._lengths - (np.cumsum(counts) - counts)
        at_positions = firsts.repeat(counts) + np.arange(len(ids))
        self._lengths = self._lengths + counts
        self._end = int(self._lengths.max())
        return self._decode(ids, self._rows.repeat(counts), at_positions)

    @override
    def reorder(self, rows: Ints) -> None:
        self._table, self._sentences = self._table.take(rows, axis=0), self._sentences.take(rows)
        self._lengths, self._rows = self._lengths.take(rows), np.arange(len(rows))
        if len(rows):
            self._past = self._pointers()

    def _decode(self, ids: Ints, outputs: Ints, at_positions: Ints) -> EngineTokens:
        num_outputs, stride = self._table.shape
        if self._end > stride:
            before, self._table = self._table, np.zeros((num_outputs, max(self._end, 2 * stride)), np.intp)
            self._table[:, :stride] = before
            self._past = self._pointers()
        engine, positions = self._engine, self._engine.positions("decoder", self._end)
        ids = np.ascontiguousarray(ids, dtype=np.int64)
        width = engine.width if engine.is_recurrent else 2 * engine.attention_width
        keys_and_values = np.empty((len(ids), engine.num_layers, width), np.float32)
        states = np.empty((len(ids), engine.width), np.float32)
        weights = None
        if self._of_heads or self._attention is not None:
            weights = ctypes.byref(self._weights(len(ids)))
        engine.call(
            *("step", self._threads, ctypes.byref(self._past), address_of(ids), address_of(outputs)),
            *(address_of(at_positions), len(ids), address_of(positions), len(positions)),
            *(address_of(keys_and_values), address_of(states), weights),
        )
        if self._attention is not None and not self._is_mean:
            layer, num_heads = self._attention
            self.attention = self.cross_heads[:, layer, :num_heads].mean(axis=1)
        if engine.is_recurrent:
            self._keys_and_values.clear()  # only the latest states are read again
        self._keys_and_values.append(keys_and_values)
        sentences = self._sentences.take(outputs)
        return EngineTokens(engine, states, sentences, shortlist=self._shortlist, threads=self._threads)

    def _weights(self, num_rows: int) -> Attention:
        """Return where the attention of the next step is written."""
        width = max(self._longest, self._end) if self._of_heads else self._longest
        if self._attention is not None and self._is_mean:
            self.attention = np.empty((num_rows, width), np.float32)
            return Attention(self._attention[0], width, address_of(self.attention))
        shape = (num_rows, self._engine.num_layers, self._engine.num_heads, width)
        self.cross_heads = np.zeros(shape, np.float32)
        if self._of_heads:
            self.self_heads = np.zeros(shape, np.float32)
        own = address_of(self.self_heads) if self._of_heads else None
        return Attention(0, width, None, own, address_of(self.cross_heads))

    def _pointers(self) -> Past:
        return Past(
            *(len(self._sentences), len(self._starts) - 1, self._table.shape[1]),
            *(address_of(self._sentences), address_of(self._starts), ctypes.addressof(self._memory_pointers)),
            *(address_of(self._table), self._adapters and ctypes.addressof(self._adapters)),
        )


class ForcedEngineStep(StepFunction):
    """The steps of an engine in teacher forcing: all positions are computed in one call."""

    def __init__(
        self,
        engine: Engine,
        sources: Ids,
        outputs: Ids,
        *,
        start_id: int,
        **how: Any,  # noqa: ANN401
    ) -> None:
        """Encode sources with special tokens, and decode an output for each, of at least one token.

        For `how`, see `EngineStep`.
        """
        counts = np.asarray([len(output) for output in outputs])
        ids = [each for output in outputs for each in (start_id, *output[:-1])]
        step = EngineStep(engine, sources, **how)
        self._tokens = step.decode_all(np.asarray(ids, dtype=np.int64), counts)
        self.attention_of_all = step.attention  # (N, S)
        self._rows = self._latest = np.cumsum(counts) - counts  # of the next token of each output

    @property
    def attention(self) -> Singles:
        """The cross-attention (rows, S) of the latest call."""
        latest: Singles = self.attention_of_all[self._latest]
        return latest

    @override
    def __call__(self, last_ids: Ints) -> EngineTokens:
        """Return what may follow the next token of the reference; `last_ids` are ignored."""
        tokens, self._latest = self._tokens[self._rows], self._rows
        self._rows = self._rows + 1
        return tokens

    @override
    def reorder(self, rows: Ints) -> None:
        self._rows = self._rows[rows]


class NativeBackend(Backend):
    """Steps computed by the native library."""

    name = "native"
    records_attention = True
    has_adapters = True
    parallel_batches = None

    def __init__(self, models: "Sequence[Transformer | StoredModel]", precision: Precision) -> None:
        """Pack copies of the models' weights.

        Args:
            models: the models of an ensemble, or one; `why_not` has no reason against them.
            precision: "float32", "bf16" or "int8".
        """
        self.precision: Precision = precision
        self._configs = [model.config for model in models]
        self._engines = [Engine(model.config, weight_of(model), precision) for model in models]

    @staticmethod
    def why_not(models: "Sequence[Transformer | StoredModel]", precision: Precision) -> str | None:
        """Return why some of the models cannot be computed here; None if all can."""
        for model in models:
            if change := change_of(model):
                return f"{change}, which only torch computes"
            if not isinstance(model, StoredModel):
                parameters = dict(model.named_parameters())
                if parameters.keys() != weight_shapes(model.config).keys():
                    return "layers that were adapted (LoRA) and not merged"
                if {each.device.type for each in parameters.values()} != {"cpu"}:
                    return "weights that are not on the CPU"
                if {str(each.dtype) for each in parameters.values()} != {"torch.float32"}:
                    return "weights that are not float32"
            if reason := Engine.why_not(model.config, precision):
                return reason
        return None

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
        """Return the steps of a search."""
        steps = partial(EngineStep, adapters=adapters)
        yield self._steps(steps, sources, threads=threads, allowed=allowed, coverage=coverage)

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
        """Return the steps of given outputs, with the same bits as in a search."""
        forced = partial(ForcedEngineStep, outputs=outputs, start_id=start_id, adapters=adapters)
        yield self._steps(forced, sources, threads=threads, allowed=allowed, coverage=coverage)

    def attention(
        self,
        sources: Ids,
        outputs: Ids,
        *,
        start_id: int,
        layer: int | None = None,
        adapters: Adapters = (),
    ) -> list[Floats]:
        """Return the cross-attention of outputs, all positions of a batch computed at once."""
        steps = [
            ForcedEngineStep(
                engine, sources, outputs, start_id=start_id, threads=num_threads(),
                recorded=attention_heads(config, layer), adapters=adapters,
            )
            for engine, config in zip(self._engines, self._configs, strict=True)
        ]  # fmt: skip
        ends = np.cumsum([len(output) for output in outputs])
        weights = np.split(
            np.mean([step.attention_of_all for step in steps], axis=0, dtype=np.float64), ends[:-1]
        )
        return [each[:, : len(source)] for each, source in zip(weights, sources, strict=True)]

    def head_weights(self, source: Sequence[int], tgt_in: Sequence[int]) -> HeadWeights:
        """Return the weights of each head, all positions computed at once."""
        return head_weights(self._engines[0], source, tgt_in)

    def _steps(
        self,
        of_engine: "Callable[..., EngineStep | ForcedEngineStep]",
        sources: Ids,
        *,
        threads: int,
        allowed: Allowed,
        coverage: bool,
    ) -> StepFunction:
        """Return the step function of all engines; `of_engine` makes the steps of one."""
        steps = [
            of_engine(
                engine,
                sources,
                threads=threads,
                shortlist=None if allowed is None else EngineShortlist(engine, allowed),
                recorded=attention_heads(config, None) if coverage else None,
            )
            for engine, config in zip(self._engines, self._configs, strict=True)
        ]
        step = steps[0] if len(steps) == 1 else EnsembleStep(steps)
        if not coverage:
            return step
        return CoverageTracker(step, partial(_mean_attention, steps), lengths=list(map(len, sources)))


def head_weights(engine: Engine, source: Sequence[int], tgt_in: Sequence[int]) -> HeadWeights:
    """Return the attention weights of each head of an engine: see `Backend.head_weights`."""
    step = EngineStep(engine, [source], threads=num_threads(), of_heads=True)
    step.decode_all(np.asarray(tgt_in, dtype=np.int64), np.asarray([len(tgt_in)]))
    return HeadWeights(
        list(step.encoder_heads.transpose(1, 2, 0, 3)),
        [] if engine.is_recurrent else list(step.self_heads[..., : len(tgt_in)].transpose(1, 2, 0, 3)),
        list(step.cross_heads[..., : len(source)].transpose(1, 2, 0, 3)),
    )


def _mean_attention(steps: "Sequence[EngineStep | ForcedEngineStep]") -> Singles:
    """Return the attention (rows, S) of the latest call of each step function, as a mean."""
    mean: Singles = np.mean([step.attention for step in steps], axis=0)
    return mean


def weight_of(model: "Transformer | StoredModel") -> Callable[[str], Singles]:
    """Return a function that gives each weight of a model by its name."""
    if isinstance(model, StoredModel):
        return model.weight
    parameters = dict(model.named_parameters())
    return lambda name: parameters[name].detach().numpy()


def change_of(model: "Transformer | StoredModel") -> str | None:
    """Return the part of a model that is not heedful's own; for a stored model, of the code that builds it.

    If torch is not imported, no code of a model is, so none can have been changed.
    """
    for key, value in model.config.plugged.items():
        return f"{key}={value}"
    if "torch" not in sys.modules:
        return None
    from heedful.ops.changes import changed_parts, in_words, patched_code

    changes = patched_code() if isinstance(model, StoredModel) else changed_parts(model)
    return in_words(changes) if changes else None
