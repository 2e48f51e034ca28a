"""What goes wrong while a model trains, and what a resumed run takes over. Whole runs: tests/e2e."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tolerances import FLOAT64, close
from trainer_worlds import World, make

from heedful.data.batches import BatchSource
from heedful.data.store import IdPair
from heedful.errors import BundleError, InputError, TrainingError
from heedful.model.transformer import Transformer
from heedful.storage.torch_weights import unique_weights
from heedful.training.checkpoint import latest_checkpoint
from heedful.training.events import CheckpointEvent, SkippedEvent, StepEvent, ValidationEvent, WarningEvent
from heedful.training.schedule import RECOVERY_STEPS, recovered_rate
from heedful.training.step import StepMetrics


def test_weights_that_are_not_finite_stop_with_one_line(tmp_path: Path) -> None:
    world = make(tmp_path)
    with torch.no_grad():
        world.trainer.model.output.weight[5] = float("inf")
    with pytest.raises(TrainingError) as caught:
        world.trainer.fit()
    assert str(caught.value) == (
        "step 3: the loss or its gradient is not finite, 3 steps in a row; lower schedule.scale=1 or set "
        "optimizer.clip_norm=1, then start anew"
    )


@pytest.mark.parametrize(("peak", "num_warnings"), [(100.0, 1), (0.001, 0)])
def test_a_rate_with_which_training_diverges_is_named_once(
    tmp_path: Path, peak: float, num_warnings: int
) -> None:
    schedule = {"name": "constant", "peak": peak, "warmup_steps": 0}
    world = make(tmp_path, schedule=schedule, optimizer={"clip_norm": 1.0})
    world.trainer.fit()
    warnings = [event.message for event in world.of(WarningEvent)]
    assert len(warnings) == num_warnings
    assert all(each.endswith("training diverges; lower schedule.peak=100") for each in warnings)


def spoil(world: World, steps: set[int]) -> list[float]:
    """Let the loss of these steps be no number, the first time; gives the rates of all."""
    rates: list[float] = []
    left = set(steps)
    train = world.trainer._train

    def spoiled(group: Any) -> str:  # noqa: ANN401
        take = group.step

        def step(plan: Any) -> StepMetrics:  # noqa: ANN401
            rates.append(plan.learning_rate)
            if plan.step in left:
                left.discard(plan.step)
                return StepMetrics(float("nan"), float("nan"), float("nan"), 6)
            return take(plan)

        group.step = step
        return train(group)

    world.trainer._train = spoiled  # type: ignore[method-assign]
    return rates


def test_a_step_that_is_not_finite_is_skipped_and_named(tmp_path: Path) -> None:
    world = make(tmp_path, train={"processes": 1})
    spoil(world, {4, 5, 7})
    assert world.trainer.fit().step == 12
    skipped = world.of(SkippedEvent)
    assert [event.step for event in skipped] == [4, 5, 7]
    assert [event.pairs for event in skipped] == [[6, 7], [8, 9], [2, 3]]  # as they stand in the plan
    assert len(world.of(StepEvent)) == 9
    json.dumps(skipped[0].to_json())


class FivePairs(tuple[IdPair, ...]):
    """What a batch source asks of a store."""

    src_lengths = tgt_lengths = np.full(5, 3)
    has_text, max_length = False, 3


def test_an_epoch_is_planned_once_and_a_skipped_step_plans_nothing(tmp_path: Path) -> None:
    """Steps of two batches: every other epoch of five ends inside a step."""
    world, planned = make(tmp_path, batch={"accumulation": 2}), list[int]()

    def one_by_one(src_lengths: Any, tgt_lengths: Any, *, epoch: int, **settings: Any) -> list[Any]:  # noqa: ANN401
        planned.append(epoch)
        return np.split(np.arange(5), 5)

    store: Any = FivePairs([(np.array([4, 5, 3]), np.array([6, 7, 3]))] * 5)
    tokenizers: Any = SimpleNamespace(src=SimpleNamespace(pad_id=0), tgt=SimpleNamespace(pad_id=0))
    template: Any = SimpleNamespace(start_id=2)
    world.trainer.source = BatchSource(
        store, tokenizers, tokens=9, seed=1, template=template, sampler=one_by_one
    )
    spoil(world, {2, 3, 8})
    world.trainer.fit()
    assert [event.pairs for event in world.of(SkippedEvent)] == [[2, 3], [4, 0], [4, 0]]
    assert planned == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("processes", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_several_in_a_row_are_taken_again_at_half_the_rate(tmp_path: Path, processes: int) -> None:
    train = {"processes": processes, "checkpoint_every_steps": 4}
    plain = make(tmp_path / "plain", train=train | {"processes": 1})
    world = make(tmp_path / "spoiled", train=train)
    wanted = spoil(plain, set())
    plain.trainer.fit()
    rates = spoil(world, {6, 7, 8})
    assert world.trainer.fit().step == 12
    (message,) = [event.message for event in world.of(WarningEvent)]
    assert message.startswith("back to step-4, at 0.5 times the learning rate: 3 steps in a row up to step 8")
    assert rates[:8] == wanted[:8]
    grown = [2 ** (step / RECOVERY_STEPS) for step in range(8)]  # since the way back
    assert rates[8:] == close(
        [rate / 2 * by for rate, by in zip(wanted[4:], grown, strict=True)], FLOAT64.ROW
    )
    resumed = make(tmp_path / "spoiled", train=train)
    resumed.trainer.resume(tmp_path / "spoiled" / "checkpoints" / "step-12")
    assert resumed.trainer.run.progress.rate_factor == close(0.5 * 2 ** (8 / RECOVERY_STEPS), FLOAT64.ROW)
    assert resumed.trainer.run.progress.rollbacks == 1


def test_the_rate_recovers_once_and_then_stays_lower() -> None:
    factor = 0.5
    for _ in range(RECOVERY_STEPS):
        assert factor < 1
        factor = recovered_rate(factor, rollbacks=1)
    assert recovered_rate(factor, rollbacks=1) == 1.0
    assert recovered_rate(1.0, rollbacks=0) == 1.0
    assert recovered_rate(0.49, rollbacks=2) > 0.49
    assert recovered_rate(0.5, rollbacks=2) == 0.5
    assert recovered_rate(0.25, rollbacks=3) == 0.25


class LostError(Exception):
    """Whatever a validation may end with."""


def fail_to_validate(world: World, error: type[BaseException]) -> None:
    def validate(model: Transformer) -> dict[str, float]:
        raise error

    object.__setattr__(world.trainer.run.callbacks, "validators", [validate])


@pytest.mark.parametrize("error", [LostError, SystemExit, MemoryError])
def test_what_ends_a_run_in_a_validation_ends_it_after_a_checkpoint(
    tmp_path: Path, error: type[BaseException]
) -> None:
    world = make(tmp_path, valid={"every_steps": 5})
    fail_to_validate(world, error)
    with pytest.raises(error):
        world.trainer.fit()
    newest = latest_checkpoint(tmp_path / "checkpoints")
    assert newest is not None
    assert newest.name == "step-5"


def test_a_second_signal_in_a_validation_ends_a_run_at_once(tmp_path: Path) -> None:
    """Nothing is saved: it may have come while the weights were being swapped for their average."""
    world = make(tmp_path, train={"checkpoint_every_steps": 3}, valid={"every_steps": 5})
    fail_to_validate(world, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        world.trainer.fit()
    assert [path.name for path in (tmp_path / "checkpoints").iterdir()] == ["step-3"]


@pytest.mark.parametrize(("average", "ema_decay"), [(3, 0.0), (1, 0.9)])
def test_a_validation_and_a_checkpoint_that_were_missed_are_made_up_for(
    tmp_path: Path, average: int, ema_decay: float
) -> None:
    """The run ended in the validation of step 8, when a checkpoint to be averaged was due as well."""
    train = {"checkpoint_every_steps": 4, "average_checkpoints": average, "ema_decay": ema_decay}
    sections = {"train": train, "valid": {"every_steps": 8}}
    whole, ended = (make(tmp_path / name, **sections) for name in ("whole", "ended"))
    whole.trainer.fit()
    fail_to_validate(ended, LostError)
    with pytest.raises(LostError):
        ended.trainer.fit()
    resumed = make(tmp_path / "ended", seed=2, **sections)
    resumed.trainer.resume(tmp_path / "ended" / "checkpoints" / "step-8")
    resumed.trainer.fit()
    assert [(event.step, event.scores) for event in resumed.of(ValidationEvent)] == [
        (event.step, event.scores) for event in whole.of(ValidationEvent)
    ]
    assert resumed.trainer.run.progress.regular_checkpoints == whole.trainer.run.progress.regular_checkpoints
    assert [name for name, _ in resumed.kept] == [name for name, _ in whole.kept]
    for (_, found), (_, wanted) in zip(resumed.kept, whole.kept, strict=True):
        assert all(torch.equal(weight, wanted[name]) for name, weight in found.items())


def test_a_best_model_that_could_not_be_written_is_validated_again(tmp_path: Path) -> None:
    """The checkpoint that is written then must not say that it is in best/."""
    sections = {"train": {"ema_decay": 0.9}, "valid": {"every_steps": 5}}
    full = make(tmp_path, **sections)

    def keep(*_: object) -> None:
        raise BundleError("best: cannot be written")

    object.__setattr__(full.trainer.run.callbacks, "keep_model", keep)
    with pytest.raises(BundleError):
        full.trainer.fit()
    resumed = make(tmp_path, **sections)
    resumed.trainer.resume(tmp_path / "checkpoints" / "step-5")
    assert resumed.trainer.run.progress.best_value == float("inf")
    resumed.trainer.fit()
    assert [event.step for event in resumed.of(ValidationEvent)] == [5, 10, 12]
    assert resumed.kept[0][0] == "best"


def test_a_finished_run_that_is_resumed_is_not_validated_again(tmp_path: Path) -> None:
    train = {"ema_decay": 0.9}
    make(tmp_path, train=train, values=[1.5]).trainer.fit()
    again = make(tmp_path, train=train)
    again.trainer.resume(tmp_path / "checkpoints" / "step-12")
    again.trainer.fit()
    assert again.of(ValidationEvent) == []
    assert [name for name, _ in again.kept] == ["last"]


def test_a_finished_run_is_validated_on_another_validation_set(tmp_path: Path) -> None:
    make(tmp_path, values=[1.5]).trainer.fit()
    again = make(tmp_path, values=[2.5])
    object.__setattr__(again.trainer.run.callbacks, "validation_set", "another")
    again.trainer.resume(tmp_path / "checkpoints" / "step-12")
    again.trainer.fit()
    assert [event.scores for event in again.of(ValidationEvent)] == [{"nll": 2.5}]
    assert [name for name, _ in again.kept] == ["best", "last"]


def test_the_best_model_stays_the_best_after_a_rollback(tmp_path: Path) -> None:
    train = {"processes": 1, "checkpoint_every_steps": 4}
    world = make(tmp_path, train=train, valid={"every_steps": 5}, values=[1.0, 1.5, 1.2, 1.3])
    spoil(world, {6, 7, 8})
    world.trainer.fit()
    assert [(event.step, event.is_best) for event in world.of(ValidationEvent)] == [
        (5, True),
        (5, False),
        (10, False),
        (12, False),
    ]
    assert world.trainer.run.progress.best_value == 1.0


def test_no_checkpoint_is_written_among_steps_that_could_not_be_taken(tmp_path: Path) -> None:
    """Their weights may be what is wrong."""
    train = {"processes": 1, "checkpoint_every_steps": 4, "keep_checkpoints": 5}
    world = make(tmp_path, train=train)
    spoil(world, {8})
    world.trainer.fit()
    assert [event.step for event in world.of(CheckpointEvent)] == [4, 12]
    assert world.trainer.run.progress.regular_checkpoints == (4, 12)


def test_a_validation_set_that_cannot_be_used_ends_no_run(tmp_path: Path) -> None:
    world = make(tmp_path, valid={"every_steps": 5})

    def validate(model: Transformer) -> dict[str, float]:
        raise InputError("line 21: 201 pieces")

    object.__setattr__(world.trainer.run.callbacks, "validators", [validate])
    assert world.trainer.fit().step == 12
    assert {event.message for event in world.of(WarningEvent)} == {"not validated: line 21: 201 pieces"}
    assert [name for name, _ in world.kept] == ["best", "last"]


def test_the_best_of_a_finished_run_is_not_forgotten_when_it_goes_on(tmp_path: Path) -> None:
    """The averaged weights are judged last; 1.3739 was replaced by 1.3845 once."""
    first = make(tmp_path, values=[1.5, 1.0], train={"max_steps": 6}, valid={"every_steps": 4})
    first.trainer.fit()
    more = make(tmp_path, values=[1.2, 1.1], train={"max_steps": 12}, valid={"every_steps": 4})
    more.trainer.resume(tmp_path / "checkpoints" / "step-6")
    assert (more.trainer.run.progress.best_value, more.trainer.run.progress.best_step) == (1.0, 6)
    more.trainer.fit()
    assert [name for name, _ in more.kept] == ["last"]


@pytest.mark.parametrize(
    ("validation_set", "metric", "best"), [("one", "nll", 2.0), ("one", "bleu", -30.0), ("two", "nll", None)]
)
def test_the_best_so_far_is_by_what_counts_now(
    tmp_path: Path, validation_set: str, metric: str, best: float | None
) -> None:
    def validate(model: Transformer) -> dict[str, float]:
        return {"nll": 2.0, "bleu": 30.0}

    def prepared(validation_set: str, metric: str) -> World:
        world = make(tmp_path, train={"max_steps": 6}, valid={"metric": metric, "decode_sentences": 5})
        for name, value in (("validators", [validate]), ("validation_set", validation_set)):
            object.__setattr__(world.trainer.run.callbacks, name, value)
        return world

    prepared("one", "nll").trainer.fit()
    resumed = prepared(validation_set, metric)
    resumed.trainer.resume(tmp_path / "checkpoints" / "step-6")
    assert resumed.trainer.run.progress.best_value == (float("inf") if best is None else best)


def test_an_average_that_begins_in_the_middle_begins_with_the_weights_of_then(tmp_path: Path) -> None:
    make(tmp_path, train={"max_steps": 6}).trainer.fit()
    resumed = make(tmp_path, seed=2, train={"ema_decay": 0.9})
    resumed.trainer.resume(tmp_path / "checkpoints" / "step-6")
    assert resumed.trainer.average is not None
    weights = unique_weights(resumed.trainer.model)
    assert all(torch.equal(weight, weights[name]) for name, weight in resumed.trainer.average.weights.items())


def test_settings_of_the_optimizer_apply_from_the_resumption_on(tmp_path: Path) -> None:
    make(tmp_path, train={"max_steps": 6}).trainer.fit()
    changed = {"beta1": 0.8, "beta2": 0.9, "eps": 1e-7, "weight_decay": 0.1}
    resumed = make(tmp_path, optimizer=changed)
    resumed.trainer.resume(tmp_path / "checkpoints" / "step-6")
    optimizer = resumed.trainer.optimizer
    assert [(each["betas"], each["eps"]) for each in optimizer.param_groups] == [((0.8, 0.9), 1e-7)] * 2
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]
    moments = [state["exp_avg"].abs().sum() for state in optimizer.state.values()]
    assert len(moments) > 10
    assert all(moments)


def test_the_last_step_of_a_run_by_epochs_has_a_rate(tmp_path: Path) -> None:
    limits = {"max_steps": None, "max_epochs": 2, "processes": 1}
    world = make(tmp_path, train=limits, schedule={"name": "linear", "peak": 1e-2, "warmup_steps": 0})
    world.trainer.fit()
    rates = [event.learning_rate for event in world.of(StepEvent)]
    assert rates == close([1e-2 * (10 - step) / 10 for step in range(10)], FLOAT64.ROW)
