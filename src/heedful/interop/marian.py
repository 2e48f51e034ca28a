"""MarianMT as saved by transformers: read such a directory, and export a bundle as one."""

import json
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import NoReturn

import torch
from torch import Tensor

from heedful.errors import InteropError
from heedful.interop.conversion import STACKS, Conversion, Positions, Settings, Tensors, Values
from heedful.interop.exporting import refuse_changed, refuse_lost, special_names, write_pretrained
from heedful.interop.fairseq import BIAS, POSITIONS, rows
from heedful.interop.huggingface.generation import inexact_settings, write_search
from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    PretrainedDirectory,
)
from heedful.interop.huggingface.reading import (
    KEYS,
    Family,
    keys,
    target_before_source,
    vocabulary_tokenizer,
)
from heedful.interop.tables import Table
from heedful.interop.vocabulary import GUIDED_KIND, TypedSettings, ids_of, read_words
from heedful.model.transformer import Transformer
from heedful.model.variants import concatenated_sinusoids
from heedful.settings.model import SHARED_OUTPUT, ModelConfig
from heedful.storage.bundle import Bundle
from heedful.storage.description import CARD_FILE
from heedful.text import SentencePieceTokenizer, Tokenizer, TokenizerPair, VocabularyTokenizer
from heedful.text.special_tokens import SpecialTokens
from heedful.text.vocabulary_tokenizer import TOKENS

_SHARED = "share_encoder_decoder_embeddings"
_POSITIONS = Positions(fixed=True, required=False, formula=concatenated_sinusoids)
_FACTS = {"norm": "post", "positions": "concatenated"}


def _as_shared(table: Table, conversion: Conversion) -> Table:
    """If source and target share their embedding, a matrix may be missing, because another one is used."""
    is_shared = conversion.beside.get(_SHARED, True) is True
    return replace(table, rows=rows() + POSITIONS + BIAS) if is_shared else table


_APART = Table(rows(shared=False) + POSITIONS + BIAS, positions=_POSITIONS, facts=_FACTS, adapt=_as_shared)


def _tokenizer(directory: PretrainedDirectory) -> TokenizerPair:
    """Load the tokenizers: source.spm and target.spm, with the ids of vocab.json or target_vocab.json."""
    separate = directory.tokenizer.get("separate_vocabs") is True
    models = [directory.read_bytes(name) for name in ("source.spm", "target.spm")]
    lists = [read_words(directory.path / "vocab.json")]
    lists.append(read_words(directory.path / "target_vocab.json") if separate else lists[0])
    src, tgt = (
        vocabulary_tokenizer(directory, model, tokens, starts_with_pad=True, leading_tags=True)
        for model, tokens in zip(models, lists, strict=True)
    )
    return TokenizerPair(src, src if models[0] == models[1] and not separate else tgt)


def _with_alignment(directory: PretrainedDirectory) -> Settings:
    """Return config.json, with the layer that guided alignment trained the first head of.

    MarianMT has no setting for it: heedful's exports have its own, and the cards of OPUS-MT's models name a
    kind that was trained so, in the last layer.
    """
    config, card = directory.config, directory.path / CARD_FILE
    if "alignment_layer" in config or not card.is_file():
        return config
    is_guided = GUIDED_KIND.search(card.read_text(encoding="utf-8", errors="replace")) is not None
    return {**config, "alignment_layer": config.get("decoder_layers")} if is_guided else config


_ALIGNMENT = ("alignment_layer", "alignment_heads")

MARIAN = Family(
    layout="marian",
    model_type="marian",
    weights=_APART,
    config=_with_alignment,
    keys=keys(
        read={name: (name,) for name in _ALIGNMENT},
        # Keys of an older class that today's does not support.
        fixed="""
            false  add_bias_logits add_final_layer_norm normalize_before normalize_embedding
            true   static_position_embeddings
        """,
        ignored=(_SHARED, "decoder_vocab_size"),
    ),
    classes=("MarianTokenizer",),
    tokenizer=_tokenizer,
    languages=target_before_source,
)

_REMEDY = "use --to ctranslate2 or onnx"
_MAX_POSITIONS = 1024  # transformers' table of sinusoids has a fixed size
# Last parts of names: matrices that read the residual stream by columns, and that write it by rows.
_READERS = ("query", "key", "value", "inner", "tokens")
_WRITERS = ("output", "outer")


def export_marian(bundle: Bundle, output: Path) -> None:
    """Write config.json, generation_config.json, model.safetensors, the tokenizer files and a README.

    The logits are the same. Search settings that `generate` lacks are approximated, and the README says so.

    Args:
        bundle: the model; it is not changed.
        output: the directory to create, atomically.

    Raises:
        RunError: the output exists.
        InteropError: Marian does not support the model or the tokenizer.
    """
    _refuse_what_marian_lacks(bundle.model.config)
    refuse_changed(bundle.model, "marian")
    special_tokens = SpecialTokens.of(bundle.config, bundle.tokenizers)
    _refuse_other_framing(bundle, special_tokens)
    files = _tokenizer_files(bundle)
    settings = {
        CONFIG_FILE: _architecture(bundle, special_tokens),
        GENERATION_FILE: write_search(
            bundle.config, special_tokens, bundle.tokenizers.tgt, max_positions=_MAX_POSITIONS
        ),
        TOKENIZER_FILE: _tokenizer_settings(bundle, are_separate="target_vocab.json" in files),
    }
    tags = bundle.tokenizers.src.tokens(special_tokens.src_prefix)
    write_pretrained(
        output,
        bundle.model,
        tensors=marian_tensors(bundle.model),
        settings=settings,
        files=files,
        notes=_notes(bundle, special_tokens),
        title="MarianMT",
        kind="MarianMTModel",
        tokenizer="MarianTokenizer",
        options="",
        example="".join(f"{tag} " for tag in tags),
    )


def _refuse_what_marian_lacks(config: ModelConfig) -> None:
    if config.positions == "sinusoidal":  # `marian_tensors` reorders the dimensions
        config = config.replace(positions="concatenated")
    back = KEYS.settings(TypedSettings(KEYS.export(config), "the export"))
    refuse_lost(config, {**_FACTS, **back}, "marian", _REMEDY)


def _refuse(problem: str) -> NoReturn:
    raise InteropError(f"--to marian: {problem}; {_REMEDY}")


def marian_tensors(model: Transformer) -> Tensors:
    """Return the tensors of a model by the names of MarianMTModel, a shared matrix once.

    Missing biases become zeros.
    """
    config = model.config
    weights = {name: parameter.detach().float() for name, parameter in model.named_parameters()}
    if config.positions == "sinusoidal":
        order = torch.cat([torch.arange(0, config.d_model, 2), torch.arange(1, config.d_model, 2)])
        weights = {name: _reordered(name, weight, order) for name, weight in weights.items()}
    if config.tied == "embeddings":  # Marian shares embeddings only together with the output
        weights["decoder.embedding.tokens.weight"] = weights["encoder.embedding.tokens.weight"].clone()
    biases = {
        name.replace(".weight", ".bias"): torch.zeros(len(weight))
        for name, weight in weights.items()
        if ".layers." in name
    }
    biases["output.bias"] = torch.zeros(config.tgt_vocab_size)
    weights = biases | weights
    layers = {stack: getattr(config, f"num_{stack}_layers") for stack in STACKS}
    tensors = _APART.export(weights, layers)
    if config.tied == "all":
        tensors["model.shared.weight"] = tensors.pop("model.encoder.embed_tokens.weight")
    return {name: tensor.contiguous() for name, tensor in tensors.items()}


def _reordered(name: str, weight: Tensor, order: Tensor) -> Tensor:
    """Return a weight or bias for a residual stream with its dimensions in another order."""
    module, _, kind = name.rpartition(".")
    part = module.rpartition(".")[2]
    if module == "output" or part in _READERS:
        return weight[:, order] if kind == "weight" else weight
    assert part in _WRITERS or part.endswith("_norm"), name
    return weight[order]


def _refuse_other_framing(bundle: Bundle, special_tokens: SpecialTokens) -> None:
    """Refuse other templates than Marian's: an end token, and a tag such as `>>fra<<` before the source."""
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    languages = bundle.config.languages
    tags = [src.tokens([i])[0] for i in special_tokens.src_prefix]
    if special_tokens.src_suffix != (src.eos_id,) or not all(tag.startswith(">>") for tag in tags):
        _refuse(
            f"MarianMT does not support languages.src_tag={languages.src_tag!r}, "
            f"src_prefix={languages.src_prefix!r}"
        )
    if (src.pad_id, src.eos_id) != (tgt.pad_id, tgt.eos_id):
        ids = f"({src.pad_id}, {src.eos_id}) in the source and ({tgt.pad_id}, {tgt.eos_id}) in the target"
        _refuse(f"the ids of the pad and eos tokens are {ids}, which MarianTokenizer cannot tell apart")
    if not all(isinstance(each, SentencePieceTokenizer | VocabularyTokenizer) for each in (src, tgt)):
        _refuse("MarianTokenizer needs a SentencePiece model, but this model's tokenizer is a tokenizer.json")


def _tokenizer_files(bundle: Bundle) -> dict[str, bytes]:
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    files = {
        "source.spm": next(iter(src.to_files().values())),
        "target.spm": next(iter(tgt.to_files().values())),
        "vocab.json": _vocabulary(src),
        "target_vocab.json": _vocabulary(tgt),
    }
    if files["vocab.json"] == files["target_vocab.json"]:
        del files["target_vocab.json"]
    return files


def _vocabulary(tokenizer: Tokenizer) -> bytes:
    ids = ids_of(tokenizer.tokens(range(tokenizer.vocab_size)))
    return f"{json.dumps(ids, ensure_ascii=False, indent=0)}\n".encode()


def _tokenizer_settings(bundle: Bundle, *, are_separate: bool) -> Values:
    src, tgt = bundle.tokenizers.src, bundle.tokenizers.tgt
    names = special_names(src)
    if names["bos_token"] == names["pad_token"]:
        del names["bos_token"]
    settings = names | {
        "additional_special_tokens": [tag for tag in src.tags() if not tag.startswith(">>")],
        "clean_up_tokenization_spaces": isinstance(tgt, VocabularyTokenizer)
        and json.loads(tgt.to_files()[TOKENS])["clean_up_spaces"] is True,
        "model_max_length": _MAX_POSITIONS,
        "separate_vocabs": are_separate,
        "tokenizer_class": "MarianTokenizer",
    }
    if not isinstance(src, VocabularyTokenizer) or not src.added:
        return settings
    saved = [asdict(token) | {"single_word": token.single_word is not None} for token in src.added]
    by_id = {flags.pop("id"): flags for flags in saved}
    return settings | {"added_tokens_decoder": by_id}  # at which MarianTokenizer splits a text


def _architecture(bundle: Bundle, special_tokens: SpecialTokens) -> Values:
    model = bundle.model.config
    alignment = {name: getattr(model, name) for name in _ALIGNMENT} if model.alignment_layer else {}
    return (
        KEYS.export(model)
        | alignment
        | {
            "architectures": ["MarianMTModel"],
            "decoder_start_token_id": special_tokens.start_id,
            "decoder_vocab_size": model.tgt_vocab_size,
            "dtype": "float32",
            "eos_token_id": bundle.tokenizers.tgt.eos_id,
            "forced_eos_token_id": bundle.config.decode.forced_last_id,
            "is_encoder_decoder": True,
            "max_position_embeddings": _MAX_POSITIONS,
            "model_type": "marian",
            "pad_token_id": bundle.tokenizers.tgt.pad_id,
            _SHARED: model.tied == "all",
            "tie_word_embeddings": model.tied in SHARED_OUTPUT,
            "vocab_size": model.src_vocab_size,
        }
    )


def _notes(bundle: Bundle, special_tokens: SpecialTokens) -> Iterable[str]:
    yield "The logits equal the exported bundle's."
    if bundle.model.config.positions == "sinusoidal":
        yield "The dimensions of its states are in the order of Marian's sinusoids, sines before cosines."
    if special_tokens.src_prefix:
        tag = bundle.tokenizers.src.tokens(special_tokens.src_prefix)[0]
        yield f"Each text begins with the tag of its target language, here `{tag}`."
    yield from inexact_settings(bundle.config.decode)
    yield f"A text may have {_MAX_POSITIONS:,} tokens, its end included."
    if isinstance(bundle.tokenizers.tgt, SentencePieceTokenizer):
        yield "An unknown token of an output is omitted from the text, where heedful writes `⁇`."
