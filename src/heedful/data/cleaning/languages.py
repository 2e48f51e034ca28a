"""The one place that knows py3langid: how probable it is that a text is in each of some 140 languages."""

from collections import Counter
from collections.abc import Iterable
from functools import cache, lru_cache
from typing import Protocol

from heedful.data.cleaning.pair import Side
from heedful.errors import ConfigError, suggestion

MIN_LETTERS = 20  # below which a text says little of its language
_MAJORITY = 0.5  # of the lines that are long enough: a side that has no such language has none
_ENOUGH_LINES = 5
_ENOUGH_CHARACTERS = 120  # of a text: more make it slower, and no surer
NO_LANGUAGE = "zxx"  # of numbers, markup and names
# Written alike, or the same by another name: one does not speak against the other.
_ALIKE = (
    {"no", "nn", "da", "nso"}, {"bs", "hr", "sr", "sl"}, {"id", "ms", "jv"}, {"zh", "yue", "wuu"},
    {"cs", "sk"}, {"es", "gl", "ca", "an", "ext", "pt"}, {"de", "lb"}, {"nl", "af", "fy"},
    {"ar", "ary", "arz"}, {"mk", "bg"}, {"fr", "wa", "oc", "gcf", "gcr"}, {"en", "pcm"},
    {"it", "vec", "lij"}, {"az", "tr", "crh"}, {"ru", "uk", "be"}, {"hi", "mr", "ne"}, {"fo", "is"},
    {"fi", "et"}, {"lt", "ltg", "lv"}, {"xh", "zu"},
)  # fmt: skip


class Identifier(Protocol):
    """Says which language a text is in."""

    def best(self, text: str) -> tuple[str, float]:
        """Return the most probable language, and its probability."""
        ...

    def probabilities(self, text: str) -> dict[str, float]:
        """Return the probability of each language."""
        ...


class _Py3langid:
    """The identifier of py3langid, on the beginning of a text."""

    def __init__(self) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        # Several filters ask of the same pair.
        self._classify = lru_cache(maxsize=4)(identifier.classify)
        self._rank = lru_cache(maxsize=4)(identifier.rank)

    def best(self, text: str) -> tuple[str, float]:
        language, probability = self._classify(text[:_ENOUGH_CHARACTERS])
        return str(language), float(probability)

    def probabilities(self, text: str) -> dict[str, float]:
        return dict(self._rank(text[:_ENOUGH_CHARACTERS]))


@cache
def language_identifier() -> Identifier | None:
    """Return the identifier, which is loaded once; None where py3langid is not installed."""
    try:
        return _Py3langid()
    except ImportError:
        return None


def majority_language(sides: Iterable[Side], identifier: Identifier) -> str | None:
    """Return the language of most of the texts; None where there is none, or too little text."""
    texts = [side.text for side in sides if side.num_letters >= MIN_LETTERS]
    votes = Counter(identifier.best(text)[0] for text in texts)
    (language, count), *_ = votes.most_common(1) or [("", 0)]
    enough = len(texts) >= _ENOUGH_LINES and count > _MAJORITY * len(texts)
    return language if enough and language != NO_LANGUAGE else None


def known_language(name: str, identifier: Identifier) -> str:
    """Return a language that the identifier knows.

    Raises:
        ConfigError: it does not know it.
    """
    known = identifier.probabilities("")
    if name not in known:
        raise ConfigError(f"unknown language {name!r}{suggestion(name, known)}")
    return name


def alike(first: str, second: str) -> bool:
    """Whether two languages are so much alike that a sentence may pass for either."""
    return first == second or any({first, second} <= group for group in _ALIKE)
