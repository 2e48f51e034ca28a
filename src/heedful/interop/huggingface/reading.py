"""Families of transformers: the declaration of one, and the engine that reads a directory by it."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from heedful.interop.conversion import Conversion, Imported, Settings, Values
from heedful.interop.huggingface.added_tokens import pipeline_with_added_tokens, with_added_tokens
from heedful.interop.huggingface.generation import (
    GENERATION_KEYS,
    read_search,
    read_special_id,
)
from heedful.interop.huggingface.pretrained import (
    TOKENIZER_FILE,
    ImportedBundle,
    PretrainedDirectory,
    tokenizer_section,
)
from heedful.interop.keys import Keys, allowed, columns, named
from heedful.interop.tables import Table
from heedful.interop.vocabulary import ids_of, pieces, tag_of_language
from heedful.settings.parsing import shown
from heedful.settings.run import Config
from heedful.text import HuggingFaceTokenizer, SpecialIds, Tokenizer, TokenizerPair, VocabularyTokenizer
from heedful.text.special_tokens import SpecialTokens

# Keys of any config.json that do not change the outputs of a trained model.
_WITHOUT_EFFECT = """
    architectures classif_dropout classifier_dropout decoder_layerdrop dtype encoder_layerdrop
    extra_pos_embeddings finetuning_task gradient_checkpointing id2label init_std label2id model_type
    name_or_path num_hidden_layers num_labels output_past prefix problem_type return_dict sep_token_id
    task_specific_params tie_word_embeddings tokenizer_class torch_dtype torchscript use_bfloat16 vocab_size
"""
WITHOUT_EFFECT = GENERATION_KEYS.union(_WITHOUT_EFFECT.split())
# Keys of any config.json that must have this value or be absent.
FIXED = allowed(
    """
    false  add_cross_attention is_decoder tie_encoder_decoder
    null   auto_map cross_attention_hidden_size quantization_config
    0      chunk_size_feed_forward
    true   is_encoder_decoder
    {}     pruned_heads
    """
)
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "swish",
    "swish": "swish",
}
# Keys of the families that come from fairseq; the default of `Family.keys`.
KEYS = Keys(
    read=columns(
        """
        d_model                  d_model
        encoder_attention_heads  num_heads
        encoder_ffn_dim          d_ff
        encoder_layers           num_encoder_layers
        decoder_layers           num_decoder_layers
        dropout                  dropout
        attention_dropout        attention_dropout
        activation_dropout       activation_dropout
        scale_embedding          scale_embeddings
        """
    ),
    choices={"activation_function": named("activation", ACTIVATIONS)},
    equal=("attention_heads", "ffn_dim"),
    fixed=FIXED,
    ignored=(*WITHOUT_EFFECT, "max_position_embeddings"),
)


def keys(
    fixed: str = "", ignored: Iterable[str] = (), read: Mapping[str, tuple[str, ...]] | None = None
) -> Keys:
    """Return the keys of a family that comes from fairseq, with rows of `allowed` and keys of its own."""
    return replace(
        KEYS,
        read={**KEYS.read, **(read or {})},
        fixed=FIXED | allowed(fixed),
        ignored=(*KEYS.ignored, *ignored),
    )


def no_languages(directory: PretrainedDirectory, tokenizer: Tokenizer, search: Values) -> Values:
    """Refuse languages, which the family does not have."""
    if directory.options.src_lang or directory.options.tgt_lang:
        name = directory.config["model_type"]
        directory.refuse(f"--src-lang, --tgt-lang: {name} has no languages; leave them out")
    return {}


def target_before_source(directory: PretrainedDirectory, tokenizer: Tokenizer, search: Values) -> Values:
    """Return the tag of the target language, such as `>>fra<<`, which each source starts with."""
    options = directory.options
    if options.src_lang is not None:
        name = directory.config["model_type"]
        directory.refuse(f"--src-lang {options.src_lang}: {name} has no tag for it; leave it out")
    if options.tgt_lang is None:
        return {}
    return {"src_tag": tag_of_language(tokenizer, options.tgt_lang)}


Languages = Callable[[PretrainedDirectory, Tokenizer, Values], Values]


def tokenizer_of_pipeline(
    directory: PretrainedDirectory, *, starts_with_pad: bool = False
) -> HuggingFaceTokenizer:
    """Load a tokenizer.json; if `starts_with_pad`, there is no begin token.

    Raises:
        InteropError: there is no such file, or it lacks a special token.
        TokenizerError: it is not usable.
        MissingExtraError: the tokenizers library is not installed.
    """
    content, known = pipeline_with_added_tokens(directory)
    return HuggingFaceTokenizer(
        content,
        read_special_ids(directory, known, without_bos=starts_with_pad),
        clean_up_spaces=clean_up_spaces(directory),
        name=str(directory.path / "tokenizer"),
    )


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture of transformers, as its directories are.

    Attributes:
        layout: the name for `--layout`, which several families may share.
        model_type: the name in config.json.
        weights: the table of the weights.
        classes: the tokenizer classes that the files may name; others would add other special tokens.
        tokenizer: reads the tokenizer, or the tokenizers of source and target; by default tokenizer.json.
        config: returns the settings of config.json in one object, if it has them in several.
        keys: the settings in config.json.
        languages: returns settings of `LanguageConfig`, and a "start_id" if a language gives it. It may move
            settings out of the search.
        check: refuses combinations of settings.
        source_eos: whether a source ends with the end token.
        source_tokens: returns the largest number of tokens in a source; None: the number of positions.
        never_written: returns further ids that outputs never have, given a tokenizer and the model's number
            of tokens.
    """

    layout: str
    model_type: str
    weights: Table
    classes: tuple[str, ...]
    tokenizer: Callable[[PretrainedDirectory], Tokenizer | TokenizerPair] = tokenizer_of_pipeline
    config: Callable[[PretrainedDirectory], Settings] = lambda directory: directory.config
    keys: Keys = KEYS
    languages: Languages = no_languages
    check: Callable[[PretrainedDirectory], object] = lambda directory: None
    source_eos: bool = True
    source_tokens: Callable[[PretrainedDirectory], int] | None = None
    never_written: Callable[[Tokenizer, int], Iterable[int]] = lambda tokenizer, size: ()

    def read(self, directory: PretrainedDirectory) -> ImportedBundle:
        """Read a directory of the family.

        Raises:
            InteropError: a file is missing, or has settings that are not supported.
            TokenizerError: the tokenizer files are not usable, or a language has no tag.
            MissingExtraError: a library of the tokenizer is not installed.
            ConfigError: the settings are invalid.
        """
        sections: Values
        directory = replace(directory, config=self.config(directory))
        options = directory.options
        for key in self.keys.known.intersection(options.ignored):
            directory.refuse(f"--ignore {shown(key)}: it is known and followed; leave it out")
        settings = self.keys.settings(directory.typed(), ignored=options.ignored)
        self.check(directory)
        search = read_search(directory)
        if self.source_tokens is not None:
            search["max_source_tokens"] = self.source_tokens(directory)
        if not directory.has_tokenizer:
            if options.src_lang or options.tgt_lang or directory.prefix is not None:
                directory.refuse(
                    "without a tokenizer there are no languages and no prefix; copy the whole directory"
                )
            pad_id = read_special_id(directory, "pad_token_id")
            settings |= {"src_pad_id": pad_id, "tgt_pad_id": pad_id}
            model = self._model(directory, settings)
            sections = {"model": model.config.model_dump(), "decode": search}
            return ImportedBundle(Config(**sections), model.weights, None, tuple(_task_notes(directory)))
        directory.tokenizer_class(*self.classes)
        found = self.tokenizer(directory)
        tokenizers = found if isinstance(found, TokenizerPair) else TokenizerPair(found, found)
        src, tgt = tokenizers.src, tokenizers.tgt
        languages = self.languages(directory, src, search)
        if "start_id" in languages:
            settings["decoder_start_id"] = languages.pop("start_id")
        model = self._model(directory, settings | {"src_pad_id": src.pad_id, "tgt_pad_id": tgt.pad_id})
        sizes = model.config.src_vocab_size, model.config.tgt_vocab_size
        _check_tokenizers(directory, tokenizers, sizes)
        never = {*search["suppressed_ids"], *self.never_written(tgt, sizes[1])}
        joint = src.tokens(range(src.vocab_size)) == tgt.tokens(range(tgt.vocab_size))
        sections = {
            "model": model.config.model_dump(),
            "decode": search | {"suppressed_ids": tuple(sorted(never))},
            "languages": languages | _task_languages(directory),
            "tokenizer": tokenizer_section(tokenizers, joint=joint, source_eos=self.source_eos),
        }
        config = Config(**sections)
        SpecialTokens.of(config, tokenizers)  # refuses a wrong template
        return ImportedBundle(config, model.weights, tokenizers, tuple(_task_notes(directory)))

    def _model(self, directory: PretrainedDirectory, settings: Values) -> Imported:
        """Return the weights and the settings of the model."""
        if "decoder_start_id" not in settings:
            settings["decoder_start_id"] = read_special_id(directory, "decoder_start_token_id")
        conversion = Conversion(
            directory.read_tensors(),
            layout=self.layout,
            origin=directory.path,
            settings={**settings, **directory.options.settings},
            beside=directory.config,
        )
        return self.weights.read(conversion)


def _task_languages(directory: PretrainedDirectory) -> dict[str, str]:
    """Return the text before each source, and the languages that the name of a task says."""
    names = _TRANSLATION.fullmatch(directory.options.task or "")
    languages = names.groupdict() if names else {}
    return languages if directory.prefix is None else languages | {"src_prefix": directory.prefix}


def _task_notes(directory: PretrainedDirectory) -> Iterator[str]:
    tasks = directory.typed().settings("task_specific_params")
    if directory.prefix is not None:
        yield f"Each source is preceded by {directory.prefix!r}, as the files say."
    elif directory.options.task is None and tasks:
        yield (
            f"The model has tasks ({', '.join(map(str, tasks))}), each with its own text before sources or "
            "its own search; --task NAME imports it for one."
        )


_TRANSLATION = re.compile("translation_(?P<src>[a-z]{2,3})_to_(?P<tgt>[a-z]{2,3})")  # the name of a task
USUAL_TOKENS = {"pad": "<pad>", "unk": "<unk>", "bos": "<s>", "eos": "</s>"}


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
    """Return a tokenizer of a SentencePiece model and a list of tokens by id.

    Args:
        directory: its files name special and added tokens.
        model: the SentencePiece model.
        tokens: the tokens by id, without added ones.
        special: special tokens, such as language tags.
        starts_with_pad: whether there is no begin token.
        leading_tags: as in `VocabularyTokenizer`.
        in_library: as in `with_added_tokens`.

    Raises:
        InteropError: a special token is not in the list, or an added token has the id of another one.
        TokenizerError: the model or the tokens are not usable.
    """
    tokens, added = with_added_tokens(directory, tokens, in_library=in_library)
    ids = read_special_ids(directory, ids_of(tokens), without_bos=starts_with_pad)
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
    """Return the tokens of a SentencePiece model in fairseq's order: four special ones, then the others."""
    _, _, _, *others = pieces(model, "sentencepiece.bpe.model")  # after <unk>, <s>, </s>
    return ["<s>", "<pad>", "</s>", "<unk>", *others]


def _check_tokenizers(
    directory: PretrainedDirectory, tokenizers: TokenizerPair, sizes: tuple[int, int]
) -> None:
    """Refuse tokenizers if the model has fewer ids, or other ones for padding and end."""
    tgt = tokenizers.tgt
    for key, ours in (("pad_token_id", tgt.pad_id), ("eos_token_id", tgt.eos_id)):
        if (theirs := read_special_id(directory, key)) != ours:
            directory.refuse(
                f"{key}={theirs}, but the tokenizer files say {ours}; copy the whole directory of one model"
            )
    for tokenizer, size in zip((tokenizers.src, tgt), sizes, strict=True):
        if tokenizer.vocab_size > size:
            directory.refuse(
                f"a tokenizer has {tokenizer.vocab_size:,} ids, but the model {size:,}; "
                "copy the whole directory of one model"
            )


def read_special_ids(
    directory: PretrainedDirectory,
    known: Mapping[str, int],
    *,
    without_bos: bool = False,
    usual: Mapping[str, str] = USUAL_TOKENS,
) -> SpecialIds:
    """Return the ids of the special tokens; InteropError if one is not among the known tokens."""
    names = {kind: directory.token(f"{kind}_token", token) for kind, token in usual.items()}
    if without_bos:
        names["bos"] = names["pad"]
    for kind, name in names.items():
        if name not in known:
            directory.refuse(f"{kind}_token is {shown(name)}, which has no id", file=TOKENIZER_FILE)
    return SpecialIds(**{kind: known[name] for kind, name in names.items()})


def clean_up_spaces(directory: PretrainedDirectory) -> bool:
    """Return whether decoding removes the spaces before punctuation; PLBart's tokenizer does by default."""
    usual = directory.config.get("model_type") == "plbart"
    return directory.tokenizer.get("clean_up_tokenization_spaces", usual) is True
