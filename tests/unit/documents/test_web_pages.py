"""Pages: attributes that a reader sees, the language and its direction; books of pages."""

import io
import zipfile
from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import pytest
from document_files import identity, members, translate_units, translated_bytes, upper
from lxml import etree

from heedful.documents.document_file import DocumentFile, read_document
from heedful.errors import InputError


def written(document: DocumentFile) -> bytes:
    stream = io.BytesIO()
    document.write(list(chain.from_iterable(translate_units(document.units, upper))), stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ('<img src="a b.png" alt="The house">', '<img src="a b.png" alt="THE HOUSE">'),
        ("<p title='The house'>12</p>", "<p title='THE HOUSE'>12</p>"),
        (
            '<p>A <a title="The &quot;house&quot;">dog</a>.</p>',
            '<p>A <a title="THE &quot;HOUSE&quot;">DOG</a>.</p>',
        ),
        ('<input placeholder="A name" value="as it is">', '<input placeholder="A NAME" value="as it is">'),
        ('<input type="submit" value="Send it">', '<input type="submit" value="SEND IT">'),
        ('<button aria-label="Close it">x1</button>', '<button aria-label="CLOSE IT">X1</button>'),
        ('<meta name="description" content="A page">', '<meta name="description" content="A PAGE">'),
        ('<meta name="author" content="as it is">', '<meta name="author" content="as it is">'),
        ('<img translate="no" alt="as it is">', '<img translate="no" alt="as it is">'),
        ("<img alt=House src=a.png>", '<img alt="HOUSE" src=a.png>'),
        ('<meta name=description content="A page">', '<meta name=description content="A PAGE">'),
        ('<code title="as it is">a</code>', '<code title="as it is">a</code>'),
        ('<a title="12" href="/as/it/is"></a>', '<a title="12" href="/as/it/is"></a>'),
        ("""<a @click="f( title='as it is')">1</a>""", """<a @click="f( title='as it is')">1</a>"""),
        ("""<a data-a.b="a title='x'"title="A">1</a>""", """<a data-a.b="a title='x'"title="A">1</a>"""),
        ("""<img src="a"alt="A dog">""", """<img src="a"alt="A DOG">"""),
    ],
)
def test_attributes_that_a_reader_sees_are_translated(tag: str, expected: str, tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(tag)
    assert translated_bytes(tmp_path / "a.html", upper).decode() == expected
    assert translated_bytes(tmp_path / "a.html", identity).decode() == tag


@pytest.mark.parametrize(
    ("page", "language", "expected"),
    [
        ('<html lang="en-US">', "de", '<html lang="de">'),
        (
            '<html lang="en"><p lang="fr">1</p><p lang="en">2</p>',
            "de",
            '<html lang="de"><p lang="fr">1</p><p lang="de">2</p>',
        ),
        ('<html lang="en">', "ar", '<html dir="rtl" lang="ar">'),
        ('<html dir="rtl" lang="he">', "en", '<html dir="ltr" lang="en">'),
        (
            """<html data-a="b dir='rtl'" dir="rtl" lang="he">""",
            "en",
            """<html data-a="b dir='rtl'" dir="ltr" lang="en">""",
        ),
        ('<html xml:lang="en" lang="en">', "de", '<html xml:lang="de" lang="de">'),
        ("<html>", "de", "<html>"),
        ("<html lang=en>", "de", "<html lang=de>"),
        ("<html dir=rtl lang=he>", "en", "<html dir=ltr lang=en>"),
        ('<html lang="en">', "en", '<html lang="en">'),
        ('<html lang="en">', None, '<html lang="en">'),
    ],
)
def test_a_page_names_the_language_of_its_translation(
    page: str, language: str | None, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "a.html").write_text(page)
    assert written(read_document(tmp_path / "a.html", language=language)).decode() == expected


CONTAINER = (
    '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles>'
    '<rootfile media-type="application/oebps-package+xml" full-path="OEBPS/book.opf"/></rootfiles>'
    "</container>"
)
BOOK = """<?xml version="1.0"?>
<package xmlns="http://www.idpf.org/2007/opf" version="3.0">
<metadata xmlns:dc="http://purl.org/dc/elements/1.1/">
<dc:title>The book</dc:title><dc:language>en</dc:language><dc:creator>as it is</dc:creator>
</metadata><manifest>
<item id="a" href="text/page%201.xhtml" media-type="application/xhtml+xml"/>
<item id="n" href="toc.ncx" media-type="application/x-dtbncx+xml"/>
<item id="c" href="a.css" media-type="text/css"/></manifest></package>"""
PAGE = """<?xml version="1.0" encoding="utf-8"?>
<html xmlns="http://www.w3.org/1999/xhtml" lang="en"><head><title>A page</title></head>
<body><p>The <b>house</b> &amp; the dog.<br/>It is small.</p><img alt="A house" src="a.png"/></body></html>"""
CONTENTS = """<ncx xmlns="http://www.daisy.org/z3986/2005/ncx/">
<docTitle><text>The book</text></docTitle></ncx>"""


def book(path: Path, files: Iterable[tuple[str, str]]) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr("mimetype", "application/epub+zip", zipfile.ZIP_STORED)
        for name, text in files:
            package.writestr(name, text)


def test_a_book_is_translated_with_its_title_and_contents(tmp_path: Path) -> None:
    files = {
        "META-INF/container.xml": CONTAINER,
        "OEBPS/book.opf": BOOK,
        "OEBPS/text/page 1.xhtml": PAGE,
        "OEBPS/toc.ncx": CONTENTS,
        "OEBPS/a.css": "p { as: it-is }",
        "OEBPS/other.xhtml": PAGE,
    }
    book(tmp_path / "a.epub", files.items())
    data = translated_bytes(tmp_path / "a.epub", upper)
    parts = {name: part.decode() for name, part in members(data).items()}
    page = parts["OEBPS/text/page 1.xhtml"]
    etree.fromstring(page.encode())
    assert "<p>THE <b>HOUSE</b> &amp; THE DOG.<br/>IT IS SMALL.</p>" in page
    assert 'lang="de"' in page
    assert 'alt="A HOUSE"' in page
    expected = BOOK.replace("The book", "THE BOOK").replace("language>en<", "language>de<")
    assert parts["OEBPS/book.opf"] == expected
    assert parts["OEBPS/toc.ncx"] == CONTENTS.replace("The book", "THE BOOK")
    same = ("OEBPS/a.css", "OEBPS/other.xhtml", "META-INF/container.xml")
    assert all(parts[name] == files[name] for name in same)
    first = zipfile.ZipFile(io.BytesIO(data)).infolist()[0]
    assert (first.filename, first.compress_type) == ("mimetype", zipfile.ZIP_STORED)


def test_a_package_without_pages_is_refused(tmp_path: Path) -> None:
    book(tmp_path / "a.epub", [("a.txt", "a")])
    with pytest.raises(InputError, match="EPUB"):
        read_document(tmp_path / "a.epub")
