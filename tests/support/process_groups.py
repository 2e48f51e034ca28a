"""Steps of a small model in float64, taken by a process group of any kind; run by torchrun, by that kind."""

import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from small_models import prepared, small_config
from torch import Tensor

from heedful.data.batches import BatchSource
from heedful.data.files import ParallelText
from heedful.data.phrasebook import phrase_book
from heedful.data.store import build_store
from heedful.model.attention import MultiHeadAttention
from heedful.model.transformer import Transformer
from heedful.ops.attention import FusedAttention
from heedful.settings.run import Config
from heedful.text import train_tokenizers
from heedful.training.averaging import MovingAverage
from heedful.training.optimizer import build_optimizer, choose_trained_weights
from heedful.training.parallel.distributed import DistributedGroup, run_worker
from heedful.training.parallel.process_group import ProcessGroup, Rank, SingleProcess, StepPlan
from heedful.training.parallel.shared_memory import SharedMemoryGroup
from heedful.training.parallel.torchrun import join_process_group, leave_process_group
from heedful.training.step import LossFunction, StepMetrics

STEPS = 20
MUON = {"optimizer": {"name": "muon", "clip_norm": 0.5, "weight_decay": 0.01}}


ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": {"rank": 3},
    "train": {"precision": "float32", "init": "a bundle", "ema_decay": 0.9},  # bf16 rounds by shape
}
RELATIVE = {"positions": "relative", "num_encoder_layers": 2, "num_decoder_layers": 2}
SECTIONS: dict[str, dict[str, Any]] = {
    "model": small_config(dropout=0.0, src_vocab_size=60, tgt_vocab_size=60).model_dump(),
    "tokenizer": {"kind": "char", "vocab_size": 60},
    "batch": {"tokens": 400},
    "optimizer": {"clip_norm": 0.5, "weight_decay": 0.01},
    "train": {"precision": "float32", "ema_decay": 0.9},
}


def settings(**sections: Any) -> Config:  # noqa: ANN401
    return Config.model_validate(SECTIONS | sections)


def small_source(directory: Path) -> BatchSource:
    book = phrase_book().train[:150]
    text = ParallelText([src for src, _ in book], [tgt for _, tgt in book], ("phrase book",), 0)
    tokenizers = train_tokenizers(text.src, text.tgt, settings().tokenizer, seed=1)
    assert tokenizers.src.vocab_size <= 60
    store = build_store(text, tokenizers, max_length=100, cache_dir=str(directory))
    return BatchSource(store, tokenizers, tokens=400, seed=1)


@dataclass(frozen=True)
class Outcome:
    """What the steps left behind."""

    weights: dict[str, Tensor]
    average: dict[str, Tensor]
    metrics: list[StepMetrics]


def take_steps(
    source: BatchSource,
    config: Config,
    *,
    size: int = 1,
    distributed: bool = False,
    loss: LossFunction | None = None,
    attention: type[FusedAttention] | None = None,
) -> Outcome:
    torch.manual_seed(7)
    model = Transformer.from_config(config.model).double()
    choose_trained_weights(model, config)
    execution = prepared(model, config)
    for part in [part for part in model.modules() if attention and isinstance(part, MultiHeadAttention)]:
        part.attention = attention.like(part.attention, kernels=False)
    rank = Rank(model, source, config, execution, loss=loss, size=size)
    optimizer = build_optimizer(model, config.optimizer, precision=rank.execution.precision)
    average = MovingAverage(model, 0.9)
    average.weights = {name: weight.double() for name, weight in average.weights.items()}
    group: ProcessGroup
    if distributed:
        group = DistributedGroup(rank, optimizer, average)
    else:
        group = (
            SharedMemoryGroup(rank, optimizer, average, threads=1)
            if size > 1
            else SingleProcess(rank, optimizer, average)
        )
    first, second = len(source.plan(0)), len(source.plan(1))
    plans = [StepPlan(n, ((0, n % first), (1, n % second)), 0.01) for n in range(1, STEPS + 1)]
    with closing(group):
        metrics = [group.step(plan) for plan in plans]
    return Outcome({n: w.detach() for n, w in model.named_parameters()}, average.weights, metrics)


def case_of(name: str, folder: Path) -> tuple[BatchSource, Config]:
    """Return batches and settings by a name such as "fsdp muon"; "few" rows leave some ranks with none."""
    parallel, *options = name.split()
    sections = SECTIONS | (MUON if "muon" in options else {})
    sections |= ADAPTERS if "adapters" in options else {}
    train = sections["train"] | {"parallel": parallel}
    model = sections["model"] | (RELATIVE if "relative" in options else {})
    source = small_source(folder)
    if "few" in options:
        source = replace(source, tokens=60)
    return source, settings(**sections | {"train": train, "model": model})


def threads_of_torch_distributed() -> list[str]:
    """Their names, where Linux tells them."""
    names = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    return [name for name in names if "gloo" in name]


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    is_worker = join_process_group("cpu")
    for name in sys.argv[2:]:
        if is_worker:
            run_worker(torch.device("cpu"))
            continue
        source, config = case_of(name, folder)
        outcome = take_steps(source, config, size=dist.get_world_size(), distributed=True)
        losses = torch.tensor([metrics.loss for metrics in outcome.metrics], dtype=torch.float64)
        saved = {"weights": outcome.weights, "average": outcome.average, "losses": losses}
        torch.save(saved, folder / f"{name}.pt")
    leave_process_group()
    if not any(name.startswith("fsdp") for name in sys.argv[2:]):  # DTensor's caches hold the group
        assert not threads_of_torch_distributed()  # one that outlives Python may abort the process
