"""Formats of a part of a word: 48 m², CO₂, 1st, footnote marks, soft hyphens, in each format."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from document_files import Noted, Output, as_document, identity, runs_of, translated_bytes, upper

from heedful.spans.sentences import split
from heedful.spans.spanned_text import SpannedText

RUNS = [("The house has CO", ""), ("2", "subscript"), (" and 48 m", ""), ("2", "superscript"), (" here.", "")]


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx", "odt"])
def test_parts_of_words_keep_their_formats(kind: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{kind}").write_bytes(as_document(kind, RUNS))
    noted = Noted(upper)
    written = runs_of(kind, translated_bytes(tmp_path / f"a.{kind}", noted))
    assert noted.texts == ["The house has CO2 and 48 m here."]
    assert written == [(text.upper(), position) for text, position in RUNS]


MARKED = [
    ("The house has CO<sub>2</sub> and 48 m<sup>2</sup> here.", "The house has CO2 and 48 m here."),
    ("The woman reads a book<sup>1</sup>.", "The woman reads a book."),
    ("The woman reads a book.<sup>12</sup> The dog sleeps.", "The woman reads a book."),
    ('A book<sup><a href="#n">[1]</a></sup> is here.', "A book is here."),
    ("On the 21<sup>st</sup> of May.", "On the 21st of May."),
    ("We drink H<sub>2</sub>O now.", "We drink H2O now."),
    ("<b>T</b>he woman reads.", "The woman reads."),
    ("An un<i>happy</i>ness is here.", "An unhappyness is here."),
    ("The house<sup>\u00ae</sup> is small.", "The house is small."),
    ("A price of 1<b>0</b> is here.", "A price of 10 is here."),
]


@pytest.mark.parametrize(("marked", "text"), MARKED)
@pytest.mark.parametrize("name", ["a.html", "a.md"])
def test_parts_of_words_keep_their_tags(marked: str, text: str, name: str, tmp_path: Path) -> None:
    source = f"<p>{marked}</p>\n" if name == "a.html" else f"{marked}\n"
    (tmp_path / name).write_text(source)
    noted = Noted(upper)
    written = translated_bytes(tmp_path / name, noted).decode()
    assert written.casefold() == source.casefold()
    assert noted.texts[0] == text
    assert translated_bytes(tmp_path / name, identity).decode() == source


def by_order(target: str, links: Sequence[tuple[int, int]]) -> Callable[..., list[Output]]:
    return lambda texts, _: [Output(target, links) for _ in texts]


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("a book<sup>1</sup> here", "hier ein Buch", [(0, 1), (1, 2), (2, 0)], "hier ein Buch<sup>1</sup>"),
        ("48 m<sup>2</sup> here", "hier 48 m", [(0, 1), (1, 2), (2, 0)], "hier 48 m<sup>2</sup>"),
        ("CO<sub>2</sub> here", "hier CO2", [(0, 1), (1, 0)], "hier CO<sub>2</sub>"),
        ("CO<sub>2</sub> here", "hier CO2", [], "hier CO<sub>2</sub>"),
        ("the 1<sup>st</sup>", "le 1er", [(0, 0), (1, 1)], "le 1<sup>er</sup>"),
        ("<b>T</b>he woman", "Die Frau", [(0, 0), (1, 1)], "<b>D</b>ie Frau"),
        ("un<b>happy</b> now", "jetzt unfroh", [(0, 1), (1, 0)], "jetzt un<b>froh</b>"),
    ],
)
def test_a_part_of_a_word_goes_where_the_word_goes(
    source: str, target: str, links: Sequence[tuple[int, int]], expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text(source)
    assert translated_bytes(tmp_path / "a.html", by_order(target, links)).decode() == expected


@pytest.mark.parametrize("char", ["\u00ad", "\u200b", "\u200e", "\u202b", "\u2060", "\u2068", "\ufeff"])
@pytest.mark.parametrize("name", ["a.txt", "a.html", "a.srt", "a.md", "a.docx", "a.json"])
def test_no_model_reads_invisible_characters_in_words(char: str, name: str, tmp_path: Path) -> None:
    line = f"The grand{char}father {{a{char}b}} reads."
    if name == "a.docx":
        (tmp_path / name).write_bytes(as_document("docx", [(line, "")]))
    else:
        before = "1\n00:00:01,000 --> 00:00:02,000\n" if name == "a.srt" else ""
        text = f'["{line}"]' if name == "a.json" else before + line
        (tmp_path / name).write_text(text, encoding="utf-8")
    noted = Noted(upper)
    written = translated_bytes(tmp_path / name, noted)
    assert noted.texts[0].startswith("The grandfather ")
    if name != "a.docx":
        assert b"THE GRANDFATHER" in written


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", "user \u2068{name}\u2069 said\n\u202bשלום.\u202c\n"),
        ("a.json", '["\u2068{name}\u2069 said it. He went.\u200e"]'),
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n\u202bשלום, דני.\u202c\n\u202bשלום.\u202c\n"),
        ("a.html", "<p>\u200f<b>שלום</b> (abc)\u200f</p>"),
        ("a.html", "<p>he <b>\u2068{name}\u2069</b> said</p>"),
        ("a.md", "user \u2068%s\u2069 said\n"),
    ],
)
def test_marks_of_the_direction_of_lines_and_placeholders_come_back(
    name: str, text: str, tmp_path: Path
) -> None:
    noted = Noted(identity)
    (tmp_path / name).write_bytes(text.encode())
    assert translated_bytes(tmp_path / name, noted).decode() == text
    assert not re.search(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069]", "".join(noted.texts))


def test_a_translation_in_the_other_direction_has_no_marks_of_the_source(tmp_path: Path) -> None:
    times = "1\n00:00:01,000 --> 00:00:02,000\n"
    (tmp_path / "a.srt").write_bytes(f"{times}\u202bשלום דני,\u202c\n\u202bשלום.\u202c\n".encode())
    written = translated_bytes(tmp_path / "a.srt", by_order("Hello, Dan", [])).decode()
    assert written.split() == f"{times}Hello, Dan".split()


@pytest.mark.parametrize("blanks", ["&nbsp;&nbsp;&nbsp;", "\u3000\u3000", "&emsp;&emsp;"])
@pytest.mark.parametrize("tag", ["<img src=a>", "<input>", "<wbr>"])
def test_a_tag_between_ideographs_changes_no_blanks(blanks: str, tag: str, tmp_path: Path) -> None:
    text = f"<p>東京都{blanks}渋谷区{tag}道玄坂</p>"
    (tmp_path / "a.html").write_bytes(text.encode())
    assert translated_bytes(tmp_path / "a.html", identity).decode() == text


def test_khmer_keeps_the_marks_between_its_words() -> None:
    text = "\u1781\u17d2\u1789\u17bb\u17c6\u200b\u179f\u17d2\u179a\u17a1\u17b6\u1789\u17cb"
    assert [each.text for each in split(SpannedText(text)).sentences] == [text]


@pytest.mark.parametrize(
    ("source", "target", "links", "expected"),
    [
        ("reads <x-y></x-y> a book", "liest ein Buch", None, "liest <x-y></x-y> ein Buch"),
        ("reads <!-- a --> a book", "liest ein Buch", None, "liest <!-- a --> ein Buch"),
        ("reads<x-y></x-y> a book", "liest ein Buch", None, "liest<x-y></x-y> ein Buch"),
        ("reads <x-y></x-y>a book", "liest ein Buch", None, "liest <x-y></x-y>ein Buch"),
        ("a book <b>{name}</b>.", "ein Buch.", None, "ein Buch <b>{name}</b>."),
        ("a book <b>{name}</b> here", "ein Buch hier", None, "ein Buch <b>{name}</b> hier"),
        ("reads <b>the </b>book", "liest das Buch", "012", "liest <b>das </b>Buch"),
        ("reads<b> the</b> book", "liest das Buch", "012", "liest<b> das</b> Buch"),
    ],
)
def test_blanks_beside_tags_are_those_of_the_source(
    source: str, target: str, links: str | None, expected: str, tmp_path: Path
) -> None:
    pairs = [(at, int(each)) for at, each in enumerate(links or "")] or [(0, 0), (1, 1), (2, 2)]
    (tmp_path / "a.html").write_text(source)
    assert translated_bytes(tmp_path / "a.html", by_order(target, pairs)).decode() == expected
