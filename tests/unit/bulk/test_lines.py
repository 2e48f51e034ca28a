"""Files of lines, translated from Python as `heedful translate` does it."""

import json
from io import BytesIO
from pathlib import Path

import pytest
from tiny_bundle import SOURCES, memorised

from heedful.bulk import lines, resumable
from heedful.bulk.lines import LineLayout, LineTranslation
from heedful.bulk.memories import open_lookup
from heedful.data.streams import Lines
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import CorpusError

TEXTS = [*SOURCES, "", *SOURCES[::-1]]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator(memorised())


def stream(texts: list[str], *, end: bytes = b"") -> Lines:
    return Lines(BytesIO("".join(f"{each}\n" for each in texts).encode() + end), "in.txt")


def test_a_file_has_the_translations_of_the_translator(translator: Translator, tmp_path: Path) -> None:
    LineTranslation(translator=translator, options=SearchOptions()).write(stream(TEXTS), tmp_path / "out")
    expected = translator.translate(TEXTS, options=SearchOptions())
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == expected


def test_an_output_goes_on_after_a_bad_line(
    translator: Translator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "CHUNK_LINES", 4)
    monkeypatch.setattr(resumable, "_SYNC_SHARE", 1e9)
    translation = LineTranslation(
        translator=translator, options=SearchOptions(), layout=LineLayout(json=True)
    )
    translation.write(stream(TEXTS), tmp_path / "whole")
    notices: list[str] = []
    with pytest.raises(CorpusError):
        translation.write(stream(TEXTS[:9], end=b"\xff"), tmp_path / "out", notify=notices.append)
    assert not (tmp_path / "out").exists()
    assert not notices
    translation.write(stream(TEXTS), tmp_path / "out", resume=True, notify=notices.append)
    assert (tmp_path / "out").read_bytes() == (tmp_path / "whole").read_bytes()
    assert len(notices) == 1


def test_an_exact_match_has_no_hypotheses_and_matches_are_summed(
    translator: Translator, tmp_path: Path
) -> None:
    memory, told = tmp_path / "memory.tmx", list[str]()
    config = translator.bundle.config
    with open_lookup([], config, written=memory) as lookup:
        lookup.added([Translation.given(SOURCES[0], "ganz anders")])
    with open_lookup([memory], config, notify=told.append) as lookup:
        LineTranslation(
            translator=translator,
            options=SearchOptions(),
            layout=LineLayout(json=True, memory=True),
            lookup=lookup,
        ).write(stream(SOURCES[:2]), tmp_path / "out")
    first, second = map(json.loads, (tmp_path / "out").read_text(encoding="utf-8").splitlines())
    assert (first["text"], first["hypotheses"], first["score"]) == ("ganz anders", [], 0.0)
    assert second["memory"] is None
    assert second["hypotheses"]
    assert len(told) == 1


def test_a_cut_output_may_be_left_empty(translator: Translator, tmp_path: Path) -> None:
    options = SearchOptions(max_length=1)
    for only_finished in (False, True):
        layout = LineLayout(only_finished=only_finished)
        translation = LineTranslation(translator=translator, options=options, layout=layout)
        translation.write(stream(SOURCES[:1]), tmp_path / f"{only_finished}")
    assert (tmp_path / "False").read_bytes() != b"\n"
    assert (tmp_path / "True").read_bytes() == b"\n"
