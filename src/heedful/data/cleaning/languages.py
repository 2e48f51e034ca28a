"""Language identification with py3langid."""

from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Protocol

from heedful.data.cleaning.pair import Sentence
from heedful.errors import ConfigError, suggestion

MIN_LETTERS = 20  # shorter texts are not identified
_MAJORITY = 0.5  # of the lines that are long enough; a text without a majority has no language
_ENOUGH_LINES = 5
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


class Identifier(Protocol):
    """Identifies the language of a text."""

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable language, and its probability."""
        ...

    def probabilities(self, text: str) -> dict[str, float]:
        """Return the probability of each language."""
        ...


class _Py3langid:
    """py3langid on the first characters of a text."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        # Several filters identify the same pair.
        self._classify = lru_cache(maxsize=4)(identifier.classify)
        self._rank = lru_cache(maxsize=4)(identifier.rank)

    def best(self, text: str) -> tuple[str, float]:
        language, probability = self._classify(text[:_ENOUGH_CHARACTERS])
        return str(language), float(probability)

    def probabilities(self, text: str) -> dict[str, float]:
        return dict(self._rank(text[:_ENOUGH_CHARACTERS]))


@cache
def language_identifier() -> Identifier | None:
    """Return the identifier, loaded once; None if py3langid is not installed."""
    try:
        return _Py3langid()
    except ImportError:
        return None


def majority_language(sentences: Iterable[Sentence], identifier: Identifier) -> str | None:
    """Return the language of most sentences; None if there is no majority, or too little text."""
    texts = [sentence.text for sentence in sentences if sentence.num_letters >= MIN_LETTERS]
    votes = Counter(identifier.best(text)[0] for text in texts)
    (language, count), *_ = votes.most_common(1) or [("", 0)]
    enough = len(texts) >= _ENOUGH_LINES and count > _MAJORITY * len(texts)
    return language if enough and language != NO_LANGUAGE else None


def known_language(name: str, identifier: Identifier) -> str:
    """Return the language code if the identifier knows it.

    Raises:
        ConfigError: it does not.
    """
    known = identifier.probabilities("")
    if name not in known:
        raise ConfigError(f"unknown language {name!r}{suggestion(name, known)}")
    return name


def alike(first: str, second: str) -> bool:
    """Return whether two languages are so similar that a sentence may be taken for either."""
    return first == second or any({first, second} <= group for group in _ALIKE)
