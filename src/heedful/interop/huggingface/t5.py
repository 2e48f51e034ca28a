"""Read T5, T5 1.1, FLAN-T5, mT5, UMT5, ByT5 and MADLAD-400 as saved by transformers.

They are pre-norm with RMSNorm, have no biases, and see positions by relative biases alone. Their attention
does not divide scores by sqrt(d_kv), so queries are scaled here. T5 1.0 divides the decoder's output by
sqrt(d_model), so the gain of its last norm is scaled.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from heedful.interop.conversion import STACKS, Conversion, Imported, same_numbers, scaled
from heedful.interop.fairseq import move_tokens
from heedful.interop.huggingface.added_tokens import with_added_tokens
from heedful.interop.huggingface.generation import read_search, read_start_id
from heedful.interop.huggingface.pretrained import (
    PIPELINE_FILE,
    TOKENIZER_FILE,
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
)
from heedful.interop.huggingface.reading import (
    ACTIVATIONS,
    ReadSettings,
    TextSettings,
    assemble,
    check_keys,
    check_special_ids,
    tokenizer_of_pipeline,
    vocabulary_tokenizer,
)
from heedful.settings.parsing import shown
from heedful.text import ByteTokenizer, Tokenizer, TokenizerPair
from heedful.text.sentencepiece_tokenizer import load_sentencepiece
from heedful.text.tokenizer import is_sentinel

LAYOUT = "t5"
FAMILIES = ("t5", "mt5", "umt5")
_MODEL_FILE = "spiece.model"
_USUAL_SENTINELS = 100
# Tokens of a source in the training of the published T5s; of mT5, UMT5 and ByT5.
_USUAL_SOURCE, _LONG_SOURCE = 512, 1024
# Keys of config.json, and their names in this package.
_NUMBERS = {
    "d_model": "d_model",
    "d_ff": "d_ff",
    "num_heads": "num_heads",
    "num_layers": "num_encoder_layers",
    "num_decoder_layers": "num_decoder_layers",
    "relative_attention_num_buckets": "relative_buckets",
    "relative_attention_max_distance": "relative_max_distance",
    "layer_norm_epsilon": "layer_norm_eps",
}
# The classes' own defaults, where a file lacks the key.
_DEFAULTS = {
    "d_kv": 64,
    "dropout_rate": 0.1,
    "feed_forward_proj": "relu",
    "layer_norm_epsilon": 1e-6,
    "relative_attention_num_buckets": 32,
    "relative_attention_max_distance": 128,
}
_OTHERS = ("dense_act_fn", "initializer_factor", "is_gated_act", "n_positions", "scalable_attention")
_ATTENTION = {"q": "query", "k": "key", "v": "value", "o": "output"}


def read_t5(directory: PretrainedDirectory, options: ImportOptions) -> ImportedBundle:
    """Read a directory of T5, mT5 or UMT5; ByT5 and MADLAD-400 are T5s with other tokenizers.

    Sentinels, and ids that no token has, are never written.

    Raises:
        InteropError: a file is missing, or has settings that are not supported.
        TokenizerError: the tokenizer files are not usable, or a language has no tag.
        ConfigError: the settings are invalid.
    """
    config = {key: value for key, value in directory.config.items() if value is not None}
    gates = {"feed_forward_proj": "gated-gelu"} if config.get("model_type") in ("mt5", "umt5") else {}
    config = _DEFAULTS | gates | config
    check_keys(
        directory, FAMILIES, known=[*_NUMBERS, *_DEFAULTS, *_OTHERS, "scale_decoder_outputs"], fixed={}
    )
    search = read_search(directory)
    text = _read_text(directory, options) if directory.has_tokenizer else None
    is_long = bool(gates) or (text is not None and text.tokenizers.src.kind == "byte")
    usual = _LONG_SOURCE if is_long else _USUAL_SOURCE
    search["max_source_tokens"] = directory.typed().whole_number("n_positions") or usual
    read = ReadSettings(model=_architecture(directory, config), search=search, text=text)
    convert = partial(_convert, directory=directory, scales=_scales_outputs(directory.config))
    imported = assemble(directory, options, read, convert, layout=LAYOUT)
    return imported if text is None else _without_sentinels(imported, text.tokenizers.tgt)


def _architecture(directory: PretrainedDirectory, config: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of `ModelConfig`."""
    facts = {ours: config[theirs] for theirs, ours in _NUMBERS.items() if theirs in config}
    proj = config["feed_forward_proj"]
    kind, _, activation = proj.rpartition("-") if isinstance(proj, str) else ("", "", "")
    activation = config.get("dense_act_fn") or ("gelu_new" if proj == "gated-gelu" else activation)
    gated = kind == "gated"
    if kind not in ("", "gated") or not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise directory.error(
            f"feed_forward_proj={shown(proj)} is unknown; there are {', '.join(ACTIVATIONS)}, and each with "
            "'gated-' before it"
        )
    if config.get("is_gated_act", gated) is not gated:
        raise directory.error(f"is_gated_act={shown(config['is_gated_act'])} contradicts {shown(proj)}")
    return facts | {
        "activation": ACTIVATIONS[activation],
        "attention_bias": False,
        "d_k": config["d_kv"],
        "d_v": config["d_kv"],
        **dict.fromkeys(("dropout", "attention_dropout", "activation_dropout"), config["dropout_rate"]),
        "feed_forward_bias": False,
        "gated": gated,
        "norm": "pre",
        "norm_kind": "rms",
        "relative_per_layer": config["model_type"] == "umt5",
        "scale_embeddings": False,
    }


def _scales_outputs(config: Mapping[str, Any]) -> bool | None:
    """Return whether the decoder's output is divided by sqrt(d_model); None: if its matrix is the embedding.

    A file of transformers 4 says it by `tie_word_embeddings`. Version 5 writes true there for all families,
    and the truth into `scale_decoder_outputs` for T5 alone; its mT5 never scales.
    """
    scales, tied = config.get("scale_decoder_outputs"), config.get("tie_word_embeddings")
    if isinstance(scales, bool):
        return scales
    is_old = re.match("[5-9]|[1-9][0-9]", str(config.get("transformers_version", ""))) is None
    if config["model_type"] == "mt5":
        return is_old and tied is True
    return None if tied and not is_old and config["model_type"] == "umt5" else tied is not False


def _convert(conversion: Conversion, *, directory: PretrainedDirectory, scales: bool | None) -> Imported:
    if scales is None:
        _refuse_unclear_scale(conversion, directory)
    root = math.sqrt(conversion.required("d_k"))
    for stack in STACKS:
        for i in range(conversion.num_layers(f"{stack}.block")):
            _move_layer(conversion, stack, i)
            for attention in ("self_attention", "cross_attention")[: 1 + (stack == "decoder")]:
                conversion.scale(f"{stack}.layers.{i}.{attention}.query.weight", root)
        conversion.move(f"{stack}.final_layer_norm.weight", f"{stack}.final_norm.weight")
    unused = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
    if unused in conversion.left:  # in older files; transformers ignores it too
        conversion.take(unused)
    move_tokens(conversion, shared="shared.weight", output="lm_head.weight")
    imported = conversion.finish(norm="pre", positions="relative")
    if scales is not False:
        name = "decoder.final_norm.weight"
        imported.weights[name] = scaled(imported.weights[name], imported.config.d_model**-0.5)
    return imported


def _move_layer(conversion: Conversion, stack: str, i: int) -> None:
    """Move one layer: its attentions, its feed-forward network, and the norm before each of them."""
    theirs, ours = f"{stack}.block.{i}.layer", f"{stack}.layers.{i}"
    attentions = {"self_attention": "SelfAttention"}
    if stack == "decoder":
        attentions["cross_attention"] = "EncDecAttention"
    for number, (part, other) in enumerate(attentions.items()):
        for letter, name in _ATTENTION.items():
            conversion.move(f"{theirs}.{number}.{other}.{letter}.weight", f"{ours}.{part}.{name}.weight")
        conversion.move(f"{theirs}.{number}.layer_norm.weight", f"{ours}.{part}_norm.weight")
    biases = f"{theirs}.0.SelfAttention.relative_attention_bias.weight"
    if biases in conversion.left:
        conversion.move(biases, f"{ours}.self_attention.positions.weight")
    last = f"{theirs}.{len(attentions)}"
    gate = f"{last}.DenseReluDense.wi_0.weight" in conversion.left
    names = {"wi_0": "gate", "wi_1": "inner", "wo": "outer"} if gate else {"wi": "inner", "wo": "outer"}
    for name, part in names.items():
        conversion.move(f"{last}.DenseReluDense.{name}.weight", f"{ours}.feed_forward.{part}.weight")
    conversion.move(f"{last}.layer_norm.weight", f"{ours}.feed_forward_norm.weight")


def _refuse_unclear_scale(conversion: Conversion, directory: PretrainedDirectory) -> None:
    """Refuse a UMT5 that transformers 5 saved, if its matrices differ: the published ones are not scaled."""
    names = ("shared.weight", "lm_head.weight")
    if all(name in conversion.left for name in names) and not same_numbers(*map(conversion.look, names)):
        raise directory.error(
            "transformers 5 wrote tie_word_embeddings=true, but lm_head is not the embedding; add "
            '"scale_decoder_outputs": false for a published model, true for one trained by transformers 5'
        )


def _read_text(directory: PretrainedDirectory, options: ImportOptions) -> TextSettings:
    tokenizer = _read_tokenizer(directory)
    check_special_ids(directory, tokenizer)
    if options.src_lang is not None:
        raise directory.error(f"--src-lang {options.src_lang}: T5 has no tag for it; leave it out")
    languages = {}
    if options.tgt_lang is not None:
        languages["src_tag"] = tokenizer.tokens([tokenizer.tag_id(options.tgt_lang)])[0]
    return TextSettings(
        tokenizers=TokenizerPair(tokenizer, tokenizer),
        start_id=read_start_id(directory),
        languages=languages,
    )


def _read_tokenizer(directory: PretrainedDirectory) -> Tokenizer:
    """Load the SentencePiece model and add the sentinels, or a tokenizer.json; ByT5 has no file."""
    if directory.tokenizer_class("T5Tokenizer", "MT5Tokenizer", "ByT5Tokenizer") == "ByT5Tokenizer":
        tokens = ByteTokenizer().tokens(range(ByteTokenizer().vocab_size))
        _, added = with_added_tokens(directory, tokens)
        return ByteTokenizer([each for each in added if each.content not in tokens])
    if (directory.path / _MODEL_FILE).is_file():
        model = directory.read_bytes(_MODEL_FILE)
        spm = load_sentencepiece(model, name=_MODEL_FILE)
        tokens = [spm.id_to_piece(i) for i in range(spm.get_piece_size())]
        sentinels = _added_sentinels(directory, tokens)
        return vocabulary_tokenizer(
            directory,
            model,
            [*tokens, *sentinels],
            special=sentinels,
            starts_with_pad=True,
            in_library=True,
        )
    if not (directory.path / PIPELINE_FILE).is_file():
        raise directory.error(
            "no such file, nor is there a tokenizer.json; copy the whole directory", file=_MODEL_FILE
        )
    return tokenizer_of_pipeline(directory, starts_with_pad=True)


def _added_sentinels(directory: PretrainedDirectory, tokens: Sequence[str]) -> list[str]:
    """Return the sentinels that follow these tokens, the last first; none if they are among them."""
    count = directory.typed(TOKENIZER_FILE).whole_number("extra_ids")
    if count is None:
        count = 0 if any(map(is_sentinel, tokens)) else _USUAL_SENTINELS
    if count > len(tokens):
        raise directory.error(f"extra_ids={count:,} is more than there are tokens", file=TOKENIZER_FILE)
    return [f"<extra_id_{i}>" for i in reversed(range(count))]


def _without_sentinels(imported: ImportedBundle, tokenizer: Tokenizer) -> ImportedBundle:
    """Suppress the sentinels, and the ids that no token has."""
    tokens, size = tokenizer.tokens(range(tokenizer.vocab_size)), imported.config.model.tgt_vocab_size
    sentinels = [i for i, token in enumerate(tokens) if is_sentinel(token)]
    decode = imported.config.decode
    never = sorted({*(decode.suppressed_ids or ()), *sentinels, *range(tokenizer.vocab_size, size)})
    settings = decode.replace(suppressed_ids=tuple(never)).model_dump(exclude_unset=True)
    return replace(imported, config=imported.config.replace(decode=settings))
