"""What a search sees of a model: the next token's log-probabilities, and rows that can be moved."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import InputError
from heedful.model import Transformer

_NUMBERS_AT_ONCE = 1 << 22  # log-probabilities of a forced step, 16 MiB in float32, unless one place has more
_ROWS_MULTIPLE = 64
_SPARE = 4  # candidates more than are asked for
NOT_NUMBERS = (
    "search: the model's log-probabilities are not numbers; its weights are damaged, or too large for fp16, "
    "where bf16 has the range of float32"
)


class NextTokens(Protocol):
    """What may come next in each row, where not all of it is computed unless it is asked for."""

    vocab_size: int

    def top(
        self, count: int, banned: Sequence[int], *, renormalize: bool
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """See `top_candidates`; with `renormalize` the probabilities of all but the banned sum to 1."""
        ...

    def log_probs(self) -> Tensor:
        """All log-probabilities, (rows, V)."""
        ...

    def __getitem__(self, rows: Tensor) -> "NextTokens":
        """The same of some of the rows."""
        ...


class StepFunction(Protocol):
    """One step of generation for a number of rows, each a sequence under construction.

    At first there is one row for each sentence, and each has been fed nothing. What a step is given is on the
    processor; what it gives may be on a GPU, which neither method waits for.
    """

    def __call__(self, last_ids: Tensor) -> Tensor | NextTokens:
        """Feed one more id to each row: (rows,) int64 -> log-probabilities (rows, V) of what comes next."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Let row i continue as row `rows[i]` was; rows may be repeated, dropped, moved."""
        ...


class ModelStep:
    """The step function of a Transformer, over the key/value cache of its decoder."""

    def __init__(self, model: Transformer, src: Tensor) -> None:
        """Encode `src` (B, S), padded with the model's source pad id."""
        self._model = model
        self._device = src.device
        self._cache = model.start_cache(model.encode(src))

    def __call__(self, last_ids: Tensor) -> Tensor:
        """See `StepFunction`."""
        ids = last_ids.to(self._device, non_blocking=True)
        return _log_softmax(self._model.decode_step(ids, self._cache))

    def reorder(self, rows: Tensor) -> None:
        """See `StepFunction`."""
        self._cache.reorder(rows)


class ForcedStep:
    """The step function of a Transformer to which nothing but the given outputs will be fed.

    All states are computed at once, and the log-probabilities of a few places at a time: there never is a
    tensor (B, T, V).
    """

    def __init__(
        self, model: Transformer, src: Tensor, outputs: Sequence[Sequence[int]], *, start_id: int
    ) -> None:
        """Encode `src` (B, S), padded with the model's source pad id, and decode the outputs."""
        longest = max(map(len, outputs))
        tgt_in = torch.full((len(outputs), longest), start_id)  # what pads it is never looked at
        for row, output in zip(tgt_in, outputs, strict=True):
            row[1 : len(output)] = torch.tensor(output[:-1])
        self._model = model
        self._states_TBD = model.decode(tgt_in.to(src.device), model.encode(src)).transpose(0, 1)
        self._rows = torch.arange(len(outputs), device=src.device)
        self._ready: list[Tensor] = []  # log-probabilities (rows, V) of the places that come next
        self._ready_rows = self._rows

    def __call__(self, last_ids: Tensor) -> Tensor:
        """See `StepFunction`; the ids are known."""
        if not self._ready:
            num_rows = len(self._rows)
            num_places = max(1, _NUMBERS_AT_ONCE // (num_rows * self._model.config.tgt_vocab_size))
            states_ND = self._states_TBD[:num_places, self._rows].flatten(0, 1)
            self._states_TBD = self._states_TBD[num_places:]
            # Shapes that repeat are prepared once and kept: those of bfloat16 products are many megabytes.
            filled = F.pad(states_ND, (0, 0, 0, -len(states_ND) % _ROWS_MULTIPLE))
            log_probs = _log_softmax(self._model.project(filled)[: len(states_ND)])
            self._ready = list(log_probs.view(-1, num_rows, log_probs.shape[-1]).unbind())
            self._ready_rows = torch.arange(num_rows, device=log_probs.device)
        return self._ready.pop(0)[self._ready_rows]

    def reorder(self, rows: Tensor) -> None:
        """See `StepFunction`."""
        rows = rows.to(self._rows.device, non_blocking=True)
        self._rows, self._ready_rows = self._rows[rows], self._ready_rows[rows]


class RestrictedStep:
    """Another step function, of which each sentence may be written with some tokens only.

    The others have the log-probability -inf, and the probabilities of those that are left sum to 1. Where all
    are, nothing changes, to the last bit.
    """

    def __init__(
        self,
        step: StepFunction,
        allowed: Sequence[NDArray[np.int64]],
        *,
        vocab_size: int,
        device: torch.device,
    ) -> None:
        """Wrap a step function that was not fed yet; `allowed` has the ids for each sentence."""
        is_out = torch.ones(len(allowed), vocab_size, dtype=torch.bool)
        for row, ids in zip(is_out, allowed, strict=True):
            row[torch.from_numpy(ids)] = False
        self._step = step
        self._is_out = is_out.to(device)

    def __call__(self, last_ids: Tensor) -> Tensor:
        """See `StepFunction`."""
        left = all_log_probs(self._step(last_ids)).masked_fill(self._is_out, -torch.inf)
        is_some_out = self._is_out.any(dim=-1, keepdim=True)
        return left - left.logsumexp(dim=-1, keepdim=True).masked_fill(~is_some_out, 0.0)

    def reorder(self, rows: Tensor) -> None:
        """See `StepFunction`."""
        self._step.reorder(rows)
        self._is_out = self._is_out[rows.to(self._is_out.device, non_blocking=True)]


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities (..., V), of a softmax in float32, or float64 for a float64 model."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return torch.log_softmax(logits, dim=-1)


def all_log_probs(found: Tensor | NextTokens) -> Tensor:
    """What a step function has found, as log-probabilities (rows, V)."""
    return found if isinstance(found, Tensor) else found.log_probs()


def top_candidates(
    log_probs: Tensor, count: int, banned: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The `count` best next ids of each row and their log-probabilities, best first, ties to the lower id.

    Banned ids come last, with -inf; no probability is renormalised. One transfer from the device, but for
    rows where more candidates tie than there are to spare; logits in bfloat16 often tie.

    Args:
        log_probs: (rows, V).
        count: how many; fewer come back when V is smaller.
        banned: ids that may not follow.

    Returns:
        Log-probabilities and ids, each (rows, min(count, V)).

    Raises:
        InputError: a log-probability is not a number.
    """
    vocab_size = log_probs.shape[-1]
    needed = min(count + len(banned), vocab_size)
    best = torch.topk(log_probs, min(needed + _SPARE, vocab_size), dim=-1)
    # One transfer: ids are exact in float32, as vocabularies are far smaller than 2 ** 24.
    packed = torch.stack((best.values, best.indices.to(best.values.dtype))).cpu().numpy()
    values, ids = packed[0].astype(np.float64), packed[1].astype(np.int64)
    if np.isnan(values).any():
        raise InputError(NOT_NUMBERS)
    if values.shape[1] > needed:
        tied = np.flatnonzero(values[:, -1] == values[:, needed - 1])
        if len(tied):  # topk may keep any of the tied ids: sort these rows in full
            rows = log_probs[torch.as_tensor(tied, device=log_probs.device)]
            ordered = torch.sort(rows, dim=-1, descending=True, stable=True)
            ids[tied] = ordered.indices[:, : ids.shape[1]].cpu().numpy()
            values[tied] = ordered.values[:, : ids.shape[1]].cpu().numpy()
    if banned:
        values = np.where(np.isin(ids, banned), -np.inf, values)
    order = np.lexsort((ids, -values), axis=-1)[:, :count]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
