"""Models, training, checkpoints and resumption, as `device_case.py` describes entry points."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from device_case import Result, assert_equal, case, on_host
from option_models import OPTIONS, TGT_PAD, option_config, option_inputs
from small_models import prepared, small_model
from tolerances import BF16, FLOAT32
from trainer_worlds import Source, make

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.ops import use_fused_ops
from heedful.ops.attention import attention_implementation
from heedful.ops.lora import without_adapters
from heedful.settings.options import TrainingPrecision
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.checkpoint import latest_checkpoint
from heedful.training.memory import fitting_batch
from heedful.training.optimizer import build_optimizer, choose_trained_weights
from heedful.training.parallel import distributed, process_group
from heedful.training.parallel.distributed import DistributedGroup
from heedful.training.parallel.process_group import Rank, SingleProcess, StepPlan
from heedful.training.step import accumulate_gradients, measure_nll, train_step


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    return on_host(dict(model.named_parameters()))


def config_of(model: Transformer, **sections: Mapping[str, Any]) -> Config:
    """Settings of a small run: no compiler, and numbers that move."""
    train = {"compile": False, "processes": 1, "precision": "float32"} | dict(sections.pop("train", {}))
    return Config.model_validate({"model": model.config.model_dump(), "train": train, **sections})


# --- models ------------------------------------------------------------------------------------------------


def _model_case(name: str, changes: Mapping[str, Any]) -> None:
    @case(f"model: {name}", bound=FLOAT32.MODEL.at(4.0))  # as large as the weights are made
    def run(device: str, folder: Path) -> Result:
        """Logits by each implementation of attention, the loss, and the gradients of all weights."""
        torch.manual_seed(3)
        model = Transformer.from_config(option_config(**changes)).to(device)
        src, tgt_in = (ids.to(device) for ids in option_inputs())
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(4.0)  # those of training begin so small that little depends on attention
            logits = {"eager": model.eval()(src, tgt_in).cpu()}
            with attention_implementation(model, "sdpa"):
                logits["sdpa"] = model(src, tgt_in).cpu()
        use_fused_ops(model, kernels=True)
        tgt_out = tgt_in.roll(-1, dims=1).cpu()
        tgt_out[:, -1] = TGT_PAD
        batch = Batch(src.cpu(), tgt_in.cpu(), tgt_out, int((tgt_out != TGT_PAD).sum()))
        sums = accumulate_gradients(model, [batch], config_of(model).train, precision="float32")
        gradients = {
            name: weight.grad / sums.num_tgt_tokens
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }
        assert len(gradients) == len(list(model.parameters()))
        return {"logits": logits, "loss": sums.smoothed, "nll": sums.nll, "gradients": on_host(gradients)}


for _name, _changes in {"paper": {}, "learned": {"positions": "learned"}, **OPTIONS}.items():
    _model_case(_name, _changes)


# Adam's steps are as large for small gradients as for large ones, and so for those that rounding alone
# keeps from being zero, such as those of the biases of keys. Without these, and with a large epsilon,
# rounding stays small.
STEADY_MODEL: dict[str, Any] = {"dropout": 0.0, "attention_bias": False}
STEADY_OPTIMIZER: dict[str, Any] = {"eps": 1e-3}
STEPS = FLOAT32.TRAINING.at(0.1)

# --- training ----------------------------------------------------------------------------------------------


def batches(number: int = 2) -> list[Batch]:
    return [Source().batch([2 * index, 2 * index + 1], 0) for index in range(number)]


def _steps_case(
    name: str, sections: Mapping[str, Mapping[str, Any]], *, precision: TrainingPrecision = "float32"
) -> None:
    @case(f"training: {name}", bound=STEPS if precision == "float32" else BF16.ROW)
    def run(device: str, folder: Path) -> Result:
        """Two steps over two micro-batches each, the moving average of the weights, and the norms."""
        model = small_model(**STEADY_MODEL)
        optimizer = STEADY_OPTIMIZER | sections.get("optimizer", {})
        config = config_of(model, **{**sections, "optimizer": optimizer | {"clip_norm": 0.5}})
        choose_trained_weights(model, config)
        use_fused_ops(model, kernels=True)
        model.to(device)
        optimizer = build_optimizer(model, config.optimizer, precision=precision)
        average = MovingAverage(model, 0.9)
        told = []
        for number in (1, 2):
            metrics = train_step(
                model, optimizer, batches(), config=config, learning_rate=0.003, precision=precision
            )
            average.update(dict(model.named_parameters()), number)
            told.append(asdict(metrics))
        plain = without_adapters(model)
        result = {"metrics": told, "validation": measure_nll(plain, batches(), precision=precision)}
        if precision == "float32":
            result |= {"weights": weights_of(plain), "average": on_host(average.weights)}
        return result


_LORA = {"lora": {"rank": 2, "targets": ["query", "value"]}, "train": {"init": "a bundle"}}
for _name, _sections in {
    "adam": {},
    "adamw": {"optimizer": {"weight_decay": 0.1}},
    "muon": {"optimizer": {"name": "muon"}},
    "r-drop": {"train": {"r_drop": 1.0}},
    "lora": _LORA,
    "lora with muon": _LORA | {"optimizer": {"name": "muon"}},
    "frozen encoder": {"train": {"freeze": ["encoder."]}},
    "torch's kernels": {"train": {"kernels": "torch"}},
}.items():
    _steps_case(_name, _sections)
_steps_case("bf16", {"optimizer": {"name": "muon"}, "train": {"r_drop": 1.0}}, precision="bf16")


@case("training: with dropout")
def _with_dropout(device: str, folder: Path) -> Result:
    """Random bits differ between devices; that there are some, and gradients of all weights, does not."""
    model = small_model(dropout=0.5, word_dropout=0.2, attention_dropout=0.5, activation_dropout=0.5).to(
        device
    )
    use_fused_ops(model, kernels=True)
    losses = []
    for seed in (1, 2, 2):
        torch.manual_seed(seed)
        sums = accumulate_gradients(model, batches(), config_of(model).train, precision="float32")
        losses.append(sums.smoothed)
    every = all(weight.grad is not None and bool(weight.grad.any()) for weight in model.parameters())
    return {"differ": losses[0] != losses[1], "repeat": losses[1] == losses[2], "gradients": every}


@case("training: a batch that does not fit")
def _halved(device: str, folder: Path) -> Result:
    """The gradient of a batch that was split in two, as torch's error says that it did not fit."""
    model = small_model(dropout=0.0).to(device)
    use_fused_ops(model, kernels=True)
    asked = []

    def refuse(_: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        asked.append(len(inputs[0]))
        if len(inputs[0]) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB.")

    hook = model.encoder.register_forward_pre_hook(refuse)
    sums = accumulate_gradients(model, batches(), config_of(model).train, precision="float32")
    validated = measure_nll(model, batches(), precision="float32")
    hook.remove()
    gradients = {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}
    return {"asked": asked, "sums": asdict(sums), "gradients": on_host(gradients), "validated": validated}


@case("training: batch.tokens=auto")
def _fitting(device: str, folder: Path) -> Result:
    """A batch that fits; how large it is depends on the memory."""
    model = small_model(dropout=0.0).to(device)
    config = config_of(model, batch={"tokens": "auto"})
    fit = fitting_batch(model, config, prepared(model, config), (40, 30), free=1 << 34)
    return {"fits": fit.tokens >= 40}


@case("training: the steps of a benchmark", bound=STEPS)
def _parts(device: str, folder: Path) -> Result:
    """The steps of a benchmark, without a trainer."""
    model = small_model(**STEADY_MODEL).to(device)
    config = config_of(model, optimizer=STEADY_OPTIMIZER)
    optimizer = build_optimizer(model, config.optimizer, precision="float32")
    average = MovingAverage(model, 0.9)
    rank = Rank(model, Source(), config, prepared(model, config))  # type: ignore[arg-type]
    plans = [StepPlan(number, ((0, number),), 0.003) for number in (1, 2)]
    group = SingleProcess(rank, optimizer, average)
    for plan in plans:
        group.step(plan)
    return {"weights": weights_of(model), "average": on_host(average.weights)}


class _Alone(torch.nn.Module):
    """In place of DistributedDataParallel, whose C++ wants a real GPU: there are no other ranks here."""

    def __init__(self, module: torch.nn.Module, **_: object) -> None:
        super().__init__()
        self.module = module

    def forward(self, batch: Batch) -> Any:  # noqa: ANN401
        return self.module(batch)


@case("training: torch.distributed", bound=STEPS)
def _distributed(device: str, folder: Path) -> Result:
    """Rank 0 of torchrun's processes, the only one here, resumed with an optimiser's state; then a worker."""
    model = small_model(**STEADY_MODEL).to(device)
    config = config_of(model, optimizer=STEADY_OPTIMIZER)
    plans = [StepPlan(number, ((0, number),), 0.003) for number in (1, 2)]
    optimizer = build_optimizer(model, config.optimizer, precision="float32")
    average = MovingAverage(model, 0.9)
    train_step(model, optimizer, batches(), config=config, learning_rate=0.003, precision="float32")
    sent: list[Any] = []
    copies: list[Transformer] = []

    def broadcast(message: object) -> object:
        """The messages of rank 0; a worker gets those again."""
        if message is None:
            return sent.pop(0)
        sent.append(message)
        return message

    def rank_of(model: Transformer, *arguments: Any, **named: Any) -> Rank:  # noqa: ANN401
        copies.append(model)
        return Rank(model, *arguments, **named)

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    with pytest.MonkeyPatch.context() as patch, closing_group():
        patch.setattr(process_group, "num_workers", lambda source, device: 0)
        patch.setattr(distributed, "_broadcast", broadcast)
        patch.setattr(distributed, "DistributedDataParallel", _Alone)
        group = DistributedGroup(Rank(model, Source(), config, prepared(model, config)), optimizer, average)  # type: ignore[arg-type]
        told = [asdict(group.step(plan)) for plan in plans]
        state = next(message for message in sent if isinstance(message, dict))
        sent.append(None)
        patch.setattr(process_group, "Rank", rank_of)
        distributed.run_worker(torch.device(device))
    assert {weight.device.type for weight in copies[0].parameters()} == {device}
    assert {value.device.type for each in state["state"].values() for value in each.values()} == {"cpu"}
    return {
        "metrics": told,
        "weights": weights_of(model),
        "average": on_host(average.weights),
    }


@contextmanager
def closing_group() -> Iterator[None]:
    """Leave the process group after the block."""
    try:
        yield
    finally:
        dist.destroy_process_group()


# --- runs, checkpoints and resumption ----------------------------------------------------------------------

_RUN: dict[str, dict[str, Any]] = {
    "optimizer": {"name": "muon", **STEADY_OPTIMIZER},
    "train": {
        "max_steps": 6,
        "checkpoint_every_steps": 3,
        "ema_decay": 0.5,
        "average_checkpoints": 1,
        "compile": False,
        "precision": "float32",
    },
    "valid": {"every_steps": 2, "decode_sentences": 0},
}


def _trained(folder: Path, device: str, *, resume: bool = False, **train: Any) -> dict[str, Any]:  # noqa: ANN401
    sections = _RUN | {"train": _RUN["train"] | train}
    world = make(folder, device=device, model=STEADY_MODEL, **sections)
    if resume:
        checkpoint = latest_checkpoint(folder / "checkpoints")
        assert checkpoint is not None
        world.trainer.resume(checkpoint)
    with pytest.MonkeyPatch.context() as patch:  # a process that makes batches: the command below has one
        patch.setattr(process_group, "num_workers", lambda source, device: 0)
        end = world.trainer.fit()
    average = world.trainer.average
    return {
        "steps": end.step,
        "kept": [(name, on_host(weights)) for name, weights in world.kept if name == "last"],
        "average": None if average is None else on_host(average.weights),
        "weights": weights_of(world.trainer.model),
    }


@case("run: trained, saved and resumed", bound=STEPS)
def _resumed(device: str, folder: Path) -> Result:
    """A run that was ended in the middle and resumed is the run that was not."""
    whole = _trained(folder / "whole", device)
    _trained(folder / "parts", device, max_steps=3)
    parts = _trained(folder / "parts", device, resume=True)
    assert_equal(parts, whole, STEPS)
    return whole


@case("run: its last checkpoints averaged", bound=STEPS)
def _averaged(device: str, folder: Path) -> Result:
    """The mean of checkpoints, which is read from files, is validated on the device."""
    return _trained(folder, device, ema_decay=0.0, average_checkpoints=2, keep_checkpoints=2)


@case("run: begun on a CPU, resumed on the device", bound=STEPS)
def _resumed_on_device(device: str, folder: Path) -> Result:
    """A checkpoint of a CPU goes on elsewhere."""
    _trained(folder, "cpu", max_steps=3)
    return _trained(folder, device, resume=True)


@case("run: begun on the device, resumed on a CPU", bound=STEPS)
def _resumed_on_cpu(device: str, folder: Path) -> Result:
    """A checkpoint of the device goes on on a CPU."""
    _trained(folder, device, max_steps=3)
    return _trained(folder, "cpu", resume=True)


@case("run: resumed with an average that its checkpoints lack", bound=STEPS)
def _resumed_with_average(device: str, folder: Path) -> Result:
    """The average starts from the weights."""
    _trained(folder, device, max_steps=3, ema_decay=0.0)
    return _trained(folder, device, resume=True)
