"""One optimiser step over one or several micro-batches.

It has two parts, so that several processes can share it (`parallel/`): gradients, summed over tokens, and the
update. A micro-batch that does not fit into memory is split.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.settings.run import Config, TrainConfig
from heedful.training.averaging import num_trained
from heedful.training.events import StartEvent, StepEvent
from heedful.training.loss import Loss, projected_cross_entropy
from heedful.training.memory import OutOfMemoryError, halve_batches, reraise_out_of_memory
from heedful.training.precision import Precision, autocast, float32_matmul_precision


@dataclass(frozen=True)
class Sums:
    """Sums over real target tokens: smoothed loss, negative log-likelihood, and their number.

    `num_halvings` counts how often a batch did not fit into memory.
    """

    smoothed: float = 0.0
    nll: float = 0.0
    num_tgt_tokens: int = 0
    num_halvings: int = 0

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.smoothed + other.smoothed,
            self.nll + other.nll,
            self.num_tgt_tokens + other.num_tgt_tokens,
            self.num_halvings + other.num_halvings,
        )


@dataclass(frozen=True)
class StepMetrics:
    """Metrics of one step; loss and nll are means over its real target tokens."""

    loss: float
    nll: float
    gradient_norm: float
    num_tgt_tokens: int
    num_halvings: int = 0

    @property
    def is_finite(self) -> bool:
        """Return whether loss and gradient are finite; otherwise the step is skipped."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


def batch_loss(model: Transformer, batch: Batch, settings: TrainConfig) -> Loss:
    """Run the model on a batch and return its loss, summed over the real target tokens.

    With R-Drop it runs on two copies of each row with different dropout. The sums are means over both, half
    of those in Liang et al., so that they can be compared with training without R-Drop.
    """
    passes = 2 if settings.r_drop else 1
    src, tgt_in = batch.src.repeat(passes, 1), batch.tgt_in.repeat(passes, 1)
    pad_id = model.config.tgt_pad_id
    real = batch.tgt_out != pad_id
    states = model.decode(tgt_in, model.encode(src))
    states = states.view(passes, *real.shape, -1)[:, real]
    loss = projected_cross_entropy(
        states.transpose(0, 1).flatten(0, 1),  # the passes of a token side by side
        model.output,
        batch.tgt_out[real].repeat_interleave(passes),
        smoothing=settings.label_smoothing,
        pad_id=pad_id,
        r_drop=settings.r_drop,
        kernels=settings.kernels != "torch",
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
    """Update the weights once, unless loss or gradient is not finite.

    The gradient is that of the mean over all target tokens of all micro-batches: how the tokens are split
    into micro-batches changes nothing but rounding.
    """
    sums = accumulate_gradients(model, micro_batches, config.train, precision=precision)
    metrics = step_metrics(sums, squared_norm(model.parameters()))
    if metrics.is_finite:
        scale = gradient_scale(metrics, config.optimizer.clip_norm)
        apply_gradients(optimizer, scale=scale, learning_rate=learning_rate)
    optimizer.zero_grad(set_to_none=True)
    return metrics


def accumulate_gradients(
    model: Transformer,
    micro_batches: Iterable[Batch],
    settings: TrainConfig,
    *,
    precision: Precision,
    discard: Callable[[], None] | None = None,
) -> Sums:
    """Add the gradients of the loss, summed over real target tokens, to those of the weights.

    If a batch does not fit into memory, all gradients are discarded, since some of that batch's may be among
    them, and the pass restarts with batches of that size split in two. The sums stay the same.

    Args:
        model: on its device.
        micro_batches: of one step.
        settings: of the loss.
        precision: of the matrix multiplications.
        discard: discards the gradients of the weights; by default they are set to None.

    Raises:
        TrainingError: memory is too small for one pair.
    """
    batches, num_halvings = list(micro_batches), 0
    discard = discard or model.zero_grad
    model.train()
    while True:
        try:
            sums = _accumulate(model, batches, settings, precision)
            return replace(sums, num_halvings=num_halvings)
        except OutOfMemoryError as error:
            too_large = error.batch
        num_halvings += 1  # outside the except block, where the activations are freed
        discard()
        batches = halve_batches(batches, like=too_large, pad_id=model.config.tgt_pad_id)


def _accumulate(
    model: Transformer, batches: list[Batch], settings: TrainConfig, precision: Precision
) -> Sums:
    """Add the gradients of all batches to those of the weights; return the sums.

    Raises:
        OutOfMemoryError: a batch does not fit into memory; some of its gradients may have been added.
    """
    device = next(model.parameters()).device
    smoothed: Tensor | float = 0.0
    nll: Tensor | float = 0.0
    with float32_matmul_precision(precision, device):
        for batch in batches:
            with reraise_out_of_memory(batch):
                loss = _run_backward(model, batch, settings, precision)
            smoothed, nll = smoothed + loss.smoothed, nll + loss.nll
        return Sums(float(smoothed), float(nll), sum(batch.num_tgt_tokens for batch in batches))


def _run_backward(model: Transformer, batch: Batch, settings: TrainConfig, precision: Precision) -> Loss:
    """Add the gradients of one batch; return its loss, without its graph."""
    device = next(model.parameters()).device
    with autocast(precision, device):
        loss = batch_loss(model, batch.to(device), settings)
    torch.autograd.backward(loss.smoothed)
    return Loss(loss.smoothed.detach(), loss.nll)


def squared_norm(weights: Iterable[Tensor]) -> float:
    """Return the sum of the squares of all gradients."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients)) ** 2


def step_metrics(sums: Sums, squared_norm: float) -> StepMetrics:
    """Return the metrics of a step from the sums over all its tokens."""
    tokens = sums.num_tgt_tokens
    return StepMetrics(
        sums.smoothed / tokens, sums.nll / tokens, math.sqrt(squared_norm) / tokens, tokens, sums.num_halvings
    )


def gradient_scale(metrics: StepMetrics, clip_norm: float) -> float:
    """Return the factor from summed to mean gradients, with gradient clipping unless `clip_norm` is 0."""
    clipped = min(1.0, clip_norm / (metrics.gradient_norm + 1e-6)) if clip_norm else 1.0
    return clipped / metrics.num_tgt_tokens


def apply_gradients(optimizer: torch.optim.Optimizer, *, scale: float, learning_rate: float) -> None:
    """Scale the gradients and take an optimiser step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate
        for weight in group["params"]:
            if weight.grad is not None:
                weight.grad.mul_(scale)
    optimizer.step()


def start_event(
    model: Transformer, config: Config, precision: Precision, *, num_pairs: int, step: int, seconds: float
) -> StartEvent:
    """Return the event before the first step, or the first after a resumption."""
    return StartEvent(
        step,
        seconds,
        num_parameters=model.num_parameters,
        num_trained=num_trained(model),
        num_pairs=num_pairs,
        precision=precision,
        device=str(next(model.parameters()).device),
        threads=torch.get_num_threads(),
        max_steps=config.train.max_steps,
        max_minutes=config.train.max_minutes,
    )


def step_event(
    steps: Sequence[tuple[StepMetrics, float]],
    *,
    epoch: int,
    rate: float,
    progress: float,
    step: int,
    seconds: float,
    kind: type[StepEvent] = StepEvent,
) -> StepEvent:
    """Return the means over steps, each given with its seconds; all tokens count the same."""
    num_tokens = sum(metrics.num_tgt_tokens for metrics, _ in steps)
    return kind(
        step,
        seconds,
        epoch=epoch,
        loss=sum(metrics.loss * metrics.num_tgt_tokens for metrics, _ in steps) / num_tokens,
        nll=sum(metrics.nll * metrics.num_tgt_tokens for metrics, _ in steps) / num_tokens,
        learning_rate=rate,
        gradient_norm=sum(metrics.gradient_norm for metrics, _ in steps) / len(steps),
        tokens_per_second=num_tokens / sum(taken for _, taken in steps),
        progress=progress,
    )
