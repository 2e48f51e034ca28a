"""German morphology and word order against forms worked out by hand."""

import pytest

from phrasebook import lexicon
from phrasebook.clauses import (
    Clause,
    Predicate,
    german_final,
    german_imperative,
    german_inverted,
    german_statement,
    german_zu,
)
from phrasebook.german import (
    PLURAL,
    contract,
    decline,
    genitive_form,
    relative_pronoun,
    weak_form,
)
from phrasebook.german_verbs import bracket, zu_infinitive
from phrasebook.numbers import clock_time, german_number, german_ordinal_stem, price
from phrasebook.phrases import MY, THE, A, I, NounPhrase
from phrasebook.predicates import govern
from phrasebook.words import Adverbial, Agreement, Case, Gender, Noun, Tense

NOM, ACC, DAT, GEN = Case.NOMINATIVE, Case.ACCUSATIVE, Case.DATIVE, Case.GENITIVE


def noun(english: str) -> Noun:
    return next(entry for entry in lexicon.nouns() if entry.english == english)


@pytest.mark.parametrize(
    ("stem", "adjective", "english", "case", "plural", "expected"),
    [
        ("d", "alt", "man", NOM, False, "der alte Mann"),
        ("d", "alt", "man", ACC, False, "den alten Mann"),
        ("d", "alt", "man", DAT, False, "dem alten Mann"),
        ("d", "alt", "man", GEN, False, "des alten Mannes"),
        ("ein", "alt", "man", NOM, False, "ein alter Mann"),
        ("ein", "alt", "man", ACC, False, "einen alten Mann"),
        ("", "alt", "man", NOM, True, "alte Männer"),
        ("", "alt", "man", DAT, True, "alten Männern"),
        ("", "alt", "man", GEN, True, "alter Männer"),
        ("kein", "klein", "child", NOM, True, "keine kleinen Kinder"),
        ("kein", "klein", "child", DAT, True, "keinen kleinen Kindern"),
        ("mein", "klein", "child", NOM, False, "mein kleines Kind"),
        ("unser", "jung", "sister", DAT, False, "unserer jungen Schwester"),
        ("dies", "schön", "city", GEN, False, "dieser schönen Stadt"),
        ("", "frisch", "bread", ACC, False, "frisches Brot"),
        ("", "kalt", "milk", DAT, False, "kalter Milch"),
        ("", "heiß", "coffee", ACC, False, "heißen Kaffee"),
        ("d", "teur", "car", NOM, False, "das teure Auto"),
        ("welch", "hoh", "tower", ACC, False, "welchen hohen Turm"),
        ("jed", "gut", "student", NOM, False, "jeder gute Student"),
        ("d", "gut", "student", DAT, False, "dem guten Studenten"),
        ("d", "alt", "neighbor", GEN, False, "des alten Nachbarn"),
        ("d", "neu", "car", DAT, True, "den neuen Autos"),
        ("d", "klein", "girl", DAT, True, "den kleinen Mädchen"),
    ],
)
def test_noun_phrases_decline(
    stem: str, adjective: str, english: str, case: Case, plural: bool, expected: str
) -> None:
    assert decline(stem, (adjective,), noun(english), case, plural=plural) == expected


def test_genitives_follow_length_and_ending() -> None:
    forms = {
        "Hund": "Hundes",
        "Garten": "Gartens",
        "Haus": "Hauses",
        "Bahnhof": "Bahnhofs",
        "Auto": "Autos",
        "Schnee": "Schnees",
        "Baum": "Baumes",
        "Platz": "Platzes",
    }
    assert {word: genitive_form(word) for word in forms} == forms


def test_weak_nouns_take_n_or_en() -> None:
    forms = {
        "Junge": "Jungen",
        "Nachbar": "Nachbarn",
        "Bauer": "Bauern",
        "Bär": "Bären",
        "Student": "Studenten",
    }
    assert {word: weak_form(word) for word in forms} == forms


@pytest.mark.parametrize(
    ("preposition", "phrase", "expected"),
    [
        ("in", "dem alten Haus", "im alten Haus"),
        ("in", "das Kino", "ins Kino"),
        ("zu", "der Brücke", "zur Brücke"),
        ("zu", "dem Bahnhof", "zum Bahnhof"),
        ("von", "dem Arzt", "vom Arzt"),
        ("auf", "dem Tisch", "auf dem Tisch"),
        ("in", "diesem Dorf", "in diesem Dorf"),
        ("mit", "dem Zug", "mit dem Zug"),
    ],
)
def test_prepositions_contract_with_the_definite_article_only(
    preposition: str, phrase: str, expected: str
) -> None:
    assert contract(preposition, phrase) == expected


def test_relative_pronouns_differ_from_articles_in_the_dative_plural_and_genitive() -> None:
    assert relative_pronoun(DAT, PLURAL) == "denen"
    assert relative_pronoun(GEN, Gender.MASCULINE) == "dessen"
    assert relative_pronoun(ACC, Gender.MASCULINE) == "den"


@pytest.mark.parametrize(
    ("lemma", "tense", "agreement", "main", "final"),
    [
        ("kaufen", Tense.PRESENT, Agreement.SINGULAR, "kauft", "kauft"),
        ("arbeiten", Tense.PRESENT, Agreement.SINGULAR, "arbeitet", "arbeitet"),
        ("öffnen", Tense.PRESENT, Agreement.SINGULAR, "öffnet", "öffnet"),
        ("lesen", Tense.PRESENT, Agreement.I, "lese", "lese"),
        ("lesen", Tense.PRESENT, Agreement.SINGULAR, "liest", "liest"),
        ("wissen", Tense.PRESENT, Agreement.I, "weiß", "weiß"),
        ("sein", Tense.PRESENT, Agreement.WE, "sind", "sind"),
        ("sein", Tense.PAST, Agreement.PLURAL, "waren", "waren"),
        ("haben", Tense.PAST, Agreement.I, "hatte", "hatte"),
        ("klingeln", Tense.PRESENT, Agreement.I, "klingle", "klingle"),
        ("spielen", Tense.PRESENT, Agreement.I, "spiele", "spiele"),
        ("anrufen", Tense.PRESENT, Agreement.I, "rufe … an", "anrufe"),
        ("anrufen", Tense.PAST, Agreement.I, "habe … angerufen", "angerufen habe"),
        ("anrufen", Tense.CAN, Agreement.WE, "können … anrufen", "anrufen können"),
        ("vorbereiten", Tense.PAST, Agreement.SINGULAR, "hat … vorbereitet", "vorbereitet hat"),
        ("kennenlernen", Tense.PERFECT, Agreement.I, "habe … kennengelernt", "kennengelernt habe"),
        ("besuchen", Tense.PAST, Agreement.I, "habe … besucht", "besucht habe"),
        ("reparieren", Tense.PAST, Agreement.I, "habe … repariert", "repariert habe"),
        ("gehen", Tense.PAST, Agreement.PLURAL, "sind … gegangen", "gegangen sind"),
        ("aufstehen", Tense.PAST, Agreement.I, "bin … aufgestanden", "aufgestanden bin"),
        ("schlafen", Tense.PAST_PROGRESSIVE, Agreement.SINGULAR, "schlief", "schlief"),
        ("arbeiten", Tense.NARRATIVE, Agreement.PLURAL, "arbeiteten", "arbeiteten"),
        ("kommen", Tense.NARRATIVE, Agreement.WE, "kamen", "kamen"),
        ("schreiben", Tense.FUTURE, Agreement.SINGULAR, "wird … schreiben", "schreiben wird"),
        ("lesen", Tense.MUST, Agreement.I, "muss … lesen", "lesen muss"),
        ("lesen", Tense.WOULD_LIKE, Agreement.PLURAL, "möchten … lesen", "lesen möchten"),
        ("verkaufen", Tense.PASSIVE_PAST, Agreement.SINGULAR, "wurde … verkauft", "verkauft wurde"),
        (
            "öffnen",
            Tense.PASSIVE_MUST,
            Agreement.PLURAL,
            "müssen … geöffnet werden",
            "geöffnet werden müssen",
        ),
    ],
)
def test_verbs_conjugate(lemma: str, tense: Tense, agreement: Agreement, main: str, final: str) -> None:
    forms = bracket(lexicon.verb(lemma), tense, agreement)
    assert " … ".join(part for part in (forms.finite, forms.closing) if part) == main
    assert forms.final == final


def call_my_mother() -> Clause:
    return Clause(I, govern(lexicon.verb("anrufen"), NounPhrase(noun("mother"), MY)))


def test_a_separable_verb_splits_in_a_main_clause_and_joins_in_a_subordinate_one() -> None:
    clause = call_my_mother()
    assert german_statement(clause) == "ich rufe meine Mutter an"
    assert german_inverted(clause) == "rufe ich meine Mutter an"
    assert german_final(clause) == "ich meine Mutter anrufe"
    assert german_zu(clause.predicate, Agreement.I) == "meine Mutter anzurufen"
    assert german_imperative(clause.predicate) == "rufen Sie meine Mutter an"


def test_time_comes_before_known_objects_and_places_before_new_ones() -> None:
    place = Adverbial("in the city", "in der Stadt")
    book = noun("book")
    verb = lexicon.verb("kaufen")
    for determiner, expected in (
        (THE, "ich kaufe heute das Buch in der Stadt"),
        (A, "ich kaufe heute in der Stadt ein Buch"),
    ):
        target = NounPhrase(book, determiner)
        fields = govern(verb, target)
        predicate = Predicate(verb, known=fields.known, new=fields.new, place=place)
        clause = Clause(I, predicate).at(Adverbial("today", "heute"))
        assert german_statement(clause) == expected


def test_nicht_follows_known_objects_and_precedes_the_prefix() -> None:
    clause = call_my_mother()
    negated = Clause(I, clause.predicate, Tense.PRESENT, negated=True)
    assert german_statement(negated) == "ich rufe meine Mutter nicht an"
    assert german_final(negated) == "ich meine Mutter nicht anrufe"


def test_reflexive_pronouns_follow_the_subject() -> None:
    rest = Predicate(lexicon.verb("ausruhen"))
    man = NounPhrase(noun("man"), THE)
    assert german_statement(Clause(I, rest)) == "ich ruhe mich aus"
    assert german_statement(Clause(man, rest, Tense.PAST)) == "der Mann hat sich ausgeruht"
    assert german_inverted(Clause(man, rest)) == "ruht sich der Mann aus"
    assert german_inverted(Clause(I, rest)) == "ruhe ich mich aus"


def test_zu_goes_between_prefix_and_verb() -> None:
    assert zu_infinitive(lexicon.verb("aufstehen")) == "aufzustehen"
    assert zu_infinitive(lexicon.verb("lesen")) == "zu lesen"


@pytest.mark.parametrize(
    ("number", "word"),
    [
        (1, "eins"),
        (16, "sechzehn"),
        (17, "siebzehn"),
        (21, "einundzwanzig"),
        (27, "siebenundzwanzig"),
        (30, "dreißig"),
        (76, "sechsundsiebzig"),
        (100, "hundert"),
        (101, "hunderteins"),
        (365, "dreihundertfünfundsechzig"),
    ],
)
def test_german_numbers_put_ones_before_tens(number: int, word: str) -> None:
    assert german_number(number) == word


def test_german_ordinals() -> None:
    stems = {
        1: "erst",
        3: "dritt",
        7: "siebt",
        8: "acht",
        19: "neunzehnt",
        20: "zwanzigst",
        21: "einundzwanzigst",
    }
    assert {number: german_ordinal_stem(number) for number in stems} == stems


@pytest.mark.parametrize(
    ("hour", "minute", "english", "german"),
    [
        (7, 30, "half past seven", "halb acht"),
        (12, 30, "half past twelve", "halb eins"),
        (1, 0, "one o'clock", "ein Uhr"),
        (7, 0, "seven o'clock", "sieben Uhr"),
        (3, 15, "a quarter past three", "Viertel nach drei"),
        (12, 45, "a quarter to one", "Viertel vor eins"),
        (5, 10, "ten past five", "zehn nach fünf"),
        (5, 40, "twenty to six", "zwanzig vor sechs"),
    ],
)
def test_clock_times(hour: int, minute: int, english: str, german: str) -> None:
    assert clock_time(hour, minute) == Adverbial(english, german)


def test_prices() -> None:
    assert price(3, 50) == Adverbial("three euros fifty", "drei Euro fünfzig")
    assert price(1, 0) == Adverbial("one euro", "einen Euro")
    assert price(27, 0).german == "siebenundzwanzig Euro"


def test_comparison_of_adjectives() -> None:
    forms = {entry.german: (entry.comparative, entry.superlative) for entry in lexicon.adjectives()}
    assert forms["alt"] == ("älter", "ältest")
    assert forms["groß"] == ("größer", "größt")
    assert forms["gut"] == ("besser", "best")
    assert forms["teuer"] == ("teurer", "teuerst")
    assert forms["interessant"] == ("interessanter", "interessantest")
    assert forms["dunkel"] == ("dunkler", "dunkelst")
    assert forms["hoch"] == ("höher", "höchst")
    assert forms["heiß"] == ("heißer", "heißest")
    assert forms["klug"] == ("klüger", "klügst")
