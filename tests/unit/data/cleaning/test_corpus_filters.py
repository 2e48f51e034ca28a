import random
from pathlib import Path

import numpy as np
import pytest
from surveyed import survey_of
from ten_pairs import ENGLISH, GERMAN

from heedful.data.cleaning import FILTERS, Pair, language_identifier
from heedful.data.cleaning import corpus_filters as corpus
from heedful.data.cleaning.pair import Identifier
from heedful.errors import ConfigError

TEN = list(zip(ENGLISH, GERMAN, strict=True))


def marked(mask: np.ndarray | None) -> list[int]:
    assert mask is not None
    return np.flatnonzero(mask).tolist()


def test_the_first_of_equal_pairs_is_not_a_duplicate() -> None:
    pairs = [("a b", "A B"), ("c", "C"), ("a b", "A B"), ("a b", "other"), ("a b", "A B"), ("A b!", "a b")]
    found = survey_of(pairs)
    assert marked(corpus.duplicate_pair(found)) == [2, 4]
    assert marked(corpus.near_duplicate(found)) == [5]
    assert marked(corpus.duplicate_source(found)) == [3]


def test_digits_alone_make_a_near_duplicate_but_numbers_without_words_do_not() -> None:
    found = survey_of(
        [("Section 12", "Abschnitt 12"), ("Section 13", "Abschnitt 13"), ("12", "12"), ("13", "13")]
    )
    assert marked(corpus.near_duplicate(found)) == [1]


def test_what_is_held_out_is_found_exactly_nearly_and_by_its_source() -> None:
    valid = [("A man sleeps.", "Ein Mann schläft."), ("Two dogs run.", "Zwei Hunde rennen.")]
    train = [
        ("A man sleeps.", "Ein Mann schläft."),
        ("a man sleeps", "Ein Mann schläft!"),
        ("Two dogs run.", "Es rennen zwei Hunde."),
        ("A cat sleeps.", "Eine Katze schläft."),
    ]
    masks = (corpus.in_held_out, corpus.nearly_in_held_out, corpus.source_in_held_out)
    for name, other in (("valid", "test"), ("test", "valid")):
        found = survey_of(train, **{name: valid})
        assert [marked(mask(found, found.held_out[name])) for mask in masks] == [[0], [1], [2]]
        unused = [each for each in FILTERS if each.name.endswith(f"in-{other}")]
        assert [each.build(found) for each in unused] == [None] * 3


def test_a_length_unlike_all_others_is_an_outlier() -> None:
    draw = random.Random(1)
    lengths = [draw.randint(20, 100) for _ in range(1999)]
    pairs = [("x" * n, "y" * round(1.2 * n + draw.gauss(0, 0.5 * n**0.5))) for n in lengths]
    pairs.insert(1000, ("x" * 50, "y" * 140))
    assert marked(corpus.outlier(survey_of(pairs))) == [1000]


def test_outliers_of_a_small_corpus_are_not_judged() -> None:
    assert corpus.outlier(survey_of(TEN)) is None


def test_letters_of_another_script_are_found() -> None:
    faulty = [("Пароход уходит.", GERMAN[0]), (ENGLISH[0], "Το πλοίο φεύγει.")]
    sound = [("The letter π is Greek.", GERMAN[0]), ("12 + 13", "12 + 13"), *TEN]
    check = corpus.other_script(survey_of([*faulty, *sound * 5]))
    assert check is not None
    assert [check(Pair(*pair)) for pair in faulty] == [True] * len(faulty)
    assert [check(Pair(*pair)) for pair in sound] == [False] * len(sound)


def test_names_that_both_sides_have_are_of_no_wrong_script() -> None:
    serbian = [(f"{src} {number}", f"Датотека није пронађена {number}") for number, src in enumerate(ENGLISH)]
    sound = [
        ("About LibreOffice Writer", "О пакету LibreOffice Writer"),
        ("It is based on OpenOffice.org.", "Заснован на OpenOffice.org"),
        ("%PRODUCTNAME Z", "У %PRODUCTNAME Z"),
    ]
    faulty = [("Save changes?", "Save changes?"), ("The LibreOffice suite", "Naslov LibreOffice")]
    check = corpus.other_script(survey_of([*serbian * 9, *sound, *faulty]))
    assert check is not None
    assert [check(Pair(*pair)) for pair in (*sound, *faulty)] == [False] * 3 + [True] * 2


def test_a_side_may_have_several_scripts() -> None:
    japanese = [(src, "彼はコーヒーよりお茶が好きです") for src in ENGLISH]
    pairs = [(ENGLISH[0], "コーヒー"), (ENGLISH[0], "東京"), (ENGLISH[0], "кофе")]
    check = corpus.other_script(survey_of([*pairs, *japanese]))
    assert check is not None
    assert [check(Pair(*pair)) for pair in pairs] == [False, False, True]


@pytest.fixture(scope="module")
def identifier() -> Identifier | None:
    pytest.importorskip("py3langid")
    return language_identifier()


@pytest.mark.slow
def test_given_languages_need_no_identifier() -> None:
    assert survey_of(TEN, languages=("en", "de")).languages == ("en", "de")


def test_languages_are_those_of_most_lines(identifier: Identifier) -> None:
    assert survey_of(TEN, identifier=identifier).languages == ("en", "de")
    assert survey_of([("ab", "K AE T")] * 20, identifier=identifier).languages == (None, None)
    assert survey_of(TEN).languages == (None, None)


SHORT = [("He runs.", "Er läuft."), ("I see a cat.", "Da ist eine Katze."), ("Come in.", "Komm herein.")]


def test_a_text_of_short_lines_has_the_language_of_its_passages(identifier: Identifier) -> None:
    assert all(len(text) < 20 for pair in SHORT for text in pair)
    assert survey_of(SHORT * 50, identifier=identifier).languages == ("en", "de")
    draw = random.Random(0)
    phones = ["AE", "T", "K", "SH", "UW", "P", "EH", "N", "TH", "IH", "NG", "B", "AA", "R", "D", "ER"]
    sounds = [(" ".join(draw.choices(phones, k=3)), " ".join(draw.choices(phones, k=5))) for _ in range(900)]
    assert survey_of(sounds, identifier=identifier).languages == (None, None)


def test_a_text_has_the_languages_of_its_files_names_unless_it_is_in_others(identifier: Identifier) -> None:
    def found(pairs: list[tuple[str, str]], *names: str) -> tuple[str | None, str | None]:
        return survey_of(pairs, identifier=identifier, files=list(map(Path, names))).languages

    assert found(SHORT, "a/my.en", "my.v2.de.gz") == ("en", "de")
    assert found(SHORT, "my.src", "my.tgt") == found(SHORT, "en", "de") == found(SHORT) == (None, None)
    assert found(TEN, "my.fr", "my.lb") == ("en", "lb")  # that is no French, but might be Luxembourgish


def test_a_side_in_another_language_is_found(identifier: Identifier) -> None:
    check = corpus.other_language(survey_of(TEN, identifier=identifier))
    assert check is not None
    for src, tgt in TEN:
        assert not check(Pair(src, tgt))
    assert check(Pair(ENGLISH[0], ENGLISH[0]))
    assert check(Pair("Le traversier part à six heures et quart du matin.", GERMAN[0]))
    assert not check(Pair("Le bus.", GERMAN[0]))  # too short to say


def test_swapped_sides_are_found_and_are_no_other_language(identifier: Identifier) -> None:
    found = survey_of(TEN, identifier=identifier)
    swapped, other = corpus.swapped_languages(found), corpus.other_language(found)
    assert swapped is not None
    assert other is not None
    for src, tgt in TEN:
        assert not swapped(Pair(src, tgt))
        assert swapped(Pair(tgt, src))
        assert not other(Pair(tgt, src))


def test_given_languages_are_taken_and_unknown_ones_refused(identifier: Identifier) -> None:
    found = survey_of(TEN, identifier=identifier, languages=("fr", None))
    assert found.languages == ("fr", "de")
    with pytest.raises(ConfigError, match="unknown language 'xx'"):
        survey_of(TEN, identifier=identifier, languages=("xx", None))


def test_without_an_identifier_languages_are_not_judged() -> None:
    found = survey_of(TEN)
    assert corpus.other_language(found) is None
    assert corpus.swapped_languages(found) is None
