"""Constructions: questions, requests and orders."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from phrasebook import lexicon
from phrasebook.clauses import (
    Clause,
    Predicate,
    english_infinitive,
    english_inverted,
    english_statement,
    german_imperative,
    german_inverted,
    german_statement,
    sentence,
)
from phrasebook.phrases import (
    PERSONAL,
    THE,
    WHICH,
    YOU,
    YOUR,
    A,
    I,
    Nominal,
    NounPhrase,
    Relative,
)
from phrasebook.predicates import (
    ACTIVITIES,
    MODALS,
    Maker,
    at_place,
    dative,
    draw_clause,
    is_specific,
    known_object,
    motion,
    routine,
    separable,
    things_for,
    timed,
    transitive,
    with_preposition,
)
from phrasebook.scene import Scene
from phrasebook.statements import Pair
from phrasebook.words import Adverbial, Agreement, Case, Tense, listed

WHO = Relative("who", "wer", Agreement.SINGULAR)

_ASKED = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.CAN, Tense.MUST, Tense.WANT)
_REQUESTED: tuple[Maker, ...] = (known_object, known_object, dative, with_preposition, routine)


def _asked_person(scene: Scene) -> Nominal:
    """Whom questions are about: mostly you and yours."""
    if scene.chance(0.4):
        return YOU
    if scene.chance(0.4):
        noun = scene.pick(lexicon.nouns_of("family", "known"))
        return scene.phrase(noun, (YOUR,), adjective=0.1, plural=0.2 if "many" in noun.kinds else 0.0)
    subject = scene.subject()
    return YOU if subject is I else subject


def _question(word: Adverbial | None, clause: Clause) -> Pair:
    english, german = english_inverted(clause), german_inverted(clause)
    if word is not None:
        english, german = f"{word.english} {english}", f"{word.german} {german}"
    return sentence(english, german, "?")


def yes_no_present(scene: Scene) -> Pair:
    """As in `Does your brother work at the airport?`."""
    clause = draw_clause(scene, _asked_person(scene), (Tense.PRESENT,), *ACTIVITIES)
    return _question(None, timed(scene, clause, 0.3))


def yes_no_past(scene: Scene) -> Pair:
    """As in `Did you call my sister yesterday?`."""
    clause = draw_clause(scene, _asked_person(scene), (Tense.PAST,), *ACTIVITIES)
    return _question(None, timed(scene, clause, 0.4))


def yes_no_modal(scene: Scene) -> Pair:
    """As in `Can you help me?`, `Would you like to visit the castle tomorrow?`."""
    tenses = (*MODALS, Tense.FUTURE)
    clause = draw_clause(scene, _asked_person(scene), tenses, *ACTIVITIES)
    return _question(None, timed(scene, clause, 0.3))


def yes_no_progressive(scene: Scene) -> Pair:
    """As in `Is the cook preparing the meal?`."""
    makers = (transitive, separable, at_place, with_preposition)
    return _question(None, draw_clause(scene, _asked_person(scene), (Tense.PROGRESSIVE,), *makers))


def who_question(scene: Scene) -> Pair:
    """As in `Who repaired the car?`."""
    tenses = (Tense.PRESENT, Tense.PROGRESSIVE, Tense.PAST, Tense.FUTURE, Tense.CAN, Tense.MUST, Tense.WANT)
    clause = draw_clause(scene, WHO, tenses, *ACTIVITIES)
    clause = timed(scene, clause, 0.3) if clause.tense is not Tense.PROGRESSIVE else clause
    return sentence(english_statement(clause), german_statement(clause), "?")


def whom_question(scene: Scene) -> Pair:
    """As in `Whom are you visiting?`, `Wen` or, with a dative verb, `wem`."""
    lemmas = listed(
        "fragen treffen besuchen anrufen einladen abholen helfen danken vertrauen zuhören antworten"
    )
    verb = lexicon.verb(scene.pick(lemmas))
    tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.MUST, Tense.WANT, Tense.CAN))
    if tense not in verb.tenses:
        tense = Tense.PRESENT
    word = Adverbial("whom", "wem" if verb.case is Case.DATIVE else "wen")
    return _question(word, timed(scene, Clause(_asked_person(scene), Predicate(verb), tense), 0.5))


def what_question(scene: Scene) -> Pair:
    """As in `What did your daughter buy yesterday?`."""
    lemmas = listed(
        "essen trinken kochen kaufen verkaufen bestellen lesen schreiben suchen brauchen planen lernen"
    )
    verb = lexicon.verb(scene.pick(lemmas))
    tense = scene.pick([tense for tense in _ASKED if tense in verb.tenses])
    clause = Clause(_asked_person(scene), Predicate(verb), tense)
    return _question(Adverbial("what", "was"), timed(scene, clause, 0.6))


def which_question(scene: Scene) -> Pair:
    """As in `Which book is your son reading?`."""
    verbs = lexicon.verbs()
    verb = scene.pick([verb for verb in (*verbs.transitive, *verbs.separable) if things_for(verb)])
    noun = scene.pick(things_for(verb))
    scene.combine(verb.lemma, noun)
    target = scene.phrase(noun, (WHICH,), adjective=0.25, plural=0.2)
    word = Adverbial(target.english(), target.german(Case.ACCUSATIVE))
    tense = scene.pick([tense for tense in _ASKED if tense in verb.tenses])
    return _question(word, Clause(_asked_person(scene), Predicate(verb), tense))


def where_question(scene: Scene) -> Pair:
    """As in `Where does he work?`: is `wo`; `Where is she going?` is `wohin`; `Where ... from` is `woher`."""
    person = _asked_person(scene)
    draw = scene.below(3)
    if draw == 0:
        verb = lexicon.verb(scene.pick(listed("schlafen arbeiten tanzen spielen warten wohnen einkaufen")))
        tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.WANT, Tense.FUTURE, Tense.CAN))
        lasting = verb.lemma == "wohnen"
        clause = timed(scene, Clause(person, Predicate(verb), tense), 0.0 if lasting else 0.3)
        return _question(Adverbial("where", "wo"), clause)
    if draw == 1:
        verb = scene.pick(tuple(lexicon.verb(lemma) for lemma in ("gehen", "fahren", "reisen", "fliegen")))
        tense = scene.pick(_ASKED)
        return _question(
            Adverbial("where", "wohin"), timed(scene, Clause(person, Predicate(verb), tense), 0.5)
        )
    if scene.chance(0.3):
        clause = Clause(person, Predicate(lexicon.verb("kommen"), "from"))
        return _question(Adverbial("where", "woher"), clause)
    noun = scene.pick(lexicon.nouns_of("thing", "personal", "clothing", "pet", "building", "device"))
    thing = scene.phrase(noun, (THE, YOUR) if "building" not in noun.kinds else (THE,), adjective=0.3)
    return _question(Adverbial("where", "wo"), Clause(thing, Predicate(lexicon.verb("sein"))))


def nearest_question(scene: Scene) -> Pair:
    """As in `Excuse me, where is the nearest pharmacy?`."""
    noun = scene.pick(lexicon.nouns_of("building", "park", "beach", "lake", "market"))
    place = NounPhrase(noun, THE)
    german_article = place.german(Case.NOMINATIVE).split(" ", 1)[0]
    english, german = f"the nearest {noun.english}", f"{german_article} nächste {noun.german}"
    opening = scene.pick((("", ""), ("excuse me, ", "Entschuldigung, ")))
    if scene.chance(0.5):
        return sentence(f"{opening[0]}where is {english}", f"{opening[1]}wo ist {german}", "?")
    accusative = replace(place, determiner=THE).german(Case.ACCUSATIVE).split(" ", 1)[0]
    ending = "n" if accusative == "den" else ""
    german = f"{accusative} nächste{ending} {noun.german}"
    return sentence(f"{opening[0]}where do I find {english}", f"{opening[1]}wo finde ich {german}", "?")


def when_question(scene: Scene) -> Pair:
    """As in `When did you get up?`."""
    clause = draw_clause(scene, _asked_person(scene), _ASKED, routine, motion, transitive, separable, dative)
    return _question(Adverbial("when", "wann"), clause)


def why_question(scene: Scene) -> Pair:
    """As in `Why do you not trust the lawyer?`."""
    tenses = (Tense.PRESENT, Tense.PAST, Tense.WANT, Tense.MUST, Tense.HAD_TO)
    clause = draw_clause(scene, _asked_person(scene), tenses, known_object, dative, with_preposition, motion)
    negated = clause.tense is not Tense.MUST and clause.subject.is_pronoun and scene.chance(0.3)
    return _question(
        Adverbial("why", "warum"), replace(clause, negated=negated and is_specific(clause.predicate))
    )


def how_many_question(scene: Scene) -> Pair:
    """As in `How many eggs did you buy?`."""
    lemmas = listed("essen kaufen verkaufen brauchen sehen schreiben haben finden bestellen")
    verb = lexicon.verb(scene.pick(lemmas))
    nouns = [noun for noun in lexicon.nouns_of(*(verb.kinds or ("owned", "many", "pet"))) if not noun.is_mass]
    noun = scene.pick(nouns)
    scene.combine(verb.lemma, noun)
    tenses = [tense for tense in _ASKED if tense in verb.tenses]
    word = Adverbial(f"how many {noun.english_plural}", f"wie viele {noun.german_plural}")
    return _question(word, Clause(_asked_person(scene), Predicate(verb), scene.pick(tenses)))


def polite_order(scene: Scene) -> Pair:
    """As in `Please close the window`, `Bitte schließen Sie das Fenster`."""
    predicate = _request(scene, _REQUESTED)
    if scene.chance(0.3):
        time = scene.pick((Adverbial("today", "heute"), Adverbial("tomorrow", "morgen"), scene.weekday()))
        predicate = replace(predicate, time=time)
    return sentence(f"please {english_infinitive(predicate)}", f"bitte {german_imperative(predicate)}")


def polite_prohibition(scene: Scene) -> Pair:
    """As in `Please do not turn on the radio`, `Bitte schalten Sie das Radio nicht ein`."""
    predicate = _request(scene, (known_object, known_object, dative, with_preposition))
    english = f"please do not {english_infinitive(predicate)}"
    return sentence(english, f"bitte {german_imperative(predicate, negated=True)}")


def _request(scene: Scene, makers: Sequence[Maker]) -> Predicate:
    mark = scene.mark()
    while True:
        scene.forget_since(mark)
        predicate = scene.pick(makers)(scene, YOU)
        if Tense.WANT in predicate.verb.tenses and (not predicate.english or is_specific(predicate)):
            return predicate


def ordering(scene: Scene) -> Pair:
    """As in `I would like a cup of tea and a cake`, `Ich möchte eine Tasse Tee und einen Kuchen`."""
    english, german = _helping(scene)
    if scene.chance(0.6):
        more_english, more_german = _helping(scene)
        english, german = f"{english} and {more_english}", f"{german} und {more_german}"
    subject, finite = scene.pick(((I, "möchte"), (PERSONAL[3], "möchten")))
    if scene.chance(0.3):
        return sentence(f"please bring me {english}", f"bitte bringen Sie mir {german}")
    opening = f"{subject.english()} would like {english}"
    return sentence(opening, f"{subject.german(Case.NOMINATIVE)} {finite} {german}")


def _helping(scene: Scene) -> tuple[str, str]:
    if scene.chance(0.5):
        dish = scene.phrase(scene.pick(lexicon.nouns_of("meal", "baked")), (A,), adjective=0.2, plural=0.0)
        return dish.english(), dish.german(Case.ACCUSATIVE)
    drink = scene.pick(lexicon.nouns_of("drink"))
    vessels = ("cup",) if "hot" in drink.kinds else ("glass", "bottle")
    vessel = scene.phrase(scene.pick(lexicon.nouns_of(*vessels)), (A,), adjective=0.0, plural=0.0)
    return f"{vessel.english()} of {drink.english}", f"{vessel.german(Case.ACCUSATIVE)} {drink.german}"


QUESTIONS = (
    yes_no_present,
    yes_no_past,
    yes_no_modal,
    yes_no_progressive,
    who_question,
    whom_question,
    what_question,
    which_question,
    where_question,
    nearest_question,
    when_question,
    why_question,
    how_many_question,
    polite_order,
    polite_prohibition,
    ordering,
)
