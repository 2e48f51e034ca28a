"""XLIFF files and catalogues of gettext as parallel text, against the readers of other projects."""

import gzip
import re
from pathlib import Path

import pytest

from heedful.data.files import FilledPairs, PairFiles, WantedLanguages, read_parallel
from heedful.errors import CorpusError

PO = r"""
msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=CHARSET_OF_FILE\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"

#: a.c:1
msgctxt "menu"
msgid "Open"
msgstr "Öffnen"

#, fuzzy, c-format
#| msgid "Old"
msgid "Save %s"
msgstr "Alt"

#, c-format
msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] "%d Dateien"

msgid "No translation"
msgstr ""

msgid ""
"Two "
"lines\n"
msgstr "Zwei \"Zeilen\"\n"

#~ msgid "Obsolete"
#~ msgstr "Veraltet"
"""
PO_PAIRS = [
    ("Open", "Öffnen"), ("%d file", "%d Datei"), ("%d files", "%d Dateien"), ("Two lines", 'Zwei "Zeilen"'),
]  # fmt: skip
XLIFF_1 = """<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
<file source-language="en-US" target-language="de" original="a" datatype="html"><body>
<trans-unit id="1"><source>The <g id="1">cat</g>.</source>
<target state="final">Die <g id="1">Katze</g>.</target>
<alt-trans><source>A dog</source><target>Ein Hund</target></alt-trans></trans-unit>
<trans-unit id="2"><source>New</source><target state="new">New</target></trans-unit>
<trans-unit id="3"><source>Bad</source><target state="needs-review-translation">Schlimm</target></trans-unit>
<trans-unit id="4"><source>A <x id="1"/> b</source><target>B <x id="1"/> a</target></trans-unit>
<trans-unit id="5"><source>Alone</source></trans-unit>
<trans-unit id="6"><source>Two</source><seg-source><mrk mtype="seg" mid="1">Two</mrk></seg-source><target>
<mrk mtype="seg" mid="1">Zwei</mrk></target></trans-unit></body></file></xliff>"""
XLIFF_2 = """<xliff version="2.0" srcLang="en" trgLang="de" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1"><segment state="final"><source>The <pc id="1">cat</pc>.</source>
<target>Die <pc id="1">Katze</pc>.</target></segment><segment state="initial"><source>New</source>
<target>New</target></segment><segment><source>Two</source><target>Zwei</target></segment></unit></file></xliff>"""
XLIFF_PAIRS = [("The cat.", "Die Katze."), ("Two", "Zwei")]


def pairs_of(path: Path, languages: WantedLanguages = (None, None)) -> list[tuple[str, str]]:
    chunks = FilledPairs(PairFiles((path,), languages=languages))
    return [pair for src, tgt in chunks for pair in zip(src, tgt, strict=True)]


@pytest.mark.parametrize("name", ["a.po", "a.po.gz", "latin1.po", "1.xlf", "2.xliff"])
def test_finished_translations_are_pairs(tmp_path: Path, name: str) -> None:
    charset = "iso-8859-1" if name == "latin1.po" else "UTF-8"
    text = {"1.xlf": XLIFF_1, "2.xliff": XLIFF_2}.get(name, PO.replace("CHARSET_OF_FILE", charset))
    expected = XLIFF_PAIRS if "xl" in name else PO_PAIRS
    path, content = tmp_path / name, text.encode(charset)
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert pairs_of(path) == pairs_of(path, ("en", "de")) == expected
    assert pairs_of(path, ("de", "en")) == [(target, source) for source, target in expected]
    both = read_parallel(path, path)
    assert [*zip(both.src, both.tgt, strict=True)] == expected
    with pytest.raises(CorpusError, match="fr"):
        pairs_of(path, ("en", "fr"))


def test_a_catalogue_is_read_as_polib_reads_it(tmp_path: Path) -> None:
    polib = pytest.importorskip("polib")
    path = tmp_path / "a.po"
    path.write_text(PO.replace("CHARSET_OF_FILE", "UTF-8"), encoding="utf-8")
    translated = [
        (entry.msgid, entry.msgstr) for entry in polib.pofile(str(path)).translated_entries() if entry.msgstr
    ]
    stripped = [tuple(re.sub(r"\s+", " ", text).strip() for text in pair) for pair in translated]
    assert [pair for pair in pairs_of(path) if "%d" not in pair[0]] == stripped


@pytest.mark.parametrize("name", ["a.po", "a.xlf"])
def test_files_without_translations_are_refused(tmp_path: Path, name: str) -> None:
    empty = {
        "a.po": 'msgid "a"\nmsgstr ""\n',
        "a.xlf": re.sub("<target.*?</target>", "", XLIFF_1, flags=re.DOTALL),
    }
    (tmp_path / name).write_text(empty[name], encoding="utf-8")
    with pytest.raises(CorpusError, match=r"has a translation"):
        pairs_of(tmp_path / name)
