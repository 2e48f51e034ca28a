"""Constructions: where things are, where they are put, where people live; prepositions with two cases."""

from __future__ import annotations

from dataclasses import replace

from phrasebook import lexicon
from phrasebook.clauses import Clause, Predicate, english_statement, german_statement, sentence
from phrasebook.descriptions import being
from phrasebook.phrases import MY, OUR, THE, THIS, A, NounPhrase
from phrasebook.predicates import govern, timed
from phrasebook.scene import Scene, prepositional
from phrasebook.statements import Pair, state_clause
from phrasebook.words import Adverbial, Case, Noun, Preposition, Tense

_SPOTS = (
    (("on", "auf"), ("table", "bed", "sofa", "chair", "floor", "carpet", "box")),
    (("under", "unter"), ("table", "bed", "sofa", "chair", "tree")),
    (("in", "in"), ("cupboard", "suitcase", "bag", "box", "kitchen", "car")),
    (("next to", "neben"), ("window", "door", "bed", "lamp", "computer")),
    (("behind", "hinter"), ("door", "sofa", "cupboard")),
    (("in front of", "vor"), ("window", "door", "mirror", "table")),
)
_STAND = ("stehen", "stellen", "standing")
_LIE = ("liegen", "legen", "lying")


def there_is(scene: Scene) -> Pair:
    """As in `There is a small bakery in this village`, `In diesem Dorf gibt es eine kleine Bäckerei`."""
    place = scene.pick([entry.noun for entry in lexicon.places_of("building", "outdoors")])
    town = scene.phrase(scene.pick(lexicon.nouns_of("town")), (THE, THIS, OUR), adjective=0.25, plural=0.0)
    where = prepositional(Preposition("in", "in", Case.DATIVE), town)
    several = scene.chance(0.35)
    thing = (
        scene.counted(place, highest=9) if several else scene.phrase(place, (A,), adjective=0.4, plural=0.0)
    )
    accusative = thing.german(Case.ACCUSATIVE)
    exists = f"there {'are' if several else 'is'} {thing.english()}"
    english = f"{exists} {where.english}" if scene.chance(0.5) else f"{where.english} {exists}"
    return sentence(english, f"{where.german} gibt es {accusative}")


def _spot(scene: Scene, case: Case, *, avoid: Noun) -> Adverbial:
    while True:
        (english, german), landmarks = scene.pick(_SPOTS)
        noun = scene.pick(lexicon.nouns_of(*landmarks))
        if noun is not avoid and noun.english in landmarks:
            landmark = scene.phrase(noun, (THE,), adjective=0.15, plural=0.0)
            return prepositional(Preposition(english, german, case), landmark)


def position(scene: Scene) -> Pair:
    """As in `The vase is on the table`, `Die Vase steht auf dem Tisch.` A book would be lying`."""
    verb, _, kind = scene.pick((_STAND, _LIE))
    subject = scene.thing(scene.pick(lexicon.nouns_of(kind)), plural=0.2)
    if not subject.is_definite:
        subject = replace(subject, determiner=THE)
    spot = _spot(scene, Case.DATIVE, avoid=subject.noun)
    tense = scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    clause = Clause(subject, being(spot.english, spot.german, lexicon.verb(verb)), tense)
    return state_clause(replace(clause, negated=scene.chance(0.15)))


def placement(scene: Scene) -> Pair:
    """As in `She puts the book on the table`, `Sie legt das Buch auf den Tisch`."""
    _, lemma, kind = scene.pick((_STAND, _LIE))
    verb = lexicon.verb(lemma)
    subject = scene.subject()
    noun = scene.pick(lexicon.nouns_of(kind))
    scene.combine(verb.lemma, noun)
    target = scene.thing(noun, subject)
    spot = _spot(scene, Case.ACCUSATIVE, avoid=noun)
    predicate = govern(verb, target)
    predicate = replace(predicate, english=f"{predicate.english} {spot.english}", complement=spot.german)
    tenses = (Tense.PRESENT, Tense.FUTURE, Tense.PROGRESSIVE, Tense.PERFECT, Tense.MUST, Tense.WANT)
    return state_clause(Clause(subject, predicate, scene.pick(tenses)))


def hanging(scene: Scene) -> Pair:
    """As in `The picture is on the wall`, `Anna hangs the picture on the wall.` Dative and accusative`."""
    noun = scene.pick(lexicon.nouns_of("hanging"))
    room = scene.pick(lexicon.nouns_of("indoors"))
    verb = lexicon.verb("hängen", "hang")
    if scene.chance(0.4):
        subject = scene.phrase(noun, (THE, MY, THIS), adjective=0.4, plural=0.2)
        inside = prepositional(Preposition("in", "in", Case.DATIVE), NounPhrase(room, THE))
        english, german = f"on the wall {inside.english}", f"{inside.german} an der Wand"
        return state_clause(Clause(subject, being(english, german, lexicon.verb("hängen", "be"))))
    subject_person = scene.subject()
    scene.combine(verb.lemma, noun)
    predicate = govern(verb, scene.thing(noun, subject_person))
    predicate = replace(predicate, english=f"{predicate.english} on the wall", complement="an die Wand")
    tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.MUST, Tense.PROGRESSIVE)
    return state_clause(timed(scene, Clause(subject_person, predicate, scene.pick(tenses)), 0.4))


def dwelling(scene: Scene) -> Pair:
    """As in `My aunt lives in a small house in Vienna`."""
    subject = scene.subject()
    verb = lexicon.verb("wohnen")
    home = scene.phrase(
        scene.pick(lexicon.nouns_of("home", "town", "island")), (A,), adjective=0.7, plural=0.0
    )
    preposition = ("on", "auf") if home.noun.english == "island" else ("in", "in")
    where = prepositional(Preposition(*preposition, Case.DATIVE), home)
    if "home" in home.noun.kinds and scene.chance(0.5):
        city = scene.city()
        where = Adverbial(f"{where.english} in {city.english}", f"{where.german} in {city.german}")
    return state_clause(
        Clause(subject, Predicate(verb, place=where), scene.pick((Tense.PRESENT, Tense.WANT)))
    )


def since_statement(scene: Scene) -> Pair:
    """As in `She has lived in Berlin for three years`: German: present with `seit`."""
    subject = scene.subject()
    verb = lexicon.verb(scene.pick(("wohnen", "arbeiten", "warten")))
    if verb.lemma == "wohnen":
        city = scene.city()
        place = Adverbial(f"in {city.english}", f"in {city.german}")
    else:
        place = scene.place(*verb.kinds[1:])
    units = lexicon.durations()
    time = scene.span("for {}", "seit {}", units[4:] if verb.lemma == "warten" else units[:3])
    english = Clause(subject, Predicate(verb, place=place, time=time), Tense.PERFECT)
    german = replace(english, tense=Tense.PRESENT)
    return sentence(english_statement(english), german_statement(german))


LOCATIONS = (there_is, position, placement, hanging, dwelling, since_statement)
