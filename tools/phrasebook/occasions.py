"""Constructions: weather, clock times, dates, ages, prices and counted things."""

from __future__ import annotations

from dataclasses import replace

from phrasebook import lexicon, lexicon_modifiers
from phrasebook.clauses import (
    Clause,
    Predicate,
    english_inverted,
    german_inverted,
    join,
    sentence,
)
from phrasebook.numbers import (
    clock_time,
    english_number,
    english_ordinal,
    german_number,
    german_ordinal_stem,
    price,
)
from phrasebook.phrases import IT, THE, THIS, YOUR, A, Nominal, NounPhrase
from phrasebook.predicates import (
    draw_clause,
    govern,
    motion,
    routine,
    separable,
)
from phrasebook.scene import Scene
from phrasebook.statements import Pair, state_clause
from phrasebook.words import Adverbial, Tense, listed

_MINUTES = (0, 0, 0, 5, 10, 15, 20, 30, 30, 40, 45, 50, 55)
_DAYS = (Adverbial("today", "heute"), Adverbial("tomorrow", "morgen"))
_DAILY = Adverbial("every day", "jeden Tag")
_TIMETABLE = (Tense.PRESENT, Tense.FUTURE)
_WEATHER_ADJECTIVES = (
    ("cold", "kalt"),
    ("warm", "warm"),
    ("hot", "heiß"),
    ("windy", "windig"),
    ("sunny", "sonnig"),
    ("cloudy", "bewölkt"),
    ("foggy", "neblig"),
)


def weather_event(scene: Scene) -> Pair:
    """As in `It is snowing in Munich`, `It rained yesterday`."""
    tense = scene.pick((Tense.PROGRESSIVE, Tense.PAST, Tense.FUTURE, Tense.PRESENT))
    verb = scene.pick((*lexicon.verbs_of("weather"), lexicon.verb("scheinen")))
    subject: Nominal = (
        NounPhrase(scene.pick(lexicon.nouns_of("sky")), THE) if verb.lemma == "scheinen" else IT
    )
    place = _weather_place(scene)
    frequency = None
    if tense is Tense.PRESENT:
        frequency = scene.pick(lexicon.adverbials(lexicon_modifiers.FREQUENCIES))
    predicate = Predicate(verb, place=place, frequency=frequency)
    clause = Clause(subject, predicate, tense)
    if tense is Tense.PROGRESSIVE:
        return state_clause(clause)
    if tense is Tense.PRESENT:
        seasons = lexicon.adverbials(lexicon_modifiers.SEASONS)
        return state_clause(clause.at(scene.pick(seasons[-1:] if verb.english == "snow" else seasons)))
    return state_clause(clause.at(scene.time(tense)))


def _weather_place(scene: Scene) -> Adverbial:
    if scene.chance(0.6):
        city = scene.city()
        return Adverbial(f"in {city.english}", f"in {city.german}")
    return scene.place("town", "mountain", "island", "forest", "beach", "lake", adjective=0.1)


def weather_state(scene: Scene) -> Pair:
    """As in `It was very cold in Hamburg last week`."""
    english, german = scene.pick(_WEATHER_ADJECTIVES)
    if scene.chance(0.4):
        english, german = f"very {english}", f"sehr {german}"
    tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.FUTURE))
    time = Adverbial("today", "heute") if tense is Tense.PRESENT else scene.time(tense)
    place = _weather_place(scene) if scene.chance(0.7) else None
    predicate = Predicate(
        lexicon.verb("sein"),
        join(english, place.english if place else ""),
        complement=join(place.german if place else "", german),
    )
    return state_clause(Clause(IT, predicate, tense).at(time))


def time_now(scene: Scene) -> Pair:
    """As in `It is half past seven`, `Es ist halb acht`."""
    time = clock_time(scene.number(1, 12), scene.pick(_MINUTES))
    opening = scene.pick(
        (
            ("it is", "es ist"),
            ("it is now", "es ist jetzt"),
            ("it was already", "es war schon"),
            ("it is already", "es ist schon"),
            ("it is almost", "es ist fast"),
        )
    )
    return sentence(f"{opening[0]} {time.english}", f"{opening[1]} {time.german}")


def at_time(scene: Scene) -> Pair:
    """As in `The train departs at a quarter to nine`, `um Viertel vor neun`."""
    time = clock_time(scene.number(1, 12), scene.pick(_MINUTES))
    at = Adverbial(f"at {time.english}", f"um {time.german}")
    daily = scene.chance(0.2)
    day = _DAILY if daily else scene.pick((None, *_DAYS, scene.weekday()))
    if day is not None:
        at = Adverbial(f"{at.english} {day.english}", f"{day.german} {at.german}")
    if scene.chance(0.5):
        subject, predicate = _scheduled(scene, daily=daily)
        clause = Clause(subject, predicate, Tense.PRESENT if daily else scene.pick(_TIMETABLE)).at(at)
    else:
        tenses = (Tense.PRESENT, Tense.MUST) if daily else (Tense.FUTURE, Tense.MUST, Tense.WANT, Tense.CAN)
        clause = draw_clause(scene, scene.subject(), tenses, routine, motion, separable).at(at)
    return state_clause(clause)


def _scheduled(scene: Scene, *, daily: bool = False) -> tuple[NounPhrase, Predicate]:
    """A vehicle or event with what it does at a time; a vehicle does it daily."""
    if daily or scene.chance(0.6):
        vehicle = scene.phrase(
            scene.pick(lexicon.nouns_of("public")), (THE, THE, YOUR), adjective=0.1, plural=0.0
        )
        verb = scene.pick(tuple(lexicon.verb(lemma) for lemma in ("abfahren", "ankommen")))
        if "plane" in vehicle.noun.kinds:
            verb = lexicon.verb("ankommen")
        city = scene.city()
        place = Adverbial(f"in {city.english}", f"in {city.german}") if scene.chance(0.4) else None
        return vehicle, Predicate(verb, place=place)
    event = scene.phrase(scene.pick(lexicon.nouns_of("event")), (THE, THE, THIS), adjective=0.2, plural=0.0)
    return event, Predicate(lexicon.verb("anfangen"))


def what_time_question(scene: Scene) -> Pair:
    """As in `What time does the concert begin?`, `Um wie viel Uhr`."""
    if scene.chance(0.05):
        return sentence("what time is it", "wie spät ist es", "?")
    if scene.chance(0.6):
        subject: Nominal
        subject, predicate = _scheduled(scene)
        clause = Clause(subject, predicate, scene.pick((Tense.PRESENT, Tense.FUTURE)))
    else:
        subject = scene.subject()
        tenses = (Tense.PRESENT, Tense.PAST, Tense.FUTURE, Tense.WANT, Tense.MUST)
        clause = draw_clause(scene, subject, tenses, routine, separable)
    day = scene.pick((None, None, Adverbial("tomorrow", "morgen"), scene.weekday()))
    if day is not None and clause.tense in (Tense.FUTURE, Tense.MUST, Tense.WANT):
        clause = clause.at(day)
    return sentence(
        f"what time {english_inverted(clause)}", f"um wie viel Uhr {german_inverted(clause)}", "?"
    )


def date_statement(scene: Scene) -> Pair:
    """As in `The wedding takes place on the third of May`, `am dritten Mai`."""
    month = scene.pick(lexicon.adverbials(lexicon_modifiers.MONTHS))
    day = scene.number(1, 30)
    date = Adverbial(
        f"on the {english_ordinal(day)} of {month.english}",
        f"am {german_ordinal_stem(day)}en {month.german}",
    )
    if scene.chance(0.6):
        subject = scene.phrase(
            scene.pick(lexicon.nouns_of("event")), (THE, THIS, YOUR), adjective=0.25, plural=0.0
        )
        tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.FUTURE))
        place = scene.place("building", adjective=0.1) if scene.chance(0.35) else None
        verb = scene.pick((lexicon.verb("stattfinden"), lexicon.verb("anfangen")))
        return state_clause(Clause(subject, Predicate(verb, place=place), tense).at(date))
    clause = draw_clause(scene, scene.subject(), (Tense.PAST, Tense.FUTURE, Tense.WANT), motion)
    return state_clause(clause.at(date))


def today_is(scene: Scene) -> Pair:
    """As in `Today is the twenty-first of June`, `Heute ist der einundzwanzigste Juni`."""
    if scene.chance(0.1):
        day = scene.pick(lexicon.adverbials(lexicon_modifiers.WEEKDAYS))
        which = scene.pick((Adverbial("today", "heute"), Adverbial("tomorrow", "morgen")))
        return sentence(f"{which.english} is {day.english}", f"{which.german} ist {day.german}")
    month = scene.pick(lexicon.adverbials(lexicon_modifiers.MONTHS))
    number = scene.number(1, 30)
    which = scene.pick((Adverbial("today is", "heute ist"), Adverbial("tomorrow is", "morgen ist")))
    return sentence(
        f"{which.english} the {english_ordinal(number)} of {month.english}",
        f"{which.german} der {german_ordinal_stem(number)}e {month.german}",
    )


def age_statement(scene: Scene) -> Pair:
    """As in `My daughter is twenty-seven years old`, `siebenundzwanzig Jahre alt`."""
    subject = scene.subject(adjective=0.0, plural=0.0)
    number = scene.number(2, 99)
    predicate = Predicate(
        lexicon.verb("sein"),
        f"{english_number(number)} years old",
        complement=f"{german_number(number)} Jahre alt",
    )
    return state_clause(Clause(subject, predicate))


def price_statement(scene: Scene) -> Pair:
    """As in `The umbrella costs twelve euros fifty`."""
    verb = lexicon.verb("kosten")
    thing = scene.phrase(scene.object_noun(verb), (THE, THIS, A), adjective=0.4, plural=0.15)
    if thing.plural and thing.determiner is A:
        thing = replace(thing, determiner=THE)
    if scene.chance(0.35):
        return sentence(
            f"how much {english_inverted(Clause(thing, Predicate(verb)))}",
            f"wie viel {german_inverted(Clause(thing, Predicate(verb)))}",
            "?",
        )
    amount = price(scene.number(1, 99), scene.pick((0, 0, 20, 50, 75, 80, 90, 95)))
    if scene.chance(0.3):
        hundreds = scene.number(1, 9) * 100
        extra = scene.pick((0, 0, 50, scene.number(1, 99)))
        amount = price(hundreds + extra, 0)
    tense = scene.pick((Tense.PRESENT, Tense.PRESENT, Tense.FUTURE))
    return state_clause(Clause(thing, Predicate(verb, amount.english, complement=amount.german), tense))


def counted_statement(scene: Scene) -> Pair:
    """As in `We need five old chairs`."""
    lemmas = listed("kaufen brauchen sehen verkaufen suchen finden bestellen backen malen")
    verb = lexicon.verb(scene.pick(lemmas))
    noun = scene.pick([noun for noun in lexicon.nouns_of(*verb.kinds) if not noun.is_mass])
    scene.combine(verb.lemma, noun)
    subject = scene.subject()
    tenses = (
        (Tense.PRESENT, Tense.PAST)
        if Tense.WANT not in verb.tenses
        else (Tense.PRESENT, Tense.PAST, Tense.WANT)
    )
    clause = Clause(subject, govern(verb, scene.counted(noun, highest=20)), scene.pick(tenses))
    if clause.tense is Tense.PAST and scene.chance(0.4):
        clause = clause.at(scene.time(Tense.PAST))
    return state_clause(clause)


def duration_statement(scene: Scene) -> Pair:
    """As in `The trip takes three hours`, `Die Reise dauert drei Stunden`."""
    event = scene.phrase(scene.pick(lexicon.nouns_of("event")), (THE, THIS, YOUR), adjective=0.3, plural=0.0)
    is_long = not event.noun.kinds.isdisjoint(("trip", "course"))
    unit, _, plural, _ = scene.pick(lexicon.durations()[1:4] if is_long else lexicon.durations()[4:])
    number = scene.number(2, 12) if unit == "hour" else scene.number(2, 90)
    if is_long:
        number = scene.number(2, 24)
    predicate = Predicate(
        lexicon.verb("dauern"),
        f"{english_number(number)} {unit}s",
        complement=f"{german_number(number)} {plural}",
    )
    tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.FUTURE))
    return state_clause(Clause(event, predicate, tense))


def animal_statement(scene: Scene) -> Pair:
    """As in `The dog barked in the garden`."""
    if scene.chance(0.5):
        subject = scene.phrase(scene.pick(lexicon.nouns_of("dog")), (THE, THIS, YOUR), adjective=0.5)
        verb = lexicon.verb("bellen")
    else:
        subject = scene.phrase(scene.pick(lexicon.nouns_of("animal")), (THE, THIS), adjective=0.4)
        verb = scene.pick((lexicon.verb("schlafen"), lexicon.verb("spielen"), lexicon.verb("warten")))
    predicate = Predicate(verb, place=scene.place("garden", "outdoors", "kitchen", adjective=0.15))
    tense = scene.pick((Tense.PRESENT, Tense.PAST, Tense.PROGRESSIVE, Tense.PAST))
    clause = Clause(subject, predicate, tense)
    return state_clause(clause.at(scene.time(tense)) if tense is Tense.PAST and scene.chance(0.4) else clause)


OCCASIONS = (
    weather_event,
    weather_state,
    time_now,
    at_time,
    what_time_question,
    date_statement,
    today_is,
    age_statement,
    price_statement,
    counted_statement,
    duration_statement,
    animal_statement,
)
