"""Terms put in place of words of a translation without them."""

import pytest

from heedful.decoding.alignment import Alignment
from heedful.decoding.glossary import Glossary, word_spans
from heedful.decoding.placement import put_in_place
from heedful.decoding.translation import Translation


def free(source: str, text: str, links: str) -> Translation:
    pairs = (link.split("-") for link in links.split())
    alignment = Alignment(tuple((int(src), int(tgt)) for src, tgt in pairs))
    assert all(tgt < len(word_spans(text)) for _, tgt in alignment.links)
    return Translation.given(source, text, alignment=alignment)


@pytest.mark.parametrize(
    ("source", "text", "links", "terms", "expected"),
    [
        ("The house is small.", "A casa é pequena.", "0-0 1-1 2-2 3-3", {"house": "residência"},
         ("A residência é pequena.", ["casa"])),
        ("House rules.", "Hausregeln gelten.", "0-0 1-1", {"house": "gebäude"},
         ("Gebäude gelten.", ["Hausregeln"])),  # a capital at the beginning
        ("A house, a house.", "Ein Haus, ein Haus.", "1-1 4-4", {"house": "Heim"},
         ("Ein Heim, ein Heim.", ["Haus"])),  # everywhere
        ("the old woman sleeps", "die alte Frau schläft", "1-1 2-2", {"old woman": "Greisin"},
         ("die Greisin schläft", ["alte Frau"])),
        ("the dog and the cat", "der Hund und die Katze", "1-1 4-4", {"dog": "Köter", "cat": "Mieze"},
         ("der Köter und die Mieze", ["Hund", "Katze"])),
        ("the dog and the cat", "der Hund und die Mieze", "1-1", {"dog": "Köter", "cat": ["Kater", "Mieze"]},
         ("der Köter und die Mieze", ["Hund", ""])),  # one is there already
        ("the house", "das Haus", "", {"house": "Heim"}, None),  # no link
        ("the house roof", "das Hausdach", "1-1 2-1", {"house": "Heim"}, None),  # of another word, too
        ("turn it off", "schalte es aus", "0-0 0-2", {"turn": "drehe"}, None),  # not side by side
        ("the house.", "das Haus.", "1-2", {"house": "Heim"}, None),  # the full stop is no word
    ],
)  # fmt: skip
def test_a_term_takes_the_place_of_the_words_aligned_with_its_source(
    source: str,
    text: str,
    links: str,
    terms: dict[str, str | list[str]],
    expected: tuple[str, list[str]] | None,
) -> None:
    placed = put_in_place(free(source, text, links), Glossary.of(terms))
    if expected is None:
        assert placed is None
        return
    assert placed is not None
    assert (placed.text, [term.replaces for term in placed.terms]) == expected
    for term in placed.terms:
        assert term.target is not None
        assert all(placed.text[start:end].lower() == term.target.lower() for start, end in term.spans)
