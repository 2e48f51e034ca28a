"""English forms against hand-written ones."""

import pytest

from phrasebook.clauses import Clause, Predicate, english_inverted, english_statement
from phrasebook.english import (
    compare,
    indefinite_article,
    ing_form,
    participle_form,
    past_form,
    plural_form,
    third_person,
)
from phrasebook.lexicon import verb
from phrasebook.numbers import english_number, english_ordinal
from phrasebook.phrases import HE, I
from phrasebook.words import Tense


def test_plurals() -> None:
    forms = {"baby": "babies", "boy": "boys", "bus": "buses", "church": "churches", "knife": "knives"}
    forms |= {"potato": "potatoes", "radio": "radios", "box": "boxes", "police officer": "police officers"}
    assert {word: plural_form(word) for word in forms} == forms


@pytest.mark.parametrize(
    ("base", "third", "past", "participle", "ing"),
    [
        ("buy", "buys", "bought", "bought", "buying"),
        ("carry", "carries", "carried", "carried", "carrying"),
        ("go", "goes", "went", "gone", "going"),
        ("wash", "washes", "washed", "washed", "washing"),
        ("dance", "dances", "danced", "danced", "dancing"),
        ("plan", "plans", "planned", "planned", "planning"),
        ("write", "writes", "wrote", "written", "writing"),
        ("turn on", "turns on", "turned on", "turned on", "turning on"),
        ("put on", "puts on", "put on", "put on", "putting on"),
        ("get to know", "gets to know", "got to know", "gotten to know", "getting to know"),
        ("be", "is", "was", "been", "being"),
        ("visit", "visits", "visited", "visited", "visiting"),
    ],
)
def test_verb_forms(base: str, third: str, past: str, participle: str, ing: str) -> None:
    assert (third_person(base), past_form(base), participle_form(base), ing_form(base)) == (
        third,
        past,
        participle,
        ing,
    )


def test_the_indefinite_article_follows_the_sound() -> None:
    words = {
        "apple": "an",
        "old car": "an",
        "university": "a",
        "umbrella": "an",
        "hour": "an",
        "e-mail": "an",
    }
    assert {word: indefinite_article(word) for word in words} == words


def test_comparison() -> None:
    assert compare("big") == ("bigger", "biggest")
    assert compare("nice") == ("nicer", "nicest")
    assert compare("heavy") == ("heavier", "heaviest")
    assert compare("expensive") == ("more expensive", "most expensive")
    assert compare("quiet") == ("quieter", "quietest")
    assert compare("good") == ("better", "best")
    assert compare("modern") == ("more modern", "most modern")


def test_negation_and_questions_use_do_only_without_another_auxiliary() -> None:
    sing = Predicate(verb("singen"), "a song")
    assert english_statement(Clause(HE, sing, negated=True)) == "he does not sing a song"
    assert english_statement(Clause(HE, sing, Tense.CAN, negated=True)) == "he cannot sing a song"
    assert english_statement(Clause(HE, sing, Tense.WANT)) == "he wants to sing a song"
    assert english_inverted(Clause(HE, sing)) == "does he sing a song"
    assert english_inverted(Clause(HE, sing, Tense.HAD_TO)) == "did he have to sing a song"
    assert english_inverted(Clause(I, sing, Tense.PROGRESSIVE)) == "am I singing a song"
    assert english_inverted(Clause(I, sing, Tense.WOULD_LIKE)) == "would I like to sing a song"
    tired = Predicate(verb("sein"), "tired")
    assert english_inverted(Clause(I, tired)) == "am I tired"
    assert english_statement(Clause(HE, tired, Tense.PAST, negated=True)) == "he was not tired"


def test_numbers() -> None:
    assert english_number(27) == "twenty-seven"
    assert english_number(365) == "three hundred and sixty-five"
    ordinals = {1: "first", 12: "twelfth", 20: "twentieth", 21: "twenty-first", 30: "thirtieth"}
    assert {number: english_ordinal(number) for number in ordinals} == ordinals
