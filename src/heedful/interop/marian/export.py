"""Export a bundle for transformers' MarianMTModel and MarianTokenizer."""

import json
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from heedful.bundle import CARD_FILE, Bundle
from heedful.errors import InteropError
from heedful.interop.huggingface.generation import write_search
from heedful.interop.huggingface.pretrained import CONFIG_FILE, GENERATION_FILE, TOKENIZER_FILE
from heedful.interop.marian.readme import readme
from heedful.interop.marian.weights import ACTIVATIONS, marian_tensors, refuse_what_marian_lacks
from heedful.interop.new_directory import new_directory
from heedful.text import SentencePieceTokenizer, Tokenizer, VocabularyTokenizer
from heedful.text.framing import Framing
from heedful.text.vocabulary_tokenizer import TOKENS

_MAX_POSITIONS = 1024  # transformers' table of sinusoids has a fixed size


def export_marian(bundle: Bundle, output: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors, the tokenizer files and a README.

    The logits are the same. Search settings that `generate` lacks are approximated, and the README says so.

    Args:
        bundle: the model; it is not changed.
        output: the directory to create, atomically.

    Raises:
        RunError: the output exists.
        InteropError: Marian does not support the model or the tokenizer, or the directory cannot be written.
    """
    refuse_what_marian_lacks(bundle.model.config)
    framing = Framing.of(bundle.config, bundle.tokenizers)
    _refuse_other_framing(bundle, framing)
    files = _tokenizer_files(bundle)
    settings = {
        CONFIG_FILE: _architecture(bundle, framing),
        GENERATION_FILE: write_search(
            bundle.config.decode, framing, bundle.tokenizers.tgt, max_positions=_MAX_POSITIONS
        ),
        TOKENIZER_FILE: _tokenizer_settings(bundle),
    }
    with new_directory(output) as directory:
        for name, content in files.items():
            (directory / name).write_bytes(content)
        for name, values in settings.items():
            text = json.dumps(values, indent=2, sort_keys=True)
            (directory / name).write_text(f"{text}\n", encoding="utf-8")
        (directory / CARD_FILE).write_text(
            readme(bundle, framing, max_positions=_MAX_POSITIONS), encoding="utf-8"
        )
        save_file(marian_tensors(bundle.model), directory / "model.safetensors", metadata={"format": "pt"})


def _refuse_other_framing(bundle: Bundle, framing: Framing) -> None:
    """Refuse other templates than Marian's: an end token, and a tag such as `>>fra<<` before the source."""
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    tags = [src.pieces([i])[0] for i in framing.src_prefix]
    if framing.src_suffix != (src.eos_id,) or not all(tag.startswith(">>") for tag in tags):
        raise InteropError(
            f"--to marian: MarianMT does not support languages.src_tag={bundle.config.languages.src_tag!r}; "
            "use --to ctranslate2 or onnx"
        )
    for kind in ("pad", "eos"):
        one, other = getattr(src, f"{kind}_id"), getattr(tgt, f"{kind}_id")
        if one != other:
            raise InteropError(
                f"--to marian: the {kind} token is {one} in the source and {other} in the target; "
                "MarianTokenizer has one number for it; use --to ctranslate2 or onnx"
            )


def _tokenizer_files(bundle: Bundle) -> dict[str, bytes]:
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    files = {"source.spm": _model(src), "target.spm": _model(tgt), "vocab.json": _vocabulary(src)}
    return files | ({"target_vocab.json": _vocabulary(tgt)} if _are_separate(bundle) else {})


def _model(tokenizer: Tokenizer) -> bytes:
    """Return the SentencePiece model."""
    if not isinstance(tokenizer, SentencePieceTokenizer | VocabularyTokenizer):
        raise InteropError(
            "--to marian: MarianTokenizer needs a SentencePiece model, but this model's tokenizer is a "
            "tokenizer.json; use --to ctranslate2 or onnx"
        )
    return next(iter(tokenizer.to_files().values()))


def _vocabulary(tokenizer: Tokenizer) -> bytes:
    ids = {token: i for i, token in enumerate(tokenizer.pieces(range(tokenizer.vocab_size)))}
    return f"{json.dumps(ids, ensure_ascii=False, indent=0)}\n".encode()


def _are_separate(bundle: Bundle) -> bool:
    return _vocabulary(bundle.tokenizers.src) != _vocabulary(bundle.tokenizers.tgt)


def _tokenizer_settings(bundle: Bundle) -> dict[str, Any]:
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    names = {kind: src.pieces([getattr(src, f"{kind}_id")])[0] for kind in ("pad", "unk", "bos", "eos")}
    if names["bos"] == names["pad"]:
        del names["bos"]
    return {f"{kind}_token": name for kind, name in names.items()} | {
        "additional_special_tokens": [tag for tag in src.tags() if not tag.startswith(">>")],
        "clean_up_tokenization_spaces": cleans_up_spaces(tgt),
        "model_max_length": _MAX_POSITIONS,
        "separate_vocabs": _are_separate(bundle),
        "tokenizer_class": "MarianTokenizer",
    }


def cleans_up_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether decoding removes the spaces before punctuation."""
    if not isinstance(tokenizer, VocabularyTokenizer):
        return False
    return json.loads(tokenizer.to_files()[TOKENS])["clean_up_spaces"] is True


def _architecture(bundle: Bundle, framing: Framing) -> dict[str, Any]:
    model, tgt = bundle.model.config, bundle.tokenizers.tgt
    sizes = {
        f"{stack}_{key}": value
        for stack in ("encoder", "decoder")
        for key, value in (("attention_heads", model.num_heads), ("ffn_dim", model.d_ff))
    }
    return sizes | {
        "activation_dropout": model.activation_dropout,
        "activation_function": ACTIVATIONS[model.activation],
        "architectures": ["MarianMTModel"],
        "attention_dropout": model.attention_dropout,
        "d_model": model.d_model,
        "decoder_layers": model.num_decoder_layers,
        "decoder_start_token_id": framing.start_id,
        "decoder_vocab_size": model.tgt_vocab_size,
        "dropout": model.dropout,
        "dtype": "float32",
        "encoder_layers": model.num_encoder_layers,
        "eos_token_id": tgt.eos_id,
        "forced_eos_token_id": bundle.config.decode.forced_last_id,
        "is_encoder_decoder": True,
        "max_position_embeddings": _MAX_POSITIONS,
        "model_type": "marian",
        "pad_token_id": tgt.pad_id,
        "scale_embedding": model.scale_embeddings,
        "share_encoder_decoder_embeddings": model.tied == "all",
        "tie_word_embeddings": model.tied != "none",
        "vocab_size": model.src_vocab_size,
    }
