"""Survey a whole corpus before its pairs are checked: one pass, 32 bytes for each pair."""

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from random import Random
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from heedful.data.cleaning.pair import (
    Identifier,
    Pair,
    Sentence,
    alike,
    check_language,
    language_of_name,
    main_scripts,
    majority_language,
)
from heedful.data.files import Row

_SAMPLE = 2000  # pairs, to identify the languages
_MAX_WORDS = 2_000_000  # distinct words counted; beyond them, words that occurred once are dropped

Keys = npt.NDArray[np.int64]
_Item = TypeVar("_Item")


class TextCounts:
    """Counts of the characters and words of the source or target text."""

    def __init__(self) -> None:
        self.characters: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.num_words = 0
        self.is_exact = True

    def add(self, text: str) -> None:
        """Count a sentence."""
        words = text.split()
        self.characters.update(text)
        self.words.update(words)
        self.num_words += len(words)
        if len(self.words) > _MAX_WORDS:
            self.words = Counter({word: count for word, count in self.words.items() if count > 1})
            self.is_exact = False

    @cached_property
    def scripts(self) -> frozenset[str]:
        """The scripts of at least 5 % of its letters."""
        return main_scripts(self.characters)


@dataclass(frozen=True)
class HeldOut:
    """The pairs of a validation or test set, as keys."""

    pairs: Keys
    shapes: Keys
    sources: Keys


@dataclass(frozen=True, kw_only=True)
class Survey:
    """Keys, lengths and counts of a corpus. Each array has an entry for each pair, in order.

    Attributes:
        pairs: a key of the exact pair.
        shapes: a key of the pair without case, digits and punctuation; as in `pairs` if a side has no letter.
        sources: a key of the source.
        src_lengths, tgt_lengths: characters of source and target.
        src, tgt: the characters and words of the source and the target text.
        held_out: "valid" and "test", if provided.
        identifier: the identifier of languages, or None.
        languages: the languages of source and target; None if unknown.
    """

    pairs: Keys
    shapes: Keys
    sources: Keys
    src_lengths: npt.NDArray[np.int32]
    tgt_lengths: npt.NDArray[np.int32]
    src: TextCounts
    tgt: TextCounts
    held_out: dict[str, HeldOut] = field(default_factory=dict)
    identifier: Identifier | None = None
    languages: tuple[str | None, str | None] = (None, None)

    @property
    def identified(self) -> tuple[Identifier, str, str] | None:
        """The identifier and the languages of source and target; None if one of them is unknown."""
        src, tgt = self.languages
        return (self.identifier, src, tgt) if self.identifier and src and tgt else None

    @property
    def num_pairs(self) -> int:
        """The number of pairs, empty ones included."""
        return len(self.pairs)


def pair_key(pair: Pair) -> int:
    """Return a hash of the pair, valid in this process."""
    return hash((pair.src.text, pair.tgt.text))


def shape_key(pair: Pair) -> int:
    """Return a hash that is equal for pairs that differ only in case, digits and punctuation."""
    if pair.src.num_letters and pair.tgt.num_letters:
        return hash((pair.src.shape, pair.tgt.shape, ""))
    return pair_key(pair)


def survey(
    rows: Iterable[Row],
    *,
    held_out: dict[str, Iterable[Row]] | None = None,
    identifier: Identifier | None = None,
    languages: tuple[str | None, str | None] = (None, None),
    files: Sequence[Path] = (),
) -> Survey:
    """Survey a corpus in one pass.

    `languages` of source and target that are None are found by the names of the files and the text.
    """
    pairs, shapes, sources = array("q"), array("q"), array("q")
    src_lengths, tgt_lengths = array("i"), array("i")
    src, tgt = TextCounts(), TextCounts()
    sample, random = list[Pair](), Random(0)
    for index, row in enumerate(rows):
        pair = Pair(row.src, row.tgt, index=index)
        pairs.append(pair_key(pair))
        shapes.append(shape_key(pair))
        sources.append(hash(row.src))
        src_lengths.append(len(row.src))
        tgt_lengths.append(len(row.tgt))
        src.add(row.src)
        tgt.add(row.tgt)
        draw(pair, sample, size=_SAMPLE, seen=index + 1, random=random)
    return Survey(
        pairs=np.frombuffer(pairs, dtype=np.int64),
        shapes=np.frombuffer(shapes, dtype=np.int64),
        sources=np.frombuffer(sources, dtype=np.int64),
        src_lengths=np.frombuffer(src_lengths, dtype=np.int32),
        tgt_lengths=np.frombuffer(tgt_lengths, dtype=np.int32),
        src=src,
        tgt=tgt,
        held_out={name: _held_out(rows) for name, rows in (held_out or {}).items()},
        identifier=identifier,
        languages=_languages(sample, identifier, languages, files),
    )


def draw(item: _Item, sample: list[_Item], *, size: int, seen: int, random: Random) -> None:
    """Keep a random sample of the items that were seen, this one included (reservoir sampling)."""
    if len(sample) < size:
        sample.append(item)
    elif (slot := int(random.random() * seen)) < size:
        sample[slot] = item


def _held_out(rows: Iterable[Row]) -> HeldOut:
    pairs = [Pair(row.src, row.tgt) for row in rows]
    keys = (map(pair_key, pairs), map(shape_key, pairs), (hash(pair.src.text) for pair in pairs))
    return HeldOut(*(np.fromiter(each, np.int64) for each in keys))


def _languages(
    sample: list[Pair],
    identifier: Identifier | None,
    languages: tuple[str | None, str | None],
    files: Sequence[Path],
) -> tuple[str | None, str | None]:
    if identifier is None:
        return languages
    for name in languages:
        if name is not None:
            check_language(name, identifier)
    src, tgt = (
        languages[i]
        or _language_of_text([pair.sentences[i] for pair in sample], identifier, files[i : i + 1])
        for i in (0, 1)
    )
    return src, tgt


def _language_of_text(text: Sequence[Sentence], identifier: Identifier, file: Sequence[Path]) -> str | None:
    """Return the language that the file's name says, unless the text is surely in another one."""
    of_text = majority_language(text, identifier)
    of_name = language_of_name(file[0], identifier) if file else None
    return of_name if of_name and (of_text is None or alike(of_name, of_text)) else of_text
