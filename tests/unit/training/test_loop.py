"""The loop around the steps, over batches and validators made by hand. Whole runs: tests/e2e."""

import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from small_models import assert_same_weights
from tolerances import FLOAT32, FLOAT64, assert_close, close
from trainer_worlds import EPOCH_LENGTH, World, make

from heedful.data.batches import Batch
from heedful.errors import CheckpointError, Terminated, TrainingError
from heedful.model.transformer import Transformer
from heedful.runtime.threads import using_threads
from heedful.training.checkpoint import latest_checkpoint, list_checkpoints
from heedful.training.events import (
    CheckpointEvent,
    EndEvent,
    Event,
    NoticeEvent,
    StepEvent,
    ValidationEvent,
    WarningEvent,
)
from heedful.training.schedule import learning_rate

pytestmark = pytest.mark.by_class


@pytest.mark.parametrize(
    "schedule",
    [{}, {"name": "linear", "peak": 1e-2}, {"name": "cosine", "peak": 1e-2, "decay_fraction": 0.5}],
)
def test_the_logged_rates_are_the_schedules_and_the_weights_follow_them(
    tmp_path: Path, schedule: dict[str, Any]
) -> None:
    world = make(tmp_path, schedule=schedule)
    used: list[float] = []
    optimizer = world.trainer.optimizer
    inner = optimizer.step

    def step() -> None:
        used.append(optimizer.param_groups[0]["lr"])
        inner()

    optimizer.step = step  # type: ignore[method-assign, assignment]
    world.trainer.fit()
    config = world.trainer.config
    wanted = [
        learning_rate(config.schedule, step, d_model=config.model.d_model, progress=(step - 1) / 12)
        for step in range(1, 13)
    ]
    assert used == close(wanted, FLOAT64.ROW)
    assert [event.learning_rate for event in world.of(StepEvent)] == close(wanted, FLOAT64.ROW)
    assert len(set(wanted)) > 6


def test_a_schedule_of_the_users_gives_the_rates_and_no_warm_up_is_announced(tmp_path: Path) -> None:
    world = make(tmp_path, rates=lambda step, done: 0.01 / step + done)
    assert world.trainer.fit().step == 12
    rates = [event.learning_rate for event in world.of(StepEvent)]
    assert rates == close([0.01 / step + (step - 1) / 12 for step in range(1, 13)], FLOAT64.ROW)
    assert not any("warm-up" in event.message for event in world.of(NoticeEvent))


def test_every_batch_of_an_epoch_is_taken_once_and_epochs_follow_each_other(tmp_path: Path) -> None:
    world = make(tmp_path)
    end = world.trainer.fit()
    assert world.source.taken == [(0, n) for n in range(5)] + [(1, n) for n in range(5)] + [(2, 0), (2, 1)]
    assert (end.reason, end.step) == ("reached the limit of 12 steps", 12)


@pytest.mark.parametrize(("accumulation", "steps"), [(1, 10), (2, 5), (3, 4)])
def test_epochs_end_with_their_last_batch_even_inside_an_accumulation(
    tmp_path: Path, accumulation: int, steps: int
) -> None:
    limits = {"max_steps": None, "max_epochs": 2, "processes": 1}
    world = make(tmp_path, train=limits, batch={"accumulation": accumulation})
    end = world.trainer.fit()
    assert world.source.taken == [(0, n) for n in range(5)] + [(1, n) for n in range(5)]
    assert (end.reason, end.step) == (f"reached the limit of 2 epochs after {steps} steps", steps)


def test_minutes_end_a_run_with_validation_and_a_bundle(tmp_path: Path) -> None:
    limits = {"max_steps": None, "max_minutes": 0.005}
    world = make(tmp_path, train=limits, valid={"every_fraction": 1.0})
    end = world.trainer.fit()
    assert end.reason == f"reached the limit of 0.3 seconds after {end.step} steps"
    assert end.step >= 1
    assert len(world.of(ValidationEvent)) == 1
    assert [name for name, _ in world.kept] == ["best", "last"]
    assert isinstance(world.events[-1], EndEvent)


@pytest.mark.representatives(3)
@pytest.mark.parametrize("taken", [2, 4, 5, 6])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_a_run_between_micro_batches_and_the_run_goes_on_from_the_step_before(
    tmp_path: Path, how: signal.Signals, taken: int
) -> None:
    """Steps of three micro-batches; the signal comes while the batch of this number is made."""
    settings: dict[str, Any] = {"train": {"max_steps": 4}, "batch": {"accumulation": 3}}
    whole = make(tmp_path / "whole", **settings)
    whole.trainer.fit()
    world = make(tmp_path / "ended", **settings)
    after_each_batch(world, lambda: len(world.source.taken) == taken and signal.raise_signal(how))
    with pytest.raises(Terminated if how == signal.SIGTERM else KeyboardInterrupt):
        world.trainer.fit()
    assert len(world.source.taken) <= taken + 1  # of which one is made ahead
    (checkpoint,) = list_checkpoints(tmp_path / "ended" / "checkpoints")
    assert checkpoint.name == f"step-{taken // 3 if taken != 5 else 1}"
    resumed = make(tmp_path / "ended", **settings)
    resumed.trainer.resume(checkpoint)
    resumed.trainer.fit()
    assert_same_weights(resumed.trainer.model, whole.trainer.model)


@pytest.mark.parametrize(("minutes", "steps"), [(5.5, 2), (5.0, 2), (4.5, 2), (2.9, 1)])
def test_minutes_end_a_run_inside_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, minutes: float, steps: int
) -> None:
    """Steps of four micro-batches of half a minute."""
    clock = Clock(monkeypatch)
    limits = {"max_steps": None, "max_minutes": minutes, "average_checkpoints": 1}
    world = make(tmp_path, train=limits, batch={"accumulation": 4}, valid={"every_fraction": 1.0})
    after_each_batch(world, lambda: clock.wait(30.0))
    end = world.trainer.fit()
    assert end.reason == f"reached the limit of {minutes:g} minutes after {steps} step{'s' * (steps > 1)}"
    assert end.epoch == 4 * steps // EPOCH_LENGTH
    assert world.trainer.run.progress.next_batch == 4 * steps % EPOCH_LENGTH
    assert clock.now - 1000.0 <= 60.0 * minutes + 30.0
    assert [name for name, _ in world.kept] == ["best", "last"]


def test_minutes_in_which_no_step_fits_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written: weights that no step has changed are not a model."""
    clock = Clock(monkeypatch)
    limits = {"max_steps": None, "max_minutes": 1.0}
    world = make(tmp_path, train=limits, batch={"accumulation": 1_000_000})
    after_each_batch(world, lambda: clock.wait(30.0))
    with pytest.raises(
        TrainingError, match=r"no step .* train\.max_minutes=1; .* batch\.accumulation=1000000"
    ):
        world.trainer.fit()
    assert len(world.source.taken) <= 3
    assert world.kept == list_checkpoints(tmp_path / "checkpoints") == []
    (warning,) = world.of(WarningEvent)
    assert warning.message.startswith("each step passes the training text 200,000 times")


def after_each_batch(world: World, act: Callable[[], object]) -> None:
    """Act when the trainer has made a batch."""
    make_batch = world.source.batch

    def batch(indices: list[int], epoch: int) -> Batch:
        made = make_batch(indices, epoch)
        act()
        return made

    world.source.batch = batch  # type: ignore[method-assign]


def test_the_best_model_is_kept_and_lack_of_progress_ends_the_run(tmp_path: Path) -> None:
    values = [3.0, 2.0, 2.5, 2.0, 1.0, 0.5]
    world = make(tmp_path, values=values, train={"max_steps": 100}, valid={"every_steps": 3, "patience": 2})
    end = world.trainer.fit()
    assert [event.is_best for event in world.of(ValidationEvent)] == [True, True, False, False]
    assert (end.step, end.best_step) == (12, 6)
    assert end.reason == "2 validations without a better nll after 12 steps"
    assert [name for name, _ in world.kept] == ["best", "best", "last"]


def test_of_equal_scores_the_lower_nll_is_better(tmp_path: Path) -> None:
    scores = [(3.0, 0.0), (2.0, 0.0), (2.5, 0.0), (1.5, 0.0), (9.0, 1.0), (1.0, 0.5), (1.0, 1.0)]
    valid = {"every_steps": 1, "metric": "bleu", "decode_sentences": 1, "patience": 2}
    world = make(tmp_path, train={"max_steps": len(scores)}, valid=valid)
    values = iter(scores)
    validators = [lambda _: dict(zip(("nll", "bleu"), next(values), strict=True))]
    world.trainer.run.callbacks = replace(world.trainer.run.callbacks, validators=validators)
    assert world.trainer.fit().best_step == 7
    assert [each.is_best for each in world.of(ValidationEvent)] == [
        True,
        True,
        False,
        True,
        True,
        False,
        True,
    ]


@pytest.mark.parametrize("ema_decay", [0.0, 0.9])
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, ema_decay: float) -> None:
    """Stopped in the middle of an epoch and between two validations; dropout needs the generators."""
    train = {"checkpoint_every_steps": 7, "ema_decay": ema_decay, "max_steps": 17}
    sections = {"train": train, "valid": {"every_steps": 3}, "batch": {"accumulation": 2}}
    whole = make(tmp_path / "whole", **sections)
    whole.trainer.fit()
    stopped = make(tmp_path / "parts", **sections | {"train": train | {"max_steps": 7}})
    stopped.trainer.fit()
    resumed = make(tmp_path / "parts", seed=2, **sections)
    resumed.trainer.resume(tmp_path / "parts" / "checkpoints" / "step-7")
    resumed.trainer.fit()
    assert_same_weights(resumed.trainer.model, whole.trainer.model)
    losses = {event.step: event.loss for event in whole.of(StepEvent)}
    assert {event.step: event.loss for event in resumed.of(StepEvent)} == {
        step: loss for step, loss in losses.items() if step > 7
    }
    last, wanted = resumed.kept[-1][1], whole.kept[-1][1]
    assert all(torch.equal(weight, wanted[name]) for name, weight in last.items())


@pytest.mark.parametrize("threads", [1, 2])
def test_resuming_with_other_threads_warns_and_works(tmp_path: Path, threads: int) -> None:
    with using_threads(1):
        make(tmp_path, train={"max_steps": 7}).trainer.fit()
    resumed = make(tmp_path)
    resumed.trainer.resume(tmp_path / "checkpoints" / "step-7")
    with using_threads(threads):
        assert resumed.trainer.fit().step == 12
    warnings = [event.message for event in resumed.of(WarningEvent)]
    assert len(warnings) == threads - 1
    if warnings:
        assert "after 1 process of 1 thread" in warnings[0]
        assert "resuming with 1 process of 2 threads" in warnings[0]


def test_a_checkpoint_without_computed_by_causes_no_warning(tmp_path: Path) -> None:
    make(tmp_path, train={"max_steps": 7}).trainer.fit()
    resumed = make(tmp_path)
    resumed.trainer.resume(tmp_path / "checkpoints" / "step-7")
    resumed.trainer.run.progress.computed_by = ""
    resumed.trainer.fit()
    assert not resumed.of(WarningEvent)


def test_the_moving_average_is_validated_and_saved(tmp_path: Path) -> None:
    world = make(tmp_path, train={"ema_decay": 0.9})
    world.trainer.fit()
    assert world.trainer.average is not None
    name, kept = world.kept[-1]
    assert name == "last"
    for weight_name, weight in world.trainer.average.weights.items():
        assert torch.equal(kept[weight_name], weight)
    assert not torch.equal(kept["encoder.embedding.tokens.weight"], world.trainer.model.output.weight)


def test_the_mean_of_the_last_checkpoints_is_what_is_kept_at_the_end(tmp_path: Path) -> None:
    """6.1."""
    train = {"checkpoint_every_steps": 3, "average_checkpoints": 3, "keep_checkpoints": 3}
    world = make(tmp_path, train=train)
    weights: dict[int, torch.Tensor] = {}
    inner = world.trainer.optimizer.step

    def step() -> None:
        inner()
        weights[len(weights) + 1] = world.trainer.model.output.weight.detach().clone()

    world.trainer.optimizer.step = step  # type: ignore[method-assign, assignment]
    world.trainer.fit()
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")] == [
        "step-6",
        "step-9",
        "step-12",
    ]
    wanted = torch.stack([weights[number] for number in (6, 9, 12)]).mean(0)
    assert_close(world.kept[-1][1]["encoder.embedding.tokens.weight"], wanted, FLOAT32.ELEMENT)
    assert torch.equal(world.trainer.model.output.weight, weights[12])


TEN_MINUTES = {"max_steps": None, "max_minutes": 10.0, "processes": 1}


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr("heedful.training.state.time", SimpleNamespace(monotonic=lambda: self.now))

    def wait(self, seconds: float) -> None:
        """Let so much time pass."""
        self.now += seconds

    def pace(self, world: World, *, step: float, validation: float = 0.0, killed_at: int = 0) -> None:
        """Let each step and each validation take so long; the step `killed_at` ends the program."""
        inner, (validate,) = world.trainer.optimizer.step, world.trainer.run.callbacks.validators

        def paced_step() -> None:
            if world.trainer.run.progress.step == killed_at:
                raise SystemExit
            self.now += step
            inner()

        def paced_validator(model: Transformer) -> dict[str, float]:
            self.now += validation
            return validate(model)

        world.trainer.optimizer.step = paced_step  # type: ignore[method-assign, assignment]
        object.__setattr__(world.trainer.run.callbacks, "validators", [paced_validator])


def steps_of(world: World, kind: type[Event]) -> list[int]:
    return [event.step for event in world.of(kind)]


def test_a_run_of_minutes_validates_and_saves_at_each_tenth_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step takes ten seconds, a tenth of the run six steps; there are fewer than `valid.every_steps`."""
    clock, world = Clock(monkeypatch), make(tmp_path, train=TEN_MINUTES)
    clock.pace(world, step=10.0)
    assert world.trainer.fit().step == 60
    tenths = list(range(6, 61, 6))
    assert steps_of(world, ValidationEvent) == tenths
    assert steps_of(world, CheckpointEvent) == tenths


def test_a_validation_that_takes_longer_than_a_fraction_is_not_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, world = Clock(monkeypatch), make(tmp_path, train=TEN_MINUTES)
    clock.pace(world, step=10.0, validation=70.0)
    world.trainer.fit()
    begun = [event.seconds - 70.0 for event in world.of(ValidationEvent)]
    assert begun == [60.0, 180.0, 300.0, 420.0, 540.0]


def test_patience_counts_the_validations_by_the_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    world = make(tmp_path, values=[3.0, 2.0, 2.5, 2.5, 1.0], train=TEN_MINUTES, valid={"patience": 2})
    clock.pace(world, step=10.0)
    end = world.trainer.fit()
    assert (end.step, end.best_step) == (24, 12)
    assert end.reason == "2 validations without a better nll after 24 steps"


@pytest.mark.representatives(1)
@pytest.mark.parametrize("killed_at", [15, 18, 19])
def test_a_resumed_run_of_minutes_repeats_no_validation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    """Killed between two tenths, before the step that ends the third, and after it."""
    clock, killed = Clock(monkeypatch), make(tmp_path, train=TEN_MINUTES)
    clock.pace(killed, step=10.0, killed_at=killed_at)
    with pytest.raises(SystemExit):
        killed.trainer.fit()
    resumed = make(tmp_path, train=TEN_MINUTES)
    clock.pace(resumed, step=10.0)
    newest = latest_checkpoint(tmp_path / "checkpoints")
    assert newest is not None
    resumed.trainer.resume(newest)
    assert resumed.trainer.fit().step == 60
    assert steps_of(killed, ValidationEvent) + steps_of(resumed, ValidationEvent) == list(range(6, 61, 6))


def test_the_mean_of_a_run_of_minutes_is_over_its_last_fractions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checkpoints for safety, each 100 seconds after the last checkpoint, have no part in it."""
    train = {"average_checkpoints": 3, "keep_checkpoints": 3, "checkpoint_every_minutes": 100.0 / 60.0}
    clock = Clock(monkeypatch)
    world = make(tmp_path, train=TEN_MINUTES | train, valid={"every_fraction": 0.25})
    clock.pace(world, step=10.0)
    weights: dict[int, torch.Tensor] = {}
    inner = world.trainer.optimizer.step

    def step() -> None:
        inner()
        weights[len(weights) + 1] = world.trainer.model.output.weight.detach().clone()

    world.trainer.optimizer.step = step  # type: ignore[method-assign, assignment]
    world.trainer.fit()
    assert steps_of(world, CheckpointEvent) == [10, 15, 25, 30, 40, 45, 55, 60]
    assert [path.name for path in list_checkpoints(tmp_path / "checkpoints")] == [
        "step-30",
        "step-45",
        "step-55",
        "step-60",
    ]
    wanted = torch.stack([weights[number] for number in (30, 45, 60)]).mean(0)
    assert_close(world.kept[-1][1]["encoder.embedding.tokens.weight"], wanted, FLOAT32.ELEMENT)


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_bf16_on_a_cpu_that_emulates_it_is_one_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, precision: str
) -> None:
    cost = {torch.bfloat16: 2.0, torch.float32: 1.0}
    monkeypatch.setattr("heedful.training.execution.why_no_bf16", lambda: "no instructions")
    monkeypatch.setattr("heedful.training.execution._time_matmul", cost.get)
    world = make(tmp_path, train={"max_steps": 3, "precision": precision})
    world.trainer.fit()
    warnings = [event.message for event in world.of(WarningEvent)]
    assert len(warnings) == (precision == "bf16")
    assert all("no instructions: a matrix multiplication takes 2.0 times" in warning for warning in warnings)


SHARES = {"name": "linear", "peak": 0.01, "warmup_fraction": 0.25, "decay_fraction": 0.5}


def rates_of(world: World) -> list[float]:
    """Return the list that the rates of the optimiser's steps are added to."""
    used: list[float] = []
    inner, optimizer = world.trainer.optimizer.step, world.trainer.optimizer

    def step() -> None:
        used.append(optimizer.param_groups[0]["lr"])
        inner()

    world.trainer.optimizer.step = step  # type: ignore[method-assign, assignment]
    return used


@pytest.mark.parametrize("seconds", [20.0, 50.0])
def test_a_run_of_minutes_warms_up_over_its_share_however_slow_the_steps_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    clock, world = (
        Clock(monkeypatch),
        make(tmp_path, train=TEN_MINUTES, schedule=SHARES | {"warmup_steps": 0}),
    )
    clock.pace(world, step=seconds)
    used = rates_of(world)
    world.trainer.fit()
    progress = [number * seconds / 600.0 for number in range(len(used))]
    assert len(used) == 600.0 / seconds
    assert used == close(
        [0.01 * max(0.001, min(1.0, 4 * done, 2 * (1 - done))) for done in progress], FLOAT64.ROW
    )
    assert used[0] > 0.0


def test_a_run_that_is_resumed_with_more_minutes_has_the_rate_of_its_new_share(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, schedule = Clock(monkeypatch), SHARES | {"warmup_steps": 0}
    first = make(tmp_path, train=TEN_MINUTES, schedule=schedule)
    clock.pace(first, step=50.0)
    first.trainer.fit()
    longer = make(tmp_path, train=TEN_MINUTES | {"max_minutes": 50.0}, schedule=schedule)
    clock.pace(longer, step=50.0)
    used = rates_of(longer)
    newest = latest_checkpoint(tmp_path / "checkpoints")
    assert newest is not None
    longer.trainer.resume(newest)
    longer.trainer.fit()
    assert used[:2] == close(
        [0.01 * 4 * 0.2, 0.01 * 4 * 650 / 3000], FLOAT64.ROW
    )  # a fifth of the run is done
    assert max(used) == close(0.01, FLOAT64.ELEMENT)


def test_the_validation_of_a_base_model_is_no_part_of_the_minutes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the warm-up of a model to adapt would be over before its first step."""
    clock = Clock(monkeypatch)
    world = make(
        tmp_path, train=TEN_MINUTES | {"init": "base"}, schedule=SHARES | {"warmup_steps": 0},
        valid={"every_fraction": 1.0},
    )  # fmt: skip
    clock.pace(world, step=50.0, validation=200.0)
    used = rates_of(world)
    end = world.trainer.fit()
    assert [event.step for event in world.of(ValidationEvent)] == [0, 12]
    assert world.trainer._steps.validation_seconds == 200.0
    assert used[0] == close(0.01 * 0.001, FLOAT64.ELEMENT)
    assert end.step == 12


def lines_of(world: World) -> list[tuple[str, int]]:
    kinds = (NoticeEvent, StepEvent)
    return [(event.kind, event.step) for event in world.events if isinstance(event, kinds)]


def test_slow_steps_are_shown_from_the_first_on_and_after_half_a_minute_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    world = make(
        tmp_path,
        train=TEN_MINUTES | {"max_minutes": 2.4, "log_every_steps": 8},
        valid={"every_fraction": 1.0},
    )
    clock.pace(world, step=12.0)
    world.trainer.fit()
    assert lines_of(world)[:6] == [
        ("notice", 1), ("progress", 1), ("progress", 4), ("progress", 7), ("step", 8), ("progress", 11),
    ]  # fmt: skip
    [notice] = world.of(NoticeEvent)
    assert notice.message.startswith("about 12 steps (2.4 epochs) of 12 s fit into 2.4 minutes; warm-up: ")


def test_quick_steps_are_shown_after_the_fifth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    world = make(tmp_path, train={"log_every_steps": 8})
    clock.pace(world, step=0.01)
    world.trainer.fit()
    assert lines_of(world) == [("notice", 5), ("progress", 5), ("step", 8), ("step", 12)]


def test_lines_between_are_means_and_change_no_logged_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    worlds = [make(tmp_path / str(seconds), train={"log_every_steps": 6}) for seconds in (0, 40)]
    for world, seconds in zip(worlds, (0.01, 40.0), strict=True):
        clock.pace(world, step=seconds)
        world.trainer.fit()
    quick, slow = ([event for event in world.events if event.kind == "step"] for world in worlds)
    assert [event.loss for event in quick] == [event.loss for event in slow]  # type: ignore[attr-defined]


def test_a_run_that_was_too_short_says_so_at_its_end(tmp_path: Path) -> None:
    short, long = (make(tmp_path / str(steps), train={"max_steps": steps}) for steps in (3, 12))
    assert short.trainer.fit().warning == (
        "training ended inside its warm-up and saw 60% of its text; raise train.max_steps, or lower "
        "schedule.warmup_steps"
    )
    assert long.trainer.fit().warning == ""


def test_a_checkpoint_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    world = make(tmp_path)
    world.trainer.fit()
    other = make(tmp_path)
    object.__setattr__(other.trainer.run.callbacks, "fingerprint", "other")
    with pytest.raises(CheckpointError, match="belongs to other data"):
        other.trainer.resume(tmp_path / "checkpoints" / "step-12")


@pytest.mark.parametrize("nll", [float("nan"), float("inf")])
def test_a_run_that_ends_with_a_loss_that_is_not_finite_keeps_nothing(tmp_path: Path, nll: float) -> None:
    world = make(tmp_path, values=[nll], train={"max_steps": 2})
    with pytest.raises(TrainingError) as caught:
        world.trainer.fit()
    assert str(caught.value) == (
        "step 2: the loss is not finite; lower schedule.scale=1 or set optimizer.clip_norm=1, then start anew"
    )
    assert world.kept == world.of(EndEvent) == []


def test_a_run_that_kept_finite_weights_before_ends_with_a_warning(tmp_path: Path) -> None:
    world = make(tmp_path, values=[3.0, float("nan")], train={"max_steps": 4}, valid={"every_steps": 2})
    assert world.trainer.fit().best_step == 2
    assert [name for name, _ in world.kept] == ["best", "last"]
    (warning,) = world.of(WarningEvent)
    assert warning.message.startswith("step 4: the loss is not finite; lower schedule.scale=1 or ")
    assert warning.message.endswith("; last/ is damaged, best/ is from step 2")


def test_another_metric_does_not_make_damaged_weights_the_best(tmp_path: Path) -> None:
    world = make(tmp_path, train={"max_steps": 2}, valid={"metric": "bleu", "decode_sentences": 1})
    scores = {"nll": float("nan"), "bleu": 1.0}
    world.trainer.run.callbacks = replace(world.trainer.run.callbacks, validators=[lambda _: scores])
    with pytest.raises(TrainingError, match="the loss is not finite"):
        world.trainer.fit()
    assert world.kept == []


def test_steps_that_are_skipped_at_the_end_leave_no_bundle_where_nothing_was_validated(
    tmp_path: Path,
) -> None:
    world = make(tmp_path, train={"max_steps": 2})
    world.trainer.run.callbacks = replace(world.trainer.run.callbacks, validators=[])
    with torch.no_grad():
        world.trainer.model.output.weight[5] = float("inf")
    with pytest.raises(TrainingError, match="step 2: the loss is not finite"):
        world.trainer.fit()
    assert world.kept == []
