"""The step of a search: the next token's log-probabilities for each row, and rows that can be reordered."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from heedful.errors import InputError

_SPARE = 4  # candidates more than are asked for
NOT_NUMBERS = (
    "search: the model's log-probabilities are not numbers; its weights are damaged, or too large for fp16, "
    "where bf16 has the range of float32"
)


class NextTokens(Protocol):
    """Next-token log-probabilities of each row, computed only as far as they are asked for."""

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

    At first there is one row for each sentence, and each has no input ids. The ids are on the
    CPU; the log-probabilities may be on a GPU, which neither method waits for.
    """

    def __call__(self, last_ids: Tensor) -> Tensor | NextTokens:
        """Decode one more input id of each row: (rows,) int64 -> next-token log-probabilities (rows, V)."""
        ...

    def reorder(self, rows: Tensor) -> None:
        """Let row i continue as row `rows[i]` was; rows may be repeated, dropped, moved."""
        ...


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
        """Wrap a step function that has no input ids yet; `allowed` has the ids for each sentence."""
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


def all_log_probs(found: Tensor | NextTokens) -> Tensor:
    """Return the result of a step function as log-probabilities (rows, V)."""
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
