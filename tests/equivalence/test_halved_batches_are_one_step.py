"""A batch for which memory is too small is taken in halves: the same step, up to rounding."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from process_groups import Outcome, settings, small_source, take_steps
from small_models import small_config, small_model
from tolerances import FLOAT32, FLOAT64, assert_close, close
from torch import Tensor
from trainer_worlds import make

from heedful.data.batches import Batch, BatchSource, collate
from heedful.errors import TrainingError
from heedful.model.attention import Memory
from heedful.model.transformer import Transformer
from heedful.settings.run import Config, TrainConfig
from heedful.training import step as step_module
from heedful.training.events import StepEvent, WarningEvent
from heedful.training.loss import Loss
from heedful.training.parallel.process_group import Rank
from heedful.training.step import StepMetrics, batch_loss, measure_nll, train_step

LENGTHS = [(7, 5), (2, 11), (5, 3), (1, 1), (11, 2), (3, 7), (2, 2)]
ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB."),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: 80 bytes"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 80 bytes."),
    RuntimeError("std::bad_alloc"),
    MemoryError(),
]


def batches_of(deal: list[int]) -> list[Batch]:
    generator = torch.Generator().manual_seed(19)
    pairs = [
        tuple(torch.randint(3, 11, (length,), generator=generator).numpy() for length in both)
        for both in LENGTHS
    ]
    rows = iter(pairs)
    return [
        collate([next(rows) for _ in range(n)], src_pad_id=0, tgt_pad_id=0, start_id=2, length_multiple=4)
        for n in deal
    ]


def take_step(deal: list[int]) -> tuple[StepMetrics, list[Tensor]]:
    """One step of plain gradient descent, so that the weights show the gradient and not its sign."""
    config = Config.model_validate({"model": small_config(dropout=0.0).model_dump()})
    torch.manual_seed(23)
    model = Transformer.from_config(config.model).double()
    metrics = train_step(
        model,
        torch.optim.SGD(model.parameters(), lr=1.0),
        iter(batches_of(deal)),  # which cannot be read again
        config=config,
        learning_rate=0.5,
        precision="float32",
    )
    return metrics, [weight.detach() for weight in model.parameters()]


Injection = Callable[[int, Exception], list[int]]


@pytest.fixture(params=["forward", "backward"])
def inject(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Injection:
    """Let batches of more than so many rows fail, in the backward pass after some gradients were added."""

    def fail_above(rows: int, error: Exception) -> list[int]:
        tried: list[int] = []

        def loss(model: Transformer, batch: Batch, settings: TrainConfig) -> Loss:
            tried.append(len(batch))
            found = batch_loss(model, batch, settings)
            if len(batch) <= rows:
                return found
            if request.param == "forward":
                raise error
            return Loss(_FailAfter.apply(found.smoothed, model, error), found.nll)

        def forward(rank: Rank, batch: Batch, *, is_last: bool = True) -> Loss:
            return loss(rank.model, batch, rank.config.train)

        monkeypatch.setattr(step_module, "batch_loss", loss)
        monkeypatch.setattr(Rank, "forward", forward)
        return tried

    return fail_above


class _FailAfter(torch.autograd.Function):
    """The identity, whose backward pass spoils all gradients and then fails."""

    @staticmethod
    def forward(ctx: object, loss: Tensor, model: Transformer, error: Exception) -> Tensor:
        ctx.model, ctx.error = model, error  # type: ignore[attr-defined]
        return loss.clone()

    @staticmethod
    def backward(ctx: object, *_: Tensor) -> Tensor:
        for weight in ctx.model.parameters():  # type: ignore[attr-defined]
            before = 0.0 if weight.grad is None else weight.grad
            weight.grad = before + torch.full_like(weight, 1e6)
        raise ctx.error  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("error", "deal", "most", "halvings"),
    [
        *((error, [7], 2, 2) for error in ERRORS),
        *((ERRORS[0], *case) for case in (([7], 4, 1), ([7], 1, 3), ([1, 4, 2], 2, 1), ([3, 4], 2, 1))),
    ],
)
def test_halves_have_the_gradient_of_the_whole(
    inject: Injection, error: Exception, deal: list[int], most: int, halvings: int
) -> None:
    wanted, weights = take_step(deal)
    tried = inject(most, error)
    found, others = take_step(deal)
    assert found.num_halvings >= halvings
    assert max(tried[-2:]) <= most
    assert wanted.num_halvings == 0
    assert found.num_tgt_tokens == wanted.num_tgt_tokens
    assert found.loss == close(wanted.loss, FLOAT64.MODEL)
    assert found.gradient_norm == close(wanted.gradient_norm, FLOAT64.MODEL)
    for one, other in zip(weights, others, strict=True):
        assert_close(one, other, FLOAT64.MODEL)


def test_one_pair_that_does_not_fit_is_one_line(inject: Injection) -> None:
    inject(0, MemoryError())
    with pytest.raises(TrainingError, match=r"data\.max_length") as caught:
        take_step([2])
    assert "\n" not in str(caught.value)


def test_a_validation_in_halves_is_the_validation(monkeypatch: pytest.MonkeyPatch) -> None:
    model, batches = small_model().double(), batches_of([7])
    wanted = measure_nll(model, batches, precision="float32")
    tried: list[int] = []
    encode = model.encode

    def encode_few(src: Tensor) -> Memory:
        tried.append(len(src))
        if len(src) > 2:
            raise MemoryError
        return encode(src)

    monkeypatch.setattr(model, "encode", encode_few)
    found = measure_nll(model, batches, precision="float32")
    assert tried == [7, 4, 2, 2, 3, 2, 1]
    assert found == close(wanted, FLOAT64.MODEL)


def test_other_errors_are_raised_as_they_are(inject: Injection) -> None:
    inject(2, RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        take_step([7])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BatchSource:
    return small_source(tmp_path_factory.mktemp("store"))


@pytest.fixture(scope="module")
def undivided(source: BatchSource) -> Outcome:
    return take_steps(
        source, settings(), size=1
    )  # which two take too: test_process_groups_are_one_process.py


@pytest.mark.slow
@pytest.mark.parametrize("inject", ["forward", "backward"], indirect=True)
def test_a_process_that_halves_its_batches_does_its_part(
    source: BatchSource, undivided: Outcome, inject: Injection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first of two; its gradients of the other's weights go into shared memory as they are computed."""
    tried = inject(3, MemoryError())
    monkeypatch.setattr(step_module, "batch_loss", batch_loss)  # sent to the other process by its name
    found = take_steps(source, settings(), size=2)
    assert max(tried) > 3
    assert found.metrics[0].num_halvings > 0
    for name, weight in undivided.weights.items():
        assert_close(found.weights[name], weight, FLOAT64.TRAINING)


def test_a_run_says_it_once_and_ends_in_the_same_weights(tmp_path: Path, inject: Injection) -> None:
    wanted, found = (make(tmp_path / name) for name in ("wanted", "found"))
    for world in (wanted, found):
        for module in world.trainer.model.modules():
            if hasattr(module, "p"):  # of dropout, whose numbers depend on the rows
                module.p = 0.0
    wanted.trainer.fit()
    inject(1, MemoryError())
    found.trainer.fit()
    (message,) = [event.message for event in found.of(WarningEvent)]
    assert message.startswith("a batch did not fit into memory; it was split in two")
    assert message.endswith("save time with batch.tokens=12500")
    losses, others = ([event.loss for event in each.of(StepEvent)] for each in (found, wanted))
    assert losses == close(others, FLOAT32.TRAINING)
