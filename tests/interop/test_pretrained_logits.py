"""Models of transformers: what is imported computes the same logits, and swapped tensors are noticed."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_models import FAMILIES, SIZES, Family, batch, imported, logits_of
from safetensors.torch import load_file, save_file
from swapped_tensors import swaps
from tolerances import FLOAT32, assert_apart, assert_close
from torch import Tensor

from heedful.errors import HeedfulError, InteropError, TokenizerError
from heedful.interop.layouts import PRETRAINED

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]
EACH = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)
MARIAN = FAMILIES["marian"]


def test_every_layout_has_a_family_to_be_compared_with() -> None:
    assert {family.layout for family in FAMILIES.values()} == set(PRETRAINED)


@EACH
def test_logits_are_those_of_transformers(family: Family, tmp_path: Path) -> None:
    theirs = family.save(tmp_path / "model", strength=0.5)
    _, ours = imported(family.layout, tmp_path / "model")
    src, tgt_in = batch(ours)
    wanted = logits_of(theirs, src, tgt_in, ours.config)
    assert wanted.abs().mean() > 0.15
    scale = float(wanted.abs().max()) if family.layout == "t5gemma" else 1.0
    bound = FLOAT32.MODEL.at(scale)
    assert_close(logits_of(ours, src, tgt_in, ours.config), wanted, bound)


@pytest.mark.parametrize("name", ["marian", "m2m100"])
def test_far_positions_are_those_of_transformers_to_the_last_bit(name: str, tmp_path: Path) -> None:
    theirs = FAMILIES[name].save(tmp_path / "model", max_position_embeddings=700)
    _, ours = imported(FAMILIES[name].layout, tmp_path / "model")
    ids = torch.full((1, 700), 9)
    wanted = theirs.model.encoder.embed_positions(*((ids.shape,) if name == "marian" else (ids,)))
    assert torch.equal(ours.encoder.embedding.positions(0, 700), wanted.reshape(700, -1))


@pytest.mark.parametrize(
    "name",
    [
        *("marian, gelu, untied", "m2m100", "bart", "pegasus", "blenderbot", "blenderbot small", "plbart"),
        *("mvp", "t5", "t5 1.1", "umt5"),
    ],
)
@pytest.mark.slow
def test_two_swapped_tensors_are_noticed(name: str, tmp_path: Path) -> None:
    layout = FAMILIES[name].layout
    FAMILIES[name].save(tmp_path / "model", encoder_layers=1)
    file = tmp_path / "model" / "model.safetensors"
    _, ours = imported(layout, tmp_path / "model")
    src, tgt_in = batch(ours)
    wanted = logits_of(ours, src, tgt_in, ours.config)
    changed = list(swaps(load_file(file), but=r"k_proj\.bias$"))  # it moves all scores of a query alike
    assert len(changed) > 15
    for what, tensors in changed:
        save_file(tensors, file)
        found = logits_of(imported(layout, tmp_path / "model")[1], src, tgt_in, ours.config)
        assert_apart(found, wanted, FLOAT32.MODEL, note=what)


def as_older_files(directory: Path, tensors: dict[str, Tensor]) -> None:
    """As transformers 4 wrote them: by torch.save, with each shared matrix and every table of positions."""
    from transformers import MarianMTModel

    model = MarianMTModel.from_pretrained(directory)
    (directory / "model.safetensors").unlink()
    torch.save(model.state_dict(), directory / "pytorch_model.bin")
    assert len(model.state_dict()) == len(tensors) + 5


def in_parts(directory: Path, tensors: dict[str, Tensor]) -> None:
    names = sorted(tensors)
    (directory / "model.safetensors").unlink()
    parts = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in parts.items():
        save_file({name: tensors[name] for name in part}, directory / file)
    weight_map = {name: file for file, part in parts.items() for name in part}
    (directory / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))


@pytest.mark.parametrize("rewrite", [as_older_files, in_parts])
def test_weights_may_be_in_other_files(rewrite: Any, tmp_path: Path) -> None:  # noqa: ANN401
    theirs = MARIAN.save(tmp_path / "model", strength=0.5)
    rewrite(tmp_path / "model", load_file(tmp_path / "model" / "model.safetensors"))
    _, ours = imported("marian", tmp_path / "model")
    assert ours.config.positions == "concatenated"
    src, tgt_in = batch(ours)
    wanted = logits_of(theirs, src, tgt_in, ours.config)
    assert_close(logits_of(ours, src, tgt_in, ours.config), wanted, FLOAT32.MODEL)


def test_half_precision_becomes_float32(tmp_path: Path) -> None:
    MARIAN.save(tmp_path / "model").half().save_pretrained(tmp_path / "model")
    found, _ = imported("marian", tmp_path / "model")
    assert {tensor.dtype for tensor in found.weights.values()} == {torch.float32}


def changed(directory: Path, file: str, changes: dict[str, Any]) -> None:
    settings = json.loads((directory / file).read_text())
    (directory / file).write_text(json.dumps(settings | changes))


REFUSED: dict[str, list[dict[str, Any]]] = {
    "marian": [
        {"decoder_attention_heads": 2}, {"encoder_ffn_dim": 8}, {"activation_function": "mish"},
        {"normalize_before": True}, {"static_position_embeddings": False}, {"rope_theta": 10000},
        {"quantization_config": {"bits": 4}}, {"d_model": 8}, {"encoder_layers": 1}, {"model_type": "t5"},
    ],
    "t5": [
        {"feed_forward_proj": "glu-relu"}, {"is_gated_act": True}, {"d_kv": 4}, {"num_heads": 5},
        {"mlp_bias": True}, {"decoder_start_token_id": None}, {"pad_token_id": 3},
    ],
    "m2m100": [{"decoder_start_token_id": 1}, {"pad_token_id": 3}],
    "bart": [{"pad_token_id": 3}, {"normalize_before": True}],
    "mbart": [{"normalize_before": False}],
    "mvp": [{"use_prompt": True}],
    "plbart": [{"add_final_layer_norm": True}],
    "pegasus": [{"normalize_before": False}, {"window_size": 4}],
    "blenderbot": [{"layernorm_variant": "xlm"}],
    "blenderbot small": [{"d_model": "x"}, {"normalize_before": True}],
    "fsmt": [{"pad_token_id": 3}],
}  # fmt: skip


@pytest.mark.representatives(3)
@pytest.mark.parametrize(
    ("name", "changes"), [(name, changes) for name, several in REFUSED.items() for changes in several]
)
def test_an_architecture_that_cannot_be_followed_is_named(
    name: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    family = FAMILIES[name]
    family.save(tmp_path / "model")
    changed(tmp_path / "model", "config.json", changes)
    ids = {key: value for key, value in changes.items() if key.endswith("_token_id")}
    changed(tmp_path / "model", "generation_config.json", ids)
    with pytest.raises(HeedfulError) as found:
        imported(family.layout, tmp_path / "model")
    names = {"d_kv": "shape", "num_heads": "shape"}  # what contradicts the weights is a shape
    key = next(iter(changes))
    assert names.get(key, key) in str(found.value)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["blenderbot", "blenderbot small"])
def test_a_size_that_is_not_stated_is_that_of_the_weights(name: str, tmp_path: Path) -> None:
    FAMILIES[name].save(tmp_path / "model")
    stated = imported("blenderbot", tmp_path / "model")[0]
    settings = json.loads((tmp_path / "model" / "config.json").read_text())
    del settings["d_model"]
    (tmp_path / "model" / "config.json").write_text(json.dumps(settings))
    inferred = imported("blenderbot", tmp_path / "model")[0]
    assert inferred.config == stated.config
    assert all(torch.equal(inferred.weights[key] + 0, each + 0) for key, each in stated.weights.items())


@pytest.mark.parametrize("file", ["config.json", "source.spm", "vocab.json", "model.safetensors"])
def test_a_missing_file_is_named(file: str, tmp_path: Path) -> None:
    MARIAN.save(tmp_path / "model")
    (tmp_path / "model" / file).unlink()
    with pytest.raises(InteropError, match=file.replace(".", r"\.")):
        imported("marian", tmp_path / "model")


def test_a_directory_of_another_family_is_refused(tmp_path: Path) -> None:
    MARIAN.save(tmp_path / "model")
    for layout in ("m2m100", "bart"):
        with pytest.raises(InteropError, match=r"model_type .*--layout"):
            imported(layout, tmp_path / "model")
    with pytest.raises(InteropError, match="nothing"):
        imported("marian", tmp_path / "nothing")


def test_languages_are_the_users_or_those_of_the_files(tmp_path: Path) -> None:
    for name in ("m2m100", "nllb", "mbart", "mbart-50"):
        FAMILIES[name].save(tmp_path / name)

    def tags(name: str, **wishes: str) -> tuple[str | None, str | None, int | None]:
        config = imported(FAMILIES[name].layout, tmp_path / name, **wishes)[0].config
        return config.languages.src_tag, config.languages.tgt_tag, config.model.decoder_start_id

    assert tags("m2m100") == ("__en__", "__de__", 2)
    assert tags("m2m100", src_lang="fr", tgt_lang="__en__") == ("__fr__", "__en__", 2)
    assert tags("nllb", tgt_lang="eng_Latn") == ("eng_Latn", "eng_Latn", 2)
    assert tags("mbart-50", src_lang="ro_RO") == ("ro_RO", "de_DE", 2)
    found, _ = imported("bart", tmp_path / "mbart", tgt_lang="ro_RO")
    assert tags("mbart", tgt_lang="ro_RO") == ("en_XX", None, found.tokenizers.tgt.tag_id("ro_RO"))
    with pytest.raises(TokenizerError, match=r"'deu'.*'deu_Latn'"):
        tags("nllb", tgt_lang="deu")
    changed(tmp_path / "nllb", "tokenizer_config.json", {"tgt_lang": None})
    with pytest.raises(InteropError, match="--tgt-lang"):
        tags("nllb")
    changed(tmp_path / "nllb", "generation_config.json", {"forced_bos_token_id": 1})
    assert tags("nllb")[1] == "<pad>"
    usual_tags = {"m2m100": "__en__", "nllb": "eng_Latn", "mbart": "en_XX", "mbart-50": "en_XX"}
    for name, usual in usual_tags.items():
        changed(tmp_path / name, "tokenizer_config.json", {"src_lang": None})
        assert tags(name)[0] == usual


@pytest.mark.parametrize(
    ("name", "language"), [("m2m100", "fr"), ("nllb", "eng_Latn"), ("mbart-50", "ro_RO")]
)
def test_of_two_target_languages_generates_is_taken(name: str, language: str, tmp_path: Path) -> None:
    FAMILIES[name].save(tmp_path)
    before, _ = imported(FAMILIES[name].layout, tmp_path)
    tag_id = before.tokenizers.tgt.tag_id(language)
    changed(tmp_path, "generation_config.json", {"forced_bos_token_id": tag_id})
    config = imported(FAMILIES[name].layout, tmp_path)[0].config
    assert config.languages.tgt_tag == before.tokenizers.tgt.tokens([tag_id])[0]
    assert config.languages.tgt_tag != before.config.languages.tgt_tag


def test_marians_source_begins_with_the_tag_of_the_target_language(tmp_path: Path) -> None:
    MARIAN.save(tmp_path / "model")
    assert imported("marian", tmp_path / "model", tgt_lang="fra")[0].config.languages.src_tag == ">>fra<<"
    with pytest.raises(InteropError, match="--src-lang"):
        imported("marian", tmp_path / "model", src_lang="en")


def test_what_the_user_says_goes_over_what_the_files_say(tmp_path: Path) -> None:
    MARIAN.save(tmp_path / "model")
    assert imported("marian", tmp_path / "model")[0].config.model.dropout == 0.1
    found, _ = imported("marian", tmp_path / "model", settings={"dropout": 0.3})
    assert (found.config.model.dropout, found.config.model.d_model) == (0.3, SIZES["d_model"])
