"""The formats of documents: the ends of the names of their files, and the function that reads each.

The names of formats are known without their readers: a reader is imported when its first document is read.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Literal

from heedful.errors import ConfigError, InputError
from heedful.settings.plugins import checked_function

if TYPE_CHECKING:
    from heedful.documents.template import Template

TEXT, MARKDOWN, TABLE = "text", "Markdown", "csv"
COLUMN_OPTION = "--column"
Syntax = Literal["html", "xml", "po"]  # how a file names its encoding
# How a part of a package is read: the function of its text, and how it names its encoding.
PartReader = tuple[Callable[[str], "Template"], Syntax | None]
MEDIA = re.compile(  # ends of the names of members of packages that hold no text
    r"(?i)\.(?:png|jpe?g|gif|bmp|tiff?|emf|wmf|webp|mp[34]|m4[av]|wav|wmv|avi|mov|[ot]tf|woff2?|odttf|bin|do[ct]x?|xlsx?|pptx?)\Z"
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a reader may need beside the text of a document.

    Attributes:
        ending: the end of the file's name, in lower case, for example ".vtt".
        language: the language to translate into, which some formats name; None: unknown.
        source: the language to translate from; None: unknown.
        columns: names or numbers of the columns of a table that hold text.
        option: the name of the option with the columns, for error messages.
    """

    ending: str = ""
    language: str | None = None
    source: str | None = None
    columns: Sequence[str] = ()
    option: str = COLUMN_OPTION


Reader = Callable[[str, Reading], "Template"]


@dataclass(frozen=True)
class Format:
    """A format of documents.

    Attributes:
        name: the name in messages.
        endings: the ends of the names of files, in lower case.
        reader: a function of the text of a file and a `Reading` that returns a template; of a package, a
            function that returns the reader and the syntax of each part with text. Or its name in this
            folder, MODULE:FUNCTION.
        syntax: how a file names its encoding; None: it is in UTF-8.
        is_package: whether a file is a ZIP package.
    """

    name: str
    endings: tuple[str, ...]
    reader: str | Reader
    syntax: Syntax | None = None
    is_package: bool = False

    def load(self) -> Callable[..., Any]:
        """Return the reader."""
        if not isinstance(self.reader, str):
            return self.reader
        module, _, name = self.reader.partition(":")
        reader: Callable[..., Any] = getattr(import_module(f"heedful.documents.{module}"), name)
        return reader


_OFFICE = (
    ".docx", ".docm", ".dotx", ".dotm", ".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm",
    ".xlsx", ".xlsm", ".xltx", ".xltm",
)  # fmt: skip
_OPEN_DOCUMENT = (".odt", ".ott", ".ods", ".ots", ".odp", ".otp")
_FORMATS = [
    Format(TEXT, (".txt", ".text"), "text_files:read_lines"),
    Format("Office", _OFFICE, "ooxml_package:office_parts", is_package=True),
    Format("OpenDocument", _OPEN_DOCUMENT, "mixed_content:open_document_parts", is_package=True),
    Format("HTML", (".html", ".htm", ".xhtml"), "web_pages:read_html", "html"),
    Format("EPUB", (".epub",), "web_pages:book_parts", is_package=True),
    Format(MARKDOWN, (".md", ".markdown"), "markdown:read_markdown"),
    Format("subtitles", (".srt", ".vtt"), "text_files:read_subtitles"),
    Format("po", (".po", ".pot"), "text_files:read_po", "po"),
    Format("xliff", (".xlf", ".xliff"), "mixed_content:read_xliff", "xml"),
    Format("tmx", (".tmx",), "mixed_content:read_tmx", "xml"),
    Format("json", (".json", ".arb"), "text_files:read_json"),
    Format(TABLE, (".csv", ".tsv"), "text_files:read_table"),
]
_FORMAT_OF = {ending: known for known in _FORMATS for ending in known.endings}


def document_format(name: str, *endings: str, syntax: Syntax | None = None) -> Callable[[Reader], Reader]:
    """Return a decorator that makes a function the reader of a format, also if another has its endings.

    Args:
        name: the name in messages.
        endings: the ends of the names of files, for example ".properties".
        syntax: how a file names its encoding: as HTML, XML or a catalogue of gettext; None: it is in UTF-8.

    Raises:
        ConfigError: an ending without a dot; a reader with other arguments than the text and the `Reading`,
            or, when a document is read, with another result than a `Template`.
    """

    def register(reader: Reader) -> Reader:
        label = f"the reader of {name}"
        checked = checked_function(
            reader,
            label,
            "text, reading",
            returns="a Template",
            is_right=lambda made, _: hasattr(made, "joined"),
        )
        for ending in endings:
            if not re.fullmatch(r"\.[^.]+", ending):
                raise ConfigError(f"{ending!r}: must be the end of a file's name from the dot, such as .ini")
            _FORMAT_OF[ending.lower()] = Format(name, endings, checked, syntax)
        return reader

    return register


def supported() -> str:
    """Return the names of all formats, for messages."""
    return f"supported are {', '.join(dict.fromkeys(known.name for known in _FORMAT_OF.values()))}"


def suffixes() -> list[str]:
    """Return the ends of the names of files that can be read."""
    return sorted(_FORMAT_OF)


def find_format(name: str) -> Format | None:
    """Return the format that the name of a file ends in, in letters of either case; None: no document."""
    return _FORMAT_OF.get(PurePath(name).suffix.lower())


def format_of(name: str) -> str | None:
    """Return the name of the format that the name of a file ends in; None: no document.

    >>> format_of("guide/INDEX.HTML")
    'HTML'
    """
    found = find_format(name)
    return found.name if found else None


def refuse_documents(names: Iterable[str]) -> None:
    """Refuse files that are no lines, by their names: lines would lose the structure of a document.

    Raises:
        InputError: naming the first document.
    """
    for name in names:
        kind = format_of(name[:-3] if name.lower().endswith(".gz") else name)
        if kind not in (None, TEXT):
            raise InputError(f"{name}: is {kind}, not lines of text; translate it with --document")


def primary_language(tag: str) -> str:
    """Return the language of a tag of BCP 47, without its region and script.

    >>> primary_language("de-AT")
    'de'
    """
    return re.split("[-_]", tag.lower())[0]
