"""Several processes that share a batch do what one process does with the whole of it."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import process_groups
import pytest
import torch
from fake_gpu import fake_gpu
from own_losses import FailsInWorkers, HeavyBall, UniformAttention, doubled, never_answer
from process_groups import ADAPTERS, MUON, case_of, settings, small_source, take_steps
from small_models import prepared, small_config, small_model
from tolerances import FLOAT64, assert_close, close
from torch import Tensor

from heedful.data.batches import Batch, BatchSource
from heedful.errors import ConfigError, TrainingError
from heedful.model.attention import MultiHeadAttention
from heedful.model.transformer import Transformer
from heedful.ops.attention import FusedAttention
from heedful.runtime.threads import using_threads
from heedful.training.loss import Loss
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel import choice, shared_memory
from heedful.training.parallel.choice import process_group_size
from heedful.training.parallel.messages import pack, unpack
from heedful.training.parallel.process_group import Rank, StepPlan
from heedful.training.parallel.shared_memory import SharedMemoryGroup, shared_memory_needed
from heedful.training.step import LossFunction, StepInterruptedError

OF_A_PLUGIN = {"optimizer": {"name": HeavyBall}}
TOOLS = Path(__file__).resolve().parents[2] / "tools"


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BatchSource:
    return small_source(tmp_path_factory.mktemp("store"))


@pytest.mark.parametrize(
    ("sections", "size"),
    [
        ({}, 2),
        pytest.param({}, 3, marks=pytest.mark.slow),
        pytest.param(ADAPTERS, 2, marks=pytest.mark.slow),
        pytest.param(MUON, 2, marks=pytest.mark.slow),
        pytest.param(MUON | ADAPTERS, 2, marks=pytest.mark.slow),
        pytest.param(OF_A_PLUGIN, 2, marks=pytest.mark.slow),
    ],
    ids=["all weights", "by three", "adapters", "muon", "adapters by muon", "of a plugin"],
)
def test_processes_that_share_the_weights_are_one_process(
    source: BatchSource, sections: dict[str, Any], size: int
) -> None:
    found, wanted = (take_steps(source, settings(**sections), size=each) for each in (size, 1))
    assert_same(found.weights, wanted.weights)
    assert_same(found.average, wanted.average)
    for one, other in zip(found.metrics, wanted.metrics, strict=True):
        assert one.num_tgt_tokens == other.num_tgt_tokens
        assert one.loss == close(other.loss, FLOAT64.MODEL)
        assert one.gradient_norm == close(other.gradient_norm, FLOAT64.MODEL)
    if not settings(**sections).lora.rank:  # adapters of a model that knows nothing learn little
        assert found.metrics[-1].nll < found.metrics[0].nll - 0.25


@pytest.mark.slow
def test_a_process_without_rows_adds_nothing(source: BatchSource) -> None:
    few = replace(source, tokens=60)
    rows = {len(indices) for epoch in (0, 1) for indices in few.plan(epoch)[:20]}
    assert min(rows) == 1 < max(rows)  # the second process has none at some steps, after having had some
    found, wanted = (take_steps(few, settings(), size=size) for size in (2, 1))
    assert_same(found.weights, wanted.weights)


@pytest.mark.slow
@pytest.mark.parametrize("attention", [UniformAttention, None])
def test_a_loss_and_a_class_of_the_users_act_in_every_process(
    source: BatchSource, attention: type[FusedAttention] | None
) -> None:
    found, wanted = (
        take_steps(source, settings(), size=size, loss=doubled, attention=attention) for size in (2, 1)
    )
    assert_same(found.weights, wanted.weights)
    for one, other in zip(found.metrics, wanted.metrics, strict=True):
        assert one.loss == close(other.loss, FLOAT64.MODEL)
        assert one.loss / one.nll == close(2.0, FLOAT64.MODEL)
    if attention is not None:
        assert found.metrics[0].loss != take_steps(source, settings(), loss=doubled).metrics[0].loss


def test_a_model_and_a_loss_are_sent_as_they_are_without_weights() -> None:
    model = small_model()
    for part in [part for part in model.modules() if isinstance(part, MultiHeadAttention)]:
        part.attention = UniformAttention.like(part.attention, kernels=False)
    model.output.weight.requires_grad_(requires_grad=False)
    packed = pack((model, doubled), model)
    assert model.output.weight.numpy().tobytes() not in packed
    sent, loss = unpack(packed, torch.device("cpu"))
    assert loss is doubled
    for (name, weight), (_, other) in zip(model.named_parameters(), sent.named_parameters(), strict=True):
        assert (weight.shape, weight.requires_grad) == (other.shape, other.requires_grad), name
        other.data = weight.data
    ids = torch.tensor([[3, 4, 5]])
    assert torch.equal(sent.eval()(ids, ids), model.eval()(ids, ids))


def small_group(
    source: BatchSource, loss: LossFunction | None = None, *, is_interrupted: bool = False
) -> SharedMemoryGroup:
    model = Transformer.from_config(settings().model)
    rank = Rank(
        model,
        source,
        settings(),
        prepared(model, settings()),
        loss=loss,
        size=2,
        is_interrupted=lambda: is_interrupted,
    )
    optimizer = build_optimizer(model, settings().optimizer, precision="float32")
    return SharedMemoryGroup(rank, optimizer, None, threads=1)


@pytest.mark.slow
@pytest.mark.parametrize("by_signal", [False, True])
def test_a_worker_that_fails_ends_the_step_with_its_own_message(source: BatchSource, by_signal: bool) -> None:
    message = "ended unexpectedly" if by_signal else "ArithmeticError: no loss today"
    with (
        closing(small_group(source, FailsInWorkers(by_signal=by_signal))) as group,
        pytest.raises(TrainingError, match=message) as caught,
    ):
        group.step(StepPlan(1, ((0, 0),), 0.01))
    assert by_signal or "own_losses.py" in "".join(caught.value.__notes__)


def test_a_signal_ends_a_step_while_a_worker_starts(
    source: BatchSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_memory, "_run_worker", never_answer)
    with closing(small_group(source, is_interrupted=True)) as group:
        ((process, _),) = group._workers
        with pytest.raises(StepInterruptedError):
            group.step(StepPlan(1, ((0, 0),), 0.01))
    assert process.exitcode == -signal.SIGKILL


def local_loss(model: Transformer, batch: Batch) -> Loss:
    return doubled(model, batch)


@pytest.mark.parametrize("how", ["lambda", "main", "unpicklable"])
def test_a_loss_that_other_processes_cannot_import_is_refused_by_its_name(
    how: str, source: BatchSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    losses: dict[str, tuple[LossFunction, str]] = {
        "lambda": (lambda model, batch: doubled(model, batch), "<lambda>"),
        "main": (local_loss, r"__main__\.local_loss"),
        "unpicklable": (partial(local_loss, threading.Lock()), "lock"),  # type: ignore[arg-type]
    }
    monkeypatch.setattr(local_loss, "__module__", "__main__" if how == "main" else __name__)
    loss, name = losses[how]
    with pytest.raises(ConfigError, match=name):
        small_group(source, loss)


LONG = [pytest.mark.slow, pytest.mark.timeout(3600)]
ALL_CASES = [
    f"{parallel}{options}"
    for parallel in ("ddp", "fsdp")
    for options in ("", " few", " muon", " relative few", " adapters", " adapters muon")
]


@pytest.mark.parametrize(
    ("size", "cases"),
    [
        (2, ["ddp few", "fsdp muon few"]),
        pytest.param(2, ALL_CASES, marks=LONG),
        pytest.param(4, ALL_CASES, marks=LONG),
        pytest.param(8, ALL_CASES, marks=LONG),
    ],
    ids=["2, few cases", "2", "4", "8"],
)
@pytest.mark.slow
def test_processes_that_torchrun_starts_are_one_process(size: int, cases: list[str], tmp_path: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size)]
    done = subprocess.run(
        [*launch, process_groups.__file__, str(tmp_path), *cases],
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(TOOLS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for case in cases:
        found, wanted = (
            torch.load(tmp_path / f"{case}.pt", weights_only=True),
            take_steps(*case_of(case, tmp_path)),
        )
        assert_same(found["weights"], wanted.weights)
        assert_same(found["average"], wanted.average)
        assert found["losses"].tolist() == close([each.loss for each in wanted.metrics], FLOAT64.TRAINING)


def assert_same(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        assert_close(found[name], weight, FLOAT64.TRAINING)


@pytest.mark.slow
def test_dropout_differs_between_processes_and_comes_back_with_the_step(source: BatchSource) -> None:
    config = settings(model=small_config(dropout=0.5, src_vocab_size=60, tgt_vocab_size=60).model_dump())
    once, again = (take_steps(source, config, size=2) for _ in range(2))
    assert once.metrics == again.metrics
    for name, weight in once.weights.items():
        assert torch.equal(weight, again.weights[name])
    assert once.metrics[0].loss != take_steps(source, config, size=1).metrics[0].loss


@pytest.mark.slow
def test_a_group_keeps_each_gradient_once_and_ends_with_one_line_if_a_process_dies(
    source: BatchSource,
) -> None:
    config = settings()
    model = Transformer.from_config(config.model)
    weights, plan = list(model.parameters()), StepPlan(1, ((0, 0), (0, 1)), 0.01)
    rank = Rank(model, source, config, prepared(model, config), size=2)
    optimizer = build_optimizer(model, config.optimizer, precision="float32")
    with closing(SharedMemoryGroup(rank, optimizer, None, threads=1)) as group:
        group.step(plan)
        held = sum(weight.numel() for weight in weights if weight.grad is not None)
        assert 0.2 < held / model.num_parameters < 0.8  # of those that it updates
        (process, _), *_ = group._workers
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        with pytest.raises(TrainingError, match="ended unexpectedly"):
            group.step(StepPlan(2, ((0, 1),), 0.01))
    rank.accumulate(plan)
    assert all(weight.grad is not None for weight in weights)  # a group that is closed takes nothing away


@pytest.mark.slow
def test_a_group_whose_step_is_interrupted_leaves_the_weights_and_ends_without_waiting(
    source: BatchSource,
) -> None:
    """The worker would be busy for minutes."""
    config = settings()
    model = Transformer.from_config(config.model)
    before = [weight.detach().clone() for weight in model.parameters()]
    asked = iter([False, False, True])
    execution = prepared(model, config)
    rank = Rank(model, source, config, execution, size=2, is_interrupted=lambda: next(asked))
    optimizer = build_optimizer(model, config.optimizer, precision="float32")
    group = SharedMemoryGroup(rank, optimizer, None, threads=1)
    ((process, _),) = group._workers
    with closing(group), pytest.raises(StepInterruptedError):
        group.step(StepPlan(1, ((0, 0),) * 1_000_000, 0.01))
    assert process.exitcode == -signal.SIGKILL
    assert all(torch.equal(*both) for both in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_a_group_is_as_large_as_pays_off(threads: int) -> None:
    with using_threads(threads):
        assert_group_sizes(threads, small_model())


def assert_group_sizes(threads: int, model: Transformer) -> None:
    assert process_group_size(settings(train={"processes": 1}), model) == (1, threads)
    assert process_group_size(settings(train={"max_steps": 10}), model) == (1, threads)
    assert process_group_size(settings(batch={"tokens": 100_000}), small_model().to("meta")) == (1, threads)
    assert process_group_size(settings(batch={"tokens": 600}), model) == (1, threads)
    size, each = process_group_size(settings(batch={"tokens": 100_000}), model)
    assert (size, each) == (threads, 1)
    assert process_group_size(settings(train={"processes": 2 * threads}), model) == (2 * threads, 1)


def test_on_a_gpu_processes_are_torchruns() -> None:
    with fake_gpu():
        model = small_model().to("cuda")
        assert process_group_size(settings(batch={"tokens": 100_000}), model) == (1, torch.get_num_threads())
        with pytest.raises(ConfigError, match=r"train\.processes=2: .* torchrun --nproc-per-node"):
            process_group_size(settings(train={"processes": 2}), model)


def test_a_group_fits_into_the_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    needed = 4 * (2 * model.num_parameters + (2 + 2) * model.num_parameters)
    assert shared_memory_needed(model, 3) == needed
    monkeypatch.setattr(choice, "shared_memory_left", lambda: needed - 1)
    with pytest.raises(ConfigError, match=r"train\.processes=3"):
        process_group_size(settings(train={"processes": 3}), model)
    monkeypatch.setattr(choice, "shared_memory_left", lambda: 0)
    with using_threads(5):
        assert process_group_size(settings(batch={"tokens": 100_000}), model) == (1, 5)
