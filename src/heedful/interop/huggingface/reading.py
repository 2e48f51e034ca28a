"""Read a directory of a pretrained model: architecture, tokenizer files, and the bundle made of them."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from heedful.interop.conversion import Conversion, Imported
from heedful.interop.huggingface.added_tokens import pipeline_with_added_tokens, with_added_tokens
from heedful.interop.huggingface.generation import GENERATION_KEYS, read_special_id, read_start_id
from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    PIPELINE_FILE,
    TOKENIZER_FILE,
    ImportedBundle,
    ImportOptions,
    PretrainedDirectory,
    refuse_other_values,
    refuse_unknown_keys,
)
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown
from heedful.settings.run import Config
from heedful.text import HuggingFaceTokenizer, SpecialIds, Tokenizer, TokenizerPair, VocabularyTokenizer
from heedful.text.sentencepiece_tokenizer import load_sentencepiece
from heedful.text.special_tokens import SpecialTokens

# Keys of any config.json that do not change the outputs of a trained model.
_WITHOUT_EFFECT = frozenset(
    (
        "architectures", "bos_token_id", "classif_dropout", "classifier_dropout", "decoder_layerdrop",
        "dtype", "encoder_layerdrop", "extra_pos_embeddings", "finetuning_task", "gradient_checkpointing",
        "id2label", "init_std", "label2id", "name_or_path", "num_hidden_layers", "num_labels",
        "output_attentions", "output_hidden_states", "output_past", "prefix", "problem_type", "return_dict",
        "sep_token_id", "task_specific_params", "tokenizer_class", "torch_dtype", "torchscript",
        "transformers_version", "use_bfloat16", "use_cache",
    )
)  # fmt: skip
# Keys that must have this value or be absent.
_FIXED_BY_FORMAT: Mapping[str, Any] = {
    "add_cross_attention": False,
    "auto_map": None,
    "chunk_size_feed_forward": 0,
    "cross_attention_hidden_size": None,
    "is_decoder": False,
    "is_encoder_decoder": True,
    "pruned_heads": {},
    "quantization_config": None,
    "tie_encoder_decoder": False,
}
_PAIRS = ("attention_heads", "ffn_dim")  # one number for both stacks
# Common settings of all families, and their names in this package.
_NUMBERS = {
    "d_model": "d_model",
    "encoder_attention_heads": "num_heads",
    "encoder_ffn_dim": "d_ff",
    "encoder_layers": "num_encoder_layers",
    "decoder_layers": "num_decoder_layers",
    "dropout": "dropout",
    "attention_dropout": "attention_dropout",
    "activation_dropout": "activation_dropout",
    "scale_embedding": "scale_embeddings",
}
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}


def read_architecture(
    directory: PretrainedDirectory,
    model_types: Sequence[str],
    *,
    known: Iterable[str] = (),
    fixed: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Check every key of config.json and return the settings of the model.

    Args:
        directory: of the model.
        model_types: the allowed values of "model_type".
        known: keys that the family reads itself.
        fixed: keys of the family that must have this value.

    Raises:
        InteropError: a key is unknown or has an unsupported value.
    """
    config = directory.config
    both = [f"{stack}_{key}" for key in _PAIRS for stack in ("encoder", "decoder")]
    more = ("activation_function", "max_position_embeddings")
    check_keys(directory, model_types, known=[*_NUMBERS, *both, *more, *known], fixed=fixed or {})
    for key in _PAIRS:
        one, other = config.get(f"encoder_{key}"), config.get(f"decoder_{key}")
        if one != other:
            raise directory.error(
                f"encoder_{key}={shown(one)} and decoder_{key}={shown(other)} differ; they must be equal"
            )
    activation = config.get("activation_function")
    if not isinstance(activation, str) or activation not in ACTIVATIONS:
        raise directory.error(
            f"activation_function={shown(activation)} is unknown; there are {', '.join(ACTIVATIONS)}"
        )
    return {ours: config[theirs] for theirs, ours in _NUMBERS.items() if theirs in config} | {
        "activation": ACTIVATIONS[activation]
    }


def check_keys(
    directory: PretrainedDirectory,
    model_types: Sequence[str],
    *,
    known: Iterable[str],
    fixed: Mapping[str, Any],
) -> None:
    """Check the family and every key of config.json; the arguments are those of `read_architecture`.

    Raises:
        InteropError: a key is unknown or has an unsupported value.
    """
    config = directory.config
    if config.get("model_type") not in model_types:
        raise directory.error(
            f"model_type is {shown(config.get('model_type'))}, not {' or '.join(map(repr, model_types))}; "
            "give another --layout"
        )
    fixed = {**_FIXED_BY_FORMAT, **fixed}
    refuse_other_values(directory, CONFIG_FILE, config, fixed)
    every = {"model_type", "tie_word_embeddings", "vocab_size", *_WITHOUT_EFFECT, *GENERATION_KEYS}
    refuse_unknown_keys(directory, CONFIG_FILE, config, {*known, *fixed, *every})


_TRANSLATION = re.compile("translation_([a-z]{2,3})_to_([a-z]{2,3})")  # the name of a task
_NUM_SPECIAL_TOKENS = 3  # <unk>, <s>, </s>
_USUAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}


def vocabulary_tokenizer(
    directory: PretrainedDirectory,
    model: bytes,
    tokens: Sequence[str],
    *,
    special: Collection[str] = (),
    starts_with_pad: bool = False,
    leading_tags: bool = False,
    in_library: bool = False,
) -> VocabularyTokenizer:
    """Return a tokenizer of a SentencePiece model and a list of tokens.

    Args:
        directory: of the model; its files name special and added tokens.
        model: the SentencePiece model.
        tokens: by id, without added tokens.
        special: special tokens, such as language tags.
        starts_with_pad: whether there is no begin token.
        leading_tags: as in `VocabularyTokenizer`.
        in_library: as in `with_added_tokens`.

    Raises:
        InteropError: a special token is not in the list, or an added one has another's id.
        TokenizerError: the model or the tokens are not usable.
    """
    tokens, added = with_added_tokens(directory, tokens, in_library=in_library)
    known = {token: i for i, token in enumerate(tokens)}
    ids = read_special_ids(directory, known, without_bos=starts_with_pad)
    return VocabularyTokenizer(
        model,
        tokens,
        ids,
        special=[*special, *added],
        leading_tags=leading_tags,
        clean_up_spaces=clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def fairseq_tokens(model: bytes) -> list[str]:
    """Return the tokens of a SentencePiece model in fairseq's order: four special ones, then the others.

    Raises:
        TokenizerError: it is not a SentencePiece model.
    """
    spm = load_sentencepiece(model, name="sentencepiece.bpe.model")
    ordinary = range(_NUM_SPECIAL_TOKENS, spm.get_piece_size())
    return ["<s>", "<pad>", "</s>", "<unk>", *(spm.id_to_piece(i) for i in ordinary)]


def tokenizer_of_pipeline(
    directory: PretrainedDirectory, *, starts_with_pad: bool = False
) -> HuggingFaceTokenizer:
    """Load a tokenizer.json; `starts_with_pad`: there is no begin token.

    Raises:
        InteropError: there is none, or it lacks a special token.
        TokenizerError: it is not usable.
        MissingExtraError: the tokenizers library is not installed.
    """
    pipeline = directory.read_object(PIPELINE_FILE)
    content, known = pipeline_with_added_tokens(directory, pipeline)
    return HuggingFaceTokenizer(
        directory.read_bytes(PIPELINE_FILE) if content is None else content,
        read_special_ids(directory, known, without_bos=starts_with_pad),
        clean_up_spaces=clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


def check_special_ids(directory: PretrainedDirectory, tokenizer: Tokenizer) -> None:
    """Compare the ids of the model's padding and end tokens with those of the tokenizer.

    Raises:
        InteropError: they differ.
    """
    for key, ours in (("pad_token_id", tokenizer.pad_id), ("eos_token_id", tokenizer.eos_id)):
        theirs = read_special_id(directory, key)
        if theirs != ours:
            raise directory.error(
                f"{key}={theirs}, but the tokenizer files say {ours}; copy the whole directory of one model"
            )


def read_special_ids(
    directory: PretrainedDirectory,
    known: Mapping[str, int],
    *,
    without_bos: bool = False,
    usual: Mapping[str, str] = _USUAL_TOKENS,
) -> SpecialIds:
    """Return the ids of the special tokens, by the ids of all tokens; InteropError if one has none."""
    ids: dict[str, int] = {}
    for kind, token in usual.items():
        if kind == "bos" and without_bos:
            ids["bos"] = ids["pad"]
            continue
        name = directory.token(f"{kind}_token", token)
        if name not in known:
            raise directory.error(f"{kind}_token is {shown(name)}, which has no id", file=TOKENIZER_FILE)
        ids[kind] = known[name]
    return SpecialIds(**ids)


def clean_up_spaces(directory: PretrainedDirectory) -> bool:
    """Return whether decoding removes the spaces before punctuation; PLBart's tokenizer does by default."""
    usual = directory.config.get("model_type") == "plbart"
    return directory.tokenizer.get("clean_up_tokenization_spaces", usual) is True


@dataclass(frozen=True, kw_only=True)
class TextSettings:
    """Tokenizers and special-token template of a model.

    Attributes:
        tokenizers: of source and target.
        start_id: the decoder's first input.
        languages: the settings of `LanguageConfig`.
        one_vocabulary: whether an id means the same in source and target.
        source_eos: whether a source ends with the end token.
    """

    tokenizers: TokenizerPair
    start_id: int
    languages: Mapping[str, Any] = field(default_factory=dict)
    one_vocabulary: bool = True
    source_eos: bool = True


@dataclass(frozen=True, kw_only=True)
class ReadSettings:
    """The settings of the files, as settings of this package.

    Attributes:
        model: of `ModelConfig`.
        search: of `DecodeConfig`.
        text: tokenizers and template; None: the model has no tokenizer.
    """

    model: Mapping[str, Any]
    search: Mapping[str, Any]
    text: TextSettings | None


def assemble(
    directory: PretrainedDirectory,
    options: ImportOptions,
    read: ReadSettings,
    convert: Callable[[Conversion], Imported],
    *,
    layout: str,
) -> ImportedBundle:
    """Read and convert the weights; return the whole model.

    Args:
        directory: of the model.
        options: the user's settings, which override those of the files.
        read: the settings of the files.
        convert: converts the weights.
        layout: for error messages.

    Raises:
        InteropError: a weight is wrong, or the tokenizers have more ids than the model.
        ConfigError: the settings are invalid.
    """
    if read.text is None and (options.src_lang or options.tgt_lang):
        raise directory.error(
            "--src-lang, --tgt-lang: without a tokenizer there are no languages; leave them out"
        )
    if read.text is None and directory.prefix is not None:
        raise directory.error(f"prefix={shown(directory.prefix)} needs a tokenizer; copy the whole directory")
    conversion = Conversion(
        directory.read_tensors(),
        layout=layout,
        origin=directory.path,
        settings={**read.model, **_ids(directory, read.text), **options.settings},
    )
    model = convert(conversion)
    sections: dict[str, Any] = {"model": model.config.model_dump(), "decode": read.search}
    if read.text is not None:
        _check_sizes(directory, model.config, read.text.tokenizers)
        src = read.text.tokenizers.src
        joint = read.text.one_vocabulary
        sections["languages"] = {**read.text.languages, **_task_languages(directory, options.task)}
        sections["tokenizer"] = {"kind": src.kind, "vocab_size": src.vocab_size, "joint": joint}
        if not read.text.source_eos:
            sections["tokenizer"]["source_eos"] = False
    tokenizers = None if read.text is None else read.text.tokenizers
    config = Config(**sections)
    if tokenizers is not None:
        SpecialTokens.of(config, tokenizers)
    return ImportedBundle(config, model.weights, tokenizers, tuple(_task_notes(directory, options.task)))


def _task_languages(directory: PretrainedDirectory, task: str | None) -> dict[str, str]:
    """Return the text before each source, and the languages that the name of a task says."""
    names = _TRANSLATION.fullmatch(task or "")
    prefix = {} if directory.prefix is None else {"src_prefix": directory.prefix}
    return ({"src": names[1], "tgt": names[2]} if names else {}) | prefix


def _task_notes(directory: PretrainedDirectory, task: str | None) -> Iterator[str]:
    tasks = directory.config.get("task_specific_params")
    if directory.prefix is not None:
        yield f"Each source is preceded by {directory.prefix!r}, as the files say."
    elif task is None and isinstance(tasks, dict) and tasks:
        yield (
            f"The model has tasks ({', '.join(map(str, tasks))}), each with its own text before sources or "
            "its own search; --task NAME imports it for one."
        )


def _ids(directory: PretrainedDirectory, text: TextSettings | None) -> dict[str, int]:
    if text is not None:
        src, tgt = text.tokenizers.src, text.tokenizers.tgt
        return {"src_pad_id": src.pad_id, "tgt_pad_id": tgt.pad_id, "decoder_start_id": text.start_id}
    pad_id = read_special_id(directory, "pad_token_id")
    return {"src_pad_id": pad_id, "tgt_pad_id": pad_id, "decoder_start_id": read_start_id(directory)}


def _check_sizes(directory: PretrainedDirectory, config: ModelConfig, tokenizers: TokenizerPair) -> None:
    for text, tokenizer, size in (
        ("source", tokenizers.src, config.src_vocab_size),
        ("target", tokenizers.tgt, config.tgt_vocab_size),
    ):
        if tokenizer.vocab_size > size:
            raise directory.error(
                f"the {text} tokenizer has {tokenizer.vocab_size:,} ids, but the model {size:,}; "
                "copy the whole directory of one model"
            )
