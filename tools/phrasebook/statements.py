"""Constructions: what somebody does, in every tense, voice and frame."""

from __future__ import annotations

from dataclasses import replace

from phrasebook import lexicon, lexicon_modifiers
from phrasebook.clauses import (
    Clause,
    Predicate,
    english_statement,
    german_inverted,
    german_statement,
    join,
    sentence,
)
from phrasebook.phrases import OWN, THE, A, I, NounPhrase, pronoun_for
from phrasebook.predicates import (
    ACTIVITIES,
    ALREADY,
    EVENTFUL,
    MODALS,
    PAST_MODALS,
    at_place,
    dative,
    draw_clause,
    explaining,
    giving,
    is_memorable,
    is_specific,
    journey,
    known_object,
    motion,
    routine,
    separable,
    timed,
    transitive,
    with_preposition,
    without_any,
)
from phrasebook.scene import Scene, prepositional
from phrasebook.words import Case, Preposition, Tense, Verb, listed

Pair = tuple[str, str]

_PASSIVES = (Tense.PASSIVE, Tense.PASSIVE_PAST, Tense.PASSIVE_FUTURE)
_ACTED_ON = listed(
    "sell buy order read write translate wash repair use open close clean pack plan learn build "
    "invite call turn-on turn-off throw-away prepare tidy-up solve"
)
_SEPARABLE_PLACES = {
    "abholen": ("station", "airport", "school", "hospital", "hotel"),
    "anrufen": ("office", "library", "café", "hotel"),
    "einschalten": ("indoors",),
    "ausschalten": ("indoors",),
    "anziehen": ("room", "bathroom", "hotel"),
    "ausziehen": ("room", "bathroom", "theater"),
    "anprobieren": ("room",),
    "auspacken": ("room", "hotel"),
    "vorbereiten": ("school", "office", "hotel", "restaurant"),
    "kennenlernen": ("school", "library", "theater", "park", "beach", "café", "museum"),
    "ausleihen": ("library", "school"),
}
_FOR = Preposition("for", "für", Case.ACCUSATIVE)
_FROM = Preposition("from", "von", Case.DATIVE)
_WITHOUT = Preposition("without", "ohne", Case.ACCUSATIVE)
_AGENT = Preposition("by", "von", Case.DATIVE)


def state_clause(clause: Clause) -> Pair:
    """The clause as a statement in both languages."""
    return sentence(english_statement(clause), german_statement(clause))


def present_statement(scene: Scene) -> Pair:
    """As in `My brother buys fresh bread every morning`."""
    clause = draw_clause(scene, scene.subject(), (Tense.PRESENT,), transitive, dative, with_preposition)
    return state_clause(timed(scene, clause, 0.4))


def progressive_statement(scene: Scene) -> Pair:
    """As in `She is reading a book`: German says `gerade`."""
    makers = (transitive, separable, at_place, with_preposition, dative)
    return state_clause(draw_clause(scene, scene.subject(), (Tense.PROGRESSIVE,), *makers))


def past_statement(scene: Scene) -> Pair:
    """As in `We visited the museum yesterday`."""
    clause = draw_clause(scene, scene.subject(), (Tense.PAST,), *ACTIVITIES)
    return state_clause(timed(scene, clause, 0.7))


def fronted_past(scene: Scene) -> Pair:
    """As in `Last week the doctor sold his car`."""
    return _fronted(scene, Tense.PAST)


def fronted_future(scene: Scene) -> Pair:
    """As in `Tomorrow I will call my mother`."""
    return _fronted(scene, scene.pick((Tense.FUTURE, Tense.MUST, Tense.CAN, Tense.WANT)))


def _fronted(scene: Scene, tense: Tense) -> Pair:
    clause = draw_clause(scene, scene.subject(), (tense,), *ACTIVITIES)
    time = scene.time(tense, far=is_memorable(clause.predicate.verb))
    english = f"{time.english} {english_statement(clause)}"
    return sentence(english, f"{time.german} {german_inverted(clause)}")


def perfect_statement(scene: Scene) -> Pair:
    """As in `He has already written the letter`."""
    clause = draw_clause(scene, scene.subject(), (Tense.PERFECT,), *ACTIVITIES)
    return state_clause(replace(clause, predicate=replace(clause.predicate, frequency=ALREADY)))


def future_statement(scene: Scene) -> Pair:
    """As in `They will travel to Vienna next week`."""
    clause = draw_clause(scene, scene.subject(), (Tense.FUTURE,), *ACTIVITIES)
    return state_clause(timed(scene, clause, 0.7))


def modal_statement(scene: Scene) -> Pair:
    """As in `I must call my sister today`."""
    clause = draw_clause(scene, scene.subject(), MODALS, *ACTIVITIES)
    return state_clause(timed(scene, clause, 0.4))


def past_modal_statement(scene: Scene) -> Pair:
    """As in `We had to wait for the bus yesterday`."""
    clause = draw_clause(scene, scene.subject(), PAST_MODALS, *ACTIVITIES)
    return state_clause(timed(scene, clause, 0.5))


def separable_statement(scene: Scene) -> Pair:
    """As in `My aunt invites her neighbors every Sunday`: the prefix closes the clause."""
    clause = draw_clause(scene, scene.subject(), (Tense.PRESENT,), separable)
    return state_clause(timed(scene, clause, 0.5))


def long_separable(scene: Scene) -> Pair:
    """As in `I pick up my brother at the station every evening`: finite verb and prefix are far apart."""
    subject, mark = scene.subject(), scene.mark()
    clause = draw_clause(scene, subject, (Tense.PRESENT, Tense.PAST), separable)
    while clause.predicate.verb.lemma not in _SEPARABLE_PLACES:
        scene.forget_since(mark)
        clause = draw_clause(scene, subject, (Tense.PRESENT, Tense.PAST), separable)
    place = scene.place(*_SEPARABLE_PLACES[clause.predicate.verb.lemma])
    return state_clause(
        replace(clause, predicate=replace(clause.predicate, place=place)).at(scene.time(clause.tense))
    )


def motion_statement(scene: Scene) -> Pair:
    """As in `On Monday my uncle travels to Hamburg by train`: time before manner before place."""
    clause = draw_clause(scene, scene.subject(), (*EVENTFUL, Tense.WOULD_LIKE), motion)
    return state_clause(timed(scene, clause, 0.8))


def frequency_statement(scene: Scene) -> Pair:
    """As in `My father often reads the newspaper`."""
    clause = draw_clause(scene, scene.subject(), (Tense.PRESENT,), *ACTIVITIES)
    frequency = scene.pick(lexicon.adverbials(lexicon_modifiers.FREQUENCIES))
    return state_clause(replace(clause, predicate=replace(clause.predicate, frequency=frequency)))


def giving_statement(scene: Scene) -> Pair:
    """As in `The teacher gives the child a book`."""
    tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.WANT, Tense.CAN, Tense.PROGRESSIVE)
    return state_clause(draw_clause(scene, scene.subject(), tenses, giving))


def explaining_statement(scene: Scene) -> Pair:
    """As in `The engineer explains the problem to us`."""
    tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.WANT, Tense.CAN)
    return state_clause(draw_clause(scene, scene.subject(), tenses, explaining))


def dative_statement(scene: Scene) -> Pair:
    """As in `Anna helps her grandmother`."""
    clause = draw_clause(scene, scene.subject(), (Tense.PRESENT, Tense.PAST, *MODALS), dative)
    return state_clause(timed(scene, clause, 0.4))


def prepositional_statement(scene: Scene) -> Pair:
    """As in `The children look forward to the trip`."""
    tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE)
    clause = draw_clause(scene, scene.subject(), tenses, with_preposition)
    return state_clause(timed(scene, clause, 0.25))


def reflexive_routine(scene: Scene) -> Pair:
    """As in `We must hurry`."""
    tenses = (*EVENTFUL, *MODALS, Tense.PROGRESSIVE, Tense.HAD_TO)
    clause = draw_clause(scene, scene.subject(), tenses, routine)
    return state_clause(timed(scene, clause, 0.8))


def not_statement(scene: Scene) -> Pair:
    """As in `The man does not read the newspaper`."""
    tenses = (Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.CAN, Tense.WANT, Tense.FUTURE, Tense.COULD)
    makers = (known_object, known_object, dative, with_preposition, motion, at_place)
    subject, mark = scene.subject(), scene.mark()
    clause = draw_clause(scene, subject, tenses, *makers)
    if clause.predicate.english and not is_specific(clause.predicate):
        scene.forget_since(mark)
        clause = draw_clause(scene, clause.subject, tenses, known_object)
    probability = 0.0 if clause.tense is Tense.PRESENT else 0.3
    return state_clause(timed(scene, replace(clause, negated=True), probability))


def no_statement(scene: Scene) -> Pair:
    """As in `We do not have a car`: the negation goes to the object: `kein`."""
    tenses = (Tense.PRESENT, Tense.PRESENT, Tense.PAST, Tense.CAN, Tense.WANT)
    clause = draw_clause(scene, scene.subject(), tenses, without_any)
    probability = 0.0 if clause.tense is Tense.PRESENT else 0.3
    return state_clause(timed(scene, replace(clause, negated=True), probability))


def for_statement(scene: Scene) -> Pair:
    """As in `He bought a gift for his sister`."""
    return _with_adjunct(scene, _FOR, ("kaufen", "backen", "kochen", "schreiben", "suchen", "bestellen"))


def from_statement(scene: Scene) -> Pair:
    """As in `She buys a car from her uncle`."""
    return _with_adjunct(scene, _FROM, ("kaufen", "ausleihen"))


def _with_adjunct(scene: Scene, preposition: Preposition, lemmas: tuple[str, ...]) -> Pair:
    subject = scene.subject()
    verb = lexicon.verb(scene.pick(lemmas))
    tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.WANT, Tense.MUST, Tense.WOULD_LIKE)
    noun = scene.object_noun(verb)
    determiner = THE if noun.is_mass else A
    target = scene.phrase(noun, (determiner,), plural=0.0)
    adjunct = prepositional(preposition, scene.relative_of(subject))
    german = join(target.german(Case.ACCUSATIVE), adjunct.german)
    predicate = Predicate(verb, f"{target.english()} {adjunct.english}", new=german)
    return state_clause(timed(scene, Clause(subject, predicate, scene.pick(tenses)), 0.4))


def without_statement(scene: Scene) -> Pair:
    """As in `She goes to the station without her umbrella`."""
    clause = draw_clause(scene, scene.subject(), EVENTFUL, journey)
    things = lexicon.nouns_of("personal", "pet", "carried", "many")
    thing = NounPhrase(scene.pick(things), THE)
    pronoun = pronoun_for(clause.subject)
    if pronoun is not None:
        thing = replace(thing, determiner=OWN[pronoun])
    manner = prepositional(_WITHOUT, thing)
    return state_clause(replace(clause, predicate=replace(clause.predicate, manner=manner)))


def passive_statement(scene: Scene) -> Pair:
    """As in `The old house was sold last year`."""
    clause = _passive(scene, _PASSIVES)
    return state_clause(timed(scene, clause, 0.6))


def passive_modal(scene: Scene) -> Pair:
    """As in `The car must be repaired`."""
    clause = _passive(scene, (Tense.PASSIVE_MUST, Tense.PASSIVE_CAN))
    return state_clause(timed(scene, clause, 0.4))


def passive_with_agent(scene: Scene) -> Pair:
    """As in `The letter was written by my grandfather`."""
    clause = _passive(scene, (Tense.PASSIVE, Tense.PASSIVE_PAST))
    mark = scene.mark()
    agent = scene.relative_of(I) if scene.chance(0.4) else scene.person()
    while agent.noun is getattr(clause.subject, "noun", None):
        scene.forget_since(mark)
        agent = scene.person()
    by = prepositional(_AGENT, agent)
    return state_clause(replace(clause, predicate=replace(clause.predicate, manner=by)))


def _passive(scene: Scene, tenses: tuple[Tense, ...]) -> Clause:
    verb = _acted_on(scene)
    mark = scene.mark()
    subject = scene.object(verb, I)
    while subject.is_pronoun or not subject.is_definite:
        scene.forget_since(mark)
        noun = scene.object_noun(verb)
        subject = scene.phrase(noun, (THE,), plural=0.25)
    return Clause(subject, Predicate(verb), scene.pick(tenses))


def _acted_on(scene: Scene) -> Verb:
    wanted = scene.pick(_ACTED_ON).replace("-", " ")
    verbs = lexicon.verbs()
    return next(verb for verb in (*verbs.transitive, *verbs.separable) if verb.english == wanted)


def and_statement(scene: Scene) -> Pair:
    """As in `Anna is cooking the soup and her brother is reading`."""
    first, second = scene.subject(), scene.subject()
    tense = scene.pick((Tense.PROGRESSIVE, Tense.PAST, Tense.FUTURE, Tense.PRESENT))
    makers = (transitive, at_place, separable)
    left, right = (draw_clause(scene, subject, (tense,), *makers) for subject in (first, second))
    english = f"{english_statement(left)}{{}} {english_statement(right)}"
    german = f"{german_statement(left)}{{}} {german_statement(right)}"
    if scene.chance(0.5):
        return sentence(english.format(" and"), german.format(" und"))
    return sentence(english.format(", but"), german.format(", aber"))


def not_but_statement(scene: Scene) -> Pair:
    """As in `We are not going to Berlin, but to Munich`."""
    subject = scene.subject()
    verb = scene.pick(lexicon.verbs_of("ride"))
    tense = scene.pick((Tense.PRESENT, Tense.FUTURE, Tense.WANT))
    first, second = scene.city(), scene.city()
    while second is first:
        second = scene.city()
    predicate = Predicate(verb, f"to {first.english}", complement=f"nach {first.german}")
    clause = timed(
        scene, Clause(subject, predicate, tense, negated=True), 0.0 if tense is Tense.PRESENT else 0.5
    )
    return sentence(
        f"{english_statement(clause)}, but to {second.english}",
        f"{german_statement(clause)}, sondern nach {second.german}",
    )


STATEMENTS = (
    present_statement,
    progressive_statement,
    past_statement,
    fronted_past,
    fronted_future,
    perfect_statement,
    future_statement,
    modal_statement,
    past_modal_statement,
    separable_statement,
    long_separable,
    motion_statement,
    frequency_statement,
    giving_statement,
    explaining_statement,
    dative_statement,
    prepositional_statement,
    reflexive_routine,
    not_statement,
    no_statement,
    for_statement,
    from_statement,
    without_statement,
    passive_statement,
    passive_modal,
    passive_with_agent,
    and_statement,
    not_but_statement,
)
