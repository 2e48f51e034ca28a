"""Encodings: a document names its own, and its translation has the same; catalogues of gettext."""

import codecs
from pathlib import Path

import polib
import pytest
from document_files import Output, translated_bytes, upper

from heedful.documents.document_file import read_document
from heedful.errors import InputError


@pytest.mark.parametrize("name", ["utf-7", "idna", "punycode", "raw_unicode_escape", "utf-16", "hex", "none"])
def test_an_encoding_that_is_not_based_on_ascii_is_refused_at_once(name: str, tmp_path: Path) -> None:
    entry = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={name}\\n"\n\nmsgid "cats"\nmsgstr ""\n'
    (tmp_path / "a.po").write_text(entry, encoding="ascii")
    with pytest.raises(InputError, match=name):
        read_document(tmp_path / "a.po")


def german(texts: list[str], aligned: object) -> list[Output]:
    return [Output("Straße") for _ in texts]


def test_only_the_header_says_what_the_encoding_of_gettext_is(tmp_path: Path) -> None:
    path, message = tmp_path / "a.po", 'msgid "use charset=us-ascii here"\nmsgstr ""\n'
    path.write_text(message)  # without a header it is UTF-8
    assert translated_bytes(path, german).decode() == message.replace('msgstr ""', 'msgstr "Straße"')
    header = '# was charset=latin1\nmsgid ""\nmsgstr "Content-Type: text/plain; charset=us-ascii\\n"\n\n'
    path.write_text(header + message)
    expected = header.replace("=us-ascii", "=UTF-8") + message.replace('msgstr ""', 'msgstr "Straße"')
    assert translated_bytes(path, german).decode() == expected


@pytest.mark.parametrize(
    ("charset", "encoding"),
    [
        ("Content-Type: text/plain; charset=ISO-8859-15\\n", "iso-8859-15"),
        ("Content-Type: text/plain; Charset = ISO-8859-15\\n", "iso-8859-15"),
        ('content-type: text/plain; "\n"charset=ISO-8859-15\\n', "iso-8859-15"),
        ('Content-Type: text/plain; char"\n"set=ISO-8859-"\n"15\\n', "iso-8859-15"),
        ('Content-Type: text/plain; charset=\\"ISO-8859-15\\"\\n', "iso-8859-15"),
        ("X-Note: Content-Type: none; charset=latin1\\n", "utf-8"),
        ("Content-Type: text/plain\\nX-Note: charset=latin1\\n", "utf-8"),
        ("", "utf-8"),
    ],
)
@pytest.mark.parametrize("before", ["", "# " + "ö" * 3000 + "\n", '"Project-Id-Version: x\\n"\n' * 300])
def test_the_encoding_of_gettext_is_found_wherever_its_header_says_it(
    before: str, charset: str, encoding: str, tmp_path: Path
) -> None:
    comment, field = (before, "") if before.startswith("#") else ("", before)
    header = f'{comment}msgid ""\nmsgstr ""\n{field}"{charset}"\n\n'
    message = 'msgid "a ö"\nmsgstr "{}"\n'
    (tmp_path / "a.po").write_bytes((header + message.format("")).encode(encoding))
    assert translated_bytes(tmp_path / "a.po", german) == (header + message.format("Straße")).encode(encoding)


@pytest.mark.parametrize("named", ["CHARSET", "", "us-ascii"])
@pytest.mark.parametrize("mark", [b"", codecs.BOM_UTF8])
def test_a_catalogue_in_utf_8_says_so(mark: bytes, named: str, tmp_path: Path) -> None:
    written = 'msgid ""\nmsgstr "Content-Type: text/plain; charset={}\\n"\n\nmsgid "a"\nmsgstr "{}"\n'
    (tmp_path / "a.po").write_bytes(mark + written.format(named, "").encode())
    assert translated_bytes(tmp_path / "a.po", german) == mark + written.format("UTF-8", "Straße").encode()
    unchanged = mark + written.format(named, "Strasse").encode()
    (tmp_path / "a.po").write_bytes(unchanged)
    assert translated_bytes(tmp_path / "a.po", german) == unchanged


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_each_line_of_a_translated_message_ends_as_the_lines_of_its_file_do(
    last: bool, end: str, tmp_path: Path
) -> None:
    source = '\tmsgid ""\n"one\\n"\n"two"\nmsgstr\t""\n'[: None if last else -1].replace("\n", end)
    (tmp_path / "a.po").write_bytes(source.encode())
    written = f'""{end}"ONE\\n"{end}"TWO"'
    expected = written.join(source.rsplit('""', 1)).encode()
    assert translated_bytes(tmp_path / "a.po", upper) == expected
    if end != "\r":
        assert polib.pofile(expected.decode()).find("one\ntwo").msgstr == "ONE\nTWO"


def test_strings_of_a_catalogue_may_stand_on_one_line_and_have_escapes(tmp_path: Path) -> None:
    first = 'msgctxt "a" msgid "one" " two" msgstr {}\n'
    entries = first + 'msgid "\\x61\\040\\"b\\"\\t\\?" # what?\nmsgstr{}\n'
    (tmp_path / "a.po").write_text(entries.format('""', '"" ""'))
    expected = entries.format('"ONE TWO"', '"A \\"B\\"\\t?"')
    assert translated_bytes(tmp_path / "a.po", upper).decode() == expected
    for wrong in ('msgid "a', "msgid 'a'", '"a"', 'msgid "a"\nmsgstr b'):
        (tmp_path / "a.po").write_text(wrong)
        with pytest.raises(InputError, match=r"line \d"):
            read_document(tmp_path / "a.po")


@pytest.mark.parametrize(
    ("forms", "sources"),
    [
        ("", ["dog", "dogs"]),
        ("nplurals=2; plural=(n > 1);", ["dog", "dogs"]),
        ("nplurals=1; plural=0;", ["dogs"]),
        ("nplurals=3; plural=n==0 ? 0 : n==1 ? 1 : 2;", ["dogs", "dog", "dogs"]),
        ("nplurals=2; plural=no formula;", ["dog", "dogs"]),
    ],
)
def test_a_form_of_a_message_is_translated_from_the_singular_if_it_is_that_of_one(
    forms: str, sources: list[str], tmp_path: Path
) -> None:
    header = f'msgid ""\nmsgstr ""\n"Plural-Forms: {forms}\\n"\n\n' if forms else ""
    entry = header + 'msgid "dog"\nmsgid_plural "dogs"\n'
    lines = [f"msgstr[{number}] " for number in range(len(sources))]
    (tmp_path / "a.po").write_text(entry + '""\n'.join([*lines, ""]))
    expected = "".join(f'{line}"{source.upper()}"\n' for line, source in zip(lines, sources, strict=True))
    assert translated_bytes(tmp_path / "a.po", upper).decode() == entry + expected


@pytest.mark.parametrize("name", ["shift_jis", "euc-jp", "gb18030", "big5", "euc-kr", "koi8-r", "cp1252"])
def test_other_encodings_keep_what_is_not_translated(name: str, tmp_path: Path) -> None:
    entry = f'msgid ""\nmsgstr "Content-Type: text/plain; charset={name}\\n"\n\nmsgid "cats"\nmsgstr "~"\n'
    (tmp_path / "a.po").write_text(entry, encoding="ascii")
    assert translated_bytes(tmp_path / "a.po", lambda text: text) == entry.encode("ascii")


def test_encodings_and_marks_stay(tmp_path: Path) -> None:
    for name in ("utf-8-sig", "utf-16"):
        (tmp_path / "a.txt").write_bytes("grün\r\n".encode(name))
        assert translated_bytes(tmp_path / "a.txt", upper) == "GRÜN\r\n".encode(name)
    page = '<html><meta charset="iso-8859-1"><p>grün</p>'
    (tmp_path / "a.html").write_bytes(page.encode("latin-1"))
    assert "GRÜN".encode("latin-1") in translated_bytes(tmp_path / "a.html", upper)
    text = "grün says charset=latin1 here"  # which is a text's own
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    assert translated_bytes(tmp_path / "a.txt", upper).decode() == text.upper()
    (tmp_path / "a.txt").write_bytes("grün".encode("latin-1"))
    with pytest.raises(InputError, match=r"utf-8.* 2"):
        read_document(tmp_path / "a.txt")


@pytest.mark.parametrize(
    ("start", "encoding"),
    [
        ("<META HTTP-EQUIV='Content-Type' CONTENT='text/html; CHARSET=ISO-8859-1'>", "latin-1"),
        ("Words first. <meta charset = latin1 >", "latin-1"),
        ("<?xml version='1.0' encoding='iso-8859-1'?><html>", "latin-1"),
        ("<html>" + "<!-- a comment -->" * 1000 + "<meta charset=latin1>", "latin-1"),
        ("<meta name='description' content='How charset = works'><meta charset='utf-8'>", "utf-8"),
        ("<!-- <meta charset='latin1'> --><script>'<meta charset=latin1>'</script>", "utf-8"),
        ("<meta charset=utf-16><![no[", "utf-8"),
        ("", "utf-8"),
    ],
)
def test_a_page_names_its_encoding_in_its_head(start: str, encoding: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(f"{start}<p>grün</p>".encode(encoding))
    assert "<p>GRÜN</p>".encode(encoding) in translated_bytes(tmp_path / "a.html", upper)
    (tmp_path / "a.md").write_text("<b>grün</b>\n\n```\n<meta charset=latin1>\n```\n", encoding="utf-8")
    assert "<b>GRÜN</b>\n" in translated_bytes(tmp_path / "a.md", upper).decode()


def test_bytes_that_an_encoding_would_write_in_another_way_are_refused(tmp_path: Path) -> None:
    entry = b'msgid ""\nmsgstr "Content-Type: text/plain; charset=CP932\\n"\n\nmsgid "x"\nmsgstr "\xee\xf9"\n'
    (tmp_path / "a.po").write_bytes(entry)
    with pytest.raises(InputError, match="CP932"):
        read_document(tmp_path / "a.po")


def test_a_character_that_an_encoding_lacks_is_a_number_or_the_text_becomes_utf_8(tmp_path: Path) -> None:
    def in_greek(texts: list[str], aligned: object) -> list[Output]:
        return [Output("αβγ") for _ in texts]

    (tmp_path / "a.html").write_bytes(b'<html><meta charset="iso-8859-1"><p>green</p>')
    assert b"<p>&#945;&#946;&#947;</p>" in translated_bytes(tmp_path / "a.html", in_greek)
    header = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=ISO-8859-1\\n"\n\n'
    (tmp_path / "a.po").write_text(header + 'msgid "green"\nmsgstr ""\n')
    translated = translated_bytes(tmp_path / "a.po", in_greek).decode()  # in UTF-8, which it says
    assert translated == header.replace("ISO-8859-1", "UTF-8") + 'msgid "green"\nmsgstr "αβγ"\n'
    assert polib.pofile(translated).find("green").msgstr == "αβγ"
    escaped = '{"b": "all \\ud83d\\ude00 \\u00e4"}'  # in ASCII alone, as it was
    (tmp_path / "a.json").write_text(escaped)
    assert translated_bytes(tmp_path / "a.json", upper).decode() == escaped.replace("all", "ALL").replace(
        "e4", "c4"
    )


@pytest.mark.parametrize(
    ("named", "encoding", "text"),
    [
        ("iso-8859-1", "cp1252", "a \u201cbook\u201d is here\u2026 \u2013 \u20ac"),
        ("latin1", "cp1252", "\u2026"),
        ("us-ascii", "cp1252", "caf\u00e9"),
        ("gb2312", "gbk", "\u954b \u4e00"),
        ("shift_jis", "cp932", "\u2460 \u4e00"),
        ("iso-8859-8-i", "iso-8859-8", "\u05d0\u05d1"),
        ("iso-8859-9", "cp1254", "a \u201cbook\u201d \u015f"),
        ("ks_c_5601-1987", "cp949", "\ub620"),
        ("x-sjis", "cp932", "\u2460 \u4e00"),
    ],
)
def test_a_page_is_read_as_browsers_read_its_encoding(
    named: str, encoding: str, text: str, tmp_path: Path
) -> None:
    page = f'<html><head><meta charset="{named}"></head><body><p>Read: {text}</p></body></html>'
    (tmp_path / "a.html").write_bytes(page.encode(encoding))
    [unit] = read_document(tmp_path / "a.html").units
    assert unit.source.text == f"Read: {text}"
    written = translated_bytes(tmp_path / "a.html", upper)
    assert written == page.replace(f"Read: {text}", f"Read: {text}".upper()).encode(encoding)
