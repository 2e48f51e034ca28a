"""Parts of plugins that the configuration names: trained, resumed, translated, and never run unasked."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from tiny_bundle import PAIRS, memorised

from heedful import Config, ModelConfig, Transformer, Translator, load_bundle, load_plugin, save_bundle
from heedful.errors import ConfigError
from heedful.ops.changes import changed_parts
from heedful.settings import plugins
from heedful.settings.loading import load_config

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
NAMES = ("linear_attention", "focal_loss", "shouting", "same_length")
PLUGINS = tuple(word for name in NAMES for word in ("--plugin", str(EXAMPLES / f"{name}.py")))
PARTS = {
    "model.attention": "linear_attention:LinearAttention",
    "train.loss": "focal_loss:FocalLoss",
    "data.filters": "shouting:shouting",
    "valid.metric": "same_length:same_length",
}
SETTINGS = {
    "model.d_model": 16, "model.d_ff": 32, "model.num_heads": 2, "model.num_encoder_layers": 1,
    "model.num_decoder_layers": 1, "tokenizer.kind": "char", "train.processes": 2, "train.threads": 1,
    "batch.tokens": 64, "valid.every_steps": 4, "train.checkpoint_every_steps": 4,
    "valid.decode_sentences": 2, "schedule.warmup_steps": 4,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])


def options(folder: Path, output: str, *, steps: int, parts: dict[str, str] = PARTS) -> list[object]:
    src, tgt = zip(*PAIRS, ("HELP ME", "so"), strict=True)
    (folder / "train.en").write_bytes(text([*src]))
    (folder / "train.de").write_bytes(text([*tgt]))
    values = {**SETTINGS, **parts, "train.max_steps": steps}
    settings = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    return ["--src", folder / "train.en", "--tgt", folder / "train.de", *settings, "-o", folder / output]


def test_four_plugins_are_trained_in_two_processes_resumed_validated_and_translated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = heedful("train", *options(tmp_path, "whole", steps=8), *PLUGINS)
    assert done.code == 0, done.err
    assert re.search(r"\b1\b.*data\.filters", done.err)
    heedful("train", *options(tmp_path, "run", steps=4), *PLUGINS)
    resumed = heedful("train", *options(tmp_path, "run", steps=8), "--resume", *PLUGINS)
    assert resumed.code == 0, resumed.err
    run = tmp_path / "run"
    weights = [(each / "last" / "model.safetensors").read_bytes() for each in (run, tmp_path / "whole")]
    assert weights[0] == weights[1]
    config = load_config(run / "config.toml")
    assert dict(config.plugged) == PARTS
    scores = json.loads((run / "best" / "config.json").read_text("utf-8"))["scores"]
    assert PARTS["valid.metric"] in scores
    card = (run / "best" / "README.md").read_text("utf-8")
    assert all(f"`{key}`: `{name}`" in card for key, name in PARTS.items())
    translated = heedful("translate", run, *PLUGINS[:2], stdin=text(["a"]))
    assert translated.code == 0, translated.err
    translator = Translator.load(run)
    assert translator.engine_in_use == "torch"
    assert "encoder.layers.0.self_attention" in changed_parts(translator.bundle.model)
    temperatures = [n for n in translator.bundle.model.state_dict() if n.endswith("temperature")]
    assert len(temperatures) == 3
    refused = heedful("export", run, "--to", "ctranslate2", "-o", tmp_path / "out", *PLUGINS[:2])
    assert_one_clear_line(refused, 1, "attention")
    monkeypatch.setattr(plugins, "_LOADED", {})
    without = heedful("train", "--resume", "-o", run)
    assert_one_clear_line(without, 2, "model.attention=linear_attention:LinearAttention")


def test_a_bundle_names_the_plugin_that_it_needs_and_runs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = {"src_vocab_size": 60, "tgt_vocab_size": 60, "d_model": 16, "num_heads": 2, "d_ff": 32}
    linear = load_plugin(EXAMPLES / "linear_attention.py").LinearAttention
    model = Transformer(ModelConfig(attention=linear, **sizes))
    bundle = tmp_path / "bundle"
    save_bundle(replace(memorised(), config=Config(model=model.config), network=model), bundle)
    (bundle / "linear_attention.py").write_text("raise SystemExit('run')", "utf-8")  # a trap
    monkeypatch.chdir(bundle)
    command = [sys.executable, "-m", "heedful", "translate", str(bundle)]
    done = subprocess.run(command, input=b"a\n", capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (1, b"", 1), done.stderr
    assert b"linear_attention:LinearAttention" in done.stderr


def test_a_bundle_and_a_run_say_that_the_code_of_their_plugin_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugin, code = (
        tmp_path / "steady.py",
        "def rate(step, done):\n    return 1e-3\n\n\ndef cube(x):\n    return x**3\n",
    )
    plugin.write_text(code, "utf-8")
    parts = {"schedule.name": "steady:rate", "model.activation": "steady:cube", "train.processes": "1"}
    trained = heedful("train", *options(tmp_path, "run", steps=2, parts=parts), "--plugin", plugin)
    assert trained.code == 0, trained.err
    run = tmp_path / "run"
    [version] = load_config(run / "config.toml").train.plugin_versions
    assert version.startswith("steady sha256:")
    load_bundle(run)
    assert not capsys.readouterr().err
    plugin.write_text(f"{code}# changed\n", "utf-8")
    monkeypatch.setattr(plugins, "_LOADED", {})
    del sys.modules["steady"]
    resumed = heedful("train", "--resume", "-o", run, "--plugin", plugin, "--set", "train.max_steps=3")
    assert resumed.code == 0, resumed.err
    assert re.search(r"warning: .*steady", resumed.err)
    assert load_config(run / "config.toml").train.plugin_versions != (version,)
    plugin.write_text(f"{code}# changed again\n", "utf-8")
    monkeypatch.setattr(plugins, "_LOADED", {})
    del sys.modules["steady"]
    load_plugin(plugin)
    load_bundle(run)
    [warning] = capsys.readouterr().err.splitlines()
    assert "steady" in warning
    save_bundle(load_bundle(run), tmp_path / "copy")
    assert (
        load_bundle(tmp_path / "copy").config.train.plugin_versions
        == load_bundle(run).config.train.plugin_versions
    )


@pytest.mark.parametrize("name", ["os:system", "linear_attention:torch.load", "linear_attention:nothing"])
def test_a_configuration_names_classes_of_plugins_alone(name: str) -> None:
    load_plugin(EXAMPLES / "linear_attention.py")
    with pytest.raises(ConfigError, match=name):
        Transformer(src_vocab_size=9, tgt_vocab_size=9, attention=name)


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("wrong.py", "x =", "wrong.py: line 1"),
        ("wrong.py", "\n1 / 0", "wrong.py: line 2"),
        ("random.py", "", "random.py"),
        ("torch.py", "", "torch.py"),
        ("my-part.py", "", "my-part.py"),
        ("part.txt", "", "part.txt"),
    ],
)
def test_files_that_are_no_plugins_are_refused(tmp_path: Path, name: str, content: str, part: str) -> None:
    (tmp_path / name).write_text(content, "utf-8")
    assert_one_clear_line(heedful("inspect", "--machine", "--plugin", tmp_path / name), 2, part)
    assert_one_clear_line(heedful("inspect", "--machine", "--plugin", tmp_path / "no.py"), 2, "no.py")
