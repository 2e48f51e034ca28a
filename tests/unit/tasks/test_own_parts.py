"""A user's parts are tried before the first step: one line names the setting, and what the part must be."""

import importlib
from pathlib import Path
from types import ModuleType

import pytest
from ten_pairs import write_pairs

from heedful.errors import ConfigError
from heedful.settings.plugins import load_plugin
from heedful.tasks.train import train

PARTS = """
import torch
from heedful.evaluation.measurement import Measurement
from heedful.training import Loss


def two_texts(hyps, refs): return 1.0
def half(texts): return 0.5
def raising(texts): return texts.nothing
def nan_score(texts): return Measurement.percentage([(float("nan"), 1)], "")
async def awaited(texts): return 1.0
class Without:
    def __call__(self, texts): return 1.0


def tutorial(logits, targets): return torch.nn.functional.cross_entropy(logits, targets)
class Tutorial(torch.nn.Module):
    def forward(self, logits, targets): return tutorial(logits, targets)
class Needing:
    def __init__(self, gamma): self.gamma = gamma
def tensor(model, batch): return model(batch.src, batch.tgt_in).sum()
def per_token(model, batch, power=2):
    x = model(batch.src, batch.tgt_in).mean(-1) ** power
    return Loss(x, x.detach())
def nan_loss(model, batch): return Loss(tensor(model, batch) * float("nan"), torch.tensor(1.0))
def constant(model, batch): return Loss(torch.tensor(1.0), torch.tensor(1.0))
def yielding(model, batch): yield tensor(model, batch)


def step_alone(step): return 0.1
def text(step, done): return "0.1"
def negative(step, done): return -0.1
def nan_rate(step, done): return float("nan")
def dividing(step, done): return 1 / done


def of_two(model, text): return 1.0
def word(model): return "good"
def nan_value(model): return float("nan")
def failing(model): return model.nothing


class Needy(torch.optim.Optimizer):
    def __init__(self, groups, lr): super().__init__(groups, {})
class Stuck(torch.optim.Optimizer):
    def __init__(self, groups): super().__init__(groups, {})
    def step(self): raise ValueError
"""
WRONG = {
    "valid.metric": ["two_texts", "half", "raising", "nan_score", "awaited", "Without"],
    "train.loss": [
        "tutorial", "Tutorial", "Needing", "tensor", "per_token", "nan_loss", "constant", "yielding",
    ],
    "schedule.name": ["step_alone", "text", "negative", "nan_rate", "dividing"],
    "valid.validators": ["of_two", "word", "nan_value", "failing"],
    "optimizer.name": ["Needy", "Stuck"],
}  # fmt: skip
QUICK = {
    "tokenizer.vocab_size": 200, "train.max_steps": 1, "train.processes": 1, "train.threads": 1,
    "model.d_model": 8, "model.num_heads": 2, "model.d_ff": 8, "valid.decode_sentences": 2,
}  # fmt: skip


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    file = tmp_path_factory.mktemp("plugin") / "parts_to_try.py"
    file.write_text(PARTS, encoding="utf-8")
    return load_plugin(file)


@pytest.mark.parametrize(("key", "name"), [(key, name) for key, names in WRONG.items() for name in names])
def test_a_wrong_part_ends_no_run_after_its_first_step(
    key: str, name: str, parts: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_pairs(tmp_path)
    monkeypatch.chdir(tmp_path)
    settings = {**QUICK, "data.cache_dir": "cache", key: f"parts_to_try:{name}"}
    with pytest.raises(ConfigError, match=rf"^{key}=parts_to_try:{name}: ") as caught:
        train(src="ten.en", tgt="ten.de", preset="tiny", output="run", settings=settings)
    assert "\n" not in str(caught.value)
    assert not Path("run").exists()


@pytest.mark.parametrize("key", ["train.loss", "valid.metric", "schedule.name"])
def test_a_part_without_its_plugin_is_answered_by_both(key: str, parts: ModuleType) -> None:
    settings = {key: "two_texts"}
    with pytest.raises(ConfigError, match=rf"^{key}=.*parts_to_try:two_texts"):
        train(src="ten.en", tgt="ten.de", preset="tiny", output="run", settings=settings)


def test_a_part_given_in_python_is_named_by_its_setting(tmp_path: Path) -> None:
    importlib.import_module("parts_to_try")
    write_pairs(tmp_path)
    with pytest.raises(ConfigError, match=r"^schedule\.name=.*<lambda>: "):
        train(src=tmp_path / "ten.en", tgt=tmp_path / "ten.de", schedule=lambda step: 0.1)  # type: ignore[misc, arg-type]
