"""The filters together: their names, and what they say of good, empty and damaged pairs."""

import importlib.util

import pytest
from surveyed import survey_of
from ten_pairs import ENGLISH, GERMAN

from heedful.data.cleaning import FILTERS, Pair, PairChecker, filters

TEN = list(zip(ENGLISH, GERMAN, strict=True))


def test_names_are_unique() -> None:
    assert len({each.name for each in FILTERS}) == len(FILTERS)


def test_good_pairs_have_no_fault() -> None:
    checker = PairChecker(survey_of(TEN))
    for index, (src, tgt) in enumerate(TEN):
        assert checker.faults(Pair(src, tgt, index=index)) == []


def test_an_empty_side_is_the_only_fault_of_a_pair() -> None:
    pairs = [("", "12 12 12"), ("", "12 12 12")]
    checker = PairChecker(survey_of(pairs))
    assert [checker.faults(Pair(*pair, index=index)) for index, pair in enumerate(pairs)] == [
        ["empty"],
        ["empty"],
    ]


def test_a_filter_without_its_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heedful.data.cleaning.registry.find_spec", lambda name: None)
    assert PairChecker(survey_of(TEN)).missing == {
        "language": "py3langid", "swapped": "py3langid", "mojibake": "ftfy"
    }  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("ftfy") is None, reason="needs ftfy")
def test_text_that_was_decoded_by_the_wrong_table_is_found() -> None:
    check = filters.mojibake(survey_of(TEN))
    assert check is not None
    for text in ("Die FÃ¤hre legt ab.", "Itâ€™s here", "РџСЂРёРІРµС‚"):
        assert check(Pair(text, "Good."))
        assert check(Pair("Good.", text))
    for text in (
        "Die Fähre legt ab.",
        "It’s here",
        "Привет",
        "São Paulo, Ångström",
        "LIBERTÉ »",
        "naïve café",
    ):
        assert not check(Pair(text, "Good."))
