"""The source and target tokenizer of a model, in memory and on disk, and the languages that it names."""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal, Self

from heedful.errors import InputError, TokenizerError, needing
from heedful.settings.parsing import read_limited
from heedful.settings.run import Config
from heedful.text import vocabulary_tokenizer
from heedful.text.huggingface_tokenizer import PIPELINE, SPECIAL, HuggingFaceTokenizer
from heedful.text.languages import Pair, language_code
from heedful.text.moses_tokenizer import MOSES, MosesTokenizer
from heedful.text.sentencepiece_tokenizer import MODEL, SentencePieceTokenizer
from heedful.text.tokenizer import Tokenizer
from heedful.text.vocabulary_tokenizer import BYTES, ByteTokenizer

Tags = tuple[str | None, str | None]  # of source and target language; None: the model's own
JOINT, SOURCE, TARGET = "tokenizer", "source", "target"  # the stems of the files' names

# The suffix of the file that identifies a kind of tokenizer: its class, and the suffixes of its other files.
_KINDS: dict[str, tuple[type[Tokenizer], tuple[str, ...]]] = {
    MODEL: (SentencePieceTokenizer, ()),
    vocabulary_tokenizer.MODEL: (vocabulary_tokenizer.VocabularyTokenizer, (vocabulary_tokenizer.TOKENS,)),
    BYTES: (ByteTokenizer, ()),
    PIPELINE: (HuggingFaceTokenizer, (SPECIAL,)),
    MOSES: (MosesTokenizer, ()),
}


@dataclass(frozen=True, eq=False)
class TokenizerPair:
    """The source and the target tokenizer; `joint` if they are one."""

    src: Tokenizer
    tgt: Tokenizer

    @property
    def joint(self) -> bool:
        """Whether source and target share one tokenizer and vocabulary."""
        return self.src is self.tgt

    def save(self, directory: Path) -> None:
        """Write the files of `tokenizer`, or of `source` and `target`, into an existing directory."""
        tokenizers = {JOINT: self.src} if self.joint else {SOURCE: self.src, TARGET: self.tgt}
        for stem, tokenizer in tokenizers.items():
            for suffix, content in tokenizer.to_files().items():
                Path(directory, f"{stem}{suffix}").write_bytes(content)

    @classmethod
    def load(cls, directory: Path) -> Self:
        """Load the tokenizers that `save` wrote.

        Raises:
            TokenizerError: files are missing or damaged.
            MissingExtraError: they need a library that is not installed: tokenizers, or sacremoses.
        """
        if any(Path(directory, f"{JOINT}{suffix}").exists() for suffix in _KINDS):
            tokenizer = _load(Path(directory, JOINT))
            return cls(tokenizer, tokenizer)
        return cls(_load(Path(directory, SOURCE)), _load(Path(directory, TARGET)))

    @staticmethod
    def is_among(names: Iterable[str]) -> bool:
        """Return whether these file names include the names of a tokenizer pair."""
        return not {f"{stem}{suffix}" for stem in (JOINT, SOURCE) for suffix in _KINDS}.isdisjoint(names)

    def fingerprint(self) -> str:
        """Return a SHA-256 in hexadecimal: equal exactly if both tokenizers and `joint` are."""
        digest = hashlib.sha256(b"joint" if self.joint else b"separate")
        for tokenizer in (self.src, self.tgt):
            digest.update(tokenizer.digest())
        return digest.hexdigest()


def is_file_of_a_pair(name: str) -> bool:
    """Return whether `TokenizerPair.save` may write a file of that name."""
    suffixes = [suffix for kind, (_, others) in _KINDS.items() for suffix in (kind, *others)]
    return name in {f"{stem}{suffix}" for stem in (JOINT, SOURCE, TARGET) for suffix in suffixes}


def _load(stem: Path) -> Tokenizer:
    for suffix, (kind, others) in _KINDS.items():
        if stem.with_name(stem.name + suffix).exists():
            files = {name: _content(stem.with_name(stem.name + name)) for name in (suffix, *others)}
            return kind.from_files(files, name=str(stem))
    raise TokenizerError(f"{stem}{MODEL}: no such file; the directory holds no complete tokenizer")


def _content(path: Path) -> bytes:
    try:
        return read_limited(path)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise TokenizerError(f"{path}: cannot be read ({reason}); restore the file") from error


# The starts of Marian's and MADLAD-400's tags, which are in the source and name the target language.
TAGS_OF_TARGET = (">>", "<2")


def pair_of(config: Config) -> Pair | None:
    """Return the pair that a bundle names, else the pair in the training files' names: train.en, train.de."""
    with needing("tags of languages need langcodes", extra="memories"):
        named = config.languages.src, config.languages.tgt
        for names in (named, map(_ending, config.data.first_text)):
            src, tgt = (language_code(name or "") for name in names)
            if src and tgt and src != tgt:
                return Pair(src, tgt)
    return None


def languages_of_pairs(
    config: Config, *, src_lang: str | None = None, tgt_lang: str | None = None
) -> tuple[str | None, str | None]:
    """Return the languages of pairs for a model, as far as the model or the tags for it say them."""
    pair = pair_of(config)
    src, tgt = (language_code(tag) if tag else None for tag in (src_lang, tgt_lang))
    return (src or pair.src, tgt or pair.tgt) if pair else (src, tgt)


def _ending(name: str | None) -> str:
    """Return the end of a file's name that may be a language: two or three letters."""
    path = Path(name or "")
    ending = (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix[1:]
    return ending if len(ending) <= 3 else ""


def pairs_of(config: Config, tokenizers: TokenizerPair, named: Collection[Pair]) -> dict[Pair, Tags]:
    """Return the pairs that a model translates, as `Bundle.pairs` does."""
    tag, src = config.languages.src_tag, tokenizers.src
    if tag is not None and config.languages.tgt_tag is not None and not tag.startswith(TAGS_OF_TARGET):
        src_tags, tgt_tags = _tags_of_languages(src), _tags_of_languages(tokenizers.tgt)
        tagged = [Pair(*codes) for codes in product(src_tags, tgt_tags)]
        return {pair: (src_tags[pair.src], tgt_tags[pair.tgt]) for pair in tagged if pair.src != pair.tgt}
    own = pair_of(config)
    targets = _tags_of_languages(src, starts=TAGS_OF_TARGET)
    if named:  # its source language has no tag
        return {pair: (None, targets.get(pair.tgt)) for pair in named if pair.tgt in targets or not targets}
    return {own: (None, targets.get(own.tgt))} if own else {}


def _tags_of_languages(tokenizer: Tokenizer, *, starts: str | tuple[str, ...] = "") -> dict[str, str]:
    """Return the tags of languages by code, of those with one of these starts."""
    tags = [(language_code(tag), tag) for tag in tokenizer.tags() if tag.startswith(starts)]
    return dict(sorted((code, tag) for code, tag in tags if code is not None))


def choose_languages(
    config: Config, tokenizers: TokenizerPair, *, src_lang: str | None = None, tgt_lang: str | None = None
) -> Config:
    """Return the configuration with other languages; None keeps a language.

    The tag of the target language is at the start of the output (M2M100, NLLB, mBART-50), the decoder's first
    input (mBART), or before the source (Marian, MADLAD-400). A language is named in any form that
    `Tokenizer.tag_id` accepts.

    Raises:
        InputError: the language has no tag, or the model has no choice of languages.
    """
    start_id, languages = config.model.decoder_start_id, config.languages
    of_output = languages.tgt_tag or (None if start_id is None else tokenizers.tgt.tokens([start_id])[0])
    shares = languages.src_tag == of_output and languages.src_tag in tokenizers.src.tags()
    if src_lang is None and tgt_lang is not None and shares:
        src_lang = tgt_lang  # fairseq has models with the tag of the target in both texts
    if src_lang is not None:
        config = _with_source(config, tokenizers.src, src_lang)
    if tgt_lang is not None:
        config = _with_target(config, tokenizers, tgt_lang)
    return config


def _with_source(config: Config, tokenizer: Tokenizer, language: str) -> Config:
    tag = config.languages.src_tag
    if tag is None or tag.startswith(TAGS_OF_TARGET) or not _is_language(tokenizer.tag_id(tag), tokenizer):
        raise InputError(
            f"src_lang={language!r}: this model has no tag for its source language; leave it out"
        )
    return _with_languages(config, src_tag=_tag("src_lang", language, tokenizer))


def has_target_languages(config: Config, tokenizers: TokenizerPair) -> bool:
    """Return whether a model has a choice of target languages."""
    return _place_of_target(config, tokenizers) is not None


def _place_of_target(
    config: Config, tokenizers: TokenizerPair
) -> Literal["output", "start", "source"] | None:
    """Return where the tag of the target language is; None if there is none."""
    tgt, tag, start_id = tokenizers.tgt, config.languages.tgt_tag, config.model.decoder_start_id
    if tag is not None and _is_language(tgt.tag_id(tag), tgt):
        return "output"
    if start_id is not None and _is_language(start_id, tgt):
        return "start"
    return "source" if any(tag.startswith(TAGS_OF_TARGET) for tag in tokenizers.src.tags()) else None


def _with_target(config: Config, tokenizers: TokenizerPair, language: str) -> Config:
    place = _place_of_target(config, tokenizers)
    if place is None:
        raise InputError(f"tgt_lang={language!r}: this model translates into one language only; leave it out")
    tag = _tag("tgt_lang", language, tokenizers.src if place == "source" else tokenizers.tgt)
    if place == "start":
        start_id = tokenizers.tgt.tag_id(tag)
        return config.replace(model=config.model.replace(decoder_start_id=start_id).model_dump())
    return _with_languages(config, **{"src_tag" if place == "source" else "tgt_tag": tag})


def _with_languages(config: Config, **tags: str) -> Config:
    return config.replace(languages=config.languages.replace(**tags).model_dump())


def _is_language(tag_id: int, tokenizer: Tokenizer) -> bool:
    """Return whether an id is the tag of a language; BART has its begin token instead."""
    return tokenizer.tokens([tag_id])[0] in tokenizer.tags()


def _tag(name: str, language: str, tokenizer: Tokenizer) -> str:
    """Return the tag of a language as in the vocabulary."""
    try:
        tag = tokenizer.tokens([tokenizer.tag_id(language)])[0]
        if tag in tokenizer.tags():
            return tag
        problem = f"{language!r} is not a language"
    except TokenizerError as error:
        problem = str(error)
    raise InputError(f"{name}: {problem}")
