"""Translation memories: what is looked up in TMX files, and TMX that other programs read."""

import gzip
from pathlib import Path

import pytest
from translate.storage.tmx import tmxfile

from heedful.documents.memory import TmxWriter, TranslationMemory, read_units
from heedful.errors import InputError

HEAD = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">'
HEADER = '<header srclang="en" segtype="sentence" datatype="plaintext"/>'


def tmx(*units: str, head: str = HEAD, header: str = HEADER) -> str:
    body = "".join(f"<tu>{each}</tu>" for each in units)
    return f"{head}{header}<body>{body}</body></tmx>"


def tuv(language: str, text: str) -> str:
    return f'<tuv xml:lang="{language}"><seg>{text}</seg></tuv>'


def units_of(
    path: Path, text: str, *, src: str | None = "en", tgt: str | None = "de"
) -> list[tuple[str, str]]:
    path.write_text(text, encoding="utf-8")
    return list(read_units(path, src=src, tgt=tgt))


def test_texts_are_looked_up_by_their_normal_form() -> None:
    memory = TranslationMemory([("The  caf\u00e9\n", "Das\tCafé "), ("a", "b"), ("", "x"), ("y", " ")])
    assert len(memory) == 2
    for text in ("The café", " The\u00a0 cafe\u0301 "):
        match = memory.exact(text)
        assert match is not None
        assert (match.source, match.target) == ("The café", "Das Café")
    assert memory.exact("the café") is None


def test_the_last_translation_of_a_source_counts(tmp_path: Path) -> None:
    for name, target in (("a", "eins"), ("b", "zwei")):
        (tmp_path / name).write_text(tmx(tuv("en", "one") + tuv("de", target)), encoding="utf-8")
    memory = TranslationMemory.load([tmp_path / "a", tmp_path / "b"], src="en", tgt="de")
    match = memory.exact("one")
    assert match is not None
    assert match.target == "zwei"


@pytest.mark.parametrize(
    ("src", "tgt", "expected"),
    [
        ("en", "de", [("colour", "Farbe")]),
        ("en-GB", "de-AT", [("colour", "Farbe")]),
        ("en-US", "de", [("color", "Farbe")]),
        ("de", "en", [("Farbe", "colour")]),
        ("EN_gb", "DE", [("colour", "Farbe")]),
    ],
)
def test_tags_of_the_same_language_match(
    tmp_path: Path, src: str, tgt: str, expected: list[tuple[str, str]]
) -> None:
    text = tmx(tuv("en-GB", "colour") + tuv("en-US", "color") + tuv("de-DE", "Farbe"))
    assert units_of(tmp_path / "a.tmx", text, src=src, tgt=tgt) == expected


def test_a_model_without_languages_takes_those_of_the_file(tmp_path: Path) -> None:
    two, three = tuv("de", "Katze") + tuv("en", "cat"), tuv("fr", "chat")
    assert units_of(tmp_path / "a.tmx", tmx(two), src=None, tgt=None) == [("cat", "Katze")]
    for units in ([two + three], [two, tuv("en", "dog") + tuv("fr", "chien")]):
        with pytest.raises(InputError, match=r"does not name its target language.*several: de, en, fr"):
            units_of(tmp_path / "a.tmx", tmx(*units), src=None, tgt=None)


def test_without_a_source_language_all_units_have_that_of_the_first(tmp_path: Path) -> None:
    units = [tuv("de", "Katze") + tuv("en", "cat"), tuv("en", "dog") + tuv("de", "Hund")]
    text = tmx(*units, header='<header srclang="*all*"/>')
    assert units_of(tmp_path / "a.tmx", text, src=None, tgt=None) == [("Katze", "cat"), ("Hund", "dog")]


def test_a_memory_of_other_languages_may_be_empty(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(tmx(tuv("en", "cat") + tuv("de", "Katze")), encoding="utf-8")
    assert len(TranslationMemory.load([tmp_path / "a.tmx"], src="en", tgt="fr", is_needed=False)) == 0
    with pytest.raises(InputError, match="its languages: en, de"):
        TranslationMemory.load([tmp_path / "a.tmx"], src="en", tgt="fr")


def test_units_with_codes_are_left_out_and_other_elements_are_text(tmp_path: Path) -> None:
    coded = 'a <bpt i="1">&lt;b></bpt>b<ept i="1">&lt;/b></ept>'
    highlighted = "a <hi>b</hi> &amp; <![CDATA[<c>]]>"
    text = tmx(
        tuv("en", coded) + tuv("de", "x"),
        tuv("en", "y") + tuv("de", 'x<ph x="1"/>'),
        tuv("en", highlighted) + tuv("de", "ok"),
        tuv("en", "without a translation"),
    )
    assert units_of(tmp_path / "a.tmx", text) == [("a b & <c>", "ok")]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "iso-8859-1"])
def test_encodings_are_those_that_the_file_names(tmp_path: Path, encoding: str) -> None:
    text = tmx(tuv("en", "café") + tuv("de", "Café"))
    text = text.replace('encoding="UTF-8"', f'encoding="{encoding.removesuffix("-sig")}"')
    (tmp_path / "a.tmx").write_bytes(text.encode(encoding))
    assert list(read_units(tmp_path / "a.tmx", src="en", tgt="de")) == [("café", "Café")]


def test_it_may_be_gzipped(tmp_path: Path) -> None:
    packed = gzip.compress(tmx(tuv("en", "a") + tuv("de", "b")).encode())
    (tmp_path / "a.tmx.gz").write_bytes(packed)
    assert list(read_units(tmp_path / "a.tmx.gz", src="en", tgt="de")) == [("a", "b")]
    (tmp_path / "a.tmx.gz").write_bytes(packed[:-12])
    with pytest.raises(InputError, match=r"a\.tmx\.gz"):
        list(read_units(tmp_path / "a.tmx.gz", src="en", tgt="de"))


BOMB = '<!DOCTYPE tmx [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><tmx>'
ONE_UNIT = tuv("en", "a") + tuv("de", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no element found"),
        ("no XML", "damaged, or no TMX"),
        ("<html/>", "no TMX: it begins with the element html"),
        (tmx(ONE_UNIT, head=BOMB), "entities are not expanded"),
        (tmx(tuv("en", "&file;") + tuv("de", "b"), head="<tmx>"), "undefined entity"),
        (tmx(tuv("en", "a") + "\n" + tuv("de", "M&auml;dchen")), "line 4: .* entity &auml;"),
        (tmx(ONE_UNIT)[:-9], "unclosed token"),
        (tmx(tuv("en", "<hi>" * 300)), "more than 200 elements"),
        (tmx(tuv("en", "a" * (2**20 + 1))), "more than 1,048,576 characters"),
        (tmx(tuv("en", "a") + tuv("fr", "b")), "its languages: en, fr"),
        (tmx(), "its languages: none"),
    ],
)
def test_what_is_no_memory_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        units_of(tmp_path / "a.tmx", text)
    assert str(refused.value).startswith(f"{tmp_path / 'a.tmx'}: ")
    assert "\n" not in str(refused.value)


def test_a_missing_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: no such file"):
        list(read_units(tmp_path / "none.tmx", src="en", tgt="de"))


def test_what_is_written_is_read_by_others_and_by_us(tmp_path: Path) -> None:
    pairs = [
        ('A <b>cat</b> & "two" dogs ]]>', "Eine Katze 'und' Hunde <x/>"),
        ("東京 😀", "مرحبا"),
        ("tab\tand\u0085line\u2028", "carriage\rreturn"),
        ("", "left out"),
    ]
    with (tmp_path / "a.tmx").open("wb") as stream:
        writer = TmxWriter(stream, src="en", tgt='de"')
        for source, target in pairs:
            writer.write(source, target)
        assert writer.num_removed == 0
        writer.write("bell\x07 and \ud800", "null\0")
        assert writer.num_removed == 3
        writer.finish()
    assert list(read_units(tmp_path / "a.tmx", src="en", tgt='de"')) == [*pairs[:3], ("bell and ", "null")]
    others = tmxfile.parsefile(str(tmp_path / "a.tmx"))
    assert [each.source for each in others.units[:2]] == [source for source, _ in pairs[:2]]
    assert [each.target for each in others.units[:2]] == [target for _, target in pairs[:2]]
    assert len(others.units) == 4


def test_translate_toolkits_files_are_read(tmp_path: Path) -> None:
    theirs = tmxfile()
    theirs.addtranslation("A cat & a dog", "en", "Eine Katze < ein Hund", "de")
    theirs.savefile(str(tmp_path / "a.tmx"))
    assert list(read_units(tmp_path / "a.tmx", src="en", tgt="de")) == [
        ("A cat & a dog", "Eine Katze < ein Hund")
    ]
