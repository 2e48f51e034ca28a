"""fairseq's dictionaries as tokenizers, and the language tokens of its multilingual models.

A dictionary is a word and its count on each line, after four special tokens. The tasks of multilingual
translation append tokens of languages, which stand in no file: before a source and as the first token of
the output, or in place of the end token of the source and of the decoder's start token.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count, islice, product
from pathlib import Path
from typing import Self

from heedful.errors import InteropError
from heedful.interop.conversion import Settings, Values
from heedful.interop.fairseq import EOS_ID, PAD_ID, saved_arguments
from heedful.interop.vocabulary import (
    TypedSettings,
    as_list,
    ids_of,
    is_texts,
    read,
    read_token_lines,
    tag_of_language,
    tokenizers_of_words,
)
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import decode_text, shown
from heedful.text import SpecialIds, TokenizerPair

_FIRST = ("<s>", "<pad>", "</s>", "<unk>")
_SPECIAL = SpecialIds(bos=0, pad=PAD_ID, eos=EOS_ID, unk=3)
_PADDING_FACTOR = 8  # vocabularies are padded to a multiple of it
_OVERWRITE = "#fairseq:overwrite"
_TAG_STYLES = {"multilingual": "__{}__", "mbart": "[{}]"}
_CHOICES = [*product((None, "src", "tgt"), repeat=2)]  # of the tags of source and output
_KIND_OF_DATA = re.compile("(dae|lm|mined)$")  # kinds that have tags of their own
_LINE = re.compile(f"(.+) [-+]*[0-9]+( {_OVERWRITE})?", re.DOTALL)


@dataclass(frozen=True)
class Languages:
    """The language tokens that fairseq adds to the dictionaries of a multilingual model.

    Attributes:
        tags: the tags in the order of their ids, which follow the dictionary's.
        task: the arguments of the training that say where tags stand.
    """

    tags: tuple[str, ...] = ()
    task: Settings = field(default_factory=dict)

    @classmethod
    def of(cls, beside: Settings, lang_dict: Path | None) -> Self:
        """Return the language tokens of a checkpoint.

        Args:
            beside: its contents other than weights.
            lang_dict: fairseq's file of that name, a language on each line; None: the arguments tell.

        Raises:
            InteropError: the file cannot be read, or an argument has a form that is unknown.
        """
        saved = saved_arguments(beside, "task")
        task = {"task": saved.get("_name"), **saved}
        if lang_dict is not None:
            languages = read(lang_dict, decode_text).split()
        else:
            pairs = "-".join(_listed(task.get("lang_pairs")))
            languages = _listed(task.get("langs")) or sorted({*pairs.split("-")} - {""})
            if _replaces_end(task) and not (task.get("encoder_langtok") or task.get("decoder_langtok")):
                languages = []
        if not languages:
            return cls()
        style = TypedSettings(task, "arguments").one_of("lang_tok_style", _TAG_STYLES, "multilingual")
        tags: list[str] = []
        for spec in _listed(task.get("langtoks_specs")) or ["main"]:
            kind = _KIND_OF_DATA.search(spec)
            ending = f"_{kind[0]}" if kind else ""
            tags += [style.format(language + ending) for language in languages]
        if style is _TAG_STYLES["mbart"] or "mono_dae" in as_list(task.get("extra_data")):
            tags.append("<mask>")
        return cls(tuple(tags), task)

    def settings(self, src: str | None, tgt: str | None, tokenizers: TokenizerPair) -> Values:
        """Return the sections of the configuration that say where tags stand.

        Args:
            src: the language to translate from.
            tgt: the language to translate into.
            tokenizers: the tokenizers with the tags.

        Raises:
            InteropError: a language that has a tag is not specified, or the model has no tags.
            TokenizerError: there is no such tag.
        """
        chosen = {"src": src, "tgt": tgt, None: None}
        tagged = self._tagged()
        for text in filter(None, tagged):
            if not chosen[text]:
                raise InteropError(f"the model has tokens of languages; give --{text}-lang")
        if not any(tagged) and (src or tgt):
            raise InteropError("--src-lang, --tgt-lang: the model has no tokens of languages; leave them out")
        encoder, decoder = map(chosen.get, tagged)
        replaces_end = _replaces_end(self.task)
        sections: Values = {"languages": {}}
        if encoder:
            sections["languages"]["src_tag"] = tag_of_language(tokenizers.src, encoder)
            if replaces_end:
                sections["languages"]["src_tag_position"] = "last"
                sections["tokenizer"] = {"source_eos": False}
        if decoder and replaces_end:
            sections["model"] = {"decoder_start_id": tokenizers.tgt.tag_id(decoder)}
        elif decoder:
            sections["languages"]["tgt_tag"] = tag_of_language(tokenizers.tgt, decoder)
        return sections

    def _tagged(self) -> tuple[str | None, str | None]:
        """Return which language's token stands in the source, and in the output: "src", "tgt" or None."""
        if not self.tags:
            return None, None
        by_kind = self.task.get("langtoks")
        main = by_kind.get("main") if isinstance(by_kind, Mapping) else None
        if main is None:
            main = self.task.get("encoder_langtok"), "tgt" if self.task.get("decoder_langtok") else None
        if not isinstance(main, list | tuple) or tuple(main) not in _CHOICES:
            raise InteropError(f"langtoks={shown(main)} is not supported")
        return main[0], main[1]


def _replaces_end(task: Settings) -> bool:
    """Return whether tags replace the end of the source and the start of the output."""
    return bool(task.get("lang_tok_replacing_bos_eos")) or task.get("task") == "multilingual_translation"


def _listed(value: object) -> list[str]:
    """Return a list of texts, or those between commas."""
    values = value.split(",") if isinstance(value, str) else as_list(value)
    if not is_texts(values):
        raise InteropError(f"{shown(value)} is not a list of languages")
    return values


def read_dictionaries(
    src: Path, tgt: Path, config: ModelConfig, *, languages: Languages | None = None
) -> TokenizerPair:
    """Return word-level tokenizers of `dict.SRC.txt` and `dict.TGT.txt`; equal ones share a tokenizer.

    Raises:
        InteropError: a file cannot be read, or has another size than the model's vocabulary.
    """
    tags = (languages or Languages()).tags
    words = {
        src: read_dictionary(src, config.src_vocab_size, tags=tags),
        tgt: read_dictionary(tgt, config.tgt_vocab_size, tags=tags),
    }
    return tokenizers_of_words(words, src, tgt, ids=_SPECIAL, tags=tags)


def read_dictionary(path: Path, size: int, *, tags: Sequence[str] = ()) -> list[str]:
    """Return the tokens by id: the file's, tags, and fairseq's padding tokens, if the file lacks them.

    A repeated word that is marked to overwrite the first has its text; the first, which nothing reads any
    more, has its id in its name.

    Raises:
        InteropError: as `read_dictionaries`.
    """
    words, ids = list(_FIRST), ids_of(_FIRST)
    for number, line in enumerate(read_token_lines(path), start=1):
        match = _LINE.fullmatch(line.rstrip())
        if match is None:
            raise InteropError(
                f"{path}: line {number:,}: {shown(line)} is not a token and its count; give fairseq's "
                "dict.txt"
            )
        word, overwrites = match.groups()
        if word in ids and not overwrites:
            raise InteropError(
                f"{path}: line {number:,}: {shown(word)} is repeated; fairseq reads that only with "
                f"{_OVERWRITE} at the end of the line"
            )
        if ids.get(word, 0) >= len(_FIRST):
            words[ids[word]] += f"<{ids[word]}>"
        ids[word] = len(words)
        words.append(word)
    words += [tag for tag in tags if tag not in ids]
    missing = size - len(words)
    if not 0 <= missing <= _PADDING_FACTOR or (missing and size % _PADDING_FACTOR):
        raise InteropError(
            f"{path}: {len(words):,} tokens, the first four included, but the embedding has {size:,} rows; "
            "give the dictionary that the model was trained with, and for a multilingual model --lang-dict "
            "FILE, its languages in their order, one on each line"
        )
    filling = (f"madeupword{i:04d}" for i in count())
    return [*words, *islice((word for word in filling if word not in ids), missing)]
