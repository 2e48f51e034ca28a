"""A trainer in a world made by hand: its batches, its validations, and what it tells."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from small_models import prepared, small_config, small_model

from heedful.data.batches import Batch, collate
from heedful.model.transformer import Transformer
from heedful.settings.run import Config
from heedful.storage.torch_weights import unique_weights
from heedful.training.events import Event
from heedful.training.loop import Trainer
from heedful.training.schedule import LearningRate
from heedful.training.state import TrainerCallbacks

EPOCH_LENGTH = 5


@dataclass
class Source:
    """Five batches an epoch; remembers which were taken."""

    taken: list[tuple[int, int]] = field(default_factory=list)
    store: tuple[int, ...] = tuple(range(10))
    sampling = 0.0

    def plan(self, epoch: int) -> list[list[int]]:
        return [[2 * number, 2 * number + 1] for number in range(EPOCH_LENGTH)]

    def batch(self, indices: list[int], epoch: int) -> Batch:
        number = indices[0] // 2
        self.taken.append((epoch, number))
        generator = torch.Generator().manual_seed(100 * epoch + number)
        pairs = [
            tuple(torch.randint(3, 11, (n,), generator=generator).numpy() for n in (4, 3)) for _ in range(2)
        ]
        return collate(pairs, src_pad_id=0, tgt_pad_id=0, start_id=2)


@dataclass
class World:
    """A trainer, and what it told."""

    trainer: Trainer
    source: Source
    events: list[Event]
    kept: list[tuple[str, dict[str, torch.Tensor]]]

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]


def make(
    folder: Path,
    *,
    values: list[float] | None = None,
    seed: int = 1,
    device: str = "cpu",
    rates: LearningRate | None = None,
    **sections: Any,  # noqa: ANN401
) -> World:
    """Validation gives `values` one after the other, or the sum of a matrix."""
    of_model = {"dropout": 0.2} | sections.pop("model", {})
    settings: dict[str, dict[str, Any]] = {
        "model": small_config(**of_model).model_dump(),
        "train": {
            "max_steps": 12,
            "log_every_steps": 1,
            "precision": "float32",
            "average_checkpoints": 1,
            "processes": 1,
        },
        "schedule": {"warmup_steps": 4},
        "valid": {"every_steps": 100, "decode_sentences": 0},
    }
    for section, changes in sections.items():
        settings[section] = settings.get(section, {}) | changes
    config = Config.model_validate(settings)
    torch.manual_seed(seed)
    events: list[Event] = []
    kept: list[tuple[str, dict[str, torch.Tensor]]] = []
    waiting = list(values or [])

    def validate(model: Transformer) -> dict[str, float]:
        return {"nll": waiting.pop(0) if waiting else float(model.output.weight.detach().double().sum())}

    def keep(name: str, model: Transformer, scores: dict[str, float], step: int) -> None:
        kept.append((name, {name: weight.clone() for name, weight in unique_weights(model).items()}))

    callbacks = TrainerCallbacks([validate], [events.append], keep, folder / "checkpoints", "fingerprint")
    source = Source()
    model = small_model(seed, **of_model).to(device)
    execution = prepared(model, config)
    trainer = Trainer(model, config, source, callbacks, execution, schedule=rates)  # type: ignore[arg-type]
    return World(trainer, source, events, kept)
