"""What people do: predicates drawn for a subject, one function for each frame that a verb can stand in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

from phrasebook import lexicon
from phrasebook.clauses import Clause, Predicate, join
from phrasebook.phrases import (
    IT,
    NOT_ANY,
    NOT_ANY_MASS,
    THE,
    THIS,
    A,
    Nominal,
    NounPhrase,
    german_prepositional,
)
from phrasebook.scene import Scene, prepositional
from phrasebook.words import Adjective, Adverbial, Case, Noun, Preposition, Tense, Verb, listed

MODALS = (Tense.CAN, Tense.MUST, Tense.SHOULD, Tense.WANT, Tense.ALLOWED, Tense.WOULD_LIKE)
PAST_MODALS = (Tense.COULD, Tense.HAD_TO, Tense.WANTED)
EVENTFUL = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.CAN, Tense.MUST, Tense.WANT)
WITH = Preposition("with", "mit", Case.DATIVE)
IN = Preposition("in", "in", Case.DATIVE)
ALREADY = Adverbial("already", "schon")

_MEMORABLE = frozenset(
    listed(
        "kaufen verkaufen bauen malen reisen fahren fliegen besuchen treffen reparieren mieten lernen "
        "kennenlernen schreiben übersetzen planen finden verlieren einladen teilnehmen lesen helfen "
        "pflanzen wohnen verstehen"
    )
)
"""What is worth dating by the month or the year."""
_UNDATED_TENSES = frozenset({Tense.PROGRESSIVE, Tense.PAST_PROGRESSIVE, Tense.PERFECT})
_ERRANDS = listed(
    "kaufen verkaufen bestellen besuchen treffen helfen fragen abholen anrufen ausleihen suchen lernen "
    "kochen backen reparieren waschen vorbereiten mieten danken gratulieren lesen schreiben"
)
_SPECIFIC = frozenset(listed("the this these my your his her our their me him us them you to"))
_POSSESSED = ("owned", "device", "pet", "matter", "ware", "many")

Maker = Callable[[Scene, Nominal], Predicate]


def draw_clause(scene: Scene, subject: Nominal, tenses: Sequence[Tense], *makers: Maker) -> Clause:
    """A clause by one of the makers, in one of the tenses that its verb allows."""
    mark = scene.mark()
    while True:
        predicate = scene.pick(makers)(scene, subject)
        tense = scene.pick(tenses)
        if tense in predicate.verb.tenses:
            return Clause(subject, predicate, tense)
        scene.forget_since(mark)


def timed(scene: Scene, clause: Clause, probability: float) -> Clause:
    """The clause, perhaps with a time that goes with its tense."""
    if Tense.WANT not in clause.predicate.verb.tenses and clause.tense is Tense.PRESENT:
        return clause
    if clause.tense in _UNDATED_TENSES or not scene.chance(probability):
        return clause
    return clause.at(scene.time(clause.tense, far=is_memorable(clause.predicate.verb)))


def is_memorable(verb: Verb) -> bool:
    """Whether one dates it by the month or the year, not by the day."""
    return verb.lemma in _MEMORABLE


def govern(verb: Verb, target: Nominal) -> Predicate:
    """A verb with its object, put into the field that the object belongs to."""
    english = target.english(is_object=True)
    if verb.preposition is not None:
        return Predicate(verb, english, complement=german_prepositional(verb.preposition, target))
    german = target.german(verb.case)
    if target.is_pronoun:
        return Predicate(verb, english, pronouns=german)
    if target.is_definite:
        return Predicate(verb, english, known=german)
    return Predicate(verb, english, new=german)


def is_specific(predicate: Predicate) -> bool:
    """Whether the object is a definite one, which can be asked for and negated."""
    first = predicate.english.split(" ", 1)[0]
    return first in _SPECIFIC or first.istitle()


# --- frames -------------------------------------------------------------------------------------------------


def transitive(scene: Scene, subject: Nominal) -> Predicate:
    """A verb with an accusative object: `read the newspaper`."""
    verb = scene.pick(lexicon.verbs().transitive)
    return govern(verb, scene.object(verb, subject))


def separable(scene: Scene, subject: Nominal) -> Predicate:
    """A separable verb with an accusative object: `call his mother`."""
    verb = scene.pick(lexicon.verbs().separable)
    return govern(verb, scene.object(verb, subject))


def dative(scene: Scene, subject: Nominal) -> Predicate:
    """A verb whose one object is a dative: `help the neighbor`."""
    verb = scene.pick(lexicon.verbs().dative)
    return govern(verb, scene.object(verb, subject))


def with_preposition(scene: Scene, subject: Nominal) -> Predicate:
    """A verb with a prepositional object, some of them reflexive: `wait for the bus`."""
    verb = scene.pick(lexicon.verbs().prepositional)
    return govern(verb, scene.object(verb, subject))


def known_object(scene: Scene, subject: Nominal) -> Predicate:
    """A verb with an object that is known, so that `nicht` can follow it."""
    verb = scene.pick((*lexicon.verbs().transitive, *lexicon.verbs().separable))
    target = scene.object(verb, subject)
    if not target.is_definite and isinstance(target, NounPhrase):
        target = replace(target, determiner=THE)
    return govern(verb, target)


@cache
def verbs_with_things() -> tuple[Verb, ...]:
    """The transitive verbs that take things, which can be missing."""
    return tuple(verb for verb in lexicon.verbs().transitive if things_for(verb))


@cache
def things_for(verb: Verb) -> tuple[Noun, ...]:
    """The nouns, people left out, that a verb takes."""
    return tuple(noun for noun in lexicon.nouns_of(*verb.kinds) if "person" not in noun.kinds)


def without_any(scene: Scene, subject: Nominal) -> Predicate:
    """A verb whose object is not there, for a negated clause: `buy any bread`, `kein Brot kaufen`."""
    del subject
    has = scene.chance(0.2)
    verb = lexicon.verb("haben") if has else scene.pick(verbs_with_things())
    noun = scene.pick(lexicon.nouns_of(*_POSSESSED) if has else things_for(verb))
    scene.combine(verb.lemma, noun)
    target = scene.phrase(noun, (NOT_ANY_MASS if noun.is_mass else NOT_ANY,), adjective=0.3, plural=0.35)
    return replace(govern(verb, target), has_kein=True)


def at_place(scene: Scene, subject: Nominal) -> Predicate:
    """Something that one does somewhere: `work in the garden`, `swim in the lake`."""
    del subject
    verb = scene.pick((*lexicon.verbs_of("rest"), *lexicon.verbs_of("rest"), *lexicon.verbs_of("water")))
    if "water" in verb.kinds:
        lake = scene.pick(lexicon.places_of("lake", "river")).noun
        return Predicate(verb, place=prepositional(IN, scene.phrase(lake, (THE,), plural=0.0)))
    return Predicate(verb, place=scene.place(*verb.kinds[1:]))


def routine(scene: Scene, subject: Nominal) -> Predicate:
    """Something that needs no object: `get up`, `come back`, `hurry`."""
    del subject
    verbs = lexicon.verbs()
    verb = scene.pick((*verbs.reflexive, *lexicon.verbs_of("early"), *lexicon.verbs_of("evening")))
    return Predicate(verb)


def journey(scene: Scene, subject: Nominal) -> Predicate:
    """Going somewhere: `drive to the airport`, `fly to Rome`."""
    del subject
    draw = scene.below(20)
    if draw < 2:
        goal = scene.destination("indoors")
        verb = lexicon.verb("gehen")
    elif draw < 9:
        goal = scene.destination("building", "outdoors", "town")
        verb = scene.pick((lexicon.verb("gehen"), lexicon.verb("fahren")))
    else:
        city = scene.city()
        goal = Adverbial(f"to {city.english}", f"nach {city.german}")
        verb = scene.pick((*lexicon.verbs_of("ride"), *lexicon.verbs_of("flight")))
    return Predicate(verb, goal.english, complement=goal.german)


def motion(scene: Scene, subject: Nominal) -> Predicate:
    """A journey, perhaps with its manner, which German puts before the goal: `travel to Berlin by train`."""
    predicate = journey(scene, subject)
    if scene.chance(0.35):
        return replace(predicate, manner=companion(scene, subject))
    if predicate.verb.english == "travel":
        vehicle = NounPhrase(scene.pick(lexicon.nouns_of("public")), THE)
        by = Adverbial(f"by {vehicle.noun.english}", f"mit {vehicle.german(Case.DATIVE)}")
        return replace(predicate, manner=by)
    return predicate


def companion(scene: Scene, subject: Nominal) -> Adverbial:
    """Together with somebody: `with his sister`."""
    return prepositional(WITH, scene.relative_of(subject))


def giving(scene: Scene, subject: Nominal) -> Predicate:
    """Two objects, dative before accusative: `give the child an apple`."""
    verb = scene.pick(lexicon.verbs().giving)
    noun = scene.object_noun(verb)
    receiver = scene.other_person(subject)
    gift = scene.phrase(noun, (THE,) if noun.is_mass else (A, A, THE, THIS), plural=0.15)
    if gift.plural and gift.determiner is A:
        gift = replace(gift, determiner=THE)  # `her books` would be ambiguous
    german, english = receiver.german(Case.DATIVE), receiver.english(is_object=True)
    accusative = gift.german(Case.ACCUSATIVE)
    return Predicate(
        verb,
        f"{english} {gift.english()}",
        pronouns=german if receiver.is_pronoun else "",
        known=join("" if receiver.is_pronoun else german, accusative if gift.is_definite else ""),
        new="" if gift.is_definite else accusative,
    )


def explaining(scene: Scene, subject: Nominal) -> Predicate:
    """The same in German, but `to somebody` in English: `explain the question to the child`."""
    verb = scene.pick(lexicon.verbs().explaining)
    noun = scene.object_noun(verb)
    target = scene.phrase(noun, (THE, THE, THIS), plural=0.2)
    receiver = scene.other_person(subject)
    german = receiver.german(Case.DATIVE)
    return Predicate(
        verb,
        f"{target.english()} to {receiver.english(is_object=True)}",
        pronouns=german if receiver.is_pronoun else "",
        known=join("" if receiver.is_pronoun else german, target.german(Case.ACCUSATIVE)),
    )


def state(scene: Scene, subject: Nominal) -> Predicate:
    """How somebody is: `be very tired`."""
    if isinstance(subject, NounPhrase):
        options = moods(subject.noun)
        adjective = scene.pick(options)
        scene.combine(adjective.german, subject.noun)
    else:
        adjective = scene.pick(moods(None))
    very = scene.chance(0.25)
    return Predicate(
        lexicon.verb("sein"),
        f"very {adjective.english}" if very else adjective.english,
        complement=f"sehr {adjective.german}" if very else adjective.german,
    )


@cache
def moods(noun: Noun | None) -> tuple[Adjective, ...]:
    """The passing states that somebody can be in: tired, hungry."""
    options = lexicon.adjectives() if noun is None else lexicon.adjectives_for(noun)
    return tuple(adjective for adjective in options if "mood" in adjective.kinds)


def weather(scene: Scene, tense: Tense) -> Clause:
    """As in `It is raining`."""
    verb = scene.pick(lexicon.verbs_of("weather"))
    return Clause(IT, Predicate(verb), tense)


def errand(scene: Scene, subject: Nominal) -> Predicate:
    """Something worth going out for, or staying in for: `buy fresh bread`, `pick up his sister`."""
    verb = lexicon.verb(scene.pick(_ERRANDS))
    return govern(verb, scene.object(verb, subject))


def spare_time(scene: Scene, subject: Nominal) -> Predicate:
    """As in `have time`: , or `have no time`."""
    del subject
    some = scene.chance(0.5)
    verb = lexicon.verb("haben")
    return Predicate(verb, "time" if some else "no time", new="Zeit" if some else "keine Zeit")


ACTIVITIES: tuple[Maker, ...] = (
    transitive,
    transitive,
    separable,
    separable,
    dative,
    with_preposition,
    at_place,
    routine,
    motion,
)
"""What anybody may be doing, with the frames in the proportion in which they are drawn."""
