"""Terms of a list are phrases that recur, and are nearly always translated alike."""

from collections.abc import Iterator

import pytest

from heedful.bulk import term_list
from heedful.bulk.term_list import Term, recurring_terms, terms_met
from heedful.decoding.alignment import Alignment

# Texts, and the links of their words; full stops are words, too.
LINKED = [
    ("Open the hard disk.", "Öffnen Sie die Festplatte.", [(0, 0), (0, 1), (1, 2), (2, 3), (3, 3), (4, 4)]),
    ("The hard disk is full.", "Die Festplatte ist voll.", [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3), (5, 4)]),
    ("A hard disk fails.", "Eine Festplatte versagt.", [(0, 0), (1, 1), (2, 1), (3, 2), (4, 3)]),
    ("Two hard disk units.", "Zwei an einer Festplatte.", [(0, 0), (1, 3), (2, 3), (3, 3), (4, 4)]),
    ("My hard disk.", "Meine Festplatte.", [(0, 0), (1, 1), (2, 1), (3, 2)]),
    ("This hard work.", "Diese schwere Arbeit.", [(0, 0), (1, 1), (2, 2), (3, 3)]),
]


@pytest.fixture(autouse=True)
def aligned(monkeypatch: pytest.MonkeyPatch) -> None:
    def align(*_: object, **__: object) -> Iterator[Alignment]:
        return (Alignment.of(links) for _, _, links in LINKED)

    monkeypatch.setattr(term_list, "align_pairs", align)
    monkeypatch.setattr(term_list, "_COMMON", 1.0)


def terms() -> list[Term]:
    return recurring_terms(None, [pair[:2] for pair in LINKED], lambda done: None)  # type: ignore[arg-type]


def test_a_phrase_is_a_term_with_what_it_alone_is_linked_to() -> None:
    assert terms() == [Term("hard disk", ["Festplatte"], 5, 5)]


def test_a_term_that_some_targets_lack_is_not_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "LINKED", [*LINKED, ("Hard disk?", "Ist sie hart?", [])])
    assert terms() == []


def test_a_line_of_the_list_is_one_of_a_glossary() -> None:
    assert Term("hard disk", ["Platte", "A|B*"], 4, 4).line() == "hard disk\tPlatte|A\\|B\\*\n"


def test_terms_are_counted_where_the_reference_has_them() -> None:
    term = Term("hard disk", ["Festplatte"], 5, 5)
    sources = ["Hard disk.", "A hard disk.", "A hard disk.", "A disk."]
    references = ["Festplatte.", "Eine Festplatte.", "Eine Platte.", "Festplatte."]
    outputs = ["Festplatte.", "Eine harte Platte.", "Eine Festplatte.", "Festplatte."]
    assert terms_met([term], sources, references, outputs) == [2, 1]
