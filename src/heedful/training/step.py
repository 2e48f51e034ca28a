"""One optimiser step over one or several micro-batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from heedful.config import Config
from heedful.data import Batch
from heedful.model import Transformer
from heedful.training.loss import Loss, projected_cross_entropy
from heedful.training.precision import Precision, autocast


@dataclass(frozen=True)
class StepMetrics:
    """What one step has shown; loss and nll are means over its real target tokens."""

    loss: float
    nll: float
    gradient_norm: float
    num_tgt_tokens: int

    @property
    def is_finite(self) -> bool:
        """Whether the step could be taken."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def batch_loss(model: Transformer, batch: Batch, *, smoothing: float) -> Loss:
    """Run the model on a batch and return its loss, summed over the real target tokens."""
    states = model.decode(batch.tgt_in, model.encode(batch.src))
    pad_id = model.config.tgt_pad_id
    real = batch.tgt_out != pad_id
    return projected_cross_entropy(
        states[real], model.output, batch.tgt_out[real], smoothing=smoothing, pad_id=pad_id
    )


def train_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    micro_batches: Sequence[Batch],
    *,
    config: Config,
    learning_rate: float,
    precision: Precision,
) -> StepMetrics:
    """Update the weights once.

    The gradient is that of the sum over all target tokens of all micro-batches, divided by their number: how
    the tokens are dealt into micro-batches changes nothing but rounding. Where loss or gradient is not
    finite, the weights stay as they are.
    """
    device = next(model.parameters()).device
    num_tokens = sum(batch.num_tgt_tokens for batch in micro_batches)
    model.train()
    losses = []
    for batch in micro_batches:
        with autocast(precision, device):
            loss = batch_loss(model, batch.to(device), smoothing=config.train.label_smoothing)
        (loss.smoothed / num_tokens).backward()  # type: ignore[no-untyped-call]
        losses.append(loss)
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if config.optimizer.clip_norm:
        torch.nn.utils.clip_grads_with_norm_(parameters, config.optimizer.clip_norm, norm)
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
    metrics = StepMetrics(
        loss=float(sum(loss.smoothed.detach() for loss in losses)) / num_tokens,
        nll=float(sum(loss.nll for loss in losses)) / num_tokens,
        gradient_norm=float(norm),
        num_tgt_tokens=num_tokens,
    )
    if metrics.is_finite:
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return metrics
