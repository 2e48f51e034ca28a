"""A sentence pair for the filters: the text, and properties that several of them use, computed once."""

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, lru_cache
from pathlib import Path

import numpy as np

from heedful.data.files import IsFaulty, plain_name
from heedful.errors import ConfigError, suggestion
from heedful.settings.plugins import function_part
from heedful.text.scripts import UNSPACED


class _Shapes(dict[int, str]):
    """Maps letters and marks to themselves, digits to 0, format characters to nothing, others to a space."""

    def __missing__(self, code: int) -> str:
        category = unicodedata.category(chr(code))
        shape = chr(code) if category[0] in "LM" else {"Nd": "0", "Cf": ""}.get(category, " ")
        self[code] = shape
        return shape


_SHAPES = _Shapes()
_UNSPACED = re.compile(f"[{UNSPACED}]")
_UNSPACED_PARTS = re.compile(f"[{UNSPACED}\u200b\u3000-\u303f\uff00-\uffef]+")  # with full-width punctuation


def is_unspaced(text: str) -> bool:
    """Return whether a text has a character of a script without spaces between words, such as Chinese."""
    return not text.isascii() and _UNSPACED.search(text) is not None


class Sentence:
    """One sentence of a pair."""

    def __init__(self, text: str) -> None:
        self.text = text

    @cached_property
    def words(self) -> list[str]:
        """The words: runs of characters between spaces, punctuation included."""
        return self.text.split()

    @cached_property
    def num_visible(self) -> int:
        """The number of characters that are not spaces."""
        return sum(map(len, self.words))

    @cached_property
    def shape(self) -> str:
        """The text without case and punctuation, with each digit as 0: equal for near-duplicates."""
        return " ".join(self.text.casefold().translate(_SHAPES).split())

    @cached_property
    def num_letters(self) -> int:
        """The number of letters, with the marks that belong to them."""
        return len(self.shape) - self.shape.count(" ") - self.num_digits

    @cached_property
    def num_digits(self) -> int:
        """The number of decimal digits of any script."""
        return self.shape.count("0")

    @cached_property
    def spaced_parts(self) -> list[str]:
        """The words, without their parts in scripts without spaces and in the punctuation of these."""
        if not self.is_unspaced:
            return self.words
        return [part for word in self.words for part in _UNSPACED_PARTS.split(word)]

    @cached_property
    def is_unspaced(self) -> bool:
        """Whether it has text of a script without spaces between words."""
        return is_unspaced(self.text)


class Pair:
    """A source and a target sentence, and the index of the pair in its corpus, from 0."""

    def __init__(self, src: str, tgt: str, *, index: int = 0) -> None:
        self.src, self.tgt, self.index = Sentence(src), Sentence(tgt), index
        self.sentences = (self.src, self.tgt)


def pair_filter(name: str, key: str) -> Callable[[Pair], bool]:
    """Return the filter of a plugin; `key` names the setting in messages."""
    return function_part(name, key, "pair", returns="True (faulty) or False", is_right=_is_bool)


def _is_bool(value: object, _: object) -> bool:
    return isinstance(value, bool | np.bool_)


def faulty_by(filters: Sequence[str]) -> IsFaulty:
    """Return a function that says whether a filter of a plugin finds a fault in a source and a target."""
    checks = [pair_filter(each, "data.filters") for each in filters]

    def is_faulty(src: str, tgt: str) -> bool:
        pair = Pair(src, tgt)
        return any(check(pair) for check in checks)

    return is_faulty


MIN_LETTERS = 20  # shorter texts are not identified
_MAJORITY = 0.5  # of the lines that are long enough; a text without a majority has no language
_NEARLY_ALL = 0.9  # of passages of several lines; lists of names and sounds give many languages a few votes
_ENOUGH_VOTES = 5
_ENOUGH_CHARACTERS = 120  # of a text; more take longer and are no more accurate
NO_LANGUAGE = "zxx"  # of numbers, markup and names
# Similar languages, or two codes of one: a pair is not faulty because of one in place of the other.
_ALIKE = (
    {"no", "nn", "da", "nso"}, {"bs", "hr", "sr", "sl"}, {"id", "ms", "jv"}, {"zh", "yue", "wuu"},
    {"cs", "sk"}, {"es", "gl", "ca", "an", "ext", "pt"}, {"de", "lb"}, {"nl", "af", "fy"},
    {"ar", "ary", "arz"}, {"mk", "bg"}, {"fr", "wa", "oc", "gcf", "gcr"}, {"en", "pcm"},
    {"it", "vec", "lij"}, {"az", "tr", "crh"}, {"ru", "uk", "be"}, {"hi", "mr", "ne"}, {"fo", "is"},
    {"fi", "et"}, {"lt", "ltg", "lv"}, {"xh", "zu"},
)  # fmt: skip


class Identifier:
    """Identifies the language of a text by its first characters, with py3langid."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        # Several filters identify the same pair.
        self._classify = lru_cache(maxsize=4)(identifier.classify)
        self._rank = lru_cache(maxsize=4)(identifier.rank)

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable language, and its probability."""
        language, probability = self._classify(text[:_ENOUGH_CHARACTERS])
        return str(language), float(probability)

    def probabilities(self, text: str) -> dict[str, float]:
        """Return the probability of each language."""
        return dict(self._rank(text[:_ENOUGH_CHARACTERS]))


@cache
def language_identifier() -> Identifier | None:
    """Return the identifier, loaded once; None if py3langid is not installed."""
    try:
        return Identifier()
    except ImportError:
        return None


def majority_language(sentences: Sequence[Sentence], identifier: Identifier) -> str | None:
    """Return the language of a text; None if there is none, or too little text.

    It is the language of most lines that are long enough, or else of nearly all passages of several lines.
    """
    lines = [sentence.text for sentence in sentences if sentence.num_letters >= MIN_LETTERS]
    return _voted(lines, _MAJORITY, identifier) or _voted(_passages(sentences), _NEARLY_ALL, identifier)


def _voted(texts: Iterable[str], share: float, identifier: Identifier) -> str | None:
    votes = Counter(identifier.best(text)[0] for text in texts)
    (language, count), *_ = votes.most_common(1) or [("", 0)]
    enough = votes.total() >= _ENOUGH_VOTES and count > share * votes.total()
    return language if enough and language != NO_LANGUAGE else None


def _passages(sentences: Iterable[Sentence]) -> Iterator[str]:
    """Join lines to passages that are long enough to be identified surely."""
    lines: list[str] = []
    length = 0
    for sentence in sentences:
        lines.append(sentence.text)
        length += len(sentence.text) + 1
        if length > _ENOUGH_CHARACTERS:
            yield " ".join(lines)
            lines, length = [], 0


def language_of_name(path: Path, identifier: Identifier) -> str | None:
    """Return the language that the end of a file's name says, as in `train.en` and `train.en.gz`."""
    ending = plain_name(path).suffix[1:]
    return ending if ending in identifier.probabilities("") else None


def check_language(name: str, identifier: Identifier) -> None:
    """Raise a ConfigError if the identifier does not know a language code."""
    known = identifier.probabilities("")
    if name not in known:
        raise ConfigError(f"unknown language {name!r}{suggestion(name, known)}")


def alike(first: str, second: str) -> bool:
    """Return whether two languages are so similar that a sentence may be taken for either."""
    return first == second or any({first, second} <= group for group in _ALIKE)


_PART = 0.05  # the smallest share of a main script: Japanese has three
# Letters that belong to no script, or to any: signs, and letters in other forms.
_NO_SCRIPTS = {
    "MODIFIER", "MATHEMATICAL", "DOUBLE-STRUCK", "SCRIPT", "BLACK-LETTER", "FEMININE", "MASCULINE", "MICRO",
    "OHM", "KELVIN", "ANGSTROM", "FULLWIDTH", "HALFWIDTH", "ALEF", "PLANCK", "TURNED", "SQUARED",
    "IDEOGRAPHIC", "KATAKANA-HIRAGANA",
}  # fmt: skip


@cache
def script_of(character: str) -> str | None:
    """Return the script of a letter, such as "LATIN"; None for other characters."""
    if not character.isalpha():
        return None
    script = unicodedata.name(character, "").split(" ", 1)[0]
    return script if script and script not in _NO_SCRIPTS else None


def main_scripts(characters: Mapping[str, int]) -> frozenset[str]:
    """Return the scripts of at least 5 % of the letters, given the count of each character."""
    counts: Counter[str] = Counter()
    for character, count in characters.items():
        if (script := script_of(character)) is not None:
            counts[script] += count
    return frozenset(script for script, count in counts.items() if count >= _PART * counts.total())


def foreign_letters(characters: Iterable[str], scripts: frozenset[str]) -> frozenset[str]:
    """Return the characters that are letters of other scripts."""
    return frozenset(c for c in characters if (script := script_of(c)) is not None and script not in scripts)
