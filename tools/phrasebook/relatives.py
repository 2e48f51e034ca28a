"""Constructions: relative clauses; gender and number come from outside, the case from inside."""

from __future__ import annotations

from dataclasses import replace

from phrasebook import lexicon
from phrasebook.clauses import (
    Clause,
    Predicate,
    english_statement,
    german_final,
    german_statement,
    sentence,
)
from phrasebook.german import relative_pronoun
from phrasebook.phrases import THE, A, NounPhrase, relative_english, relative_subject
from phrasebook.predicates import ACTIVITIES, Maker, draw_clause
from phrasebook.scene import Scene
from phrasebook.statements import Pair
from phrasebook.words import Case, Tense, listed


def _commented(scene: Scene, head: NounPhrase, english: str, german: str) -> Pair:
    """The head with its relative clause, and something said about it."""
    adjective = scene.adjective(head.noun)
    assert adjective is not None
    clause = Clause(
        replace(head, english_after=f" {english}", german_after=f", {german},"),
        Predicate(lexicon.verb("sein"), adjective.english, complement=adjective.german),
        scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.PAST)),
    )
    return sentence(english_statement(clause), german_statement(clause))


def relative_nominative(scene: Scene) -> Pair:
    """As in `The woman who is calling my brother is friendly`."""
    head = scene.person(adjective=0.0)
    sub = draw_clause(scene, relative_subject(head), (Tense.PRESENT, Tense.PAST, Tense.CAN), *ACTIVITIES)
    return _commented(scene, head, english_statement(sub), german_final(sub))


def relative_known(scene: Scene) -> Pair:
    """As in `I know a man who works at the airport`: the relative clause ends the sentence."""
    noun = scene.pick(lexicon.nouns_of("human"))
    head = scene.phrase(noun, (A, THE), adjective=0.2, plural=0.0)
    sub = draw_clause(scene, relative_subject(head), (Tense.PRESENT, Tense.WANT, Tense.CAN), *ACTIVITIES)
    verb = lexicon.verb(scene.pick(("kennen", "treffen", "suchen")))
    scene.combine(verb.lemma, noun)
    subject = scene.subject(pronouns=0.6)
    tenses = (Tense.PRESENT,) if verb.lemma == "kennen" else (Tense.FUTURE, Tense.MUST, Tense.WANT)
    english, german = head.english(), head.german(Case.ACCUSATIVE)
    main = Clause(subject, Predicate(verb, english, known=german), scene.pick(tenses))
    return sentence(
        f"{english_statement(main)} {english_statement(sub)}",
        f"{german_statement(main)}, {german_final(sub)}",
    )


def relative_accusative(scene: Scene) -> Pair:
    """As in `The book that I am reading is interesting`."""
    mark = scene.mark()
    while True:
        scene.forget_since(mark)
        verb = scene.pick((*lexicon.verbs().transitive, *lexicon.verbs().separable))
        noun = scene.object_noun(verb)
        if lexicon.adjectives_for(noun) and "person" not in noun.kinds:
            break
    head = NounPhrase(noun, THE, (), not noun.is_mass and scene.chance(0.2))
    makers: tuple[Maker, ...] = (lambda _scene, _subject: Predicate(verb),)
    tenses = (Tense.PRESENT, Tense.PAST, Tense.WANT, Tense.CAN, Tense.PROGRESSIVE, Tense.FUTURE)
    sub = draw_clause(scene, scene.subject(pronouns=0.5), tenses, *makers)
    pronoun = relative_pronoun(Case.ACCUSATIVE, head.column)
    return _commented(
        scene, head, f"{relative_english(head)} {english_statement(sub)}", f"{pronoun} {german_final(sub)}"
    )


def relative_person(scene: Scene) -> Pair:
    """As in `The neighbor whom we helped is old`, `dem wir geholfen haben`."""
    lemmas = listed("besuchen treffen einladen anrufen fragen helfen danken folgen zuhören antworten")
    verb = lexicon.verb(scene.pick(lemmas))
    head = scene.person(adjective=0.0)
    scene.combine(verb.lemma, head.noun)
    tenses = (Tense.PRESENT, Tense.PAST, Tense.WANT, Tense.MUST)
    tense = scene.pick([tense for tense in tenses if tense in verb.tenses])
    sub = Clause(scene.subject(pronouns=0.5), Predicate(verb), tense)
    pronoun = relative_pronoun(verb.case, head.column)
    return _commented(scene, head, f"whom {english_statement(sub)}", f"{pronoun} {german_final(sub)}")


def relative_place(scene: Scene) -> Pair:
    """As in `The house in which my uncle lives is modern`, `in dem mein Onkel wohnt`."""
    verb = lexicon.verb(scene.pick(listed("wohnen wohnen arbeiten warten spielen schlafen tanzen")))
    kinds = ("town", "house", "island") if verb.lemma == "wohnen" else verb.kinds[1:]
    place = scene.pick(lexicon.places_of(*kinds))
    head = NounPhrase(place.noun, THE)
    tenses = (Tense.PRESENT, Tense.WANT) if verb.lemma == "wohnen" else (Tense.PRESENT, Tense.PAST, Tense.CAN)
    sub = Clause(scene.subject(), Predicate(verb), scene.pick(tenses))
    pronoun = relative_pronoun(Case.DATIVE, head.column)
    english = f"{place.location.english} which {english_statement(sub)}"
    return _commented(scene, head, english, f"{place.location.german} {pronoun} {german_final(sub)}")


RELATIVES = (relative_nominative, relative_known, relative_accusative, relative_person, relative_place)
