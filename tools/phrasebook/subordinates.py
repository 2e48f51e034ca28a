"""Constructions: subordinate and relative clauses, infinitives with zu, and what they hang from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from phrasebook import lexicon
from phrasebook.clauses import (
    Clause,
    Predicate,
    english_infinitive,
    english_statement,
    german_final,
    german_inverted,
    german_statement,
    german_zu,
    sentence,
)
from phrasebook.phrases import (
    IT,
    MY,
    POSSESSIVES,
    THE,
    Nominal,
    pronoun_for,
)
from phrasebook.predicates import (
    ACTIVITIES,
    Maker,
    at_place,
    dative,
    draw_clause,
    errand,
    is_specific,
    known_object,
    motion,
    routine,
    separable,
    spare_time,
    state,
    timed,
    transitive,
    weather,
    with_preposition,
)
from phrasebook.scene import Scene
from phrasebook.statements import Pair
from phrasebook.words import Adverbial, Agreement, Tense

_HOME = Adverbial("at home", "zu Hause")
_DOING: tuple[Maker, ...] = (transitive, separable, dative, at_place, with_preposition)
_SUBORDINATE_TENSES = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.MUST, Tense.WANT, Tense.CAN)
_MATRIX = (
    (Tense.PRESENT, "glauben"),
    (Tense.PRESENT, "wissen"),
    (Tense.PRESENT, "hoffen"),
    (Tense.PRESENT, "sagen"),
    (Tense.PAST, "sagen"),
)
_EVALUATIONS = (
    ("it is important", "es ist wichtig"),
    ("it is difficult", "es ist schwierig"),
    ("it is easy", "es ist einfach"),
    ("it is nice", "es ist schön"),
    ("it is dangerous", "es ist gefährlich"),
)


@cache
def _results() -> tuple[Predicate, ...]:
    """What weather, tiredness or hurry lead to."""
    return (
        Predicate(lexicon.verb("bleiben"), place=_HOME),
        Predicate(lexicon.verb("ausruhen")),
        Predicate(lexicon.verb("beeilen")),
        Predicate(lexicon.verb("aufstehen"), manner=Adverbial("early", "früh")),
        Predicate(lexicon.verb("zurückkommen"), manner=Adverbial("late", "spät")),
    )


def _joined(main: Clause, english: str, german: str, sub: Clause) -> Pair:
    return sentence(
        f"{english_statement(main)} {english} {english_statement(sub)}",
        f"{german_statement(main)}, {german} {german_final(sub)}",
    )


def _fronted(english: str, german: str, sub: Clause, main: Clause) -> Pair:
    return sentence(
        f"{english} {english_statement(sub)}, {english_statement(main)}",
        f"{german} {german_final(sub)}, {german_inverted(main)}",
    )


def _with_pronoun(scene: Scene, *, pronouns: float = 0.3) -> tuple[Nominal, Nominal]:
    """A subject, and the pronoun that takes it up again."""
    mark = scene.mark()
    while True:
        scene.forget_since(mark)
        subject = scene.subject(pronouns=pronouns)
        pronoun = pronoun_for(subject)
        if pronoun is not None:
            return subject, pronoun


def _somebody_else(scene: Scene, speaker: Nominal) -> Nominal:
    """A subject that is not the speaker's own pronoun."""
    subject = scene.subject()
    while subject is speaker:
        subject = scene.subject()
    return subject


def _circumstance(scene: Scene, subject: Nominal, *, past: bool = False) -> Clause:
    """The weather or a state that somebody is in."""
    if scene.chance(0.3):
        return weather(scene, Tense.PAST if past else Tense.PROGRESSIVE)
    return Clause(subject, state(scene, subject), Tense.PAST if past else Tense.PRESENT)


def _reason(scene: Scene, subject: Nominal, *, past: bool = False) -> Clause:
    """Something that explains what somebody does: a circumstance, a duty, a wish."""
    if scene.chance(0.35):
        return _circumstance(scene, subject, past=past)
    tenses = (Tense.WANTED, Tense.HAD_TO) if past else (Tense.WANT, Tense.MUST, Tense.MUST)
    return draw_clause(scene, subject, tenses, errand)


def _consequence(scene: Scene, subject: Nominal, tenses: Sequence[Tense]) -> Clause:
    """What somebody does for a reason."""
    if scene.chance(0.4):
        predicate = scene.pick(_results())
        fitting = [tense for tense in tenses if tense in predicate.verb.tenses]
        if fitting:
            return Clause(subject, predicate, scene.pick(fitting))
    return draw_clause(scene, subject, tenses, motion, motion, separable)


def because_present(scene: Scene) -> Pair:
    """As in `I am hurrying because I must pick up my sister`."""
    subject, same = _with_pronoun(scene)
    main = _consequence(scene, subject, (Tense.PRESENT, Tense.MUST, Tense.WANT, Tense.FUTURE))
    return _joined(main, "because", "weil", _reason(scene, same))


def because_past(scene: Scene) -> Pair:
    """As in `We stayed at home because it was snowing`."""
    subject, same = _with_pronoun(scene)
    main = _consequence(scene, subject, (Tense.PAST,))
    return _joined(main, "because", "weil", _reason(scene, same, past=True))


def although_statement(scene: Scene) -> Pair:
    """As in `Although she is sick, Maria is working`."""
    subject, same = _with_pronoun(scene)
    past = scene.chance(0.5)
    sub = _circumstance(scene, subject, past=past)
    tenses = (Tense.PAST,) if past else (Tense.PRESENT, Tense.WANT, Tense.FUTURE)
    main = draw_clause(scene, same, tenses, transitive, separable, at_place, motion, dative)
    return _fronted("although", "obwohl", sub, main)


def that_statement(scene: Scene) -> Pair:
    """As in `I believe that the train departs soon`."""
    tense, lemma = scene.pick(_MATRIX)
    speaker = scene.subject(pronouns=0.5)
    tenses = (Tense.FUTURE, Tense.CAN) if lemma == "hoffen" else _SUBORDINATE_TENSES
    sub = draw_clause(scene, _somebody_else(scene, speaker), tenses, *ACTIVITIES)
    sub = timed(scene, sub, 0.25)
    main = Clause(speaker, Predicate(lexicon.verb(lemma), "that"), tense)
    return sentence(
        f"{english_statement(main)} {english_statement(sub)}",
        f"{german_statement(main)}, dass {german_final(sub)}",
    )


def that_state(scene: Scene) -> Pair:
    """As in `She says that she is tired`."""
    tense, lemma = scene.pick([entry for entry in _MATRIX if entry[1] != "hoffen"])
    speaker, same = _with_pronoun(scene, pronouns=0.5)
    subject = same if scene.chance(0.4) else scene.subject(adjective=0.0)
    sub_tense = Tense.PAST if tense is Tense.PAST else scene.pick((Tense.PRESENT, Tense.PAST))
    sub = Clause(subject, state(scene, subject), sub_tense, negated=scene.chance(0.25))
    main = Clause(speaker, Predicate(lexicon.verb(lemma), "that"), tense)
    return sentence(
        f"{english_statement(main)} {english_statement(sub)}",
        f"{german_statement(main)}, dass {german_final(sub)}",
    )


def that_because(scene: Scene) -> Pair:
    """As in `He says that he cannot come because he has to work`: two subordinate clauses."""
    speaker, same = _with_pronoun(scene, pronouns=0.4)
    past = scene.chance(0.3)
    sub = _consequence(scene, same, (Tense.PAST,) if past else (Tense.CAN, Tense.WANT, Tense.MUST))
    if sub.tense is Tense.CAN and (is_specific(sub.predicate) or not sub.predicate.english):
        sub = replace(sub, negated=True)
    reason = _reason(scene, same, past=past)
    main = Clause(speaker, Predicate(lexicon.verb("sagen"), "that"))
    return sentence(
        f"{english_statement(main)} {english_statement(sub)} because {english_statement(reason)}",
        f"{german_statement(main)}, dass {german_final(sub)}, weil {german_final(reason)}",
    )


def whether_statement(scene: Scene) -> Pair:
    """As in `I do not know whether she will come back tomorrow`."""
    speaker = scene.subject(pronouns=0.7)
    tenses = (Tense.PAST, Tense.FUTURE, Tense.CAN, Tense.WANT, Tense.MUST)
    sub = draw_clause(scene, _somebody_else(scene, speaker), tenses, *ACTIVITIES)
    sub = timed(scene, sub, 0.3)
    main = Clause(speaker, Predicate(lexicon.verb("wissen"), "whether"), negated=True)
    return sentence(
        f"{english_statement(main)} {english_statement(sub)}",
        f"{german_statement(main)}, ob {german_final(sub)}",
    )


def indirect_question(scene: Scene) -> Pair:
    """As in `Do you know where my key is?`, `Wissen Sie, wo mein Schlüssel ist?`."""
    draw = scene.below(4)
    if draw == 0:
        noun = scene.pick(lexicon.nouns_of("thing", "personal", "clothing", "pet", "building"))
        determiners = (THE,) if "building" in noun.kinds else (THE, *POSSESSIVES)
        thing = scene.phrase(noun, determiners, adjective=0.3)
        word, sub = Adverbial("where", "wo"), Clause(thing, Predicate(lexicon.verb("sein")))
    else:
        word = (Adverbial("why", "warum"), Adverbial("when", "wann"), Adverbial("where", "wo"))[draw - 1]
        makers: tuple[Maker, ...] = (errand, separable, motion, routine)
        if draw == 3:
            makers = (errand,)
        tenses = (Tense.PAST, Tense.FUTURE, Tense.WANT, Tense.MUST)
        sub = draw_clause(scene, scene.subject(), tenses, *makers)
    english, german = f"{word.english} {english_statement(sub)}", f"{word.german} {german_final(sub)}"
    if scene.chance(0.4):
        return sentence(f"do you know {english}", f"wissen Sie, {german}", "?")
    if scene.chance(0.5):
        return sentence(f"can you tell me {english}", f"können Sie mir sagen, {german}", "?")
    return sentence(f"I do not know {english}", f"ich weiß nicht, {german}")


def if_statement(scene: Scene) -> Pair:
    """As in `If it rains, we will stay at home`."""
    subject, same = _with_pronoun(scene)
    draw = scene.below(3)
    if draw == 0:
        sub = weather(scene, Tense.PRESENT)
    elif draw == 1:
        sub = Clause(subject, state(scene, subject), negated=scene.chance(0.25))
    else:
        sub = draw_clause(scene, subject, (Tense.PRESENT, Tense.WANT, Tense.MUST), motion, spare_time)
        if sub.predicate.verb.lemma == "haben":
            sub = replace(sub, tense=Tense.PRESENT)
    doer = subject if draw == 0 else same
    if scene.chance(0.3) and sub.predicate.english != "time":
        main = _consequence(scene, doer, (Tense.FUTURE, Tense.MUST))
    else:
        main = draw_clause(scene, doer, (Tense.FUTURE, Tense.CAN, Tense.SHOULD, Tense.MUST), errand, at_place)
    return _fronted("if", "wenn", sub, main)


def when_past(scene: Scene) -> Pair:
    """As in `When I came back, the children were sleeping`, two preterites in German."""
    other = scene.subject()
    mark = scene.mark()
    subject = scene.subject()
    sub = draw_clause(scene, subject, (Tense.NARRATIVE,), routine, motion, separable)
    if scene.chance(0.15):
        scene.forget_since(mark)
        phone = scene.phrase(scene.pick(lexicon.nouns_of("phone")), (THE, MY), adjective=0.2, plural=0.0)
        sub = Clause(phone, Predicate(lexicon.verb("klingeln")), Tense.NARRATIVE)
    main = draw_clause(scene, other, (Tense.PAST_PROGRESSIVE,), *_DOING)
    return _fronted("when", "als", sub, main)


def while_past(scene: Scene) -> Pair:
    """As in `While the baby was sleeping, the mother was reading`: two preterites."""
    sub = draw_clause(scene, scene.subject(), (Tense.PAST_PROGRESSIVE,), *_DOING)
    main = draw_clause(scene, scene.subject(), (Tense.PAST_PROGRESSIVE,), *_DOING)
    return _fronted("while", "während", sub, main)


def before_statement(scene: Scene) -> Pair:
    """As in `Before we eat, we must tidy up the kitchen`."""
    subject, same = _with_pronoun(scene)
    sub = draw_clause(scene, subject, (Tense.PRESENT,), errand, separable, routine, motion)
    main = draw_clause(scene, same, (Tense.MUST, Tense.SHOULD, Tense.WANT, Tense.FUTURE), errand, separable)
    return _fronted("before", "bevor", sub, main)


def in_order_to(scene: Scene) -> Pair:
    """As in `She goes to the market in order to buy fruit`, `um ... zu kaufen`."""
    subject = scene.subject()
    main = draw_clause(scene, subject, (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.MUST), motion)
    purpose = errand(scene, subject)
    return sentence(
        f"{english_statement(main)} in order to {english_infinitive(purpose)}",
        f"{german_statement(main)}, um {german_zu(purpose, subject.agreement)}",
    )


def trying_to(scene: Scene) -> Pair:
    """As in `He forgot to turn off the lamp`, `Er hat vergessen, die Lampe auszuschalten`."""
    subject = scene.subject()
    lemma = scene.pick(("versuchen", "hoffen", "vergessen"))
    english = {"versuchen": "try", "hoffen": "hope", "vergessen": "forget"}[lemma]
    verb = lexicon.verb(lemma, english)
    tense = scene.pick((Tense.PRESENT, Tense.PAST))
    action = draw_clause(scene, subject, (Tense.WANT,), transitive, separable, dative, motion).predicate
    main = Clause(subject, Predicate(verb, f"to {english_infinitive(action)}"), tense)
    bare = replace(main, predicate=Predicate(verb))
    return sentence(
        english_statement(main),
        f"{german_statement(bare)}, {german_zu(action, subject.agreement)}",
    )


def important_to(scene: Scene) -> Pair:
    """As in `It is important to get up early`, `Es ist wichtig, früh aufzustehen`."""
    english, german = scene.pick(_EVALUATIONS)
    makers = (known_object, transitive, separable, routine, motion, dative)
    action = draw_clause(scene, IT, (Tense.WANT,), *makers).predicate
    return sentence(
        f"{english} to {english_infinitive(action)}", f"{german}, {german_zu(action, Agreement.SINGULAR)}"
    )


SUBORDINATES = (
    because_present,
    because_past,
    although_statement,
    that_statement,
    that_state,
    that_because,
    whether_statement,
    indirect_question,
    if_statement,
    when_past,
    while_past,
    before_statement,
    in_order_to,
    trying_to,
    important_to,
)
