"""T5's families: long texts, which outputs are scaled, shared matrices, and what is never written."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import heedful
from pretrained_models import FAMILIES, imported, logits_of
from safetensors.torch import load_file, save_file
from small_tokenizers import phrases
from ten_pairs import as_options
from tolerances import FLOAT32, assert_close

from heedful.errors import InteropError
from heedful.storage.bundle import load_bundle


@pytest.mark.parametrize("name", ["t5", "t5 1.1", "umt5"])
def test_logits_of_long_texts_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    theirs = FAMILIES[name].save(tmp_path / "model", strength=0.3)
    _, ours = imported("t5", tmp_path / "model")
    generator = torch.Generator().manual_seed(86)
    src, tgt_in = (torch.randint(3, 180, (3, length), generator=generator) for length in (301, 259))
    src[1, 150:] = src[2, 7:] = tgt_in[1, 131:] = 0
    tgt_in[:, 0] = 0
    found, wanted = (logits_of(model, src, tgt_in, ours.config) for model in (ours, theirs))
    assert wanted.abs().mean() > 0.1
    assert_close(found, wanted, FLOAT32.MODEL)


def rewritten(directory: Path, **changes: Any) -> None:  # noqa: ANN401
    """Change config.json; None removes a key."""
    settings = json.loads((directory / "config.json").read_text()) | changes
    kept = {key: value for key, value in settings.items() if value is not None}
    (directory / "config.json").write_text(json.dumps(kept))


def as_version_4(directory: Path, *, tied: bool | None) -> None:
    rewritten(directory, transformers_version="4.40.1", tie_word_embeddings=tied, scale_decoder_outputs=None)


@pytest.mark.parametrize(
    ("name", "tied", "scaled"),
    [
        ("t5", None, True), ("t5", True, True), ("t5", False, False),
        ("mt5", None, False), ("mt5", True, True), ("mt5", False, False),
        ("umt5", None, True), ("umt5", True, True), ("umt5", False, False),
    ],
)  # fmt: skip
def test_outputs_are_scaled_as_a_file_of_version_4_says(
    name: str, tied: bool | None, scaled: bool, tmp_path: Path
) -> None:
    FAMILIES[name].save(tmp_path / "model")
    as_version_4(tmp_path / "model", tied=tied)
    file = tmp_path / "model" / "model.safetensors"
    gain = load_file(file)["decoder.final_layer_norm.weight"]
    _, ours = imported("t5", tmp_path / "model")
    found = ours.get_parameter("decoder.final_norm.weight").detach()
    assert_close(found, gain * (12**-0.5 if scaled else 1.0), FLOAT32.ELEMENT)


def test_an_untied_umt5_of_version_4_is_what_transformers_computes_without_its_factor(tmp_path: Path) -> None:
    """transformers 5 divides its outputs by sqrt(d_model), for it takes every UMT5 to be tied."""
    theirs = FAMILIES["umt5"].save(tmp_path / "model", strength=0.5)
    file = tmp_path / "model" / "model.safetensors"
    output = torch.randn(theirs.lm_head.weight.shape, generator=torch.Generator().manual_seed(87))
    save_file(load_file(file) | {"lm_head.weight": 0.3 * output}, file, metadata={"format": "pt"})
    with pytest.raises(InteropError, match='add "scale_decoder_outputs"'):
        imported("t5", tmp_path / "model")
    as_version_4(tmp_path / "model", tied=False)
    _, ours = imported("t5", tmp_path / "model")
    theirs.lm_head.weight = torch.nn.Parameter(0.3 * output)
    theirs.config.tie_word_embeddings = False
    src, tgt_in = torch.tensor([[5, 17, 9, 1]]), torch.tensor([[0, 33, 4]])
    found, wanted = (logits_of(model, src, tgt_in[:, :], ours.config) for model in (ours, theirs))
    assert wanted.abs().mean() > 0.3
    assert_close(found, wanted, FLOAT32.MODEL)
    rewritten(tmp_path / "model", scale_decoder_outputs=True)
    scaled = logits_of(imported("t5", tmp_path / "model")[1], src, tgt_in, ours.config)
    assert_close(scaled * 12**0.5, wanted, FLOAT32.MODEL)


def test_what_a_file_leaves_out_is_the_default_of_its_class(tmp_path: Path) -> None:
    FAMILIES["mt5"].save(tmp_path / "model")
    wanted, _ = imported("t5", tmp_path / "model")
    less = ("feed_forward_proj", "dense_act_fn", "is_gated_act", "num_decoder_layers", "dropout_rate")
    rewritten(tmp_path / "model", **dict.fromkeys((*less, "layer_norm_epsilon", "classifier_dropout")))
    found, _ = imported("t5", tmp_path / "model")
    assert found.config == wanted.config
    assert (found.config.model.gated, found.config.model.activation) == (True, "gelu_tanh")
    assert found.config.decode.max_source_tokens == 1024


def test_embeddings_that_are_shared_while_the_output_is_not_are_stored_once(tmp_path: Path) -> None:
    FAMILIES["t5 1.1"].save(tmp_path / "model")
    found, model = imported("t5", tmp_path / "model")
    assert found.config.model.tied == "embeddings"
    assert model.encoder.embedding.tokens is model.decoder.embedding.tokens
    assert not torch.equal(model.output.weight, model.decoder.embedding.tokens.weight)
    assert [name for name in found.weights if "tokens" in name or name == "output.weight"] == [
        "encoder.embedding.tokens.weight",
        "output.weight",
    ]


def test_embeddings_may_be_by_other_names(tmp_path: Path) -> None:
    """T5X's conversions have the decoder's alone, and older files have all of them."""
    FAMILIES["t5 1.1"].save(tmp_path / "model")
    file = tmp_path / "model" / "model.safetensors"
    tensors = load_file(file)
    wanted, _ = imported("t5", tmp_path / "model")
    shared = tensors.pop("shared.weight")
    unused = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.ones(32, 3)}
    both = {f"{stack}.embed_tokens.weight": shared.clone() for stack in ("encoder", "decoder")}
    for more in ({"decoder.embed_tokens.weight": shared}, both | {"shared.weight": shared} | unused):
        save_file(tensors | more, file)
        found, _ = imported("t5", tmp_path / "model")
        assert found.config == wanted.config
        assert all(torch.equal(found.weights[name], wanted.weights[name]) for name in wanted.weights)


@pytest.mark.parametrize(
    ("name", "first", "size"), [("t5", 180, 288), ("byt5", 259, 384), ("madlad", 180, 188)]
)
def test_sentinels_and_ids_without_a_token_are_never_written(
    name: str, first: int, size: int, tmp_path: Path
) -> None:
    FAMILIES[name].save(tmp_path / "model")
    found, _ = imported("t5", tmp_path / "model")
    assert found.config.decode.suppressed_ids == tuple(range(first, size))
    assert found.config.decode.max_source_tokens == (1024 if name == "byt5" else 512)
    model = found.config.model
    wanted = (0, 1, 2) if name == "madlad" else (0, 0, 1)
    assert found.tokenizers is not None
    assert (model.decoder_start_id, model.tgt_pad_id, found.tokenizers.tgt.eos_id) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("name", ["t5 1.1", "byt5"])
def test_fine_tuning_lowers_the_loss_and_the_result_is_exported(name: str, tmp_path: Path) -> None:
    FAMILIES[name].save(tmp_path / "model", strength=0.3)
    assert heedful("import", tmp_path / "model", "--layout", "t5", "-o", tmp_path / "base").code == 0
    files = []
    for side, lines in zip(("src", "tgt"), phrases(), strict=True):
        file = tmp_path / f"text.{side}"
        file.write_text("".join(f"{line}\n" for line in lines[:20]), encoding="utf-8")
        files += [f"--{side}", file, f"--valid-{side}", file]
    settings = {
        "schedule.name": "constant", "schedule.peak": 5e-3, "schedule.warmup_steps": 5, "train.max_steps": 50,
        "train.average_checkpoints": 1, "train.processes": 1, "valid.every_steps": 10,
        "valid.decode_sentences": 0, "data.allow_overlap": "true", "data.cache_dir": tmp_path / "cache",
    }  # fmt: skip
    outcome = heedful(
        "train", *files, *as_options(settings), "--init", tmp_path / "base", "-o", tmp_path / "run"
    )
    assert outcome.code == 0, outcome.err
    log = (tmp_path / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    events = [json.loads(line) for line in log]
    losses = [event["nll"] for event in events if event["event"] == "validation"]
    assert losses[-1] < 0.8 * losses[0], losses
    bundle = load_bundle(tmp_path / "run" / "last")
    assert bundle.config.decode.suppressed_ids
    exported = heedful(
        "export", tmp_path / "run" / "last", "--to", "ctranslate2", "-o", tmp_path / "exported"
    )
    if name == "byt5":
        assert "CTranslate2 has no byte tokenizer; use --to onnx" in exported.err
    else:
        assert exported.code == 0, exported.err
