"""Checkpoints of OpenNMT-py 3 and directories of Eole: the logits are those that these systems computed.

The models of tests/golden/opennmt were written and judged by tools/opennmt_fixtures.py.
"""

import argparse
import json
import math
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from command_line import assert_one_clear_line, heedful
from pretrained_models import imported
from safetensors.torch import load_file, save_file
from small_tokenizers import sentencepiece_model
from swapped_tensors import swaps
from tolerances import FLOAT32, assert_apart, assert_close
from torch import Tensor

from heedful import Translator, load_bundle
from heedful.errors import InteropError
from heedful.interop.layouts import recognise
from heedful.storage.bundle import Bundle
from heedful.storage.torch_weights import read_pickled

GOLDEN = Path(__file__).parent.parent / "golden" / "opennmt"
MODELS = sorted(f"{path.parent.name}/{path.name}" for path in GOLDEN.glob("*/*") if path.is_dir())
EACH = pytest.mark.parametrize("name", MODELS)
POSITIONS = {
    "interleaved": "sinusoidal", "concatenated": "marian", "rotary": "rotary", "rotary-halves": "rotary"
}  # fmt: skip


def source_of(directory: Path) -> Path:
    file = directory / "model_step_7.pt"
    return file if file.is_file() else directory


def logits_of(source: Path, layout: str, judged: dict[str, Tensor]) -> Tensor:
    _, model = imported(layout, source)
    with torch.no_grad():
        return model(judged["src"], judged["tgt"])


def judged_of(name: str) -> dict[str, Tensor]:
    return load_file(GOLDEN / name / "judged.safetensors")


def test_there_are_models_of_both_systems() -> None:
    assert {name.partition("/")[2] for name in MODELS} == set(POSITIONS)
    assert {name.partition("/")[0] for name in MODELS} == {"opennmt-py", "eole"}


@EACH
def test_logits_are_those_of_the_system(name: str) -> None:
    layout, _, kind = name.partition("/")
    judged = judged_of(name)
    assert judged["logits"].abs().mean() > 0.2
    source = source_of(GOLDEN / name)
    assert recognise(source) == layout
    found, model = imported(layout, source)
    assert model.config.positions == POSITIONS[kind]
    assert found.config.tokenizer.source_eos is False
    is_concatenated = kind == "concatenated"
    assert (model.config.num_kv_heads, model.config.tied) == (
        (2, "all") if is_concatenated else (None, "none")
    )
    found_logits = logits_of(source, layout, judged)
    assert_close(found_logits, judged["logits"], FLOAT32.MODEL)


def changed_weights(source: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    if source.is_dir():
        file = source / "model.00.safetensors"
        tensors = load_file(file)
        change(tensors)
        save_file({key: each.clone() for key, each in tensors.items()}, file)
        return
    saved: Any = read_pickled(source)
    saved["generator"] = {f"generator.{key}": each for key, each in saved["generator"].items()}
    tensors = {**saved["model"], **saved["generator"]}
    change(tensors)
    saved["generator"] = {
        key.partition(".")[2]: tensors.pop(key) for key in [*tensors] if key.startswith("generator.")
    }
    saved["model"] = tensors
    content = {key: value for key, value in saved.items()}
    torch.save(content, source.with_suffix(".new"))
    source.with_suffix(".new").replace(source)


@pytest.mark.parametrize(
    "name", ["opennmt-py/interleaved", "opennmt-py/rotary", "eole/interleaved", "eole/rotary"]
)
@pytest.mark.slow
def test_two_swapped_tensors_are_noticed(name: str, tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / name, tmp_path / "model")
    layout, judged = name.partition("/")[0], judged_of(name)
    source = source_of(tmp_path / "model")
    changed: list[tuple[str, dict[str, Tensor]]] = []
    changed_weights(source, lambda tensors: changed.extend(swaps(tensors, but="pe.pe$|layer_scalar$")))
    assert len(changed) > 15
    for what, swapped in changed:
        copies = {name: tensor.clone() for name, tensor in swapped.items()}
        changed_weights(source, lambda tensors, copies=copies: tensors.update(copies))
        assert_apart(logits_of(source, layout, judged), judged["logits"], FLOAT32.MODEL, note=what)


@pytest.mark.parametrize(
    "changes",
    [
        {"max_relative_positions": 20}, {"max_relative_positions": -2}, {"position_encoding": False},
        {"self_attn_type": "average"}, {"copy_attn": True}, {"model_task": "lm"}, {"decoder_type": "rnn"},
        {"pos_ffn_activation_fn": "mish"}, {"heads": 0}, {"heads": 3}, {"sliding_window": 5},
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_followed_is_named(changes: dict[str, Any], tmp_path: Path) -> None:
    saved: Any = read_pickled(GOLDEN / "opennmt-py" / "interleaved" / "model_step_7.pt")
    torch.save(saved | {"opt": argparse.Namespace(**(vars(saved["opt"]) | changes))}, tmp_path / "model.pt")
    with pytest.raises(InteropError, match=next(iter(changes))) as found:
        imported("opennmt-py", tmp_path / "model.pt")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("heads", 3), ("sliding_window", 5), ("ffn_layernorm", True), ("hyper_connections", 4),
        ("layer_norm", "gemma-rms"), ("position_encoding_type", "Alibi"), ("decoder", {"heads": 2}),
        ("rope_config", {"scaling_type": "yarn"}), ("encoder", None),
    ],
)  # fmt: skip
def test_a_setting_of_eole_that_cannot_be_followed_is_named(key: str, value: Any, tmp_path: Path) -> None:  # noqa: ANN401
    shutil.copytree(GOLDEN / "eole" / "interleaved", tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    config = json.loads(file.read_text())
    for name in ("embeddings", "encoder", "decoder"):
        if key in config["model"][name]:
            config["model"][name][key] = value  # it is there too
    config["model"][key] = value
    file.write_text(json.dumps(config))
    with pytest.raises(InteropError, match="scaling_type" if key == "rope_config" else key) as found:
        imported("eole", tmp_path / "model")
    assert "\n" not in str(found.value)
    if key == "hyper_connections":
        assert imported("eole", tmp_path / "model", ignored=[key])


def test_whole_tables_of_positions_are_recognised(tmp_path: Path) -> None:
    """OpenNMT-py computes 5,000 rows in float32, whose angles are off by up to 5e-4."""
    rates = torch.exp(torch.arange(0, 16, 2, dtype=torch.float) * -(math.log(10000.0) / 16))
    angles = torch.arange(5000)[:, None].float() * rates
    table = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)[:, None]
    source = Path(shutil.copytree(GOLDEN / "opennmt-py" / "interleaved", tmp_path / "m")) / "model_step_7.pt"
    names = [f"{stack}.embeddings.make_embedding.pe.pe" for stack in ("encoder", "decoder")]
    changed_weights(source, lambda tensors: tensors.update(dict.fromkeys(names, table)))
    assert imported("opennmt-py", source)[1].config.positions == "sinusoidal"
    other = table.clone()
    other[40] += 1e-3
    changed_weights(source, lambda tensors: tensors.update(dict.fromkeys(names, other)))
    config = imported("opennmt-py", source)[1].config
    assert (config.positions, config.max_positions) == ("learned", 5000)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("layout", ["opennmt-py", "eole"])
def test_texts_are_tokens_between_spaces_or_pieces(layout: str, tmp_path: Path) -> None:
    source = source_of(Path(shutil.copytree(GOLDEN / layout / "interleaved", tmp_path / "model")))
    outcome = heedful("import", source, "-o", tmp_path / "bundle")
    assert outcome.code == 0
    assert outcome.err.startswith("note: Texts are tokens with spaces between them")
    bundle = load_bundle(tmp_path / "bundle")
    assert bundle.tokenizers.src.encode("s0 s7 nothing") == [4, 11, 0]
    assert bundle.config.model.decoder_start_id == 2
    assert heedful("translate", tmp_path / "bundle", stdin=b"s0 s7\n").code == 0
    refused = heedful("import", source, "-o", tmp_path / "b", "--tgt-lang", "de")
    assert "there is no choice of languages" in refused.err
    lines = ("a b c ab", "c b a bc")
    model = sentencepiece_model(lines, "bpe", 12)
    (source.parent if source.is_file() else source).joinpath("subwords.model").write_bytes(model)
    if layout == "eole":
        file = source / "config.json"
        names = {f"{each}_subword_model": "${MODEL_PATH}/subwords.model" for each in ("src", "tgt")}
        more = {"transforms": ["sentencepiece"], "transforms_configs": {"sentencepiece": names}}
        file.write_text(json.dumps(json.loads(file.read_text()) | more))
    else:
        saved: Any = read_pickled(source)
        options = vars(saved["opt"]) | {"transforms": ["sentencepiece", "filtertoolong"]}
        options |= {f"{each}_subword_model": "/far/away/subwords.model" for each in ("src", "tgt")}
        torch.save(saved | {"opt": argparse.Namespace(**options)}, source.with_suffix(".new"))
        source.with_suffix(".new").replace(source)
    found, network = imported(layout, source)
    assert found.tokenizers is not None
    assert found.tokenizers.src.kind == "bpe"
    assert found.notes == ()
    assert Translator(Bundle(found.config, found.tokenizers, network)).translate(["ab c"])


def test_what_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    torch.save({"model": {"x": torch.ones(2, 2)}, "opt": 3, "vocab": {}, "generator": {}}, tmp_path / "m.pt")
    with pytest.raises(InteropError):
        imported("opennmt-py", tmp_path / "m.pt")
    with pytest.raises(InteropError, match=r"config\.json"):
        imported("eole", tmp_path)


class TextMultiField:
    """What a vocabulary of version 2 is made of: a class of the package, which is not executed."""


def test_a_checkpoint_of_version_2_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("onmt.inputters.text_dataset")
    monkeypatch.setattr(TextMultiField, "__module__", module.__name__)
    monkeypatch.setattr(module, "TextMultiField", TextMultiField, raising=False)
    for name in ("onmt", "onmt.inputters", module.__name__):
        monkeypatch.setitem(sys.modules, name, module)
    saved: Any = read_pickled(GOLDEN / "opennmt-py" / "interleaved" / "model_step_7.pt")
    torch.save(saved | {"vocab": {"src": TextMultiField()}}, tmp_path / "model.pt")
    for more in ((), ("--layout", "opennmt-py")):
        outcome = heedful("import", tmp_path / "model.pt", "-o", tmp_path / "bundle", *more)
        message = "of OpenNMT-py 2 or older, whose vocabulary is code; give one of 3"
        assert_one_clear_line(outcome, 1, message)
