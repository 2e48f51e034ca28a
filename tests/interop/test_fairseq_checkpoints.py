"""Checkpoints of fairseq: equal to transformers' port of its model, arguments and dictionaries included."""

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import Outcome, heedful
from fairseq_system import Fairseq
from tolerances import FLOAT32, assert_close
from torch import Tensor

from heedful import Translator, load_bundle
from heedful.errors import InteropError
from heedful.interop.fairseq_dictionaries import read_dictionary
from heedful.interop.layouts import read_layout
from heedful.model.transformer import Transformer
from heedful.storage.torch_weights import assign_weights, meta_model

pytestmark = pytest.mark.filterwarnings(
    "ignore:builtin type .*has no __module__ attribute:DeprecationWarning"
)
PAD, EOS = 1, 2
SRC_VOCAB, TGT_VOCAB = 24, 16
ARGUMENTS: dict[str, Any] = {
    "arch": "transformer_iwslt_de_en", "dropout": 0.3, "attention_dropout": 0.1, "activation_dropout": 0.0,
    "encoder_attention_heads": 3, "decoder_attention_heads": 3, "encoder_normalize_before": False,
    "decoder_normalize_before": False, "encoder_learned_pos": False, "decoder_learned_pos": False,
    "activation_fn": "relu", "no_scale_embedding": False, "adaptive_softmax_cutoff": None, "lr": [0.0005],
}  # fmt: skip


def port() -> Any:  # noqa: ANN401
    """transformers' port of fairseq's transformer, with random weights."""
    from transformers import FSMTConfig, FSMTForConditionalGeneration

    config = FSMTConfig(
        langs=["en", "de"], src_vocab_size=SRC_VOCAB, tgt_vocab_size=TGT_VOCAB, d_model=12, encoder_layers=2,
        decoder_layers=2, encoder_attention_heads=3, decoder_attention_heads=3, encoder_ffn_dim=20,
        decoder_ffn_dim=20, max_position_embeddings=64, scale_embedding=True, activation_function="relu",
        tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(5)
    model = FSMTForConditionalGeneration(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                noise = torch.randn_like(parameter)
                is_gain = "norm" in name and name.endswith("weight")
                parameter.copy_(1.0 + 0.2 * noise if is_gain else 0.5 * noise)
    return model


def fairseqs_names(model: Any) -> dict[str, Tensor]:  # noqa: ANN401
    """The weights of the port as fairseq saves them."""
    tensors = {
        name.removeprefix("model."): tensor
        for name, tensor in model.state_dict().items()
        if "embed_positions" not in name
    }
    number = torch.tensor([3.0])
    return tensors | {
        f"{side}.{name}": number
        for side in ("encoder", "decoder")
        for name in ("version", "embed_positions._float_tensor")
    }


def of_2018(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """The names that fairseq had then."""
    numbers = {"self_attn_layer_norm": (0, 0), "encoder_attn_layer_norm": (1, 1), "final_layer_norm": (1, 2)}
    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        outer, _, part = module.rpartition(".")
        if part in numbers:
            number = numbers[part][name.startswith("decoder")]
            found[f"{outer}.layer_norms.{number}.{kind}"] = tensor
        elif part == "q_proj":
            rows = [tensors[f"{outer}.{each}_proj.{kind}"] for each in "qkv"]
            found[f"{outer}.in_proj_{kind}"] = torch.cat(rows)
        elif part not in ("k_proj", "v_proj"):
            found[name.replace("output_projection.weight", "embed_out")] = tensor
    return found


def batch() -> tuple[Tensor, Tensor]:
    src = torch.tensor([[5, 9, 23, 7, EOS], [8, 11, EOS, PAD, PAD], [4, 4, 20, EOS, PAD]])
    return src, torch.tensor([[EOS, 5, 15, 7], [EOS, 9, PAD, PAD], [EOS, 3, 4, PAD]])


def assert_same_logits(theirs: Any, ours: Transformer) -> None:  # noqa: ANN401
    src, tgt_in = batch()
    with torch.no_grad():
        wanted = theirs(
            input_ids=src, attention_mask=(src != PAD).long(), decoder_input_ids=tgt_in, use_cache=False
        ).logits
    real = tgt_in != PAD
    assert wanted[real].abs().mean() > 0.5
    assert_close(ours(src, tgt_in)[real], wanted[real], FLOAT32.MODEL)


def test_logits_are_those_of_transformers_port() -> None:
    theirs = port()
    for tensors in (fairseqs_names(theirs), of_2018(fairseqs_names(theirs))):
        found = read_layout("fairseq", tensors, beside={"args": argparse.Namespace(**ARGUMENTS)})
        model = meta_model(found.config)
        assign_weights(model, found.weights)
        assert_same_logits(theirs, model.eval())


def newer(arguments: dict[str, Any]) -> dict[str, Any]:
    return {
        "args": None,
        "cfg": {"_name": None, "model": argparse.Namespace(_name="transformer", **arguments)},
    }


def newest(arguments: dict[str, Any]) -> dict[str, Any]:
    """Those of a stack stand together."""
    sides: dict[str, Any] = {"encoder": {}, "decoder": {}}
    others = {}
    for key, value in arguments.items():
        side, _, name = key.partition("_")
        sides.get(side, others)[name if side in sides else key] = value
    return {"cfg": {"model": {**others, **sides}}}


@pytest.mark.parametrize("form", [lambda a: {"args": argparse.Namespace(**a)}, newer, newest])
def test_arguments_are_read_in_all_their_forms(form: Any) -> None:  # noqa: ANN401
    model = Fairseq(SRC_VOCAB, TGT_VOCAB, 12, 3, 20, 2, pre_norm=True)
    arguments = ARGUMENTS | {"activation_fn": "gelu", "no_scale_embedding": True}
    arguments |= {f"{side}_{key}": True for side in ("encoder", "decoder") for key in ("normalize_before",)}
    config = read_layout("fairseq", model.state_dict(), beside=form(arguments)).config
    assert (config.num_heads, config.norm, config.activation, config.positions) == (
        3,
        "pre",
        "gelu",
        "learned",
    )
    assert (config.dropout, config.attention_dropout, config.scale_embeddings) == (0.3, 0.1, False)
    assert (config.src_pad_id, config.tgt_pad_id, config.decoder_start_id) == (PAD, PAD, EOS)
    assert config.max_positions == 9
    assert config.embedding_norm


@pytest.mark.parametrize(
    "changes",
    [
        {"decoder_attention_heads": 4}, {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"activation_fn": "tanh"}, {"adaptive_softmax_cutoff": "5,10"},
        {"no_token_positional_embeddings": True}, {"cross_self_attention": True},
    ],
)  # fmt: skip
def test_arguments_that_cannot_be_followed_are_named(changes: dict[str, Any]) -> None:
    tensors = fairseqs_names(port())
    with pytest.raises(InteropError, match=next(iter(changes))):
        read_layout("fairseq", tensors, beside={"args": argparse.Namespace(**(ARGUMENTS | changes))})


def test_without_arguments_the_heads_must_be_said() -> None:
    with pytest.raises(InteropError, match=r"model\.num_heads"):
        read_layout("fairseq", fairseqs_names(port()))


def run_import(directory: Path) -> Outcome:
    """A checkpoint as the trainer writes it, with dictionaries; the target's does not fill up to 16."""
    state = {
        "args": argparse.Namespace(**ARGUMENTS),
        "model": fairseqs_names(port()),
        "optimizer_history": [{"num_updates": 3, "lr_scheduler_state": {"best": 1.5}}],
        "extra_state": {"epoch": 2},
        "last_optimizer_state": {"state": {0: {"exp_avg": torch.zeros(3)}}},
    }
    torch.save(state, directory / "checkpoint_best.pt")
    words = [f"w{i} {100 - i}" for i in range(SRC_VOCAB - 4)]
    (directory / "dict.en.txt").write_text("\n".join([*words, ""]), encoding="utf-8")
    (directory / "dict.de.txt").write_text("ein 9\nHund 8\nbellt@@ 7\n. 5\n,@ 1\nx 1\n", encoding="utf-8")
    return heedful(
        "import", directory / "checkpoint_best.pt", "--layout", "fairseq", "--output", directory / "bundle",
        "--src-vocab", directory / "dict.en.txt", "--tgt-vocab", directory / "dict.de.txt",
    )  # fmt: skip


def test_a_checkpoint_with_dictionaries_becomes_a_bundle_that_translates(tmp_path: Path) -> None:
    outcome = run_import(tmp_path)
    assert (outcome.code, outcome.out) == (0, f"{tmp_path / 'bundle'}\n")
    bundle = load_bundle(tmp_path / "bundle")
    assert_same_logits(port(), bundle.model)
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    assert src.encode("w0 w19 nothing") == [4, 23, 3]
    assert (src.bos_id, src.pad_id, src.eos_id, src.unk_id) == (0, 1, 2, 3)
    assert tgt.tokens(range(4, 16))[:6] == ["▁ein", "▁Hund", "▁bellt@@", "▁.", "▁,@", "▁x"]
    assert tgt.tokens([15]) == ["▁madeupword0005"]
    assert len(Translator(bundle).translate(["w1 w2"])) == 1


def test_a_dictionary_of_another_size_or_form_is_one_line(tmp_path: Path) -> None:
    file = tmp_path / "dict.txt"
    file.write_text("a 3\nb 2\n", encoding="utf-8")
    assert read_dictionary(file, 6)[4:] == ["a", "b"]
    assert read_dictionary(file, 8)[6:] == ["madeupword0000", "madeupword0001"]
    for size in (5, 7, 16):
        with pytest.raises(InteropError, match=f"{size}"):
            read_dictionary(file, size)
    file.write_text("a 3\nb\n", encoding="utf-8")
    with pytest.raises(InteropError, match="line 2"):
        read_dictionary(file, 6)
