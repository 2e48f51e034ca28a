"""Runs of a tiny model with everything stateful on, and what must be true of them after a fault."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heedful.storage.bundle import load_bundle
from heedful.training.checkpoint import is_complete, list_checkpoints

# Everything with a state is on, as in test_training_runs.py, in a model that takes a step in milliseconds.
SETTINGS: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "model.num_heads": 2,
    "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1,
    "tokenizer.vocab_size": 120,
    "tokenizer.sampling": 0.1,
    "optimizer.name": "muon",
    "batch.tokens": 160,
    "batch.ramp_from": 40,
    "batch.accumulation": 2,
    "train.max_steps": 16,
    "train.ema_decay": 0.9,
    "train.checkpoint_every_steps": 4,
    "train.keep_checkpoints": 2,
    "train.average_checkpoints": 2,
    "train.log_every_steps": 1,
    "valid.every_steps": 6,
    "valid.decode_sentences": 2,
    "valid.patience": 50,
    "decode.max_length": 20,
}


@dataclass(frozen=True)
class Whole:
    """A run that nothing has struck: how it is started, where it is, and its calls in each phase."""

    arguments: list[str]
    path: Path
    counts: dict[str, int]


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def told(run: Path, *kinds: str) -> list[dict[str, Any]]:
    events = [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    timings = ("seconds", "tokens_per_second", "progress")
    return [
        {key: value for key, value in event.items() if key not in timings}
        for event in events
        if event["event"] in kinds
    ]


def assert_the_same(run: Path, whole: Path) -> None:
    for bundle in ("best", "last"):
        file = f"{bundle}/model.safetensors"
        assert sha256(run / file) == sha256(whole / file), file
    assert told(run, "step", "validation") == told(whole, "step", "validation")
    kept, wanted = ({path.name for path in list_checkpoints(each / "checkpoints")} for each in (run, whole))
    assert kept >= wanted
    assert {path.name for path in run.rglob("*")} - kept <= {path.name for path in whole.rglob("*")}


def assert_usable(run: Path) -> None:
    """Whatever has its final name is whole, and there is a bundle from the first validation on."""
    assert [path.name for path in list_checkpoints(run / "checkpoints") if not is_complete(path)] == []
    if any((run / name).exists() for name in ("best", ".best.heedful-old")):
        load_bundle(run)
