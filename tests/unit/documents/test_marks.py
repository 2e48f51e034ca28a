"""Marks of programs in texts: those that a format cuts, those of each program, and HTML in strings."""

import json
import time
from pathlib import Path

import pytest
from document_files import Noted, as_document, runs_of, translated_bytes, upper

from heedful.spans.marks import MARKS
from heedful.spans.placeholders import find


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx", "odt"])
@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ([("Dear {", ""), ("name", "superscript"), ("}, the house", "")], "{name}"),
        ([("Dear {{ na", ""), ("me }}, the", "superscript"), (" house", "")], "{{ name }}"),
        ([("Dear ", ""), ("${na", "superscript"), ("me}", ""), (", the house", "")], "${name}"),
    ],
)
def test_a_placeholder_that_a_format_cuts_has_the_format_of_its_first_letter(
    kind: str, cut: list[tuple[str, str]], whole: str, tmp_path: Path
) -> None:
    (tmp_path / f"a.{kind}").write_bytes(as_document(kind, cut))
    runs = runs_of(kind, translated_bytes(tmp_path / f"a.{kind}", Noted(upper)))
    text = "".join(text for text, _ in runs)
    assert text.replace(" ", "") == f"DEAR {whole}, THE HOUSE".replace(" ", "")
    letter = next(position for text, position in cut if "na" in text)
    assert [position for text, position in runs if whole in text] == [letter]


@pytest.mark.parametrize(
    ("name", "source", "expected"),
    [
        ("a.html", "<p>Dear {{ <b>name</b> }}, hi.</p>", "<p>DEAR <b>{{ name }}</b>, HI.</p>"),
        ("a.html", "<p>See <i>%(na</i>me)s, hi.</p>", "<p>SEE <i>%(name)s</i>, HI.</p>"),
        ("a.md", "Dear ${**name**}, hi.\n", "DEAR **${name}**, HI.\n"),
    ],
)
def test_tags_in_a_placeholder_move_to_its_ends(
    name: str, source: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(source)
    assert translated_bytes(tmp_path / name, Noted(upper)).decode() == expected


EXAMPLES = [example for mark in MARKS for example in mark.examples]


@pytest.mark.parametrize("example", [*EXAMPLES, "{!Contact.FirstName}", "{color=#f00}", "{=id}"])
def test_a_mark_of_a_program_is_kept_whole(example: str) -> None:
    text = f"Dear {example}, it is small. {example}"
    assert [text[start:end] for start, end in find(text)] == [example, example]


@pytest.mark.parametrize(
    "prose",
    [
        "See [see below] and [1].",
        "\u00a7 5, \u00a712",
        "[he said no]",
        "<see below>",
        "R&D, 3 # 4",
        "[text missing]",
    ],
)
def test_prose_has_no_marks(prose: str) -> None:
    assert find(prose) == []


def test_a_word_in_brackets_is_a_mark_if_another_ends_it() -> None:
    text = "The [b]house[/b] is [small]."
    assert [text[start:end] for start, end in find(text)] == ["[b]", "[/b]"]


@pytest.mark.parametrize(
    "repeated", [*EXAMPLES, *"<[{(#@*%$&|`", "[%", "[a ", "%%[", "<!--", "{{", "[a x=", "&#1www.x", "}{x"]
)
def test_the_time_to_find_marks_grows_with_the_length(repeated: str) -> None:
    def seconds(size: int) -> float:
        began = time.process_time()
        find(repeated[:-1] * (size // max(1, len(repeated) - 1)) if len(repeated) > 1 else repeated * size)
        return time.process_time() - began

    assert seconds(80_000) < 12 * seconds(20_000) + 0.2


def test_the_documentation_lists_each_mark() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "serving.md").read_text(encoding="utf-8")
    shown = [example.replace("|", "\\|") for example in EXAMPLES if "\x1b" not in example]
    assert [example for example in shown if example not in page] == []


@pytest.mark.parametrize(
    ("source", "texts", "expected"),
    [
        (
            "<ul><li>The dog</li><li>A cat</li></ul>",
            ["The dog", "A cat"],
            "<ul><li>THE DOG</li><li>A CAT</li></ul>",
        ),
        ("A woman&nbsp;reads &amp; R&amp;D", ["A woman reads R D"], "A WOMAN&nbsp;READS &amp; R&amp;D"),
        ("The dog<br>A cat", ["The dog", "A cat"], "THE DOG<br>A CAT"),
        ("<td>The dog</td><td>A cat</td>", ["The dog", "A cat"], "<td>THE DOG</td><td>A CAT</td>"),
        ("Use <code>ls -l</code> now.", ["Use now."], "USE <code>ls -l</code> NOW."),
        ("no dogs | one dog | {n} dogs", ["no dogs", "one dog", "{n} dogs"], "NO DOGS | ONE DOG | {n} DOGS"),
        ("an apple|two apples", ["an apple", "two apples"], "AN APPLE|TWO APPLES"),
        ("The [b]dog[/b] sleeps", ["The dog sleeps"], "THE [b]DOG[/b] SLEEPS"),
        ("See [this](../a.md) **now**.", ["See this now."], "SEE [THIS](../a.md) **NOW**."),
        ("# The house\n1. A dog\n> A cat", ["The house", "A dog", "A cat"], "# THE HOUSE\n1. A DOG\n> A CAT"),
    ],
)
def test_html_and_layout_in_strings(source: str, texts: list[str], expected: str, tmp_path: Path) -> None:
    noted = Noted(upper)
    (tmp_path / "a.json").write_text(json.dumps({"a": source}))
    assert json.loads(translated_bytes(tmp_path / "a.json", noted))["a"] == expected
    if "code" not in source and "{n}" not in source:
        assert noted.texts[-len(texts) :] == texts


@pytest.mark.parametrize("name", ["a.json", "app_en.arb"])
def test_members_that_describe_others_stay(name: str, tmp_path: Path) -> None:
    source = {"@@locale": "en", "a": "The dog", "@a": {"type": "text", "placeholders": {"n": {"@x": "int"}}}}
    (tmp_path / name).write_text(json.dumps(source))
    written = json.loads(translated_bytes(tmp_path / name, Noted(upper)))
    assert written == {**source, "a": "THE DOG", "@@locale": "de"}
