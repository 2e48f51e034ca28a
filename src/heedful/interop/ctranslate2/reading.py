"""Read a CTranslate2 directory: settings, vocabularies, tokenizer files, and the bundle made of them.

Nothing is executed, and ctranslate2 is not needed. The numbers are those that CTranslate2 computes with in
float32, so the log-probabilities are equal.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from heedful.errors import InteropError, TokenizerError
from heedful.interop.ctranslate2.binary import ModelFile
from heedful.interop.ctranslate2.weights import read_facts, read_weights
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.vocabulary import TypedSettings, read_bytes, unique_names
from heedful.settings.parsing import parse_json, shown
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
_MARIAN_TAG = re.compile(r">>.+<<")
# Files of SentencePiece models, of one for both languages and of two.
_JOINT_FILES = (
    "sentencepiece.model", "sentencepiece.bpe.model", "spm.model", "spm.bpe.model", "tokenizer.model",
    "bpe.model",
)  # fmt: skip
_SEPARATE_FILES = (("source.spm", "target.spm"), ("source.model", "target.model"))
_SEARCH: Mapping[str, Any] = {  # of `translate_batch`, by default
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
        search: settings of `DecodeConfig` other than those of CTranslate2.
        languages: settings of `LanguageConfig`.
    """

    models: tuple[bytes, ...] = ()
    codes: Sequence[tuple[str, str]] | None = None
    moses: tuple[str, str] = ("en", "en")
    underscores: bool = False
    search: Mapping[str, Any] = field(default_factory=dict)
    languages: Mapping[str, str] = field(default_factory=dict)


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
    """A model.bin with the files beside it."""

    def __init__(self, path: Path, *, ignored: Collection[str] = ()) -> None:
        """Read all but weights and tokenizers.

        Args:
            path: the directory.
            ignored: unknown keys of config.json that may pass.

        Raises:
            InteropError: a file is missing or damaged.
        """
        self.path = path
        self.model = ModelFile(path / MODEL_FILE)
        self.settings = self._settings(ignored)
        self.src, self.tgt = self._vocabularies()

    def error(self, problem: str, *, file: str = _CONFIG_FILE) -> InteropError:
        """Return an exception that names the file."""
        return InteropError(f"{self.path / file}: {problem}")

    def bundle(self, text: TextFiles, options: ImportOptions) -> ImportedBundle:
        """Return the model with its tokenizers. Raises as `read_ctranslate2`."""
        is_joint = self.src == self.tgt
        eps = TypedSettings(self.settings, self.path / _CONFIG_FILE).number("layer_norm_epsilon")
        facts = read_facts(self.model, one_vocabulary=is_joint, epsilon=eps)
        for language, tokens in (("src", self.src), ("tgt", self.tgt)):
            num_rows = facts[f"{language}_vocab_size"]
            if len(tokens) != num_rows:
                raise self.error(
                    f"{len(tokens):,} {language} tokens, but {num_rows:,} rows in the embedding; "
                    "copy the whole directory of one model",
                    file=MODEL_FILE,
                )
        vocabularies = _Vocabularies(self)
        ids = vocabularies.ids
        facts |= {
            "src_pad_id": ids["src"].pad,
            "tgt_pad_id": ids["tgt"].pad,
            "decoder_start_id": vocabularies.start_id,
        }
        added = {
            language: len(vocabularies.tokens[language]) - len(own)
            for language, own in self.by_language().items()
        }
        config, weights = read_weights(self.model, facts, options.settings, added)
        tokenizers, notes = self._tokenizers(vocabularies, text)
        languages, ends, more = self._template(tokenizers, text, options)
        sections: dict[str, Any] = {
            "model": config.model_dump(),
            "decode": {**_SEARCH, **text.search},
            "languages": languages,
            "tokenizer": {
                "kind": tokenizers.src.kind,
                "vocab_size": tokenizers.src.vocab_size,
                "joint": is_joint,
                "source_eos": ends,
            },
        }
        return ImportedBundle(Config(**sections), weights, tokenizers, (*notes, *more))

    def by_language(self) -> dict[str, list[str]]:
        """Return both vocabularies."""
        return {"src": self.src, "tgt": self.tgt}

    def _settings(self, ignored: Collection[str]) -> dict[str, Any]:
        """Return config.json, with the settings that older files have as variables."""
        file = self.path / _CONFIG_FILE
        settings: dict[str, Any] = {}
        if file.is_file():
            settings = read_settings(file)
        for key in ignored:
            if key not in settings or key in _KNOWN_KEYS:
                problem = "it is known and followed" if key in _KNOWN_KEYS else "there is no such key"
                raise self.error(f"--ignore {shown(key)}: {problem}; leave it out")
        for key, value in settings.items():
            if key not in (*_KNOWN_KEYS, *ignored) and value is not None:
                raise self.error(
                    f"{shown(key)} is unknown, and may change the outputs; if it only describes text, give "
                    f"--ignore {shown(key)}"
                )
        if settings.get("multi_query_attention"):
            raise self.error("multi_query_attention=true is not supported, and would change the outputs")
        if self.model.version < 6:
            settings |= {key: bool(self.model.scalar(name, 0)) for key, name in _FLAGS.items()}
            settings |= {key: self.model.text(key, usual) for key, usual in _USUAL_TOKENS.items()}
            starts_with = "bos_token" if self.model.scalar("with_target_bos", 1) else "eos_token"
            settings["decoder_start_token"] = settings[starts_with]
            if self.model.scalar("user_decoder_start_tokens", 0):
                settings["decoder_start_token"] = None
        typed = TypedSettings(settings, file)
        return settings | {key: typed.text(key) or usual for key, usual in _USUAL_TOKENS.items()}

    def _vocabularies(self) -> tuple[list[str], list[str]]:
        """Return the tokens of source and target by id."""
        shared = self._vocabulary("shared_vocabulary")
        if shared is not None:
            return shared, shared
        if self._vocabulary("source_1_vocabulary") is not None:
            raise self.error("features of source tokens are not supported", file="source_1_vocabulary")
        src, tgt = self._vocabulary("source_vocabulary"), self._vocabulary("target_vocabulary")
        if src is None or tgt is None:
            raise self.error(
                "there is neither shared_vocabulary.json nor source_vocabulary.json and "
                "target_vocabulary.json; copy the whole directory",
                file="",
            )
        return src, tgt

    def _vocabulary(self, stem: str) -> list[str] | None:
        if (self.path / f"{stem}.json").is_file():
            content = _read_json(self.path / f"{stem}.json")
            tokens = [each for each in content if isinstance(each, str)] if isinstance(content, list) else []
            if not isinstance(content, list) or len(tokens) < len(content):
                raise self.error("not a list of tokens", file=f"{stem}.json")
        elif (self.path / f"{stem}.txt").is_file():
            tokens = _read_lines(self.path / f"{stem}.txt")
        else:
            return None
        unknown = self.settings["unk_token"]
        return tokens if unknown in tokens else [*tokens, unknown]

    def _tokenizers(
        self, vocabularies: "_Vocabularies", text: TextFiles
    ) -> tuple[TokenizerPair, tuple[str, ...]]:
        """Return the tokenizers, and notes about them."""
        own = self._own_tokenizers(vocabularies)
        if own is not None:
            return own, ()
        if text.codes is not None:
            return _after_moses(vocabularies, text, text.codes), ()
        models = (text.models * 2)[:2]
        both = [
            tokenizer_of(
                models[i] if models else None, vocabularies.tokens[language], vocabularies.ids[language], text
            )
            for i, language in enumerate(("src", "tgt"))
        ]
        is_one = self.src == self.tgt and len(text.models) < 2
        notes: tuple[str, ...] = ()
        if not models:
            notes = (
                "There is no tokenizer beside the model: a line is its tokens with spaces between them, as "
                "CTranslate2 takes them.",
            )
        return TokenizerPair(both[0], both[0] if is_one else both[1]), notes

    def _own_tokenizers(self, vocabularies: "_Vocabularies") -> TokenizerPair | None:
        """Return the tokenizers of a bundle that was exported, if they have the tokens of the model."""
        try:
            pair = TokenizerPair.load(self.path)
        except TokenizerError:
            return None
        for language, tokenizer in (("src", pair.src), ("tgt", pair.tgt)):
            tokens = vocabularies.tokens[language]
            special = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.eos_id)
            ids = vocabularies.ids[language]
            if tokenizer.vocab_size > len(tokens) or special != (ids.pad, ids.unk, ids.eos):
                return None
            if sum(a != b for a, b in zip(tokenizer.tokens(range(len(tokens))), tokens, strict=True)) > 2:
                return None  # the names of the unknown and end token may differ
        return pair if pair.joint == (self.src == self.tgt) else None

    def _template(
        self, tokenizers: TokenizerPair, text: TextFiles, options: ImportOptions
    ) -> tuple[dict[str, str], bool, tuple[str, ...]]:
        """Return the settings of languages, whether sources have an end token, and notes about it."""
        languages = dict(text.languages)
        src, tgt = tokenizers.src, tokenizers.tgt
        if self.settings.get("add_source_bos") is True:
            languages["src_tag"] = self.settings["bos_token"]
        if options.src_lang is not None:
            languages["src_tag"] = src.tokens([src.tag_id(options.src_lang)])[0]
        if options.tgt_lang is not None:
            tag = tgt.tokens([tgt.tag_id(options.tgt_lang)])[0]
            languages["src_tag" if _MARIAN_TAG.fullmatch(tag) else "tgt_tag"] = tag
        ends = self.settings.get("add_source_eos") is True
        by_tokenizer = not ends and self.settings["decoder_start_token"] != self.settings["bos_token"]
        if by_tokenizer and text.models:
            return languages, True, (
                "CTranslate2 adds no end token to a source here. A start token other than "
                f"{self.settings['bos_token']!r} means a conversion from transformers, whose tokenizers add "
                "one, and so does this bundle; --set tokenizer.source_eos=false leaves it out.",
            )  # fmt: skip
        return languages, ends, ()


class _Vocabularies:
    """The tokens of both vocabularies with those added that a bundle needs: padding, and a start of zeros."""

    def __init__(self, directory: CTranslate2Directory) -> None:
        settings = directory.settings
        start = settings.get("decoder_start_token")
        if not isinstance(start, str):
            raise directory.error(
                "decoder_start_token is null: the caller begins each output; such models are not supported"
            )
        starts_from_zero = directory.model.scalar("decoder/start_from_zero_embedding", 0) != 0
        is_joint = directory.src == directory.tgt
        self.tokens = {
            language: unique_names(tokens, {}) for language, tokens in directory.by_language().items()
        }
        added: dict[str, list[str]] = {"src": [], "tgt": []}
        for language, tokens in self.tokens.items():
            if not any(map(_PADDING.fullmatch, tokens)):
                added[language].append("<pad>")
        if starts_from_zero:
            added["tgt"].append("<start>")
            start = "<start>"
        if is_joint:
            added["src"] = added["tgt"]
        self.tokens = {
            language: unique_names([*tokens, *added[language]], {})
            for language, tokens in self.tokens.items()
        }
        self.ids = {language: self._ids(language, start, settings, directory) for language in self.tokens}
        self.start_id = self.ids["tgt"].bos

    def _ids(
        self, language: str, start: str, settings: Mapping[str, Any], directory: CTranslate2Directory
    ) -> SpecialIds:
        tokens = self.tokens[language]
        known = {token: i for i, token in enumerate(tokens)}
        for key in ("eos_token", "unk_token"):
            if settings[key] not in known:
                raise directory.error(
                    f"{key} is {shown(settings[key])}, which the {language} vocabulary lacks"
                )
        if language == "tgt" and start not in known:
            raise directory.error(f"decoder_start_token is {shown(start)}, which the vocabulary lacks")
        bos = known.get(start if language == "tgt" else settings["bos_token"], known[settings["eos_token"]])
        pad = next(i for i, token in enumerate(tokens) if _PADDING.fullmatch(token))
        return SpecialIds(
            pad=pad, unk=known[settings["unk_token"]], bos=bos, eos=known[settings["eos_token"]]
        )


def _after_moses(
    vocabularies: "_Vocabularies", text: TextFiles, codes: Sequence[tuple[str, str]]
) -> TokenizerPair:
    """Return tokenizers of byte-pair codes after Moses' rules, which differ by language."""
    pair = [
        MosesTokenizer(
            codes, vocabularies.tokens[key], vocabularies.ids[key], language=language, rules="argos"
        )
        for key, language in zip(("src", "tgt"), text.moses, strict=True)
    ]
    return TokenizerPair(*pair)


def tokenizer_of(model: bytes | None, tokens: Sequence[str], ids: SpecialIds, text: TextFiles) -> Tokenizer:
    """Return a tokenizer of a SentencePiece model, or without one of tokens with spaces between them."""
    if model is None:
        return _split_at_spaces(tokens, ids)
    tags = [token for token in tokens if _TAG.fullmatch(token) or token == text.languages.get("tgt_tag")]
    return VocabularyTokenizer(
        model,
        tokens,
        ids,
        special=tags,
        leading_tags=any(map(_MARIAN_TAG.fullmatch, tokens)),
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
    pipeline: dict[str, Any] = {
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
            "vocab": {token: i for i, token in enumerate(tokens)},
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


def read_settings(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        InteropError: it is missing or damaged.
    """
    content = _read_json(file)
    if not isinstance(content, dict):
        raise InteropError(f"{file}: not an object of settings")
    return content


def _read_json(file: Path) -> object:
    try:
        return parse_json(read_bytes(file))
    except ValueError as error:
        raise InteropError(f"{file}: {error}") from None


def _read_lines(file: Path) -> list[str]:
    r"""Return the lines of a file; if all of them end with \r, without it."""
    try:
        lines = read_bytes(file).decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        raise InteropError(f"{file}: not UTF-8 at byte {error.start:,}") from None
    return [line[:-1] for line in lines] if all(line.endswith("\r") for line in lines) else lines
