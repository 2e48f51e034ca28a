"""What a user keeps: patterns, and the forms of programs by their names."""

import json
import time
from contextvars import copy_context
from pathlib import Path

import pytest
from document_files import Noted, as_document, backwards, runs_of, translated_bytes, upper

from heedful.errors import InputError
from heedful.spans.keep import KeepRules, keep_rule, keeping, literal_rules
from heedful.spans.marks import PRESETS
from heedful.spans.placeholders import find
from heedful.tasks.keep_rules import keep_rules
from heedful.tasks.marks import list_marks


def found(text: str) -> list[str]:
    return [text[start:end] for start, end in find(text)]


@pytest.mark.parametrize(
    ("preset", "example"), [(name, example) for name, mark in PRESETS.items() for example in mark.examples]
)
def test_a_preset_keeps_its_forms_whole(preset: str, example: str) -> None:
    text = f"Dear {example} it is small."
    with keeping([keep_rule(preset)]):
        assert found(text) == [example]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_adds_to_what_is_recognised(preset: str) -> None:
    assert any(found(f"Dear {example} it is small.") != [example] for example in PRESETS[preset].examples)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    "repeated", ["[", "<a ", "{%", "\\", "&", "$", "'{", "*|", "a_", "/a", "{% raw %}", "@if ("]
)
def test_the_time_for_a_preset_grows_with_the_length(preset: str, repeated: str) -> None:
    began = time.process_time()
    assert list(keep_rule(preset).find(repeated * 20_000)) is not None
    assert time.process_time() - began < 1.5


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("[a", r"keep '\[a': unterminated character set"),
        ("(", r"keep '\(': missing \)"),
        ("a*", r"keep 'a\*': matches the empty text"),
        ("", "keep '': matches the empty text"),
        ("(?!)|$", "matches the empty text"),
    ],
)
def test_a_bad_pattern_is_refused_by_its_name(rule: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        keep_rule(rule)


def test_a_pattern_that_takes_too_long_is_refused() -> None:
    with (
        keeping([keep_rule("(a|aa)+$")]),
        pytest.raises(InputError, match="takes more than 2 seconds"),
    ):
        find("a" * 60 + "b")


def test_empty_matches_keep_nothing() -> None:
    with keeping([keep_rule("(?=dog)|cat")]):
        assert found("A dog, a cat.") == ["cat"]


def test_what_overlaps_is_kept_as_one() -> None:
    with keeping([keep_rule("name}, Ann"), keep_rule("Ann Lee")]):
        assert found("Dear {name}, Ann Lee {x}.") == ["{name}, Ann Lee", "{x}"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Acme and Acmeology, C++11, C++.", ["Acme", "C++", "C++"]),
        ("東京都はAcmeの", ["東京", "Acme"]),
        ("Яндекс и Яндексе", ["Яндекс"]),
        ("Acme Corp's", ["Acme Corp"]),
        ("a.b axb", ["a.b"]),
    ],
)
def test_literal_strings_are_kept_where_they_are_words(text: str, expected: list[str]) -> None:
    with keeping(literal_rules(["Acme", "Acme Corp", "C++", "東京", "Яндекс", "a.b", ""])):
        assert found(text) == expected


def test_rules_hold_in_their_context_alone() -> None:
    with keeping([keep_rule("dog")]):
        inside = copy_context()
    assert found("a dog") == []
    assert inside.run(found, "a dog") == ["dog"]


def test_the_documentation_lists_each_preset() -> None:
    page = Path(__file__).parents[3].joinpath("docs", "documents.md").read_text(encoding="utf-8")
    for name, mark in PRESETS.items():
        shown = ", ".join(f"`{example}`" for example in mark.examples).replace("|", "\\|")
        assert f"| `{name}` | {mark.programs} | {shown} |" in page


SENTENCE = "The old Acme Box 7 sees SKU-77."
FORMATS = [
    ("a.txt", "{}\n"),
    ("a.html", "<p>{}</p>"),
    ("a.md", "# {}\n\n- {}\n"),
    ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\n{}\n"),
    ("a.csv", "text\n{}\n"),
    ("a.json", '{{"a": "{}"}}'),
    ("a.po", 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\nmsgid "{}"\nmsgstr ""\n'),
]


@pytest.mark.parametrize(("name", "form"), FORMATS)
def test_kept_parts_stay_in_files_of_text(name: str, form: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(form.format(SENTENCE, SENTENCE), encoding="utf-8")
    with keeping([keep_rule("Acme Box [0-9]+"), keep_rule("SKU-[0-9]+")]):
        written = translated_bytes(tmp_path / name, upper).decode()
    assert written.count("THE OLD Acme Box 7 SEES SKU-77.") == form.count("{}")


@pytest.mark.parametrize("kind", ["docx", "pptx", "xlsx", "odt"])
def test_a_kept_part_that_a_format_cuts_has_the_format_of_its_first_letter(kind: str, tmp_path: Path) -> None:
    runs = [("The old ", ""), ("Acme", "superscript"), (" Box 7 sees it", "")]
    (tmp_path / f"a.{kind}").write_bytes(as_document(kind, runs))
    with keeping([keep_rule("Acme Box [0-9]+")]):
        written = runs_of(kind, translated_bytes(tmp_path / f"a.{kind}", upper))
    assert [position for text, position in written if "Acme Box 7" in text] == ["superscript"]
    text = "".join(text for text, _ in written)  # of .odt, without blanks between spans
    assert text.replace(" ", "") == "THEOLDAcmeBox7SEESIT"


def test_a_model_that_loses_a_kept_part_reads_the_sentence_without_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("We see Acme today.\n")
    noted = Noted(lambda texts, aligned: upper([text.replace("Acme", "") for text in texts], aligned))
    with keeping([keep_rule("Acme")]):
        assert translated_bytes(tmp_path / "a.txt", noted) == b"WE SEE Acme TODAY.\n"
    assert noted.texts == ["We see Acme today.", "We see today."]


def test_words_may_change_their_order_around_a_kept_part(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text("<p>one <b>two</b> Acme three</p>")
    with keeping([keep_rule("Acme")]):
        assert translated_bytes(tmp_path / "a.html", backwards) == b"<p>three Acme <b>two</b> one</p>"


def test_a_file_of_rules_has_lists_by_ending(tmp_path: Path) -> None:
    (tmp_path / "k.toml").write_text("all = ['unity']\nmd = ['SKU-[0-9]+']\n")
    rules = keep_rules("Acme", tmp_path / "k.toml")
    assert [rule.name for rule in rules.of("x/A.MD")] == ["Acme", "unity", "SKU-[0-9]+"]
    assert [rule.name for rule in rules.of("a.json")] == ["Acme", "unity"]
    assert keep_rules(None) == KeepRules()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("pdf = ['x']", "pdf is no ending of a document"),
        ("md = 'x'", "md must be a list, as in"),
        ("md = ['(']", r"md: keep '\('"),
        ("md = [", "cannot be read as TOML"),
    ],
)
def test_a_bad_file_of_rules_is_refused(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "k.toml").write_text(content)
    with pytest.raises(InputError, match=f"k.toml: {message}"):
        keep_rules(None, tmp_path / "k.toml")


def test_marks_are_listed_by_kind_with_the_first_place(tmp_path: Path) -> None:
    lines = ["Dear {name} and {x}, see [[page]].", r"SKU-7 \n is %s", "__init__ of max_len", "See [1, 2]."]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    kinds = list_marks(tmp_path / "a.txt", keep="SKU-[0-9]+")
    assert [(mark.kept, mark.kind.split(":")[0], mark.count, mark.first, mark.example) for mark in kinds] == [
        (True, "braces", 2, "line 1", "{name}"),
        (True, "keep SKU-[0-9]+", 1, "line 2", "SKU-7"),
        (True, "%", 1, "line 2", "%s"),
        (False, "in brackets", 1, "line 1", "[[page]]"),
        (False, "behind a backslash", 1, "line 2", r"\n"),
        (False, "between equal signs", 1, "line 3", "__init__"),
        (False, "joined names", 1, "line 3", "max_len"),
    ]


def test_marks_of_a_directory_are_listed_with_their_files(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps({"a": "The dog", "b": "Dear {name}"}))
    (tmp_path / "b.md").write_text("See max_len.\n")
    assert [(mark.example, mark.first) for mark in list_marks(tmp_path)] == [
        ("{name}", "a.json, text 2"),
        ("max_len", "b.md, text 1"),
    ]
