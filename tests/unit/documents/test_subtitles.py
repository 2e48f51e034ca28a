"""Subtitles: the dashes of speakers stay, and the time grows with the length of a cue."""

from pathlib import Path

import pytest
from document_files import identity, translated_bytes, upper

from heedful.documents.marked_text import MarkedText
from heedful.documents.text_files import read_subtitles

TIMES = "1\n00:00:01,000 --> 00:00:02,000\n"


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
    units = read_subtitles(text).units
    seen = [part.text for unit in units for part in unit.document.parts if isinstance(part, MarkedText)]
    assert seen == texts
    (tmp_path / name).write_bytes(text.encode())
    assert translated_bytes(tmp_path / name, identity).decode() == text
    assert translated_bytes(tmp_path / name, upper).decode().casefold() == text.casefold()


@pytest.mark.slow
@pytest.mark.parametrize("run", [" ", "<a", "<a>", "{\\", "\t-", "- a\n", "a \n"])
def test_the_time_of_a_cue_grows_with_its_length(run: str) -> None:
    cue = f"I am{run * 400_000}hungry."  # in the square of which some would take an hour
    template = read_subtitles(f"{TIMES}{cue}\n")
    assert len(template.units) == 1
    assert template.joined(["a b"]).startswith(TIMES + "a")
