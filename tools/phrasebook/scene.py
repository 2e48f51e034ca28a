"""Drawing words for a sentence: every choice, and so every combination, is made here."""

from __future__ import annotations

import random
import zlib
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import TypeVar

from phrasebook import lexicon, lexicon_modifiers
from phrasebook.numbers import english_number, german_number
from phrasebook.phrases import (
    BARE,
    HE,
    HER,
    HIS,
    MY,
    OUR,
    OWN,
    PERSONAL,
    THE,
    THEIR,
    THIS,
    WE,
    YOU,
    YOUR,
    A,
    Determiner,
    I,
    Modifier,
    Nominal,
    NounPhrase,
    Pronoun,
    german_prepositional,
    numeral,
    pronoun_for,
)
from phrasebook.words import Adjective, Adverbial, Noun, Place, Preposition, Tense, Verb

T = TypeVar("T")

_HELD_OUT_PERCENT = 5
_PEOPLE = ("human",)
_RELATIONS = ("family", "known")
_SPEAKERS = ({I, WE}, {YOU})
_POSSESSIVES = (MY, MY, YOUR, HIS, HER, OUR, THEIR)
_THING_DETERMINERS = (A, A, A, THE, THE, THE, THIS)
_MASS_DETERMINERS = (BARE, BARE, BARE, THE)
_PEOPLE_DETERMINERS = (THE, THE, THE, A, THIS)
_PLANNED_TENSES = frozenset({Tense.FUTURE, Tense.WANT, Tense.WOULD_LIKE, Tense.PASSIVE_FUTURE})
_PAST_TENSES = frozenset({Tense.PAST, Tense.COULD, Tense.HAD_TO, Tense.WANTED, Tense.PASSIVE_PAST})
_COMING_TENSES = frozenset(
    {
        Tense.FUTURE,
        Tense.CAN,
        Tense.MUST,
        Tense.SHOULD,
        Tense.WANT,
        Tense.ALLOWED,
        Tense.WOULD_LIKE,
        Tense.PASSIVE_FUTURE,
        Tense.PASSIVE_MUST,
        Tense.PASSIVE_CAN,
    }
)


@cache
def is_held_out(word: str, noun: str) -> bool:
    """Whether an adjective or a verb (its German lemma) never meets a noun in training.

    The choice depends on the two words alone, not on a seed.
    """
    return zlib.crc32(f"{word}+{noun}".encode()) % 100 < _HELD_OUT_PERCENT


_ACQUIRING = ("kaufen", "mieten", "ausleihen", "bestellen")  # what is one's own already
_OWNABLE = frozenset(
    {
        "clothing",
        "owned",
        "personal",
        "carried",
        "device",
        "pet",
        "home",
        "furniture",
        "written",
        "gift",
        "food",
    }
)


def is_ownable(noun: Noun) -> bool:
    """Whether `my` goes naturally before the noun."""
    return not noun.is_mass and not noun.kinds.isdisjoint(_OWNABLE)


class Scene:
    """One sentence's draws. `held_out` tells afterwards which of its combinations training must not have.

    Only `Random.random` is used: Python promises the same numbers for it on every machine and version.
    """

    def __init__(self, rng: random.Random) -> None:
        self._random = rng.random
        self.held_out: list[tuple[str, str]] = []

    def below(self, limit: int) -> int:
        """An integer from 0 to limit - 1."""
        return int(self._random() * limit)

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self._random() * len(options))]

    def chance(self, probability: float) -> bool:
        """True with a probability."""
        return self._random() < probability

    def combine(self, word: str, noun: Noun) -> None:
        """Note that an adjective or verb meets a noun in this sentence."""
        if is_held_out(word, noun.german):
            self.held_out.append((word, noun.german))

    def mark(self) -> int:
        """Where the scene stands, for `forget_since`."""
        return len(self.held_out)

    def forget_since(self, mark: int) -> None:
        """Drop the combinations noted since `mark`: the words they were drawn for are not used."""
        del self.held_out[mark:]

    # --- noun phrases ---------------------------------------------------------------------------------------

    def adjective(self, noun: Noun, *, gradable: bool = False) -> Adjective | None:
        """An adjective that fits the noun, if there is one."""
        options = lexicon.gradable_for(noun) if gradable else lexicon.adjectives_for(noun)
        if not options:
            return None
        choice = self.pick(options)
        self.combine(choice.german, noun)
        return choice

    def modifiers(self, noun: Noun, probability: float) -> tuple[Modifier, ...]:
        """Perhaps an attributive adjective."""
        if not self.chance(probability):
            return ()
        adjective = self.adjective(noun)
        return () if adjective is None else (Modifier(adjective.english, adjective.stem),)

    def phrase(
        self,
        noun: Noun,
        determiners: Sequence[Determiner],
        *,
        adjective: float = 0.35,
        plural: float = 0.2,
    ) -> NounPhrase:
        """A noun phrase with one of the determiners."""
        is_plural = not noun.is_mass and self.chance(plural)
        determiner = self.pick(determiners)
        if determiner is A and noun.is_mass:
            determiner = BARE
        return NounPhrase(noun, determiner, self.modifiers(noun, adjective), is_plural)

    def relative_of(
        self, owner: Nominal | None, *, adjective: float = 0.15, plural: float = 0.15
    ) -> NounPhrase:
        """A member of the family or an acquaintance: of `owner`, where it can own, or of anyone."""
        noun = self.pick(lexicon.nouns_of(*_RELATIONS))
        pronoun = None if owner is None else pronoun_for(owner)
        possessives = _POSSESSIVES if pronoun is None else (OWN[pronoun],)
        several = plural if "many" in noun.kinds else 0.0
        return self.phrase(noun, possessives, adjective=adjective, plural=several)

    def person(self, *, adjective: float = 0.3, plural: float = 0.2) -> NounPhrase:
        """Somebody by occupation, age or sex: `the young doctor`."""
        noun = self.pick(lexicon.nouns_of(*_PEOPLE))
        return self.phrase(noun, (THE, THE, THE, THIS), adjective=adjective, plural=plural)

    def subject(self, *, pronouns: float = 0.3, adjective: float = 0.3, plural: float = 0.2) -> Nominal:
        """Somebody who does something."""
        draw = self._random()
        if draw < pronouns:
            return self.pick(PERSONAL)
        if draw < pronouns + 0.1:
            return self.pick(lexicon.names())
        if draw < pronouns + 0.35:
            owner = I if self.chance(0.6) else None
            return self.relative_of(owner, adjective=0.5 * adjective, plural=0.75 * plural)
        return self.person(adjective=adjective, plural=plural)

    def other_person(self, subject: Nominal, *, pronouns: float = 0.2) -> Nominal:
        """Somebody to whom the subject does something; never the subject itself."""
        draw = self._random()
        if draw < pronouns:
            pronoun = self.pick(PERSONAL)
            taken = pronoun_for(subject)
            is_same = pronoun is taken or any(taken in group and pronoun in group for group in _SPEAKERS)
            return self.pick(lexicon.names()) if is_same else pronoun
        if draw < pronouns + 0.4:
            return self.relative_of(subject)
        noun = self.pick(lexicon.nouns_of(*_PEOPLE))
        return self.phrase(noun, _PEOPLE_DETERMINERS, adjective=0.25)

    def thing(self, noun: Noun, owner: Nominal | None = None, *, plural: float = 0.25) -> NounPhrase:
        """Something, seen for the first time or known, perhaps belonging to `owner`."""
        determiners: Sequence[Determiner] = _MASS_DETERMINERS if noun.is_mass else _THING_DETERMINERS
        if is_ownable(noun):
            pronoun = None if owner is None else pronoun_for(owner)
            if pronoun is not None and self.chance(0.3):
                determiners = (OWN[pronoun],)
            elif self.chance(0.25):
                determiners = (MY, YOUR)
        return self.phrase(noun, determiners, plural=0.9 if "pair" in noun.kinds else plural)

    def object_noun(self, verb: Verb) -> Noun:
        """A noun that the verb can take as its object."""
        noun = self.pick(lexicon.nouns_of(*verb.kinds))
        self.combine(verb.lemma, noun)
        return noun

    def object(self, verb: Verb, subject: Nominal) -> Nominal:
        """An object for a verb: a person where it takes people, else a thing."""
        noun = self.pick(lexicon.nouns_of(*verb.kinds))
        pronoun = pronoun_for(subject)
        while pronoun is HE and "womens" in noun.kinds:
            noun = self.pick(lexicon.nouns_of(*verb.kinds))
        if "person" in noun.kinds and "person" in verb.kinds:
            is_particle = " " in verb.english and verb.preposition is None and verb.english != "listen to"
            other = self.other_person(subject, pronouns=0.0 if is_particle else 0.25)
            if isinstance(other, NounPhrase):
                self.combine(verb.lemma, other.noun)
            return other
        self.combine(verb.lemma, noun)
        if "family" in noun.kinds or "known" in noun.kinds:
            possessives = _POSSESSIVES if pronoun is None else (OWN[pronoun],)
            return self.phrase(noun, possessives, adjective=0.15, plural=0.0)
        if "person" in noun.kinds:
            return self.phrase(noun, _PEOPLE_DETERMINERS, adjective=0.25)
        if verb.lemma in _ACQUIRING:
            return self.phrase(noun, _MASS_DETERMINERS if noun.is_mass else _THING_DETERMINERS, plural=0.15)
        target = self.thing(noun, subject)
        if verb.is_single and target.determiner is A:
            return replace(target, plural=False)
        return target

    # --- adverbials -----------------------------------------------------------------------------------------

    def place(self, *kinds: str, adjective: float = 0.2) -> Adverbial:
        """Where something happens: `in the old church`."""
        entry = self.pick(lexicon.places_of(*kinds) if kinds else lexicon.places())
        return self.located(entry, adjective=adjective)

    def located(self, place: Place, *, adjective: float = 0.2) -> Adverbial:
        """At a given place."""
        return prepositional(place.location, self.phrase(place.noun, (THE,), adjective=adjective, plural=0.0))

    def destination(self, *kinds: str, adjective: float = 0.15) -> Adverbial:
        """Where somebody goes: `to the station`, `zum Bahnhof`."""
        while True:
            entry = self.pick(lexicon.places_of(*kinds))
            if entry.direction is not None:
                noun = self.phrase(entry.noun, (THE,), adjective=adjective, plural=0.0)
                return prepositional(entry.direction, noun)

    def city(self) -> Adverbial:
        """A city's name."""
        return self.pick(lexicon.adverbials(lexicon_modifiers.CITIES))

    def weekday(self) -> Adverbial:
        """On a day of the week."""
        day = self.pick(lexicon.adverbials(lexicon_modifiers.WEEKDAYS))
        return Adverbial(f"on {day.english}", f"am {day.german}")

    def span(
        self, english: str, german: str, units: Sequence[tuple[str, str, str, str]] | None = None
    ) -> Adverbial:
        """A length of time after or before a preposition: `two weeks ago`, `vor zwei Wochen`."""
        unit, _, _, dative = self.pick(units or lexicon.durations()[:4])
        number = self.below(11) + 2
        words = english.format(f"{english_number(number)} {unit}s")
        return Adverbial(words, german.format(f"{german_number(number)} {dative}"))

    def time(self, tense: Tense, *, far: bool = False) -> Adverbial:
        """A time that goes with the tense; with `far` it may lie months away."""
        draw = self._random() if far else 0.6 + 0.4 * self._random()
        tables = lexicon_modifiers
        if tense in _PAST_TENSES:
            if draw < 0.2:
                return self.span("{} ago", "vor {}")
            if draw < 0.7:
                return self.weekday() if draw >= 0.6 else self._listed(tables.FAR_PAST_TIMES)
            return self._listed(tables.PAST_TIMES)
        if tense in _COMING_TENSES:
            if draw < 0.2 and tense in _PLANNED_TENSES:
                return self.span("in {}", "in {}")
            if draw < 0.7:
                return self.weekday() if draw >= 0.6 else self._listed(tables.FAR_FUTURE_TIMES)
            if draw < 0.78 and tense not in (Tense.FUTURE, Tense.PASSIVE_FUTURE):
                return self._listed(tables.PRESENT_TIMES)
            return self._listed(tables.FUTURE_TIMES)
        if draw < 0.6:
            return self._listed(tables.SEASONS if draw < 0.35 else tables.RARE_HABITS)
        return self._listed(tables.HABITS)

    def _listed(self, table: str) -> Adverbial:
        return self.pick(lexicon.adverbials(table))

    def number(self, lowest: int, highest: int) -> int:
        """A number between two bounds, both included."""
        return lowest + self.below(highest - lowest + 1)

    def counted(self, noun: Noun, *, highest: int = 12) -> NounPhrase:
        """Several of something: `three old chairs`."""
        count = numeral(self.number(2, highest))
        return NounPhrase(noun, count, self.modifiers(noun, 0.35), plural=True)


def prepositional(preposition: Preposition, phrase: NounPhrase | Pronoun) -> Adverbial:
    """A preposition with its phrase, as an adverbial."""
    return Adverbial(
        f"{preposition.english} {phrase.english(is_object=True)}", german_prepositional(preposition, phrase)
    )
