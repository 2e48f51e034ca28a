"""The heads that were trained to align words go with a model: into other systems, back, and into training."""

from dataclasses import replace
from pathlib import Path

import pytest
from command_line import heedful
from pretrained_models import FAMILIES
from tiny_bundle import SOURCES, TARGETS, memorised

from heedful import ModelConfig, load_bundle
from heedful.errors import ConfigError
from heedful.storage.bundle import save_bundle

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]


def saved(directory: Path, **settings: int | None) -> Path:
    bundle = memorised()
    config = bundle.config.replace(model=bundle.config.model.replace(**settings).model_dump())
    save_bundle(replace(bundle, config=config), directory)
    return directory


def heads(directory: Path) -> tuple[int | None, int]:
    model: ModelConfig = load_bundle(directory).config.model
    return model.alignment_layer, model.alignment_heads


@pytest.mark.parametrize(
    "settings", [{"alignment_layer": 1}, {"alignment_layer": 2, "alignment_heads": 3}, {}], ids=str
)
@pytest.mark.parametrize("system", ["marian", "ctranslate2"])
def test_an_export_has_the_heads_and_an_import_finds_them(
    system: str, settings: dict[str, int | None], tmp_path: Path
) -> None:
    bundle = saved(tmp_path / "bundle", **settings)
    out, back = tmp_path / "exported", tmp_path / "back"
    assert heedful("export", bundle, "--to", system, "--output", out).code == 0
    outcome = heedful("import", out, "--output", back)
    assert (outcome.code, outcome.err.count("model.alignment_layer=N")) == (0, int(not settings)), outcome.err
    assert heads(back) == heads(bundle)


@pytest.mark.parametrize(("kind", "layer"), [("transformer-align", 2), ("transformer", None)])
def test_the_card_of_an_opus_mt_model_says_that_a_head_aligns(
    kind: str, layer: int | None, tmp_path: Path
) -> None:
    FAMILIES["marian"].save(tmp_path / "model")
    (tmp_path / "model" / "README.md").write_text(
        f"* dataset: opus\n* model: {kind}\n* pre-processing: none\n"
    )
    outcome = heedful("import", tmp_path / "model", "--layout", "marian", "--output", tmp_path / "bundle")
    assert outcome.code == 0
    model = load_bundle(tmp_path / "bundle").config.model
    assert model.alignment_layer == (layer and model.num_decoder_layers)


def test_a_fine_tuned_model_keeps_the_heads(tmp_path: Path) -> None:
    bundle = saved(tmp_path / "bundle", alignment_layer=2)
    for name, lines in (("src", SOURCES), ("tgt", TARGETS)):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    files = [
        word
        for name in ("src", "tgt")
        for word in (f"--{name}", tmp_path / name, f"--valid-{name}", tmp_path / name)
    ]
    settings = {
        "data.allow_overlap": "true", "train.max_steps": 1, "train.threads": 1, "train.processes": 1,
        "schedule.name": "constant", "schedule.peak": 1e-4, "schedule.warmup_steps": 1,
        "valid.decode_sentences": 0,
    }  # fmt: skip
    options = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    for name, further, layer in (("same", [], 2), ("other", ["--set", "model.alignment_layer=1"], 1)):
        run = tmp_path / name
        outcome = heedful("train", "--init", bundle, *files, "--output", run, *options, *further)
        assert outcome.code == 0, outcome.err
        assert heads(run / "best")[0] == layer


def test_a_layer_and_heads_must_exist() -> None:
    for settings in ({"alignment_layer": 7}, {"alignment_layer": 1, "alignment_heads": 9}):
        with pytest.raises(ConfigError, match=r"model\.alignment_"):
            ModelConfig(**settings)
