"""What a search sees of a model: the next token's log-probabilities, and rows that can be moved."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import InputError
from heedful.model import Transformer

NOT_NUMBERS = "search: the model's log-probabilities are not numbers; its weights are damaged"


@runtime_checkable
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


class StepFunction(Protocol):
    """One step of generation for a number of rows, each a sequence under construction.

    At first there is one row for each sentence, and each has been fed nothing.
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
        """See `StepFunction`; the softmax is taken in float32 (or float64 for a float64 model)."""
        logits = self._model.decode_step(last_ids.to(self._device), self._cache)
        if logits.dtype in (torch.bfloat16, torch.float16):
            logits = logits.float()
        return torch.log_softmax(logits, dim=-1)

    def reorder(self, rows: Tensor) -> None:
        """See `StepFunction`."""
        self._cache.reorder(rows.to(self._device))


def all_log_probs(found: Tensor | NextTokens) -> Tensor:
    """What a step function has found, as log-probabilities (rows, V)."""
    return found if isinstance(found, Tensor) else found.log_probs()


def top_candidates(
    log_probs: Tensor, count: int, banned: Sequence[int]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """The `count` best next ids of each row and their log-probabilities, best first, ties to the lower id.

    Banned ids come last, with -inf; no probability is renormalised. One transfer from the device.

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
    best = torch.topk(log_probs, min(needed + 1, vocab_size), dim=-1)
    # One transfer: ids are exact in float32, as vocabularies are far smaller than 2 ** 24.
    packed = torch.stack((best.values, best.indices.to(best.values.dtype))).cpu().numpy()
    values, ids = packed[0].astype(np.float64), packed[1].astype(np.int64)
    if np.isnan(values).any():
        raise InputError(NOT_NUMBERS)
    if values.shape[1] > needed:
        tied = np.flatnonzero(values[:, needed] == values[:, needed - 1])
        if len(tied):  # topk may keep any of the tied ids: sort these rows in full
            rows = log_probs[torch.as_tensor(tied, device=log_probs.device)]
            ordered = torch.sort(rows, dim=-1, descending=True, stable=True)
            ids[tied] = ordered.indices[:, : needed + 1].cpu().numpy()
            values[tied] = ordered.values[:, : needed + 1].cpu().numpy()
        values, ids = values[:, :needed], ids[:, :needed]
    if banned:
        values = np.where(np.isin(ids, banned), -np.inf, values)
    order = np.lexsort((ids, -values), axis=-1)[:, :count]
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(ids, order, axis=1)
