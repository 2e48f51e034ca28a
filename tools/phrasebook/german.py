"""German noun phrases by rule: articles, adjective endings, noun forms, contracted prepositions."""

from __future__ import annotations

from functools import cache

from phrasebook.words import Case, Gender, Noun

PLURAL = 3
"""The plural's column in the tables below, after the three genders."""

_DEFINITE = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "den"),
    ("des", "der", "des", "der"),
)
_DER_WORD_ENDINGS = (
    ("er", "e", "es", "e"),
    ("en", "e", "es", "e"),
    ("em", "er", "em", "en"),
    ("es", "er", "es", "er"),
)
_EIN_WORD_ENDINGS = (
    ("", "e", "", "e"),
    ("en", "e", "", "e"),
    ("em", "er", "em", "en"),
    ("es", "er", "es", "er"),
)
_WEAK_ENDINGS = (
    ("e", "e", "e", "en"),
    ("en", "e", "e", "en"),
    ("en", "en", "en", "en"),
    ("en", "en", "en", "en"),
)
_MIXED_ENDINGS = (
    ("er", "e", "es", "en"),
    ("en", "e", "es", "en"),
    ("en", "en", "en", "en"),
    ("en", "en", "en", "en"),
)
_STRONG_ENDINGS = (
    ("er", "e", "es", "e"),
    ("en", "e", "es", "e"),
    ("em", "er", "em", "en"),
    ("en", "er", "en", "er"),
)
_RELATIVE = (
    ("der", "die", "das", "die"),
    ("den", "die", "das", "die"),
    ("dem", "der", "dem", "denen"),
    ("dessen", "deren", "dessen", "deren"),
)
_CONTRACTIONS = {
    "in dem ": "im ",
    "in das ": "ins ",
    "an dem ": "am ",
    "an das ": "ans ",
    "zu dem ": "zum ",
    "zu der ": "zur ",
    "von dem ": "vom ",
    "bei dem ": "beim ",
}
_VOWELS = "aeiouyäöüé"
_DIGRAPHS = ("aa", "ee", "oo", "ie", "ei", "ai", "au", "eu", "äu")


def article(stem: str, case: Case, column: int) -> str:
    """The determiner with `stem` in a case: `d` the definite article, `dies` a der-word, `ein` an ein-word.

    Args:
        stem: `d`, a der-word's stem (dies, jed, welch), an ein-word's (ein, kein, mein, ...), or "" for none.
        case: The case.
        column: A Gender, or PLURAL.
    """
    if stem == "":
        return ""
    if stem == "d":
        return _DEFINITE[case][column]
    endings = _DER_WORD_ENDINGS if stem in ("dies", "jed", "welch") else _EIN_WORD_ENDINGS
    return stem + endings[case][column]


def adjective_ending(stem: str, case: Case, column: int) -> str:
    """The ending of an adjective after the determiner with `stem` (as in `article`)."""
    if stem == "":
        return _STRONG_ENDINGS[case][column]
    if stem in ("d", "dies", "jed", "welch"):
        return _WEAK_ENDINGS[case][column]
    return _MIXED_ENDINGS[case][column]


def relative_pronoun(case: Case, column: int) -> str:
    """The relative pronoun: der, die, das, denen, dessen."""
    return _RELATIVE[case][column]


def noun_form(noun: Noun, case: Case, *, plural: bool) -> str:
    """A noun in a case and number: `Mannes`, `Männern`, `Studenten`."""
    if plural:
        if case is Case.DATIVE and not noun.german_plural.endswith(("n", "s")):
            return noun.german_plural + "n"
        return noun.german_plural
    if noun.is_weak:
        return noun.german if case is Case.NOMINATIVE else weak_form(noun.german)
    if case is Case.GENITIVE and noun.gender is not Gender.FEMININE:
        return noun.genitive
    return noun.german


def weak_form(german: str) -> str:
    """The form of a weak noun outside the nominative: Junge -> Jungen, Nachbar -> Nachbarn, Bär -> Bären."""
    if german.endswith(("e", "auer")) or german.endswith("ar"):
        return german + "n"
    return german + "en"


def genitive_form(german: str) -> str:
    """The genitive singular of a strong masculine or neuter noun: -es after one syllable or a hiss."""
    lower = german.lower()
    if lower.endswith(("s", "ß", "x", "z")):
        return german + "es"
    if lower[-1] in _VOWELS:
        return german + "s"
    return german + ("es" if _count_syllables(lower) == 1 else "s")


def _count_syllables(word: str) -> int:
    for digraph in _DIGRAPHS:
        word = word.replace(digraph, "a")
    return sum(letter in _VOWELS for letter in word)


def contract(preposition: str, phrase: str) -> str:
    """A preposition before a phrase, contracted with the definite article: `in` + `dem Haus` = `im Haus`."""
    head, space, rest = phrase.partition(" ")
    joined = _CONTRACTIONS.get(f"{preposition} {head}{space}")
    return f"{preposition} {phrase}" if joined is None else joined + rest


@cache
def decline(stem: str, modifiers: tuple[str, ...], noun: Noun, case: Case, *, plural: bool) -> str:
    """Decline a noun phrase: `decline("d", ("alt",), Mann, DATIVE)` is `dem alten Mann`."""
    column = PLURAL if plural else noun.gender
    words = [article(stem, case, column)] if stem else []
    if modifiers:
        ending = adjective_ending(stem, case, column)
        words.extend(modifier + ending for modifier in modifiers)
    words.append(noun_form(noun, case, plural=plural))
    return " ".join(words)
