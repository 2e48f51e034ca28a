"""Read a CTranslate2 directory: settings, vocabularies, tokenizer files, and the bundle made of them.

Nothing is executed, and ctranslate2 is not needed. CTranslate2 computes with the same numbers in float32, so
the log-probabilities are equal.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from heedful.errors import InteropError, TokenizerError
from heedful.interop.conversion import TOKENS, Settings, Values, add_tokens
from heedful.interop.ctranslate2.binary import ModelFile
from heedful.interop.ctranslate2.weights import convert
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions, tokenizer_section
from heedful.interop.vocabulary import (
    MARIAN_TAG,
    TypedSettings,
    first_file,
    ids_of,
    read_bytes,
    read_settings,
    read_words,
    tag_of_language,
    unique_names,
)
from heedful.settings.parsing import shown
from heedful.settings.run import Config
from heedful.text import (
    HuggingFaceTokenizer,
    MosesTokenizer,
    SpecialIds,
    Tokenizer,
    TokenizerPair,
    VocabularyTokenizer,
)

LAYOUT = "ctranslate2"
MODEL_FILE = "model.bin"
_CONFIG_FILE = "config.json"
# Of files older than version 6, these settings are variables.
_FLAGS = {"add_source_bos": "with_source_bos", "add_source_eos": "with_source_eos"}
_USUAL_TOKENS = {"unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
_KNOWN_KEYS = {
    *_USUAL_TOKENS, *_FLAGS, "decoder_start_token", "layer_norm_epsilon", "multi_query_attention",
}  # fmt: skip
_PADDING = re.compile(r"[<\[](blank|pad)[>\]]", re.IGNORECASE)
_TAG = re.compile(r"__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}")  # of M2M100, NLLB, mBART
# Files of SentencePiece models, of one for both languages and of two.
_JOINT_FILES = (
    "sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "spm.bpe.model", "tokenizer.model",
    "bpe.model",
)  # fmt: skip
_SEPARATE_FILES = (("source.spm", "target.spm"), ("source.model", "target.model"))
_SEARCH: Settings = {  # of `translate_batch`, by default
    "beam_size": 2,
    "early_stopping": "first",
    "length_normalization": "power",
    "length_penalty": 1.0,
    "max_length": 256,
    "max_length_offset": 1024,
    "max_source_tokens": 1024,
    "min_length": 1,
    "renormalize": True,
    "suppressed_ids": (),
}


@dataclass(frozen=True, kw_only=True)
class TextFiles:
    """The SentencePiece models or byte-pair codes of a CTranslate2 model, and how they are used.

    Attributes:
        models: their contents, of source and target, or one of both; none: tokens are split at spaces.
        codes: byte-pair codes after Moses' rules, in place of models.
        moses: the languages of these rules, of source and target.
        underscores: whether decoding turns underscores into spaces, as Argos does.
        search: settings of `DecodeConfig` that differ from CTranslate2's.
        languages: settings of `LanguageConfig`.
    """

    models: tuple[bytes, ...] = ()
    codes: Sequence[tuple[str, str]] | None = None
    moses: tuple[str, str] = ("en", "en")
    underscores: bool = False
    search: Settings = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)


class Vocabulary(NamedTuple):
    """The tokens of a language, without repetitions, and the ids of the special ones."""

    tokens: list[str]
    ids: SpecialIds


def read_ctranslate2(path: Path, options: ImportOptions) -> ImportedBundle:
    """Read a directory with model.bin.

    Without a tokenizer, lines are tokens with spaces between them.

    Raises:
        InteropError: a file is missing or damaged, or has settings that are not supported.
        TokenizerError: a tokenizer file is not usable, or a language has no tag.
        ConfigError: the settings are invalid.
    """
    directory = CTranslate2Directory(path, ignored=options.ignored)
    return directory.bundle(_text_files(directory), options)


class CTranslate2Directory:
    """A model.bin with the files beside it: all but weights and tokenizers.

    Attributes:
        path: the directory.
        model: the variables of model.bin.
        settings: config.json, with the settings that older files have as variables.
        vocabularies: the tokens of "src" and "tgt" by id.
    """

    def __init__(self, path: Path, *, ignored: Collection[str] = ()) -> None:
        """Read a directory; `ignored` are unknown keys of config.json that may pass.

        Raises:
            InteropError: a file is missing or damaged.
        """
        self.path = path
        self.model = ModelFile(path / MODEL_FILE)
        self.settings = self._settings(ignored)
        self.vocabularies = self._vocabularies()
        self.is_joint = self.vocabularies["src"] == self.vocabularies["tgt"]

    def error(self, problem: str, *, file: str = _CONFIG_FILE) -> InteropError:
        """Return an exception that names the file."""
        return InteropError(f"{self.path / file}: {problem}")

    def bundle(self, text: TextFiles, options: ImportOptions) -> ImportedBundle:
        """Return the model with its tokenizers. Raises as `read_ctranslate2`."""
        eps = TypedSettings(self.settings, self.path / _CONFIG_FILE).number("layer_norm_epsilon")
        src, tgt = self._with_added()
        facts = {"src_pad_id": src.ids.pad, "tgt_pad_id": tgt.ids.pad, "decoder_start_id": tgt.ids.bos}
        conversion, others = convert(self.model, {**facts, **options.settings}, epsilon=eps)
        added: dict[str, int] = {}
        for language, vocabulary, name in zip(("src", "tgt"), (src, tgt), TOKENS.values(), strict=True):
            num_tokens, num_rows = len(self.vocabularies[language]), len(conversion.moved.get(name, ()))
            if num_tokens != num_rows:
                raise self.error(
                    f"{num_tokens:,} {language} tokens, but {num_rows:,} rows in the embedding; "
                    "copy the whole directory of one model",
                    file=MODEL_FILE,
                )
            added[language] = len(vocabulary.tokens) - num_tokens
        add_tokens(conversion.moved, **added)
        model = conversion.finish(**others)
        tokenizers, notes = self._tokenizers(src, tgt, text)
        languages, ends, more = self._template(tokenizers, text, options)
        sections: Values = {
            "model": model.config.model_dump(),
            "decode": {**_SEARCH, **text.search},
            "languages": languages,
            "tokenizer": tokenizer_section(tokenizers, source_eos=ends, joint=self.is_joint),
        }
        return ImportedBundle(Config(**sections), model.weights, tokenizers, (*notes, *more))

    def _settings(self, ignored: Collection[str]) -> Values:
        file = self.path / _CONFIG_FILE
        settings = read_settings(file) if file.is_file() else {}
        for key in ignored:
            if key not in settings or key in _KNOWN_KEYS:
                problem = "it is known and followed" if key in _KNOWN_KEYS else "there is no such key"
                raise self.error(f"--ignore {shown(key)}: {problem}; leave it out")
        TypedSettings(settings, file).check({"multi_query_attention": (False,)}, _KNOWN_KEYS, ignored=ignored)
        if self.model.version < 6:
            settings |= {key: bool(self.model.scalar(name, 0)) for key, name in _FLAGS.items()}
            settings |= {key: self.model.text(key, usual) for key, usual in _USUAL_TOKENS.items()}
            starts_with = "bos_token" if self.model.scalar("with_target_bos", 1) else "eos_token"
            settings["decoder_start_token"] = settings[starts_with]
            if self.model.scalar("user_decoder_start_tokens", 0):
                settings["decoder_start_token"] = None
        typed = TypedSettings(settings, file)
        return settings | {key: typed.text(key) or usual for key, usual in _USUAL_TOKENS.items()}

    def _vocabularies(self) -> dict[str, list[str]]:
        """Return the tokens of source and target by id."""
        if (shared := self._vocabulary("shared_vocabulary")) is not None:
            return {"src": shared, "tgt": shared}
        if self._vocabulary("source_1_vocabulary") is not None:
            raise self.error("features of source tokens are not supported", file="source_1_vocabulary")
        src, tgt = self._vocabulary("source_vocabulary"), self._vocabulary("target_vocabulary")
        if src is None or tgt is None:
            raise self.error(
                "there is neither shared_vocabulary.json nor source_vocabulary.json and "
                "target_vocabulary.json; copy the whole directory",
                file="",
            )
        return {"src": src, "tgt": tgt}

    def _vocabulary(self, stem: str) -> list[str] | None:
        file = first_file(self.path, (f"{stem}.json", f"{stem}.txt"))
        if file is None:
            return None
        tokens, unknown = read_words(file), self.settings["unk_token"]
        return tokens if unknown in tokens else [*tokens, unknown]

    def _with_added(self) -> tuple[Vocabulary, Vocabulary]:
        """Return the vocabularies with what a bundle needs besides.

        It needs padding and, if the model starts from zeros, a start token with an embedding of zeros.
        """
        start = self.settings.get("decoder_start_token")
        if not isinstance(start, str):
            raise self.error(
                "decoder_start_token is null: the caller begins each output; such models are not supported"
            )
        src, tgt = map(_with_padding, self.vocabularies.values())
        if self.model.scalar("decoder/start_from_zero_embedding", 0):
            tgt.append(start := "<start>")
        src = tgt if self.is_joint else src
        names = {key: str(self.settings[key]) for key in ("eos_token", "unk_token")}
        return (
            self._vocabulary_of("src", src, names, self.settings["bos_token"]),
            self._vocabulary_of("tgt", tgt, names | {"decoder_start_token": start}, start),
        )

    def _vocabulary_of(
        self, language: str, tokens: list[str], needed: Mapping[str, str], begin: str
    ) -> Vocabulary:
        tokens = unique_names(tokens, {})
        known = ids_of(tokens)
        for key, token in needed.items():
            if token not in known:
                raise self.error(f"{key} is {shown(token)}, which the vocabulary lacks ({language})")
        pad = next(filter(_PADDING.fullmatch, tokens))
        eos, unk = known[needed["eos_token"]], known[needed["unk_token"]]
        return Vocabulary(tokens, SpecialIds(pad=known[pad], unk=unk, bos=known.get(begin, eos), eos=eos))

    def _tokenizers(
        self, src: Vocabulary, tgt: Vocabulary, text: TextFiles
    ) -> tuple[TokenizerPair, tuple[str, ...]]:
        """Return the tokenizers, and notes about them."""
        if (own := self._own_tokenizers(src, tgt)) is not None:
            return own, ()
        if text.codes is not None:
            one, other = (
                MosesTokenizer(text.codes, side.tokens, side.ids, language=language, rules="argos")
                for side, language in zip((src, tgt), text.moses, strict=True)
            )
            return TokenizerPair(one, other), ()
        src_model, *_, tgt_model = text.models * 2 or (None, None)
        first, second = tokenizer_of(src_model, src, text), tokenizer_of(tgt_model, tgt, text)
        pair = TokenizerPair(first, first if self.is_joint and src_model == tgt_model else second)
        if text.models:
            return pair, ()
        return pair, (
            "There is no tokenizer beside the model: a line is its tokens with spaces between them, as "
            "CTranslate2 takes them.",
        )  # fmt: skip

    def _own_tokenizers(self, src: Vocabulary, tgt: Vocabulary) -> TokenizerPair | None:
        """Return the tokenizers of a bundle that was exported, if they have the tokens of the model."""
        try:
            pair = TokenizerPair.load(self.path)
        except TokenizerError:
            return None
        for tokenizer, (tokens, ids) in ((pair.src, src), (pair.tgt, tgt)):
            special = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.eos_id)
            if tokenizer.vocab_size > len(tokens) or special != (ids.pad, ids.unk, ids.eos):
                return None
            if sum(map(str.__ne__, tokenizer.tokens(range(len(tokens))), tokens)) > 2:
                return None  # the names of the unknown and end token may differ
        return pair if pair.joint == self.is_joint else None

    def _template(
        self, tokenizers: TokenizerPair, text: TextFiles, options: ImportOptions
    ) -> tuple[dict[str, str], bool, tuple[str, ...]]:
        """Return the settings of languages, whether sources have an end token, and notes about it."""
        languages = dict(text.languages)
        src, tgt = tokenizers.src, tokenizers.tgt
        if self.settings.get("add_source_bos") is True:
            languages["src_tag"] = self.settings["bos_token"]
        if options.src_lang is not None:
            languages["src_tag"] = tag_of_language(src, options.src_lang)
        if options.tgt_lang is not None:
            tag = tag_of_language(tgt, options.tgt_lang)
            languages["src_tag" if MARIAN_TAG.fullmatch(tag) else "tgt_tag"] = tag
        ends = self.settings.get("add_source_eos") is True
        by_tokenizer = not ends and self.settings["decoder_start_token"] != self.settings["bos_token"]
        if by_tokenizer and text.models:
            return languages, True, (
                "CTranslate2 adds no end token to a source here. A start token other than "
                f"{self.settings['bos_token']!r} means a conversion from transformers, whose tokenizers add "
                "one, and so does this bundle; --set tokenizer.source_eos=false leaves it out.",
            )  # fmt: skip
        return languages, ends, ()


def _with_padding(tokens: Sequence[str]) -> list[str]:
    return [*tokens] if any(map(_PADDING.fullmatch, tokens)) else [*tokens, "<pad>"]


def tokenizer_of(model: bytes | None, vocabulary: Vocabulary, text: TextFiles) -> Tokenizer:
    """Return a tokenizer of a SentencePiece model, or without one of tokens with spaces between them."""
    tokens, ids = vocabulary
    if model is None:
        return _split_at_spaces(tokens, ids)
    tags = [token for token in tokens if _TAG.fullmatch(token) or token == text.languages.get("tgt_tag")]
    return VocabularyTokenizer(
        model,
        tokens,
        ids,
        special=tags,
        leading_tags=any(map(MARIAN_TAG.fullmatch, tokens)),
        underscores=text.underscores,
        name="tokenizer",
    )


def _split_at_spaces(tokens: Sequence[str], ids: SpecialIds) -> HuggingFaceTokenizer:
    """Return a tokenizer that looks up what is between spaces."""
    special = [ids.pad, ids.unk, ids.bos, ids.eos]
    added = [
        {
            "id": i, "content": tokens[i], "special": True, "single_word": True, "lstrip": False,
            "rstrip": False, "normalized": False,
        }
        for i in sorted(set(special))
    ]  # fmt: skip
    pipeline: Values = {
        "version": "1.0",
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"String": " "},
            "behavior": "Removed",
            "invert": False,
        },
        "post_processor": None,
        "decoder": None,
        "model": {
            "type": "WordLevel",
            "vocab": ids_of(tokens),
            "unk_token": tokens[ids.unk],
        },
    }
    return HuggingFaceTokenizer(json.dumps(pipeline, ensure_ascii=False).encode(), ids)


def _text_files(directory: CTranslate2Directory) -> TextFiles:
    """Return the SentencePiece models in the directory, if there are some."""
    for names in (*((name,) for name in _JOINT_FILES), *_SEPARATE_FILES):
        if all((directory.path / name).is_file() for name in names):
            return TextFiles(models=tuple(read_bytes(directory.path / name) for name in names))
    return TextFiles()
