"""The lexicon, parsed once from its tables, and looked up by kind."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from phrasebook import lexicon_modifiers, lexicon_nouns, lexicon_verbs
from phrasebook.english import compare, has_distinct_past, plural_form
from phrasebook.german import genitive_form
from phrasebook.german_verbs import weak_forms
from phrasebook.phrases import HE, SHE, Name
from phrasebook.words import (
    Adjective,
    Adverbial,
    Case,
    Gender,
    Noun,
    Place,
    Preposition,
    Tense,
    Verb,
)

_GENDERS = {"der": Gender.MASCULINE, "die": Gender.FEMININE, "das": Gender.NEUTER}
_CASES = {"accusative": Case.ACCUSATIVE, "dative": Case.DATIVE}
_STATES = {Tense.PRESENT, Tense.PAST, Tense.NARRATIVE}
_HAPPENINGS = {*_STATES, Tense.FUTURE, Tense.PERFECT, Tense.PROGRESSIVE, Tense.PAST_PROGRESSIVE}
_LIMITED_TENSES = {
    "stative": _STATES,
    "once": set(Tense) - {Tense.PRESENT, Tense.PROGRESSIVE, Tense.PAST_PROGRESSIVE},
    "plain": _HAPPENINGS,
    "duty": {*_HAPPENINGS, Tense.MUST, Tense.SHOULD, Tense.HAD_TO},
}
_FLAGS = frozenset({"sein", "reflexive", "simple", "single", *_LIMITED_TENSES})
_UMLAUTS = str.maketrans({"a": "ä", "o": "ö", "u": "ü"})


@dataclass(frozen=True, slots=True)
class VerbGroups:
    """The verbs by the frame that they stand in."""

    transitive: tuple[Verb, ...]
    separable: tuple[Verb, ...]
    intransitive: tuple[Verb, ...]
    dative: tuple[Verb, ...]
    giving: tuple[Verb, ...]
    explaining: tuple[Verb, ...]
    reflexive: tuple[Verb, ...]
    prepositional: tuple[Verb, ...]
    positional: tuple[Verb, ...]


def _rows(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split(";")] for line in table.strip().splitlines()]


def _noun(english: str, german: str, plural: str, kinds: str) -> Noun:
    singular, _, irregular = english.partition("/")
    article, _, word = german.partition(" ")
    tags = kinds.split()
    genitives = [tag[1:] for tag in tags if tag.startswith("=")]
    return Noun(
        english=singular,
        english_plural="" if plural == "-" else irregular or plural_form(singular),
        german=word,
        german_plural="" if plural == "-" else plural,
        gender=_GENDERS[article],
        genitive=genitives[0] if genitives else genitive_form(word),
        is_weak="weak" in tags,
        kinds=frozenset([singular, *(tag for tag in tags if tag != "weak" and not tag.startswith("="))]),
    )


@cache
def places() -> tuple[Place, ...]:
    """Every place, with the prepositions for being there and going there."""
    result = []
    for english, german, plural, kinds, at_english, at_german, to_german in _rows(lexicon_nouns.PLACES):
        direction = None
        if to_german != "-":
            case = Case.DATIVE if to_german == "zu" else Case.ACCUSATIVE
            direction = Preposition("to", to_german, case)
        location = Preposition(at_english, at_german, Case.DATIVE)
        result.append(Place(_noun(english, german, plural, kinds), location, direction))
    return tuple(result)


@cache
def nouns() -> tuple[Noun, ...]:
    """Every noun, places included."""
    plain = [_noun(*row) for row in _rows(lexicon_nouns.NOUNS)]
    return (*plain, *(place.noun for place in places()))


@cache
def nouns_of(*kinds: str) -> tuple[Noun, ...]:
    """The nouns of at least one of the kinds; a noun's English is a kind of its own."""
    return tuple(noun for noun in nouns() if not noun.kinds.isdisjoint(kinds))


@cache
def places_of(*kinds: str) -> tuple[Place, ...]:
    """The places of at least one of the kinds."""
    return tuple(place for place in places() if not place.noun.kinds.isdisjoint(kinds))


def _verb(row: list[str], case: Case) -> Verb:
    english, german, forms, tags = row[:4]
    prefix, bar, base = german.rpartition("|")
    infinitive = base.replace("-", "")
    if forms == "-":
        third, preterite, participle = weak_forms(infinitive, inseparable="-" in base)
    else:
        third, preterite, participle = forms.split()
    flags = [tag for tag in tags.split() if tag in _FLAGS]
    preposition = None
    if len(row) > 4:
        preposition = Preposition("", row[4], _CASES[row[5]])
    return Verb(
        english=english,
        german=infinitive,
        prefix=prefix if bar else "",
        third=third,
        preterite=preterite,
        participle=participle,
        uses_sein="sein" in flags,
        is_reflexive="reflexive" in flags,
        is_simple_past="simple" in flags,
        is_single="single" in flags,
        tenses=_tenses(english, flags),
        kinds=tuple(tag for tag in tags.split() if tag not in _FLAGS and tag != "-"),
        case=case,
        preposition=preposition,
    )


def _tenses(english: str, flags: list[str]) -> frozenset[Tense]:
    tenses = set(Tense)
    for flag in flags:
        tenses &= _LIMITED_TENSES.get(flag, tenses)
    return frozenset(tenses if has_distinct_past(english) else tenses - {Tense.PAST, Tense.NARRATIVE})


def _verbs(table: str, case: Case = Case.ACCUSATIVE) -> tuple[Verb, ...]:
    return tuple(_verb(row, case) for row in _rows(table))


@cache
def verbs() -> VerbGroups:
    """Every verb, by frame."""
    return VerbGroups(
        transitive=_verbs(lexicon_verbs.TRANSITIVE),
        separable=_verbs(lexicon_verbs.SEPARABLE),
        intransitive=_verbs(lexicon_verbs.INTRANSITIVE),
        dative=_verbs(lexicon_verbs.DATIVE, Case.DATIVE),
        giving=_verbs(lexicon_verbs.GIVING),
        explaining=_verbs(lexicon_verbs.EXPLAINING),
        reflexive=_verbs(lexicon_verbs.REFLEXIVE),
        prepositional=_verbs(lexicon_verbs.PREPOSITIONAL),
        positional=(
            *_verbs(lexicon_verbs.POSITIONAL),
            *_verbs(lexicon_verbs.BELONGING, Case.DATIVE),
        ),
    )


@cache
def verb(lemma: str, english: str = "") -> Verb:
    """The verb with a German lemma, and an English one where two share it."""
    for group in all_verbs():
        if group.lemma == lemma and english in ("", group.english):
            return group
    raise KeyError(lemma)


@cache
def all_verbs() -> tuple[Verb, ...]:
    """Every verb of every frame."""
    groups = verbs()
    return (
        *groups.transitive,
        *groups.separable,
        *groups.intransitive,
        *groups.dative,
        *groups.giving,
        *groups.explaining,
        *groups.reflexive,
        *groups.prepositional,
        *groups.positional,
    )


@cache
def verbs_of(kind: str) -> tuple[Verb, ...]:
    """The intransitive verbs of a kind."""
    return tuple(entry for entry in verbs().intransitive if kind in entry.kinds)


def _adjective(english: str, german: str, kinds: str, notes: str) -> Adjective:
    options = notes.split()
    settings = dict(option.split("=") for option in options if "=" in option)
    comparative, superlative = "", ""
    if "compared" in settings:
        comparative, superlative = settings["compared"].split(",")
    elif "absolute" not in options:
        base = german.translate(_UMLAUTS) if "umlaut" in options else german
        link = "e" if base.endswith(("t", "d", "s", "ß", "z")) else ""
        comparative, superlative = base + "er", f"{base}{link}st"
    english_comparative, english_superlative = compare(english)
    return Adjective(
        english=english,
        german=german,
        stem=settings.get("stem", german),
        comparative=comparative,
        superlative=superlative,
        english_comparative=english_comparative,
        english_superlative=english_superlative,
        kinds=tuple(kinds.split()),
    )


@cache
def adjectives() -> tuple[Adjective, ...]:
    """Every adjective."""
    return tuple(_adjective(*row) for row in _rows(lexicon_modifiers.ADJECTIVES))


@cache
def adjectives_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that may describe a noun."""
    return tuple(entry for entry in adjectives() if not noun.kinds.isdisjoint(entry.kinds))


@cache
def gradable_for(noun: Noun) -> tuple[Adjective, ...]:
    """The adjectives that may describe a noun and can be compared."""
    return tuple(entry for entry in adjectives_for(noun) if entry.is_gradable)


@cache
def contraries_of(adjective: Adjective) -> frozenset[str]:
    """The English adjectives that cannot be joined with one, itself included."""
    groups = [line.split() for line in lexicon_modifiers.CONTRARIES.strip().splitlines()]
    return frozenset(
        [adjective.english, *(word for group in groups if adjective.english in group for word in group)]
    )


@cache
def adverbials(table: str) -> tuple[Adverbial, ...]:
    """The adverbials of one table of `lexicon_modifiers`."""
    return tuple(Adverbial(*row) for row in _rows(table))


@cache
def durations() -> tuple[tuple[str, str, str, str], ...]:
    """Units of time: English singular; German singular, plural, dative plural."""
    return tuple((row[0], row[1], row[2], row[3]) for row in _rows(lexicon_modifiers.DURATIONS))


@cache
def names() -> tuple[Name, ...]:
    """The people who are called by name."""
    rows = [line.split() for line in lexicon_modifiers.NAMES.strip().splitlines()]
    return tuple(Name(name, HE if pronoun == "he" else SHE) for name, pronoun in rows)


@cache
def lemmas() -> tuple[str, ...]:
    """Every German lemma, once: nouns, verbs, adjectives, adverbials, and the words of the grammar itself."""
    words = [noun.german for noun in nouns()]
    words += [entry.lemma for entry in all_verbs()]
    words += [entry.german for entry in adjectives()]
    words += lexicon_nouns.FEMININE_PROFESSIONS.values()
    for table in (lexicon_modifiers.FREQUENCIES, lexicon_modifiers.WEEKDAYS, lexicon_modifiers.MONTHS):
        words += [adverbial.german for adverbial in adverbials(table)]
    words += [duration[1] for duration in durations()]
    words += lexicon_modifiers.OTHER_LEMMAS.replace(",", " ").split()
    return tuple(dict.fromkeys(words))
