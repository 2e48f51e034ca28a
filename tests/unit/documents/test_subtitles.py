"""Subtitles: the dashes of speakers stay, and the time grows with the length of a cue."""

import html
from pathlib import Path

import pytest
from document_files import identity, translated_bytes, upper

from heedful.documents.document_file import read_document
from heedful.documents.formats import Reading
from heedful.documents.text_files import read_subtitles
from heedful.errors import InputError
from heedful.spans.spanned_text import SpannedText

TIMES = "1\n00:00:01,000 --> 00:00:02,000\n"
SRT, VTT = Reading(ending=".srt"), Reading(ending=".vtt")


@pytest.mark.parametrize(
    ("cue", "texts"),
    [
        ("- The door.\n- The house.", ["The door.\nThe house."]),
        ("-The door.\r\n\u2013  The house.", ["The door.\r\nThe house."]),
        ("- <i>A woman</i> laughs.\n- No.", ["A woman laughs.\nNo."]),
        ("<i>-- The door.</i>\n{\\an8} \u2014 <i>The</i> house.", ["The door.\n The house."]),
        ("- The old-fashioned\nhouse - the door.", ["The old-fashioned house - the door."]),
    ],
)
@pytest.mark.parametrize("name", ["a.srt", "a.vtt"])
def test_dashes_of_speakers_stay_and_no_model_sees_them(
    cue: str, texts: list[str], name: str, tmp_path: Path
) -> None:
    text = f"{TIMES}{cue}\n"
    units = read_subtitles(text, SRT).units
    seen = [unit.source.text for unit in units]
    assert seen == texts
    (tmp_path / name).write_bytes(text.encode())
    assert translated_bytes(tmp_path / name, identity).decode() == text
    assert translated_bytes(tmp_path / name, upper).decode().casefold() == text.casefold()


CUES = """\
1
00:00:01,000 --> 00:00:02,000
The house is small.
2
00:00:03,000 --> 00:00:04,000
The old woman
reads 3 books.
3
00:00:05,000 --> 00:00:06,000
4
00:00:07,000 --> 00:00:08,000
12 dogs sleep in
13
"""


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(("name", "point"), [("a.srt", ","), ("a.vtt", ".")])
def test_a_cue_begins_at_its_times_without_an_empty_line(
    name: str, point: str, end: str, tmp_path: Path
) -> None:
    text = CUES.replace(",000", f"{point}000").replace("\n", end)
    (tmp_path / name).write_bytes(text.encode())
    assert translated_bytes(tmp_path / name, identity).decode() == text
    written = translated_bytes(tmp_path / name, upper).decode()
    assert written == text.upper()
    units = read_subtitles(text, Reading(ending=name[1:])).units
    assert [each.source.text for each in units] == [
        "The house is small.", "The old woman reads 3 books.", "12 dogs sleep in 13",
    ]  # fmt: skip


@pytest.mark.parametrize("cue", ["The house.\n\nThe dog sleeps.", "\nThe house.\n  \n\nA dog.\n\n2 dogs."])
def test_an_empty_line_in_a_cue_of_subrip_ends_no_cue(cue: str, tmp_path: Path) -> None:
    text = f"{TIMES}{cue}\n\n2\n00:00:03,000 --> 00:00:04,000\nThe end.\n"
    (tmp_path / "a.srt").write_bytes(text.encode())
    assert translated_bytes(tmp_path / "a.srt", upper).decode() == text.upper()


@pytest.mark.parametrize(
    ("cue", "seen"),
    [
        (" \nThe<00:00:01.500><c> dog</c>\n", ["The dog"]),  # as YouTube writes it
        ("The <ruby>dog<rt>dawg</rt></ruby> sleeps.\n", ["The dog sleeps."]),
        ("<ruby>東京<rt>とうきょう</ruby>に\n行く\n", ["東京に行く"]),
        ("A dog.\n\nno cue\n", ["A dog."]),
    ],
)
def test_cues_of_webvtt_are_those_of_the_standard(cue: str, seen: list[str]) -> None:
    text = f"WEBVTT\n\n00:01.000 --> 00:02.000\n{cue}"
    assert [each.source.text for each in read_subtitles(text, VTT).units] == seen


def test_signs_of_comparison_are_no_tags_of_subrip(tmp_path: Path) -> None:
    (tmp_path / "a.srt").write_text(f"{TIMES}If 3 < 4 and 5 > 4, <i>go</i>: I <3 it>.\n")
    [unit] = read_document(tmp_path / "a.srt").units
    assert unit.source.text == "If 3 < 4 and 5 > 4, go: I <3 it>."
    assert translated_bytes(tmp_path / "a.srt", upper).decode().endswith("<i>GO</i>: I <3 IT>.\n")


@pytest.mark.parametrize(
    ("translation", "written"),
    [
        ("那只老狗在花园里睡觉。", "那只老狗在\n花园里睡觉。"),
        ("睡觉。那只狗", "睡觉。\n那只狗"),
        ("Ein Hund schläft.", "Ein Hund\nschläft."),
        ("สุนัขนอนหลับ", "สุนัขนอนหลับ"),  # only a dictionary finds its words
    ],
)
def test_a_cue_has_as_many_lines_as_before_without_spaces_too(translation: str, written: str) -> None:
    [unit] = read_subtitles(f"{TIMES}The dog sleeps\nin the garden.\n", SRT).units
    assert unit.written(SpannedText(translation)) == written


def test_a_line_end_between_ideographs_is_no_space(tmp_path: Path) -> None:
    for name, begin in (("a.srt", TIMES), ("a.html", "<p>"), ("a.md", "")):
        (tmp_path / name).write_text(f"{begin}私は東京に\n住んで\nHanako と\n", encoding="utf-8")
        [unit] = read_document(tmp_path / name).units
        assert unit.source.text == "私は東京に住んで Hanako と"


@pytest.mark.slow
@pytest.mark.parametrize("run", [" ", "<a", "<a>", "{\\", "\t-", "- a\n", "a \n"])
def test_the_time_of_a_cue_grows_with_its_length(run: str) -> None:
    cue = f"I am{run * 400_000}hungry."  # in the square of which some would take an hour
    template = read_subtitles(f"{TIMES}{cue}\n", SRT)
    assert len(template.units) == 1
    assert template.joined(["a b"]).startswith(TIMES + "a")


def test_characters_of_webvtt_are_written_as_in_the_source() -> None:
    cue = "WEBVTT\n\n00:01.000 --> 00:02.000\n<i>Q &amp; A & &lrm;B</i> -> &nbsp;C &gt;\n"
    template = read_subtitles(cue, VTT)
    assert template.joined([each.written(each.source) for each in template.units]) == cue


@pytest.mark.parametrize("output", ["The door --> house", "The <c.red>door", "The <00:01.000> door"])
def test_a_translation_adds_no_markup_to_a_cue_with_bare_characters(output: str) -> None:
    [unit] = read_subtitles(f"{TIMES}The 1 > 2 < 3 door\n", VTT).units
    written = unit.written(SpannedText(output))
    assert "-->" not in written and "<" not in written
    assert html.unescape(written) == output
    assert unit.written(SpannedText("The 3 > 4 < 1")) == "The 3 > 4 < 1"


@pytest.mark.parametrize("line", ["- a\n", "<i>a\n"])
def test_marks_of_a_cue_count_while_it_is_read(line: str, tmp_path: Path) -> None:
    (tmp_path / "a.vtt").write_text(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{line * 5_000}")

    def watch(characters: int, marks: int) -> None:
        if marks:
            raise InputError("too many")

    with pytest.raises(InputError, match="too many"):
        read_document(tmp_path / "a.vtt", watch=watch)
