"""A learning rate by a range test: a few steps at several rates, and the loss after each.

A rate that is too low learns nothing in a short run, and one that is too high destroys what the model knows.
Where the border is depends on the model: on its size, its norms, the scale of its weights, the batch, and
whether adapters or all weights are trained. So a few steps are taken at several rates, always from the same
weights, and the losses on other text are compared. Neighbouring rates are a factor of √10 apart. Smith
("Cyclical learning rates", 2017) raises the rate within one run; here no rate sees the damage of the one
before.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from heedful.data.batches import Batch, BatchSource
from heedful.training.optimizer import build_optimizer, trained_weights
from heedful.training.parallel.choice import process_group_size
from heedful.training.parallel.process_group import Rank
from heedful.training.step import measure_nll, train_step

NUM_STEPS = 10  # at each rate: after 4, neighbouring rates were not yet in order (docs/log.md)
_FIRST = -4.0  # 1e-4, where the search begins
_LOWEST, _HIGHEST = -7.0, -1.0
_STEP = 0.5  # from one exponent to the next: 10**0.5 is the factor between two rates
_RATES = 5  # that a search usually tests
_SHARE = 0.1  # of a run that its range test may take
_LEAST_SECONDS = 5.0  # that it may take in a short run
_MOST_MICRO_BATCHES = 8  # of a step; more change its direction little, and its time much
_MEASURED_TOKENS = 8192  # target tokens of the text that the loss is measured on


@dataclass(frozen=True)
class TestedRate:
    """A learning rate, and the losses after a few steps at it.

    `nll` is measured on the validation text after them, `training_nll` on the last step's text before its
    update; both are per target token, in nats.
    """

    rate: float
    nll: float
    training_nll: float


@dataclass(frozen=True)
class RangeTest:
    """The result of a range test.

    `before` is the nll of the model as it is; `tested` has all rates in ascending order.
    """

    before: float
    tested: tuple[TestedRate, ...]
    num_steps: int
    seconds: float

    @property
    def rate(self) -> float:
        """The rate with the lowest loss; of several, the lowest one."""
        return min(self.tested, key=lambda each: each.nll).rate

    def __str__(self) -> str:
        if all(each.nll >= self.before for each in self.tested):
            return f"no rate lowers the nll of {self.before:.3f} in {self.num_steps} steps; {self.rate:.1e}"
        after = ", ".join(f"{each.nll:.3f} at {each.rate:.1e}" for each in self.tested)
        return (
            f"{self.rate:.1e}; nll {self.before:.3f}, and after {self.num_steps} steps {after}; took "
            f"{self.seconds:.0f} s"
        )


def range_test(
    rank: Rank,
    valid_source: BatchSource,
    *,
    num_steps: int = NUM_STEPS,
    is_limited: bool = False,
    notify: Callable[[str], None] = lambda _: None,
) -> RangeTest:
    """Return the best of several learning rates for the first steps; no weight and no random state changes.

    The search begins at 1e-4 and goes to the better neighbour until both are worse, or the time is over.

    Args:
        rank: the model, its batches and its settings.
        valid_source: the text that losses are measured on.
        num_steps: steps at each rate.
        is_limited: whether to take at most a tenth of the time of the run, with fewer steps and rates.
        notify: called with how long it will take.
    """
    started = time.monotonic()
    model, config, precision = rank.model, rank.config, rank.execution.precision
    trained = [*trained_weights(model).values()]
    before = [weight.detach().clone() for weight in trained]
    steps = _steps(rank.source, min(config.batch.accumulation, _MOST_MICRO_BATCHES), num_steps)
    measured, limit = _measured(valid_source), math.inf

    def after_steps(exponent: float, steps: Sequence[Sequence[Batch]]) -> TestedRate:
        optimizer = build_optimizer(model, config.optimizer, precision=precision)
        torch.manual_seed(config.train.seed)
        rate, training_nll = 10.0**exponent, math.inf
        for micro_batches in steps:
            training_nll = train_step(
                model,
                optimizer,
                micro_batches,
                config=config,
                learning_rate=rate,
                precision=precision,
                forward=rank.forward,
            ).nll
        nll = measure_nll(model, measured, precision=precision)["nll"]
        with torch.no_grad():
            torch._foreach_copy_(trained, before)
        return TestedRate(rate, _or_infinite(nll), _or_infinite(training_nll))

    with torch.random.fork_rng(), rank.execution.eagerly():
        nll = measure_nll(model, measured, precision=precision)["nll"]
        measuring = time.monotonic() - started
        after_steps(_FIRST, steps[:1])
        a_step = max(time.monotonic() - started - 2 * measuring, 1e-6)
        if is_limited:
            limit = _seconds_for(rank, a_step / len(steps[0]))
            left = limit - (time.monotonic() - started)
            steps = steps[: max(1, int((left / _RATES - measuring) / a_step))]
        a_rate = len(steps) * a_step + measuring
        notify(f"testing about {_RATES} learning rates, {len(steps)} steps each: {_RATES * a_rate:.0f} s")
        tested = {_FIRST: after_steps(_FIRST, steps)}
        best = _FIRST
        for direction in (-_STEP, _STEP):
            while _LOWEST <= (following := best + direction) <= _HIGHEST and following not in tested:
                if time.monotonic() - started + a_rate > limit:
                    break
                tested[following] = after_steps(following, steps)
                if tested[following].nll >= tested[best].nll:
                    break
                best = following
    model.train()
    in_order = tuple(tested[exponent] for exponent in sorted(tested))
    return RangeTest(nll, in_order, len(steps), time.monotonic() - started)


def _seconds_for(rank: Rank, a_micro_batch: float) -> float:
    """Return the seconds that the test may take: a tenth of the run, by the time of a micro-batch here."""
    config = rank.config
    train, accumulation = config.train, config.batch.accumulation
    num_processes, _ = process_group_size(config, rank.model)
    epoch_steps = len(rank.source.plan(0)) / accumulation
    steps = min(train.max_steps or math.inf, (train.max_epochs or math.inf) * epoch_steps)
    by_steps = steps * accumulation * a_micro_batch / num_processes
    return max(_LEAST_SECONDS, _SHARE * min(60.0 * (train.max_minutes or math.inf), by_steps))


def _steps(source: BatchSource, accumulation: int, num_steps: int) -> list[list[Batch]]:
    """Return the micro-batches of the first steps; a short text is passed several times."""
    number = num_steps * accumulation
    batches = list(islice(source.batches(epoch=0), number))
    batches = [batches[i % len(batches)] for i in range(number)]
    return [batches[i : i + accumulation] for i in range(0, number, accumulation)]


def _or_infinite(nll: float) -> float:
    return nll if math.isfinite(nll) else math.inf


def _measured(source: BatchSource) -> list[Batch]:
    batches, num_tokens = [], 0
    for batch in source.batches(epoch=0):
        batches.append(batch)
        num_tokens += batch.num_tgt_tokens
        if num_tokens >= _MEASURED_TOKENS:
            break
    return batches
