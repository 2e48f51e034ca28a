"""What every filter has: a name of its own, a sentence, a source, and a line in docs/corpus.md."""

import importlib.util
import re
from pathlib import Path

import pytest
from surveyed import survey_of
from ten_pairs import ENGLISH, GERMAN

from heedful.data.cleaning import FILTERS, Pair, PairChecker, corpus_filters, filters

PAGE = Path(__file__).resolve().parents[4] / "docs" / "corpus.md"
TEN = list(zip(ENGLISH, GERMAN, strict=True))


def filters_of(module: object) -> list[object]:
    functions = [
        value for name, value in vars(module).items() if callable(value) and not name.startswith("_")
    ]
    return [
        each for each in functions if getattr(each, "__module__", None) == getattr(module, "__name__", "")
    ]


def test_names_are_unique_and_every_filter_says_what_it_finds() -> None:
    assert len({each.name for each in FILTERS}) == len(FILTERS)
    for each in FILTERS:
        assert re.fullmatch(r"[a-z]+(-[a-z]+)*", each.name)
        assert re.fullmatch(r"(A|At|Brackets|Letters|Marks|Over|Source|The|Under) .+[.:]?.*", each.finds), (
            each.finds
        )


def test_every_filter_names_its_source_and_is_registered() -> None:
    functions = [function for module in (filters, corpus_filters) for function in filters_of(module)]
    assert len(functions) == len(FILTERS) - 3  # three are of the validation set and of the test set
    for function in functions:
        assert "Source: " in (function.__doc__ or ""), function


def test_the_page_lists_every_filter_and_whether_fix_removes_what_it_finds() -> None:
    lines = re.findall(r"^\| `([a-z-]+)` \|.*\| (yes|no) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert lines == [(each.name, "yes" if each.removes else "no") for each in FILTERS]


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
