"""One optimiser step over one or several micro-batches.

It has two parts, so that several processes can share it (`team.py`): gradients, summed over tokens, and the
update that follows from them.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from heedful.config import Config, TrainConfig
from heedful.data import Batch
from heedful.model import Transformer
from heedful.nn.kernels import using_kernels
from heedful.training.loss import Loss, projected_cross_entropy
from heedful.training.precision import Precision, autocast, settled_float32


@dataclass(frozen=True)
class Sums:
    """Over real target tokens: what is minimised, the negative log-likelihood, and how many there are."""

    smoothed: float = 0.0
    nll: float = 0.0
    num_tgt_tokens: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.smoothed + other.smoothed, self.nll + other.nll, self.num_tgt_tokens + other.num_tgt_tokens
        )


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


def batch_loss(model: Transformer, batch: Batch, settings: TrainConfig) -> Loss:
    """Run the model on a batch and return its loss, summed over the real target tokens.

    With R-Drop it runs on two copies of each row, which dropout makes two different passes. The sums are
    means over both, half of what Liang et al. write, so that they can be compared with those without R-Drop.
    """
    passes = 2 if settings.r_drop else 1
    src, tgt_in = batch.src.repeat(passes, 1), batch.tgt_in.repeat(passes, 1)
    pad_id = model.config.tgt_pad_id
    real = batch.tgt_out != pad_id
    with using_kernels(wanted=settings.kernels != "torch"):
        states = model.decode(tgt_in, model.encode(src))
        states = states.view(passes, *real.shape, -1)[:, real]
        loss = projected_cross_entropy(
            states.transpose(0, 1).flatten(0, 1),  # the passes of a token side by side
            model.output,
            batch.tgt_out[real].repeat_interleave(passes),
            smoothing=settings.label_smoothing,
            pad_id=pad_id,
            r_drop=settings.r_drop,
        )
    return Loss(loss.smoothed / passes, loss.nll / passes)


def train_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    micro_batches: Iterable[Batch],
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
    sums = accumulate_gradients(model, micro_batches, config.train, precision=precision)
    metrics = step_metrics(sums, squared_norm(model.parameters()))
    if metrics.is_finite:
        scale = gradient_scale(metrics, config.optimizer.clip_norm)
        apply_gradients(optimizer, scale=scale, learning_rate=learning_rate)
    optimizer.zero_grad(set_to_none=True)
    return metrics


def accumulate_gradients(
    model: Transformer, micro_batches: Iterable[Batch], settings: TrainConfig, *, precision: Precision
) -> Sums:
    """Add the gradients of the loss, summed over real target tokens, to those that the weights have."""
    device = next(model.parameters()).device
    model.train()
    smoothed, nll, num_tokens = torch.zeros((), device=device), torch.zeros((), device=device), 0
    with settled_float32(precision, device):
        for batch in micro_batches:
            with autocast(precision, device):
                loss = batch_loss(model, batch.to(device), settings)
            torch.autograd.backward(loss.smoothed)
            smoothed, nll = smoothed + loss.smoothed.detach(), nll + loss.nll
            num_tokens += batch.num_tgt_tokens
    return Sums(float(smoothed), float(nll), num_tokens)


def squared_norm(weights: Iterable[Tensor]) -> float:
    """The sum of the squares of all gradients."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients)) ** 2


def step_metrics(sums: Sums, squared_norm: float) -> StepMetrics:
    """The means that a step shows, from sums over all its tokens."""
    tokens = sums.num_tgt_tokens
    return StepMetrics(sums.smoothed / tokens, sums.nll / tokens, math.sqrt(squared_norm) / tokens, tokens)


def gradient_scale(metrics: StepMetrics, clip_norm: float) -> float:
    """What turns gradients summed over tokens into their mean, clipped to a norm where one is given."""
    clipped = min(1.0, clip_norm / (metrics.gradient_norm + 1e-6)) if clip_norm else 1.0
    return clipped / metrics.num_tgt_tokens


def apply_gradients(optimizer: torch.optim.Optimizer, *, scale: float, learning_rate: float) -> None:
    """Take a step with the gradients times `scale`."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
        for weight in group["params"]:
            if weight.grad is not None:
                weight.grad.mul_(scale)
    optimizer.step()
