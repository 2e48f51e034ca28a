"""Write the small models of tests/golden/opennmt, and let OpenNMT-py or Eole compute their logits.

The weights are drawn with a seed. Position tables, which have 5,000 rows there, are cut to 64.

    PYTHONPATH=PACKAGES python tools/opennmt_fixtures.py opennmt-py
    PYTHONPATH=PACKAGES python tools/opennmt_fixtures.py eole

PACKAGES is a folder with OpenNMT-py 3.5.1, or with Eole 0.6.4, and what they import besides torch.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

OUTPUT = Path(__file__).parent.parent / "tests" / "golden" / "opennmt"
ROWS = 64  # of a position table
SPECIAL = ["<unk>", "<blank>", "<s>", "</s>"]
SRC = [*SPECIAL, *(f"s{i}" for i in range(19))]
TGT = [*SPECIAL, *(f"t{i}" for i in range(13))]
SIZES = {"heads": 4, "enc_layers": 2, "dec_layers": 1, "transformer_ff": 20, "hidden_size": 16}
MODELS: dict[str, dict[str, Any]] = {
    "interleaved": {"position_encoding": True},
    "concatenated": {
        "position_encoding": True,
        "position_encoding_type": "SinusoidalConcat",
        "pos_ffn_activation_fn": "gated-gelu",
        "add_qkvbias": True,
        "add_ffnbias": True,
        "num_kv": 2,
        "norm_eps": 1e-4,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
    },
    "rotary": {"max_relative_positions": -1, "pos_ffn_activation_fn": "silu", "layer_norm": "rms"},
    "rotary-halves": {"max_relative_positions": -1, "rotary_interleave": False},
}


def main() -> None:
    """Write the models of one system."""
    system = sys.argv[1]
    for name, settings in MODELS.items():
        directory = OUTPUT / system / name
        directory.mkdir(parents=True, exist_ok=True)
        torch.manual_seed(7)
        shared = settings.get("share_embeddings", False)
        src_size, tgt_size = len(TGT if shared else SRC), len(TGT)
        src, tgt = (torch.randint(4, size, (3, 11)) for size in (src_size, tgt_size))
        lengths = torch.tensor([11, 4, 7])
        for row, length in enumerate(lengths.tolist()):
            src[row, length:] = 1
        tgt[:, 0] = 2
        judge = {"opennmt-py": judge_opennmt, "eole": judge_eole}[system]
        with torch.no_grad():
            logits = judge(settings, TGT if shared else SRC, (src, tgt, lengths), directory)
        judged = {"src": src, "tgt": tgt, "logits": logits.float()}
        save_file(
            {key: value.contiguous() for key, value in judged.items()}, directory / "judged.safetensors"
        )


def randomise(model: nn.Module) -> None:
    """Draw every weight, also gains and biases."""
    for name, parameter in model.named_parameters():
        noise = torch.randn_like(parameter)
        is_gain = "norm" in name and name.endswith("weight")
        parameter.copy_(1 + 0.2 * noise if is_gain else 0.3 * noise)


def cut(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with shorter position tables."""
    return {
        name: tensor[:ROWS].clone() if name.endswith("pe.pe") else tensor for name, tensor in tensors.items()
    }


def judge_opennmt(
    settings: dict[str, Any], words: list[str], batch: tuple[Tensor, Tensor, Tensor], directory: Path
) -> Tensor:
    """Save a model as OpenNMT-py does, and return its logits."""
    from onmt.inputters.inputter import dict_to_vocabs, vocabs_to_dict
    from onmt.model_builder import build_base_model
    from onmt.opts import train_opts
    from onmt.utils.parse import ArgumentParser

    parser = ArgumentParser()
    train_opts(parser)
    options, _ = parser.parse_known_args(["-data", "x", "-src_vocab", "x", "-save_model", "x"])
    vars(options).update(encoder_type="transformer", decoder_type="transformer", position_encoding=False)
    vars(options).update(word_vec_size=16, src_word_vec_size=16, tgt_word_vec_size=16, enc_hid_size=16)
    vars(options).update(dec_hid_size=16, dropout=[0.1], attention_dropout=[0.0], data=None)
    vars(options).update(SIZES | settings)
    lists = {"src": words, "tgt": TGT, "data_task": "seq2seq", "decoder_start_token": "<s>"}
    vocabularies = dict_to_vocabs(lists)
    model = build_base_model(options, vocabularies).eval()
    randomise(model)
    state = {name: each for name, each in model.state_dict().items() if "generator" not in name}
    checkpoint = {
        "model": cut(state),
        "generator": dict(model.generator.state_dict()),
        "vocab": vocabs_to_dict(vocabularies),
        "opt": options,
        "optim": {},
    }
    torch.save(checkpoint, directory / "model_step_7.pt")
    src, tgt, lengths = batch
    encoded, state_after, lengths = model.encoder(src[:, :, None], lengths)
    model.decoder.init_state(src[:, :, None], encoded, state_after)
    states, _ = model.decoder(tgt[:, :, None], encoded, src_len=lengths)
    logits: Tensor = model.generator(states)
    return logits


def judge_eole(
    settings: dict[str, Any], words: list[str], batch: tuple[Tensor, Tensor, Tensor], directory: Path
) -> Tensor:
    """Save a model as Eole does, and return its logits."""
    from eole.config import recursive_model_fields_set
    from eole.config.models import TransformerModelConfig
    from eole.inputters.inputter import dict_to_vocabs, vocabs_to_dict
    from eole.models.model import EncoderDecoderModel

    rotary = settings.get("max_relative_positions") == -1
    names = {"pos_ffn_activation_fn": "mlp_activation_fn", "num_kv": "heads_kv"}
    kept = (
        "add_qkvbias",
        "add_ffnbias",
        "norm_eps",
        "layer_norm",
        "share_embeddings",
        "share_decoder_embeddings",
    )
    values = {key: settings[key] for key in kept if key in settings}
    values |= {names[key]: settings[key] for key in names if key in settings}
    if values.get("mlp_activation_fn") == "silu":
        values["mlp_activation_fn"] = "gated-silu"
    if rotary:
        values["rope_config"] = {"rotary_interleave": settings.get("rotary_interleave", True)}
    kind = "Rotary" if rotary else settings.get("position_encoding_type", "SinusoidalInterleaved")
    config = TransformerModelConfig(
        heads=4,
        hidden_size=16,
        transformer_ff=20,
        embeddings={"word_vec_size": 16, "position_encoding_type": kind},
        encoder={"layers": 2},
        decoder={"layers": 1, "with_cross_attn": True},
        **values,
    )
    lists: dict[str, Any] = {"src": words, "tgt": TGT, "decoder_start_token": "<s>"}
    lists["specials"] = {
        "bos_token": "<s>",
        "pad_token": "<blank>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
    }
    vocabularies = dict_to_vocabs(lists)
    model = EncoderDecoderModel.build_blocks(config, vocabularies).eval()
    model.build_generator(config, None, vocabularies)
    randomise(model)
    state = cut(dict(model.state_dict()))
    if config.share_embeddings:
        state.pop("tgt_emb.embeddings.weight")
    if config.share_decoder_embeddings:
        state.pop("generator.weight")
    save_file(
        {key: each.contiguous().clone() for key, each in state.items()}, directory / "model.00.safetensors"
    )
    saved = {"model": recursive_model_fields_set(config), "training": {"dropout": [0.1]}}
    (directory / "config.json").write_text(json.dumps(saved, indent=1))
    (directory / "vocab.json").write_text(json.dumps(vocabs_to_dict(vocabularies)))
    src, tgt, _ = batch
    pad_mask = (src == 1).unsqueeze(1)
    encoded, _ = model.encoder(model.src_emb(src), pad_mask=pad_mask)
    model.decoder.init_state(src=src, enc_out=encoded)
    states, _ = model.decoder(
        model.tgt_emb(tgt), enc_out=encoded, src_pad_mask=pad_mask, tgt_pad_mask=(tgt == 1).unsqueeze(1)
    )
    logits: Tensor = model.generator(states)
    return logits


if __name__ == "__main__":
    main()
