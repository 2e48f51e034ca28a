"""The loss (5.4): cross-entropy against a smoothed target, summed over the real target tokens.

Two forms of one formula. `smoothed_cross_entropy` is the formula. `projected_cross_entropy` starts one step
earlier, at the decoder's states, works through them in pieces that stay in the processor's cache, and takes
the gradient on the way: the logits of a whole batch (B x T x V in float32) never exist.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

_ROWS_AT_ONCE = 256
_ROWS_MULTIPLE = 64  # of every matrix product here: shapes that repeat are prepared once and kept


class Loss(NamedTuple):
    """Sums over tokens: what is minimised, and the negative log-likelihood that perplexity comes from."""

    smoothed: Tensor
    nll: Tensor


def smoothed_cross_entropy(logits: Tensor, targets: Tensor, *, smoothing: float, pad_id: int) -> Loss:
    """Compare predictions with q = (1 - ε) on the target plus ε spread evenly over the vocabulary.

    Padding is no word and gets no share of ε, so each of the others gets ε / (V - 1); no target is padding.

    Args:
        logits: (N, V), a row for each real target token.
        targets: (N,) ids.
        smoothing: ε, 0.1 in the paper.
        pad_id: the padding id of the target vocabulary.
    """
    log_probs = logits.log_softmax(dim=-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    nll = -log_probs.gather(1, targets[:, None]).sum()
    evenly = -(log_probs.sum() - log_probs[:, pad_id].sum()) / (logits.shape[1] - 1)
    return Loss((1.0 - smoothing) * nll + smoothing * evenly, nll.detach())


def projected_cross_entropy(
    states: Tensor, output: nn.Linear, targets: Tensor, *, smoothing: float, pad_id: int
) -> Loss:
    """Return `smoothed_cross_entropy(output(states), ...)` without ever holding all logits.

    Args:
        states: (N, D), the decoder's states of the real target tokens.
        output: the pre-softmax matrix (3.4).
        targets: (N,) ids.
        smoothing: ε.
        pad_id: the padding id of the target vocabulary.
    """
    smoothed, nll = _ProjectedCrossEntropy.apply(  # type: ignore[no-untyped-call]
        states, output.weight, output.bias, targets, smoothing, pad_id
    )
    return Loss(smoothed, nll)


class _ProjectedCrossEntropy(torch.autograd.Function):
    """Forward computes the gradients too, a piece at a time; backward only scales them."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        smoothing: float,
        pad_id: int,
    ) -> tuple[Tensor, Tensor]:
        device = states.device.type
        narrow = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else states.dtype
        wide = torch.promote_types(narrow, torch.float32)
        num_rows = states.shape[0]
        matrix, rows = weight.to(narrow), _fill_up(states.to(narrow))
        smoothed = states.new_zeros((), dtype=wide)
        nll = states.new_zeros((), dtype=wide)
        grad_states = torch.empty_like(rows)
        _, needs_weight, needs_bias, *_ = ctx.needs_input_grad  # not all do where weights are frozen
        grad_weight = torch.zeros_like(weight, dtype=wide) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=wide) if needs_bias and bias is not None else None
        evenly = smoothing / (weight.shape[0] - 1)
        with torch.autocast(device, enabled=False):
            for start in range(0, rows.shape[0], _ROWS_AT_ONCE):
                piece = slice(start, start + _ROWS_AT_ONCE)
                wanted = targets[piece, None]
                logits = (rows[piece] @ matrix.T).to(wide)
                if bias is not None:
                    logits += bias
                with_filling = logits.log_softmax(dim=-1)
                log_probs = with_filling[: len(wanted)]
                nll_here = -log_probs.gather(1, wanted).sum()
                nll += nll_here
                smoothed += (1.0 - smoothing) * nll_here
                smoothed -= evenly * (log_probs.sum() - log_probs[:, pad_id].sum())
                # The gradient of cross-entropy is what was predicted minus what was wanted.
                grad_logits = log_probs.exp_()
                grad_logits[:, pad_id] += evenly
                grad_logits -= evenly
                grad_logits.scatter_add_(1, wanted, grad_logits.new_full(wanted.shape, smoothing - 1.0))
                with_filling[len(wanted) :] = 0.0
                narrow_grad = with_filling.to(narrow)
                grad_states[piece] = narrow_grad @ matrix
                if grad_weight is not None:
                    grad_weight += narrow_grad.T @ rows[piece]
                if grad_bias is not None:
                    grad_bias += grad_logits.sum(dim=0)
        if grad_weight is not None:
            grad_weight = grad_weight.to(weight.dtype)
        ctx.save_for_backward(grad_states[:num_rows].to(states.dtype), grad_weight, grad_bias)
        ctx.mark_non_differentiable(nll)
        return smoothed, nll

    @staticmethod
    def backward(ctx: Any, grad_smoothed: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:  # noqa: ANN401
        scaled = (None if grad is None else grad * grad_smoothed for grad in ctx.saved_tensors)
        return *scaled, None, None, None


def _fill_up(rows: Tensor) -> Tensor:
    """Append rows of zeros up to the next multiple."""
    return F.pad(rows, (0, 0, 0, -rows.shape[0] % _ROWS_MULTIPLE))
