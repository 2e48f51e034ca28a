"""One optimiser step over one or several micro-batches.

It has two parts, so that several processes can share it (`parallel/`): gradients, summed over tokens, and the
update. Validation runs the same forward pass. The arithmetic is in `batch_loss`, `train_step` and
`apply_gradients`. The end of the file splits a micro-batch that does not fit into memory; skip it at first.
"""

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, replace
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn

from heedful.data.batches import Batch
from heedful.errors import ConfigError, TrainingError, is_out_of_memory
from heedful.model.transformer import Transformer
from heedful.ops.attention import sdpa_for_sentences
from heedful.ops.changes import change_of, is_exactly
from heedful.settings.options import TrainingPrecision
from heedful.settings.plugins import PluginFunction, checked_function
from heedful.settings.run import Config, TrainConfig
from heedful.training.cuda_graphs import GraphedPasses
from heedful.training.execution import autocast, float32_matmul_precision
from heedful.training.loss import Loss, divergence, fused_linear_cross_entropy, smoothed_cross_entropy

Batches = Callable[[], Iterator[Batch]]  # each call returns a new iterator over the micro-batches of a step

_VALIDATED_ROWS = 512  # the logits that are computed at once


@dataclass(frozen=True)
class LossSums:
    """Sums over real target tokens: smoothed loss, negative log-likelihood, and their number.

    `num_halvings` counts how often a batch did not fit into memory.
    """

    smoothed: float = 0.0
    nll: float = 0.0
    num_tgt_tokens: int = 0
    num_halvings: int = 0

    def __add__(self, other: "LossSums") -> "LossSums":
        return LossSums(*map(operator.add, astuple(self), astuple(other)))


@dataclass(frozen=True)
class StepMetrics:
    """Metrics of one step; loss and nll are means over its real target tokens."""

    loss: float
    nll: float
    gradient_norm: float  # L2, of the mean gradient before clipping
    num_tgt_tokens: int
    num_halvings: int = 0

    @property
    def is_finite(self) -> bool:
        """Return whether loss and gradient are finite; otherwise the step is skipped."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


class StepInterruptedError(Exception):
    """A step was interrupted between two of its micro-batches; no weight has changed."""


class ForwardPass(Protocol):
    """Runs a model on a batch; `is_last` says whether it is the last one of a step."""

    def __call__(self, batch: Batch, *, is_last: bool) -> Loss:
        """Return the loss, summed over the real target tokens."""
        ...


class LossFunction(Protocol):
    """A custom loss, a function `loss(model, batch)`; every process of a training calls it.

    The model is in training mode, and `model(batch.src, batch.tgt_in)` are its logits (B, T, V). The loss is
    summed over the real target tokens of the batch (0 if a process has no rows of it); a step divides the
    gradients by the number of these tokens in all batches and processes.

    Other processes import the loss by name: it is a function of a module (a file), not of the script that
    trains or of a notebook, or an object of a class of a module, as in docs/examples/focal_loss.py.
    """

    def __call__(self, model: Transformer, batch: Batch) -> Loss:
        """Return the loss of a batch."""
        ...


_RETURNS = "a heedful.training.Loss of two numbers in torch: the sums over the target tokens"


def own_loss(function: object, name: str) -> PluginFunction:
    """Return a user's loss, which checks what it returns; a class of settings with defaults is called first.

    Raises:
        ConfigError: it takes other arguments than (model, batch); `name` says in which setting it is.
    """
    return checked_function(function, name, "model, batch", returns=_RETURNS, is_right=_is_loss)


def _is_loss(result: object, _: object) -> bool:
    return isinstance(result, Loss) and all(isinstance(value, Tensor) and not value.dim() for value in result)


def try_loss(loss: LossFunction, name: str, model: Transformer, batch: Batch) -> None:
    """Compute a user's loss of two pairs; no weight and no random state changes.

    Raises:
        ConfigError: it fails, or returns no `Loss`, one without a gradient, or one that is not finite.
    """
    tgt_out, device = batch.tgt_out[:2], next(model.parameters()).device
    num_tokens = int((tgt_out != model.config.tgt_pad_id).sum())
    two = Batch(batch.src[:2], batch.tgt_in[:2], tgt_out, num_tokens)
    with torch.random.fork_rng():
        smoothed, nll = loss(model.train(), two.to(device))
    problems = {
        "has no gradient": not smoothed.requires_grad,
        f"is {smoothed.item():g}": not math.isfinite(smoothed.item()),
        f"has the nll {nll.item():g}": not math.isfinite(nll.item()),
    }
    for problem, holds in problems.items():
        if holds:
            raise ConfigError(f"{name}: the loss of a first batch {problem}; return {_RETURNS}")


def fuses_loss(model: Transformer) -> bool:
    """Return whether the output matrix and the loss are one operation; look again after a change."""
    return is_exactly(model.output, nn.Linear) and change_of(model) is None


def batch_loss(model: Transformer, batch: Batch, settings: TrainConfig, *, fused: bool | None = None) -> Loss:
    """Run the model on a batch and return its loss, summed over the real target tokens.

    With R-Drop it runs on two copies of each row with different dropout. The sums are means over both, half
    the sums in Liang et al., so that they can be compared with training without R-Drop. `fused` is what
    `fuses_loss` returns, if it is known.
    """
    fused = fuses_loss(model) if fused is None else fused
    passes = 2 if settings.r_drop else 1
    pad_id, smoothing = model.config.tgt_pad_id, settings.label_smoothing
    memory = model.encode(batch.src.repeat(passes, 1))
    states, is_real = model.decoder(batch.tgt_in.repeat(passes, 1), memory), batch.tgt_out != pad_id
    if fused and states.is_cuda:  # to select rows, the CPU would wait until the GPU has counted them
        states = states.masked_fill(~is_real.repeat(passes, 1)[..., None], 0.0).flatten(0, 1)
        targets = batch.tgt_out.flatten()
    else:
        states, targets = states[is_real.repeat(passes, 1)], batch.tgt_out[is_real]
    if passes == 2:  # interleave: rows 2i and 2i+1 are the two passes
        states, targets = torch.stack(states.chunk(2), dim=1).flatten(0, 1), targets.repeat_interleave(2)
    if fused:
        loss = fused_linear_cross_entropy(
            states,
            model.output,
            targets,
            smoothing=smoothing,
            pad_id=pad_id,
            r_drop=settings.r_drop,
            kernels=settings.kernels != "torch",
        )
    else:
        logits = model.project(states)
        loss = smoothed_cross_entropy(logits, targets, smoothing=smoothing, pad_id=pad_id)
        if passes == 2:
            loss = Loss(loss.smoothed + 0.5 * settings.r_drop * divergence(logits), loss.nll)
    return Loss(loss.smoothed / passes, loss.nll / passes)


def train_step(
    model: Transformer,
    optimizer: torch.optim.Optimizer,
    micro_batches: Iterable[Batch],
    *,
    config: Config,
    learning_rate: float,
    precision: TrainingPrecision,
    forward: ForwardPass | None = None,
    graphs: GraphedPasses | None = None,
) -> StepMetrics:
    """Update the weights once, unless loss or gradient is not finite.

    The loss is the mean over all target tokens of all micro-batches: how the tokens are split into
    micro-batches changes nothing but rounding. For `forward` and `graphs` see `accumulate_gradients`.
    """
    try:
        sums = accumulate_gradients(
            model, micro_batches, config.train, precision=precision, forward=forward, graphs=graphs
        )
        metrics = step_metrics(sums, squared_norm(model.parameters()))
        if metrics.is_finite:
            scale = gradient_scale(metrics, config.optimizer.clip_norm)
            apply_gradients(optimizer, scale=scale, learning_rate=learning_rate)
        return metrics
    finally:
        optimizer.zero_grad(set_to_none=True)


def accumulate_gradients(
    model: Transformer,
    micro_batches: Iterable[Batch],
    settings: TrainConfig,
    *,
    precision: TrainingPrecision,
    discard: Callable[[], object] | None = None,
    forward: ForwardPass | None = None,
    graphs: GraphedPasses | None = None,
) -> LossSums:
    """Add the gradients of the loss, summed over real target tokens, to the weights.

    If a batch does not fit into memory, all gradients are discarded, since some of that batch's may be among
    them, and the pass restarts with batches of that size split in two. The sums stay the same.

    Args:
        model: the model, on its device.
        micro_batches: the batches of one step. At most two are in memory if each iteration makes them anew;
            an iterator is read to its end first.
        settings: the settings of the loss.
        precision: the precision of matrix multiplications.
        discard: a function that discards the gradients; by default they are set to None.
        forward: the forward pass, if the model is wrapped or the loss is not `batch_loss`.
        graphs: computes the passes by CUDA graphs; the weights then have gradients in its static tensors.
    """
    if isinstance(micro_batches, Iterator):
        micro_batches = list(micro_batches)
    batches: Batches = partial(iter, micro_batches)
    num_halvings, device = 0, next(model.parameters()).device
    forward = forward or (lambda batch, is_last: batch_loss(model, batch, settings))

    def one_pass(batch: Batch, *, is_last: bool) -> Loss:
        if graphs:
            return graphs(batch)
        return add_gradients(batch.to(device), forward, precision, is_last=is_last)

    discard = discard or model.zero_grad
    if graphs:
        discard = graphs.reset
        discard()
    model.train()
    while True:
        try:
            with float32_matmul_precision(precision, device):
                return replace(_accumulate(batches(), one_pass), num_halvings=num_halvings)
        except OutOfMemoryError as error:
            too_large = error.batch
        num_halvings += 1  # outside the except block, where the activations are freed
        discard()
        batches = halve_batches(batches, like=too_large, pad_id=model.config.tgt_pad_id)


def add_gradients(
    batch: Batch, forward: ForwardPass, precision: TrainingPrecision, *, is_last: bool = True
) -> Loss:
    """Add the gradients of a batch to the weights; return its loss, which has no graph."""
    with autocast(precision, batch.src.device), sdpa_for_sentences():
        loss = forward(batch, is_last=is_last)
    torch.autograd.backward(loss.smoothed)
    return Loss(loss.smoothed.detach(), loss.nll)


def _accumulate(batches: Iterator[Batch], one_pass: ForwardPass) -> LossSums:
    """Add the gradients of all batches to the weights; return the sums."""
    smoothed: Tensor | float = 0.0
    nll: Tensor | float = 0.0
    num_tgt_tokens, batch = 0, next(batches, None)
    while batch is not None:
        following = next(batches, None)
        with reraise_out_of_memory(batch):
            loss = one_pass(batch, is_last=following is None)
        smoothed, nll = smoothed + loss.smoothed, nll + loss.nll
        num_tgt_tokens += batch.num_tgt_tokens
        batch = following
    return LossSums(float(smoothed), float(nll), num_tgt_tokens)


def squared_norm(weights: Iterable[Tensor]) -> float:
    """Return the sum of the squares of all gradients."""
    gradients = [weight.grad for weight in weights if weight.grad is not None]
    return float(torch.nn.utils.get_total_norm(gradients)) ** 2


def step_metrics(sums: LossSums, squared_norm: float) -> StepMetrics:
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
        gradients = [weight.grad for weight in group["params"] if weight.grad is not None]
        if gradients:
            torch._foreach_mul_(gradients, scale)  # on a GPU, few kernels for all
    optimizer.step()


def measure_nll(
    model: Transformer, batches: Iterable[Batch], *, precision: TrainingPrecision
) -> dict[str, float]:
    """Return the negative log-likelihood per target token, in nats, and its exponential, the perplexity.

    Neither is smoothed, and every token counts the same, whichever batch it is in.
    """
    device = next(model.parameters()).device
    total, num_tokens = 0.0, 0
    model.eval()
    with torch.no_grad(), autocast(precision, device), float32_matmul_precision(precision, device):
        for batch in batches:
            total += _nll_of(model, batch.to(device))
            num_tokens += batch.num_tgt_tokens
    nll = total / num_tokens
    return {"nll": nll, "perplexity": math.exp(min(nll, 700.0))}  # float64 ends soon after


def _nll_of(model: Transformer, batch: Batch) -> float:
    """Return the sum over a batch, which is split in two if it does not fit into memory."""
    try:
        with reraise_out_of_memory(batch):
            return _nll_in_one_pass(model, batch)
    except OutOfMemoryError:
        pass  # outside the except block, where the activations are freed
    halves = halve_batches(lambda: iter([batch]), like=batch, pad_id=model.config.tgt_pad_id)
    return sum(_nll_of(model, half) for half in halves())


def _nll_in_one_pass(model: Transformer, batch: Batch) -> float:
    pad_id, total = model.config.tgt_pad_id, 0.0
    states = model.decoder(batch.tgt_in, model.encode(batch.src))
    real = batch.tgt_out != pad_id
    parts, tgt_parts = (torch.split(rows[real], _VALIDATED_ROWS) for rows in (states, batch.tgt_out))
    for chunk, targets in zip(parts, tgt_parts, strict=True):  # all at once may need more than a step
        logits = model.project(chunk)
        total += float(smoothed_cross_entropy(logits, targets, smoothing=0.0, pad_id=pad_id).nll)
    return total


class OutOfMemoryError(Exception):
    """Memory is too small for a step with this batch."""

    def __init__(self, batch: Batch) -> None:
        super().__init__("memory is too small for a batch")
        self.batch = batch


@contextmanager
def reraise_out_of_memory(batch: Batch) -> Iterator[None]:
    """Raise all of torch's out-of-memory errors inside the block as one class."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemoryError(batch) from None


def halve_batches(batches: Batches, *, like: Batch, pad_id: int) -> Batches:
    """Return the same rows, with every batch split in two that is at least as large as `like`."""
    if len(like) == 1:
        raise TrainingError(
            f"memory is too small for one pair of {like.src.shape[1]} and {like.tgt_out.shape[1]} tokens; "
            "lower data.max_length, or take a smaller model"
        )
    if torch.cuda.is_available():
        torch.cuda.empty_cache()  # free memory may be fragmented
    size = _size(like)

    def halved() -> Iterator[Batch]:
        for batch in batches():
            if _size(batch) >= size and len(batch) > 1:
                yield from _halves(batch, pad_id)
            else:
                yield batch

    return halved


def _size(batch: Batch) -> int:
    return batch.src.numel() + batch.tgt_out.numel()


def _halves(batch: Batch, pad_id: int) -> Iterator[Batch]:
    middle = (len(batch) + 1) // 2
    for rows in (slice(middle), slice(middle, None)):
        tgt_out = batch.tgt_out[rows]
        yield Batch(batch.src[rows], batch.tgt_in[rows], tgt_out, int((tgt_out != pad_id).sum()))
