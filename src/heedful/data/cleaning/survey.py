"""Survey a whole corpus before its pairs are judged: one pass, 32 bytes for a pair."""

import random
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from heedful.data.cleaning.languages import Identifier, known_language, majority_language
from heedful.data.cleaning.pair import Pair
from heedful.data.cleaning.scripts import scripts_of_a_side
from heedful.data.pair_files import Row

_SAMPLE = 2000  # pairs, of which the languages are found
_MAX_WORDS = 2_000_000  # different ones that are counted; beyond them those that were seen once are forgotten

Keys = npt.NDArray[np.int64]


class SideCounts:
    """Characters and words of one side, counted."""

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
        """The scripts that it is written in."""
        return scripts_of_a_side(self.characters)


@dataclass(frozen=True)
class HeldOut:
    """The pairs of a validation or test set, as keys."""

    pairs: Keys
    shapes: Keys
    sources: Keys


@dataclass(frozen=True, kw_only=True)
class Survey:
    """A corpus as a whole. Each array has an entry for each pair, in order.

    Attributes:
        pairs: a key of the pair as it is.
        shapes: a key of the pair without case, digits and punctuation; `pairs`' where a side has no letter.
        sources: a key of the source.
        src_lengths: characters of the source.
        tgt_lengths: characters of the target.
        src: characters and words of the source side.
        tgt: characters and words of the target side.
        held_out: "valid" and "test", where they are given.
        identifier: of languages; None: there is none.
        languages: that of each side; None where it is not known.
    """

    pairs: Keys
    shapes: Keys
    sources: Keys
    src_lengths: npt.NDArray[np.int32]
    tgt_lengths: npt.NDArray[np.int32]
    src: SideCounts
    tgt: SideCounts
    held_out: dict[str, HeldOut] = field(default_factory=dict)
    identifier: Identifier | None = None
    languages: tuple[str | None, str | None] = (None, None)

    @property
    def num_pairs(self) -> int:
        """All of them, empty ones too."""
        return len(self.pairs)


def pair_key(pair: Pair) -> int:
    """Return a number that is the same for the same pair, in this process."""
    return hash((pair.src.text, pair.tgt.text))


def shape_key(pair: Pair) -> int:
    """Return a number that is the same for pairs that differ in case, digits and punctuation alone."""
    if pair.src.num_letters and pair.tgt.num_letters:
        return hash((pair.src.shape, pair.tgt.shape, ""))
    return pair_key(pair)


def survey(
    rows: Iterable[Row],
    *,
    held_out: dict[str, Iterable[Row]] | None = None,
    identifier: Identifier | None = None,
    languages: tuple[str | None, str | None] = (None, None),
) -> Survey:
    """Read a corpus once.

    Args:
        rows: the pairs.
        held_out: those of validation and test sets, by name.
        identifier: of `language_identifier`.
        languages: that the sides should have; None: what most of them has.

    Raises:
        ConfigError: a language that the identifier does not know.
        CorpusError: text that cannot be read.
    """
    pairs, shapes, sources = array("q"), array("q"), array("q")
    src_lengths, tgt_lengths = array("i"), array("i")
    src, tgt = SideCounts(), SideCounts()
    sample: list[Pair] = []
    draw = random.Random(0)
    for index, row in enumerate(rows):
        pair = Pair(row.src, row.tgt, index)
        pairs.append(pair_key(pair))
        shapes.append(shape_key(pair))
        sources.append(hash(row.src))
        src_lengths.append(len(row.src))
        tgt_lengths.append(len(row.tgt))
        src.add(row.src)
        tgt.add(row.tgt)
        if len(sample) < _SAMPLE:
            sample.append(pair)
        elif (place := int(draw.random() * (index + 1))) < _SAMPLE:
            sample[place] = pair
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
        languages=_languages(sample, identifier, languages),
    )


def _held_out(rows: Iterable[Row]) -> HeldOut:
    pairs = [Pair(row.src, row.tgt) for row in rows]
    return HeldOut(
        pairs=np.array([pair_key(pair) for pair in pairs], dtype=np.int64),
        shapes=np.array([shape_key(pair) for pair in pairs], dtype=np.int64),
        sources=np.array([hash(pair.src.text) for pair in pairs], dtype=np.int64),
    )


def _languages(
    sample: list[Pair], identifier: Identifier | None, given: tuple[str | None, str | None]
) -> tuple[str | None, str | None]:
    if identifier is None:
        return None, None
    src, tgt = (None if name is None else known_language(name, identifier) for name in given)
    return (
        src or majority_language((pair.src for pair in sample), identifier),
        tgt or majority_language((pair.tgt for pair in sample), identifier),
    )
