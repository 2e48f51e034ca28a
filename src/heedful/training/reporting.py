"""Build training events."""

from collections.abc import Sequence

import torch

from heedful.config import Config
from heedful.model import Transformer
from heedful.training.events import StartEvent, StepEvent
from heedful.training.precision import Precision
from heedful.training.step import StepMetrics
from heedful.training.trained_weights import num_trained


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
