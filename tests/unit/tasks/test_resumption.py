"""Which settings may change when a run is resumed: each is tried."""

import json
from pathlib import Path

import pytest
from command_line import Outcome, heedful
from ten_pairs import ENGLISH, GERMAN, write_pairs

from heedful.errors import ConfigError
from heedful.settings.loading import load_config
from heedful.settings.presets import preset
from heedful.settings.run import Config
from heedful.tasks.directory import FIXED, check_resumable

pytestmark = pytest.mark.by_class

SETTINGS = [
    f"{section}.{key}" for section in Config.model_fields for key in getattr(Config(), section).model_dump()
]
REFUSED = [name for name in SETTINGS if {name, name.split(".")[0]} & set(FIXED)]
ACCEPTED = [name for name in SETTINGS if name not in REFUSED]

BEFORE: dict[str, object] = {
    "model.d_model": 16,
    "model.d_ff": 32,
    "train.max_steps": 2,
    "train.precision": "float32",
    "valid.decode_sentences": 3,
}
# What each of those that may change becomes. Files are of the same text, elsewhere.
CHANGES: dict[str, object] = {
    "data.src": "copy.en",
    "data.tgt": "copy.de",
    "data.valid_src": "valid.en",
    "data.valid_tgt": "valid.de",
    "data.src_key": "source",
    "data.tgt_key": "target",
    "data.cache_dir": "elsewhere",
    "data.allow_overlap": True,
    "optimizer.beta1": 0.8,
    "optimizer.beta2": 0.95,
    "optimizer.eps": 1e-8,
    "optimizer.weight_decay": 0.01,
    "optimizer.clip_norm": 1.0,
    "schedule.name": "cosine",
    "schedule.warmup_fraction": 0.3,  # replaces the steps
    "schedule.peak": 0.002,
    "schedule.scale": 0.5,
    "schedule.decay_fraction": 0.5,
    "schedule.floor": 0.1,
    "train.max_steps": 4,
    "train.max_epochs": 1000,
    "train.max_minutes": 60.0,
    "train.label_smoothing": 0.2,
    "train.r_drop": 0.5,
    "train.ema_decay": 0.9,
    "train.average_checkpoints": 2,
    "train.checkpoint_every_steps": 1,
    "train.checkpoint_every_minutes": 5.0,
    "train.keep_checkpoints": 3,
    "train.precision": "bf16",
    "train.device": "cpu",
    "train.compile": False,
    "train.kernels": "torch",
    "train.threads": 2,
    "train.processes": 1,
    "train.parallel": "fsdp",
    "train.log_every_steps": 1,
    "valid.every_steps": 2,
    "valid.every_fraction": 0.5,
    "valid.metric": "chrf",
    "valid.tokenize": "char",
    "valid.decode_sentences": 2,
    "valid.patience": 9,
    "decode.beam_size": 3,
    "decode.length_penalty": 0.5,
    "decode.length_normalization": "gnmt",
    "decode.early_stopping": "first",
    "decode.max_length_ratio": 2.0,
    "decode.max_length_offset": 5,
    "decode.max_length": 20,
    "decode.min_length": 1,
    "decode.max_source_tokens": 50,
    "decode.forced_first_id": 5,
    "decode.forced_last_id": 6,
    "decode.suppressed_ids": [7],
    "decode.renormalize": True,
    "decode.no_repeat_ngram_size": 3,
    "decode.encoder_no_repeat_ngram_size": 2,
    "decode.repetition_penalty": 1.1,
    "decode.replace_unknown": True,
    "decode.n_best": 2,
    "decode.batch_tokens": 512,
}
# In place of two files each, of a fraction (tests/unit/settings), of a plugin, or of no use without a run.
# Several corpora: tests/unit/data/test_mixtures.py.
ELSEWHERE = {
    "data.corpora",
    "data.temperature",
    "data.pairs",
    "data.valid_pairs",
    "schedule.warmup_steps",
    "train.init",
    "train.plugin_versions",
    "valid.validators",
}


# A value that none of them has stands for any other.
pytestmark = pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")


def with_another(config: Config, name: str) -> Config:
    section, key = name.split(".")
    changed = getattr(config, section).model_copy(update={key: "another"})
    return config.model_copy(update={section: changed})


@pytest.mark.parametrize("name", REFUSED)
def test_a_fixed_setting_is_refused_by_name(name: str) -> None:
    was = preset("tiny")
    before = getattr(getattr(was, name.split(".")[0]), name.split(".")[1])
    with pytest.raises(ConfigError) as caught:
        check_resumable(was, with_another(was, name))
    assert str(caught.value) == (
        f"{name}='another': the run has {before!r}, which cannot change at --resume; "
        "leave it out, or give another --output for a new run"
    )


@pytest.mark.parametrize("name", ACCEPTED)
def test_each_other_setting_is_accepted(name: str) -> None:
    check_resumable(preset("tiny"), with_another(preset("tiny"), name))


def test_a_fixed_name_is_that_of_a_section_or_a_setting() -> None:
    assert set(FIXED) <= {*Config.model_fields, *SETTINGS}
    assert len(REFUSED) > 40


def test_each_other_setting_is_changed_here() -> None:
    assert {*CHANGES, *ELSEWHERE} == set(ACCEPTED)


def options(settings: dict[str, object]) -> list[str]:
    def text(value: object) -> object:
        return value if isinstance(value, str) else json.dumps(value)

    return [part for name, value in settings.items() for part in ("--set", f"{name}={text(value)}")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With a run of two steps, and copies of its text."""
    outcome = heedful("train", *write_pairs(tmp_path), *options(BEFORE), "--output", tmp_path / "run")
    assert outcome.code == 0, outcome.err
    for copy, name in (("copy.en", "ten.en"), ("copy.de", "ten.de")):
        (tmp_path / copy).write_bytes((tmp_path / name).read_bytes())
    (tmp_path / "valid.en").write_text("Where is the ferry?\n", encoding="utf-8")
    (tmp_path / "valid.de").write_text("Wo ist die Fähre?\n", encoding="utf-8")
    return tmp_path


def resume(folder: Path, settings: dict[str, object]) -> Outcome:
    return heedful("train", "--resume", *options(settings), "--output", folder / "run")


def setting(config: Config, name: str) -> object:
    section, key = name.split(".")
    found = getattr(getattr(config, section), key)
    return list(found) if isinstance(found, tuple) else found


def test_all_that_may_change_is_applied_from_the_resumption_on(folder: Path) -> None:
    files = {
        name: str(folder / str(value))
        for name, value in CHANGES.items()
        if name.startswith("data.") and isinstance(value, str) and not name.endswith("_key")
    }
    changes = CHANGES | files
    before = load_config(folder / "run" / "config.toml")
    assert [name for name, value in changes.items() if setting(before, name) == value] == []
    outcome = resume(folder, changes)
    assert outcome.code == 0, outcome.err
    assert "resuming from step 2" in outcome.err
    after = load_config(folder / "run" / "config.toml")
    assert {name: setting(after, name) for name in changes} == changes
    bundle = json.loads((folder / "run" / "last" / "config.json").read_text(encoding="utf-8"))
    assert bundle["config"]["decode"]["beam_size"] == 3
    events = [json.loads(line) for line in (folder / "run" / "log.jsonl").read_text().splitlines()]
    assert {event["step"] for event in events if event["event"] == "checkpoint"} == {2, 3, 4}
    rates = [event["learning_rate"] for event in events if event["event"] == "step"]
    assert rates[-1] < 0.002
    assert events[-1]["reason"] == "reached the limit of 4 steps"


def test_the_text_may_come_from_one_file_in_place_of_two(folder: Path) -> None:
    rows = [f"{src}\t{tgt}\n" for src, tgt in zip(ENGLISH, GERMAN, strict=True)]
    changes: dict[str, object] = {}
    for name, lines in (("data.pairs", rows), ("data.valid_pairs", ["Where?\tWo?\n"])):
        changes[name] = str(folder / f"{name}.tsv")
        (folder / f"{name}.tsv").write_text("".join(lines), encoding="utf-8")
    outcome = resume(folder, changes | {"data.src": False, "data.tgt": False, "train.max_steps": 3})
    assert outcome.code == 0, outcome.err
    after = load_config(folder / "run" / "config.toml")
    assert {name: setting(after, name) for name in changes} == changes


def test_another_model_to_begin_with_is_refused(folder: Path) -> None:
    outcome = resume(folder, {"train.init": str(folder / "run")})
    assert outcome.code != 0
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert load_config(folder / "run" / "config.toml").train.init is None
