"""The preset of each published system trains and translates, at a small size."""

from pathlib import Path

import pytest
from command_line import heedful
from ten_pairs import as_options, write_pairs

from heedful.settings.presets import PUBLISHED

SMALL: dict[str, object] = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.num_encoder_layers": 2,
    "model.num_decoder_layers": 2,
    "tokenizer.vocab_size": 80,
    "train.threads": 1,
    "train.max_steps": 6,
    "schedule.warmup_steps": 3,
    "train.average_checkpoints": 1,
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_preset_trains_and_translates(name: str, tmp_path: Path) -> None:
    settings = SMALL | {"data.cache_dir": tmp_path / "cache"}
    files = write_pairs(tmp_path)[:4]
    outcome = heedful("train", *files, "--preset", name, *as_options(settings), "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    outcome = heedful("translate", tmp_path / "run", "--max-length-offset", 5, stdin=b"The dog sleeps.\n")
    assert outcome.code == 0, outcome.err
    assert outcome.out.count("\n") == 1
