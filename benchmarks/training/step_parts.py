"""Time the parts of a training step: data, forward, backward, optimiser, in one process with its own rows.

    python benchmarks/training/step_parts.py --preset base --set batch.tokens=2048
    python benchmarks/training/step_parts.py --preset small --src train.en --tgt train.de

The steps are those of `heedful bench train`, which measures the speed of all processes together.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from statistics import fmean

import torch

from heedful.runs.training_speed import prepared_for_steps, step_plans
from heedful.runtime.threads import using_threads
from heedful.settings.loading import load_config, parse_override
from heedful.training.averaging import MovingAverage
from heedful.training.execution import autocast, float32_matmul_precision
from heedful.training.optimizer import build_optimizer, optimizer_of_shard
from heedful.training.parallel.choice import process_group_size
from heedful.training.parallel.process_group import PlannedBatches, Rank, StepPlan
from heedful.training.parallel.shared_memory import partition_weights
from heedful.training.profiling import finish
from heedful.training.step import (
    LossSums,
    apply_gradients,
    batch_loss,
    gradient_scale,
    squared_norm,
    step_metrics,
)


@dataclass(frozen=True)
class StepParts:
    """Seconds of a step that one process spends on its rows."""

    data: float
    forward: float
    backward: float
    optimizer: float


def time_parts(
    rank: Rank,
    plans: Sequence[StepPlan],
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
    *,
    threads: int,
) -> Iterator[StepParts]:
    """Take steps with one rank's rows and yield the time of each part.

    The functions are those of training, but other ranks are idle and their gradients are not added. The
    gradient of the loss is part of `forward`. `optimizer` is the norm, the update and the moving average of
    the rank's shard of the weights.

    Args:
        rank: the weights of its model change.
        plans: of the steps.
        optimizer: over all trained weights, with state.
        average: the moving average, or None.
        threads: of the process.
    """
    model, config = rank.model, rank.config
    device = next(model.parameters()).device
    trained = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
    own = partition_weights(trained, optimizer, rank.size)[rank.index]
    part = optimizer_of_shard(optimizer, list(own.values()))
    model.train()
    for plan in plans:
        with using_threads(threads), float32_matmul_precision(rank.execution.precision, device):
            watch, sums = _Stopwatch(device), LossSums()
            for batch in PlannedBatches(rank, plan):
                on_device = batch.to(device)
                watch.lap("data")
                with autocast(rank.execution.precision, device):
                    loss = batch_loss(model, on_device, config.train)
                watch.lap("forward")
                torch.autograd.backward(loss.smoothed)
                watch.lap("backward")
                sums += LossSums(float(loss.smoothed.detach()), float(loss.nll), batch.num_tgt_tokens)
            metrics = step_metrics(sums, squared_norm(own.values()))
            scale = gradient_scale(metrics, config.optimizer.clip_norm)
            apply_gradients(part, scale=scale, learning_rate=plan.learning_rate)
            if average is not None:
                average.update(own, plan.step)
            model.zero_grad(set_to_none=True)
            watch.lap("optimizer")
        yield StepParts(**watch.seconds)


class _Stopwatch:
    """Adds the time since the last lap to a part."""

    def __init__(self, device: torch.device) -> None:
        self.seconds: dict[str, float] = {}
        self._device = device
        self._last = time.perf_counter()

    def lap(self, part: str) -> None:
        finish(self._device)
        now = time.perf_counter()
        self.seconds[part] = self.seconds.get(part, 0.0) + now - self._last
        self._last = now


def main() -> None:
    """Time the steps of a preset, and print the mean of each part."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preset", default="base")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--src", help="training text; by default random sentences")
    parser.add_argument("--tgt")
    parser.add_argument("--steps", type=int, default=4, help="after one to warm up")
    given = parser.parse_args()
    overrides = [("data.src", given.src), ("data.tgt", given.tgt)] if given.src else []
    overrides += [parse_override(setting) for setting in given.set]
    with tempfile.TemporaryDirectory(prefix="heedful-parts-") as folder:
        run, _ = prepared_for_steps(load_config(preset=given.preset, overrides=overrides), Path(folder))
        processes, threads = process_group_size(run.config, run.model)
        optimizer = build_optimizer(run.model, run.config.optimizer, precision=run.execution.precision)
        decay = run.config.train.ema_decay
        average = MovingAverage(run.model, decay) if decay else None
        rank = Rank(run.model, run.source, run.config, run.execution, size=processes)
        plans = list(islice(step_plans(run), 1 + given.steps))
        _, *timed = (asdict(each) for each in time_parts(rank, plans, optimizer, average, threads=threads))
    means = {name: fmean(parts[name] for parts in timed) for name in timed[0]}
    print(f"{given.preset}, one of {processes} processes with {threads} threads")
    for name, seconds in means.items():
        print(f"  {name:<9} {seconds * 1e3:9,.1f} ms {seconds / sum(means.values()):6.1%}")


if __name__ == "__main__":
    main()
