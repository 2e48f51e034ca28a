"""Constructions: how things are, where they are, whose they are, and how they compare."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from phrasebook import lexicon
from phrasebook.clauses import (
    Clause,
    Predicate,
    english_statement,
    german_inverted,
    german_statement,
    sentence,
)
from phrasebook.lexicon_nouns import FEMININE_PROFESSIONS
from phrasebook.phrases import (
    EVERY,
    MY,
    OUR,
    PERSONAL,
    SHE,
    THE,
    THIS,
    YOUR,
    A,
    I,
    Modifier,
    NounPhrase,
    pronoun_for,
)
from phrasebook.predicates import (
    ACTIVITIES,
    draw_clause,
    govern,
    state,
    transitive,
)
from phrasebook.scene import Scene, is_ownable, prepositional
from phrasebook.statements import Pair, state_clause
from phrasebook.words import Adjective, Case, Noun, Preposition, Tense, Verb, listed

_DESCRIBED = listed(
    "clothing vehicle furniture device building room town outdoors artwork text thing food drink "
    "matter event animal"
)
_OWNED = listed("owned device pet home many carried pair known")
_SORTS = frozenset(
    listed("clothing vehicle furniture device building indoors town outdoors artwork text dishes fruit drink")
    + listed("dish event animal carried matter")
)
_LIKE = Verb("like", "mögen", "", "mag", "mochte", "gemocht")
_CAUSES = (
    (Preposition("because of", "wegen", Case.GENITIVE), "weather", (Tense.HAD_TO,)),
    (Preposition("despite", "trotz", Case.GENITIVE), "weather", (Tense.PAST, Tense.WANTED)),
    (Preposition("during", "während", Case.GENITIVE), "event", (Tense.PAST,)),
)


@cache
def _describable(gradable: bool) -> tuple[Noun, ...]:  # noqa: FBT001 - a cache key
    find = lexicon.gradable_for if gradable else lexicon.adjectives_for
    return tuple(noun for noun in lexicon.nouns_of(*_DESCRIBED) if find(noun))


def _described(scene: Scene, *, gradable: bool = False) -> tuple[NounPhrase, Adjective]:
    noun = scene.pick(_describable(gradable))
    adjective = scene.adjective(noun, gradable=gradable)
    assert adjective is not None
    determiners = (
        (THE, THE, THIS, MY, OUR, YOUR)
        if is_ownable(noun)
        else (THE, THE, THE, THIS)
        if not noun.is_mass
        else (THE,)
    )
    return scene.phrase(noun, determiners, adjective=0.0, plural=0.25), adjective


def being(english: str, german: str, verb: Verb | None = None) -> Predicate:
    """To be somehow or somewhere; `verb` is the German verb where it is not sein."""
    return Predicate(verb or lexicon.verb("sein"), english, complement=german)


def adjective_statement(scene: Scene) -> Pair:
    """As in `The chairs are very old`."""
    subject, adjective = _described(scene)
    english, german = adjective.english, adjective.german
    if not adjective.is_gradable:
        pass
    elif scene.chance(0.3):
        english, german = f"very {english}", f"sehr {german}"
    elif scene.chance(0.2):
        english, german = f"too {english}", f"zu {german}"
    tense = scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    return state_clause(Clause(subject, being(english, german), tense, negated=scene.chance(0.2)))


def person_state(scene: Scene) -> Pair:
    """As in `My grandmother was sick yesterday`."""
    subject = scene.subject(adjective=0.0)
    tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.PAST))
    clause = Clause(subject, state(scene, subject), tense, negated=scene.chance(0.2))
    return state_clause(clause.at(scene.time(Tense.PAST)) if tense is Tense.PAST else clause)


def both_adjectives(scene: Scene) -> Pair:
    """As in `The soup is hot and good`."""
    mark = scene.mark()
    subject, first = _described(scene)
    contraries = lexicon.contraries_of(first)
    options = [other for other in lexicon.adjectives_for(subject.noun) if other.english not in contraries]
    if not options:
        scene.forget_since(mark)
        return both_adjectives(scene)
    second = scene.pick(options)
    scene.combine(second.german, subject.noun)
    english = f"{first.english} and {second.english}"
    return state_clause(Clause(subject, being(english, f"{first.german} und {second.german}")))


def comparative_statement(scene: Scene) -> Pair:
    """As in `The train is faster than the bus`."""
    subject, adjective, other = _compared(scene)
    english = f"{adjective.english_comparative} than {other.english()}"
    german = f"{adjective.comparative} als {other.german(Case.NOMINATIVE)}"
    return state_clause(Clause(subject, being(english, german)))


def equality_statement(scene: Scene) -> Pair:
    """As in `My car is not as fast as your car`."""
    subject, adjective, other = _compared(scene)
    english = f"as {adjective.english} as {other.english()}"
    german = f"so {adjective.german} wie {other.german(Case.NOMINATIVE)}"
    return state_clause(Clause(subject, being(english, german), negated=scene.chance(0.6)))


def _compared(scene: Scene) -> tuple[NounPhrase, Adjective, NounPhrase]:
    """Two things of the same sort, and an adjective that may describe both."""
    mark = scene.mark()
    while True:
        subject, adjective = _described(scene, gradable=True)
        sort = subject.noun.kinds & _SORTS
        options = [
            other
            for other in lexicon.nouns_of(*sorted(sort))
            if other is not subject.noun and adjective in lexicon.gradable_for(other)
        ]
        if options:
            break
        scene.forget_since(mark)
    other = scene.pick(options)
    scene.combine(adjective.german, other)
    determiners = (THE, YOUR, MY) if is_ownable(other) else (THE,)
    return subject, adjective, scene.phrase(other, determiners, adjective=0.0, plural=0.15)


def superlative_statement(scene: Scene) -> Pair:
    """As in `This is the oldest church in the city`: the city stands in the genitive."""
    place = scene.pick(lexicon.places_of("building", "sight", "way", "water")).noun
    adjective = scene.adjective(place, gradable=True)
    assert adjective is not None
    modifier = Modifier(adjective.english_superlative, adjective.superlative)
    town = scene.phrase(scene.pick(lexicon.nouns_of("town")), (THE, OUR), adjective=0.0, plural=0.0)
    phrase = NounPhrase(
        place,
        THE,
        (modifier,),
        english_after=f" in {town.english()}",
        german_after=f" {town.german(Case.GENITIVE)}",
    )
    english, german = phrase.english(), phrase.german(Case.NOMINATIVE)
    if scene.chance(0.3):
        return sentence(f"that is {english}", f"das ist {german}")
    return sentence(f"this is {english}", f"dies ist {german}")


def profession_statement(scene: Scene) -> Pair:
    """As in `My sister is a doctor`: German has no article, and a feminine form."""
    while True:
        subject = scene.subject(pronouns=0.4, adjective=0.0)
        pronoun = pronoun_for(subject)
        if pronoun in _INDIVIDUALS and not (
            isinstance(subject, NounPhrase) and "human" in subject.noun.kinds
        ):
            break
    noun = scene.pick(lexicon.nouns_of("worker"))
    feminine = pronoun is SHE
    german = FEMININE_PROFESSIONS[noun.english] if feminine else noun.german
    english = NounPhrase(noun, A).english()
    tense = scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    return state_clause(Clause(subject, being(english, german), tense))


_INDIVIDUALS = (PERSONAL[0], PERSONAL[1], PERSONAL[2])


def introduction(scene: Scene) -> Pair:
    """As in `This is my brother Paul`."""
    relative = scene.relative_of(None, plural=0.0)
    english, german = relative.english(), relative.german(Case.NOMINATIVE)
    pronoun = pronoun_for(relative)
    if pronoun is not None and scene.chance(0.6):
        name = scene.pick([name for name in lexicon.names() if name.pronoun is pronoun])
        english, german = f"{english} {name.name}", f"{german} {name.name}"
    return sentence(f"this is {english}", f"das ist {german}")


def possession(scene: Scene) -> Pair:
    """As in `We have two small children`."""
    subject = scene.subject()
    verb = lexicon.verb("haben")
    noun = scene.pick([*lexicon.nouns_of(*_OWNED), *lexicon.nouns_of("child")])
    scene.combine(verb.lemma, noun)
    is_person = "person" in noun.kinds
    if scene.chance(0.6):
        phrase = scene.phrase(noun, (A,), adjective=0.15 if is_person else 0.45, plural=0.0)
    else:
        phrase = scene.counted(noun, highest=5 if is_person else 12)
    tense = scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    return state_clause(Clause(subject, govern(verb, phrase), tense))


def genitive_statement(scene: Scene) -> Pair:
    """As in `The teacher's car is broken`, `Das Auto des Lehrers ist kaputt`."""
    owner = scene.person(adjective=0.2, plural=0.0) if scene.chance(0.5) else scene.relative_of(I, plural=0.0)
    noun = scene.pick([noun for noun in lexicon.nouns_of(*_OWNED) if lexicon.adjectives_for(noun)])
    adjective = scene.adjective(noun)
    assert adjective is not None
    owned = NounPhrase(noun, THE)
    tense = scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST))
    verb = "is" if tense is Tense.PRESENT else "was"
    german_verb = "ist" if tense is Tense.PRESENT else "war"
    english = f"{owner.english()}'s {noun.english} {verb} {adjective.english}"
    possessed = f"{owned.german(Case.NOMINATIVE)} {owner.german(Case.GENITIVE)}"
    return sentence(english, f"{possessed} {german_verb} {adjective.german}")


def belonging(scene: Scene) -> Pair:
    """As in `The bicycle belongs to my brother`."""
    verb = lexicon.verb("gehören")
    subject = scene.phrase(scene.object_noun(verb), (THE, THIS), adjective=0.4)
    owner = scene.other_person(scene.pick(lexicon.names()), pronouns=0.35)
    clause = Clause(subject, govern(verb, owner), Tense.PRESENT)
    return state_clause(replace(clause, negated=owner.is_definite and scene.chance(0.2)))


def liking(scene: Scene) -> Pair:
    """As in `I like the picture`, `Das Bild gefällt mir.` The subject becomes a dative`."""
    verb = lexicon.verb("gefallen")
    person = scene.subject(pronouns=0.45)
    thing = scene.phrase(scene.object_noun(verb), (THE, THIS, YOUR), adjective=0.35, plural=0.2)
    negated = scene.chance(0.25)
    past = scene.chance(0.3)
    liked = Tense.PAST if past else Tense.PRESENT
    english = Clause(person, Predicate(_LIKE, thing.english()), liked, negated)
    german = Clause(thing, govern(verb, person), liked, negated)
    return sentence(english_statement(english), german_statement(german))


def cause_statement(scene: Scene) -> Pair:
    """As in `Because of the rain we stayed at home`: the preposition takes the genitive."""
    preposition, kind, tenses = scene.pick(_CAUSES)
    cause = prepositional(preposition, scene.phrase(scene.pick(lexicon.nouns_of(kind)), (THE,), plural=0.0))
    subject = scene.subject()
    clause = draw_clause(scene, subject, tenses, *ACTIVITIES)
    return sentence(
        f"{cause.english} {english_statement(clause)}", f"{cause.german} {german_inverted(clause)}"
    )


def every_statement(scene: Scene) -> Pair:
    """As in `Every student must learn this poem`."""
    noun = scene.pick([noun for noun in lexicon.nouns_of("human") if noun.english not in ("boss",)])
    subject = NounPhrase(noun, EVERY, scene.modifiers(noun, 0.3))
    tenses = (Tense.PRESENT, Tense.MUST, Tense.CAN, Tense.SHOULD, Tense.WANT, Tense.ALLOWED)
    return state_clause(draw_clause(scene, subject, tenses, transitive))


DESCRIPTIONS = (
    adjective_statement,
    person_state,
    both_adjectives,
    comparative_statement,
    equality_statement,
    superlative_statement,
    profession_statement,
    introduction,
    possession,
    genitive_statement,
    belonging,
    liking,
    cause_statement,
    every_statement,
)
