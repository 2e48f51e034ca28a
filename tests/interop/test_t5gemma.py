"""T5Gemma's settings, what is taken from them and what is refused by name, and its export."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from pretrained_models import FAMILIES, batch, imported, logits_of
from tiny_bundle import memorised
from tolerances import FLOAT32, assert_close

from heedful import Translator
from heedful.analysis.attention_maps import attention_of
from heedful.errors import InteropError
from heedful.interop.huggingface.t5gemma import export_t5gemma
from heedful.model.transformer import Transformer
from heedful.storage.bundle import Bundle
from heedful.text.special_tokens import SpecialTokens


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("t5gemma") / "model"
    FAMILIES["t5gemma"].save(directory)
    return directory


def changed(saved: Path, directory: Path, **values: Any) -> Path:  # noqa: ANN401
    """A copy with other settings in both stacks."""
    directory.mkdir()
    for file in saved.iterdir():
        (directory / file.name).symlink_to(file)
    config = json.loads((saved / "config.json").read_text())
    for stack in ("encoder", "decoder"):
        config[stack] |= values
    (directory / "config.json").unlink()
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types"),
        ({"layer_types": []}, "layer_types"),
        ({"layer_types": 3}, "layer_types"),
        ({"layer_types": "abc"}, "layer_types"),
        ({"layer_types": ["chunked_attention", "full_attention", "chunked_attention"]}, "layer_types"),
        ({"rope_parameters": {"type": "yarn", "factor": 4.0}}, "rope_type"),
        ({"rope_parameters": {"rope_type": "yarn"}}, "rope_type"),
        ({"rope_parameters": {"full_attention": [1], "sliding_attention": {}}}, "rope_parameters"),
        ({"rope_parameters": 3}, "rope_parameters"),
        ({"query_pre_attn_scalar": -1}, "query_pre_attn_scalar"),
        ({"query_pre_attn_scalar": 0}, "query_pre_attn_scalar"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"hidden_activation": "tanh"}, "hidden_activation"),
    ],
)
def test_a_setting_that_is_not_supported_is_refused_by_name(
    values: dict[str, Any], named: str, saved: Path, tmp_path: Path
) -> None:
    with pytest.raises(InteropError, match=named):
        imported("t5gemma", changed(saved, tmp_path / "model", **values))


def seeing_all(directory: Path) -> Path:
    """Let no layer of a saved model see a window."""
    config = json.loads((directory / "config.json").read_text())
    for stack in ("encoder", "decoder"):
        config[stack]["layer_types"] = ["full_attention"] * config[stack]["num_hidden_layers"]
    (directory / "config.json").write_text(json.dumps(config))
    return directory


@pytest.mark.parametrize(("kind", "scale"), [("default", 1.0), ("linear", 8.0)])
def test_only_linear_positions_are_divided(kind: str, scale: float, saved: Path, tmp_path: Path) -> None:
    positions = {"rope_type": kind, "factor": 8.0, "rope_theta": 1e4}
    directory = seeing_all(changed(saved, tmp_path / "model", rope_parameters=positions))
    found, model = imported("t5gemma", directory)
    assert found.config.model.rotary_scale == scale
    theirs = loaded(directory, transformers.T5GemmaForConditionalGeneration)
    src, tgt_in = batch(model)
    wanted = logits_of(theirs, src, tgt_in, model.config)
    assert_close(
        logits_of(model, src, tgt_in, model.config), wanted, FLOAT32.MODEL.at(float(wanted.abs().max()))
    )


def test_divided_positions_in_windows_are_refused(saved: Path, tmp_path: Path) -> None:
    positions = {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e4}
    with pytest.raises(InteropError, match="rope_type"):
        imported("t5gemma", changed(saved, tmp_path / "model", rope_parameters=positions))


def test_windows_without_a_base_of_their_own_are_exported_with_that_of_all(tmp_path: Path) -> None:
    FAMILIES["t5gemma 2"].save(tmp_path / "model")
    found = as_bundle(tmp_path / "model")
    config = found.config.model.replace(rotary_window_base=None)
    model = Transformer(config).eval()
    bundle = Bundle(found.config.replace(model=config.model_dump()), found.tokenizers, model)
    export_t5gemma(bundle, tmp_path / "ours")
    src, tgt_in = batch(model)
    wanted = logits_of(model, src, tgt_in, config)
    theirs = loaded(tmp_path / "ours", transformers.T5Gemma2ForConditionalGeneration)
    assert_close(logits_of(theirs, src, tgt_in, config), wanted, FLOAT32.MODEL.at(float(wanted.abs().max())))


def test_the_shallower_stack_may_have_windows_alone(saved: Path, tmp_path: Path) -> None:
    directory = changed(saved, tmp_path / "model")
    config = json.loads((directory / "config.json").read_text())
    config["encoder"]["layer_types"] = ["sliding_attention", "sliding_attention", "full_attention"]
    config["decoder"]["layer_types"] = ["sliding_attention", "sliding_attention"]
    (directory / "config.json").write_text(json.dumps(config))
    ours = as_bundle(directory)
    assert ours.config.model.full_attention_every == 3
    for every, same in ((3, 3), (4, 4), (7, 4)):  # none of the three layers sees all
        model = ours.config.model.replace(full_attention_every=every)
        bundle = Bundle(ours.config.replace(model=model.model_dump()), ours.tokenizers, Transformer(model))
        export_t5gemma(bundle, tmp_path / f"{every}")
        assert as_bundle(tmp_path / f"{every}").config.model == model.replace(full_attention_every=same)


def test_merges_without_their_prefix_are_refused(saved: Path, tmp_path: Path) -> None:
    directory = changed(saved, tmp_path / "model")
    pipeline = json.loads((directory / "tokenizer.json").read_text())
    pipeline["model"]["continuing_subword_prefix"] = "##"
    (directory / "tokenizer.json").unlink()
    (directory / "tokenizer.json").write_text(json.dumps(pipeline))
    with pytest.raises(InteropError, match="continuing_subword_prefix"):
        imported("t5gemma", directory)


def test_the_maps_of_a_merged_decoder_are_the_two_parts_of_one_attention(tmp_path: Path) -> None:
    FAMILIES["t5gemma 2"].save(tmp_path / "model")
    found, model = imported("t5gemma", tmp_path / "model")
    translator = Translator(Bundle(found.config, found.tokenizers, model))
    maps = attention_of(translator, "the cat sleeps", target="die Katze")
    theirs = transformers.T5Gemma2ForConditionalGeneration.from_pretrained(
        tmp_path / "model", attn_implementation="eager", dtype=torch.float32
    ).eval()
    src, tgt = found.tokenizers.src, found.tokenizers.tgt
    template = SpecialTokens.of(found.config, found.tokenizers)
    source, target = template.source(src.encode("the cat sleeps")), tgt.encode("die Katze")
    with torch.no_grad():
        wanted = theirs(
            input_ids=torch.tensor([source]),
            decoder_input_ids=torch.tensor([[template.start_id, *template.tgt_prefix, *target]]),
            output_attentions=True,
        )
    assert maps.is_merged
    for kind, of_kind in (("cross", wanted.cross_attentions), ("decoder", wanted.decoder_attentions)):
        for ours, (weights,) in zip(maps.of(kind), of_kind, strict=True):
            assert_close(ours.weights, weights, FLOAT32.MODEL)
    sums = [
        cross.weights.sum(-1) + own.weights.sum(-1)
        for cross, own in zip(maps.of("cross"), maps.of("decoder"), strict=True)
    ]
    assert_close(sums, np.ones_like(sums), FLOAT32.ROW)


def as_bundle(directory: Path) -> Bundle:
    found, model = imported("t5gemma", directory)
    assert found.tokenizers is not None
    return Bundle(found.config, found.tokenizers, model)


def loaded(directory: Path, kind: type) -> Any:  # noqa: ANN401
    """The model as transformers loads it, with nothing missing and nothing left over."""
    model, report = kind.from_pretrained(  # type: ignore[attr-defined]
        directory, output_loading_info=True, attn_implementation="eager"
    )
    assert not any(report.values())
    return model.eval()


@pytest.mark.parametrize("name", ["t5gemma", "t5gemma 2"])
def test_an_export_is_the_model_that_was_imported(name: str, tmp_path: Path) -> None:
    theirs = FAMILIES[name].save(tmp_path / "theirs")
    ours = as_bundle(tmp_path / "theirs")
    export_t5gemma(ours, tmp_path / "ours")
    src, tgt_in = batch(ours.model)
    wanted = logits_of(theirs, src, tgt_in, ours.config.model)
    found = logits_of(loaded(tmp_path / "ours", type(theirs)), src, tgt_in, ours.config.model)
    assert_close(found, wanted, FLOAT32.MODEL.at(float(wanted.abs().max())))
    back = as_bundle(tmp_path / "ours")
    assert back.config == ours.config
    assert back.tokenizers.fingerprint() == ours.tokenizers.fingerprint()
    weights = back.model.state_dict()
    assert all(torch.equal(weights[key], each) for key, each in ours.model.state_dict().items())
    export_t5gemma(back, tmp_path / "again")
    for file in (tmp_path / "ours").iterdir():
        assert (tmp_path / "again" / file.name).read_bytes() == file.read_bytes()


@pytest.mark.parametrize("beam_size", [1, 4])
def test_generate_finds_what_the_bundle_finds(beam_size: int, saved: Path, tmp_path: Path) -> None:
    from transformers import AutoTokenizer, T5GemmaForConditionalGeneration

    ours = as_bundle(saved)
    search = {"beam_size": beam_size, "early_stopping": "first", "max_length": 12}
    config = ours.config.replace(decode=ours.config.decode.replace(**search).model_dump())
    ours = replace(ours, config=config)
    export_t5gemma(ours, tmp_path / "ours")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "ours")
    lines = ["the cat sleeps", "a woman  reads", "x"]
    special = SpecialTokens.of(ours.config, ours.tokenizers)
    encoded = tokenizer(lines, return_tensors="pt", padding=True)
    for line, ids in zip(lines, tokenizer(lines).input_ids, strict=True):
        assert ids == special.source(ours.tokenizers.src.encode(line))
    found = loaded(tmp_path / "ours", T5GemmaForConditionalGeneration).generate(**encoded)
    wanted = Translator(ours).translate(lines)
    assert tokenizer.batch_decode(found, skip_special_tokens=True) == wanted


@pytest.mark.parametrize("tied", ["none", "target", "embeddings", "all"])
def test_matrices_that_are_shared_stay_so(tied: str, saved: Path, tmp_path: Path) -> None:
    from transformers import T5GemmaForConditionalGeneration

    ours = as_bundle(saved)
    windows = {"full_attention_every": 1, "encoder_window": None, "decoder_window": None}
    config = ours.config.model.replace(tied=tied, attention_cap=None, **windows)
    torch.manual_seed(3)
    model = Transformer(config).eval()
    export_t5gemma(
        Bundle(ours.config.replace(model=config.model_dump()), ours.tokenizers, model), tmp_path / "ours"
    )
    src, tgt_in = batch(model)
    wanted = logits_of(model, src, tgt_in, config)
    found = logits_of(loaded(tmp_path / "ours", T5GemmaForConditionalGeneration), src, tgt_in, config)
    assert_close(found, wanted, FLOAT32.MODEL.at(float(wanted.abs().max())))
    assert as_bundle(tmp_path / "ours").config.model == config


MERGED = {
    "decoder_unit": "merged",
    "query_norm": True,
    "rotary_window_base": 1e4,
    "tied": "none",
    "attention_cap": None,
}


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"norm": "pre"}, "norm"), ({"norm_kind": "layer"}, "norm_kind"), ({"gated": False}, "gated"),
        ({"encoder_window": (4, 3)}, "encoder_window"), ({"scale_embeddings": False}, "scale_embeddings"),
        ({"rotary_window_base": 2.0}, "rotary_window_base"), ({"rotary_scale": 8.0}, "rotary_scale"),
        ({"output_bias": True}, "output_bias"),
        ({"d_v": 4}, "d_v"), ({"num_heads": 5, "num_kv_heads": 5}, "num_heads"),
        (MERGED | {"attention_cap": 9.0}, "attention_cap"), (MERGED, "encoder_window"),
        (MERGED | {"encoder_window": (1, 2)}, "tied"),
    ],
)  # fmt: skip
def test_what_t5gemma_lacks_is_refused_by_name(
    values: dict[str, Any], named: str, saved: Path, tmp_path: Path
) -> None:
    ours = as_bundle(saved)
    config = ours.config.model.replace(**values)
    bundle = Bundle(ours.config.replace(model=config.model_dump()), ours.tokenizers, Transformer(config))
    with pytest.raises(InteropError, match=rf"model\.{named}="):
        export_t5gemma(bundle, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_texts_that_tokenizer_json_does_not_frame_are_refused(saved: Path, tmp_path: Path) -> None:
    ours = as_bundle(saved)
    for languages in ({"src_tag": None}, {"tgt_tag": "<bos>"}):
        config = ours.config.replace(languages=ours.config.languages.model_dump() | languages)
        with pytest.raises(InteropError, match="<bos>"):
            export_t5gemma(replace(ours, config=config), tmp_path / "ours")
    plain = ours.config.replace(languages={})
    with pytest.raises(InteropError, match=r"tokenizer\.json"):
        export_t5gemma(replace(ours, config=plain, tokenizers=memorised().tokenizers), tmp_path / "ours")
