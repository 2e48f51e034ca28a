"""The steps of a Transformer in torch: over the decoder's cache, or in teacher forcing."""

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from heedful.decoding.steps import NOT_NUMBERS, SPARE, StepFunction, best_first
from heedful.errors import InputError
from heedful.model import Transformer

_NUMBERS_AT_ONCE = 1 << 22  # log-probabilities at once, 16 MiB in float32, unless one position has more
_ROWS_MULTIPLE = 64


class TorchTokens:
    """Next-token log-probabilities in a tensor on any device: see `NextTokens`."""

    def __init__(self, log_probs: Tensor) -> None:
        """Take log-probabilities (rows, V)."""
        self._log_probs = log_probs

    @property
    def vocab_size(self) -> int:
        """See `NextTokens`."""
        return self._log_probs.shape[-1]

    def top(
        self, count: int, suppressed: Sequence[int], *, renormalize: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
        """See `NextTokens`.

        One transfer from the device, but for rows where more candidates tie than there are to spare; logits
        in bfloat16 often tie.
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
        if np.isnan(values).any():
            raise InputError(NOT_NUMBERS)
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

    def log_probs(self) -> Tensor:
        """See `NextTokens`."""
        return self._log_probs

    def with_log_probs(self, log_probs: Tensor) -> "TorchTokens":
        """See `NextTokens`."""
        return TorchTokens(log_probs)

    def __getitem__(self, rows: NDArray[np.int64]) -> "TorchTokens":
        """See `NextTokens`."""
        return TorchTokens(self._log_probs[torch.as_tensor(rows).to(self._log_probs.device)])


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

    def __call__(self, last_ids: NDArray[np.int64]) -> TorchTokens:
        """See `StepFunction`."""
        left = self._step(last_ids).log_probs().masked_fill(self._is_out, -torch.inf)
        is_some_out = self._is_out.any(dim=-1, keepdim=True)
        return TorchTokens(left - left.logsumexp(dim=-1, keepdim=True).masked_fill(~is_some_out, 0.0))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        self._step.reorder(rows)
        self._is_out = self._is_out[torch.as_tensor(rows).to(self._is_out.device, non_blocking=True)]


class ModelStep:
    """The step function of a Transformer, over the key/value cache of its decoder."""

    def __init__(self, model: Transformer, src: Tensor) -> None:
        """Encode `src` (B, S), padded with the model's source pad id."""
        self._model = model
        self._device = src.device
        self._cache = model.start_cache(model.encode(src))

    def __call__(self, last_ids: NDArray[np.int64]) -> "TorchTokens":
        """See `StepFunction`."""
        ids = torch.as_tensor(last_ids).to(self._device, non_blocking=True)
        return TorchTokens(_log_softmax(self._model.decode_step(ids, self._cache)))

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        self._cache.reorder(torch.as_tensor(rows))


class ForcedStep:
    """The step function of a Transformer in teacher forcing.

    All states are computed at once, and the log-probabilities of a few positions at a time: there never is a
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
        self._ready: list[Tensor] = []  # log-probabilities (rows, V) of the positions that come next
        self._ready_rows = self._rows

    def __call__(self, last_ids: NDArray[np.int64]) -> "TorchTokens":
        """See `StepFunction`; the ids are known."""
        if not self._ready:
            num_rows = len(self._rows)
            num_positions = max(1, _NUMBERS_AT_ONCE // (num_rows * self._model.config.tgt_vocab_size))
            states_ND = self._states_TBD[:num_positions, self._rows].flatten(0, 1)
            self._states_TBD = self._states_TBD[num_positions:]
            # Shapes that repeat are prepared once and kept: those of bfloat16 GEMMs are many megabytes.
            filled = F.pad(states_ND, (0, 0, 0, -len(states_ND) % _ROWS_MULTIPLE))
            log_probs = _log_softmax(self._model.project(filled)[: len(states_ND)])
            self._ready = list(log_probs.view(-1, num_rows, log_probs.shape[-1]).unbind())
            self._ready_rows = torch.arange(num_rows, device=log_probs.device)
        return TorchTokens(self._ready.pop(0)[self._ready_rows])

    def reorder(self, rows: NDArray[np.int64]) -> None:
        """See `StepFunction`."""
        chosen = torch.as_tensor(rows).to(self._rows.device, non_blocking=True)
        self._rows, self._ready_rows = self._rows[chosen], self._ready_rows[chosen]


def _log_softmax(logits: Tensor) -> Tensor:
    """Log-probabilities (..., V), of a softmax in float32, or float64 for a float64 model."""
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return torch.log_softmax(logits, dim=-1)
