"""The formats of documents, and the ends of the names of their files."""

import re
from collections.abc import Iterable, Mapping
from pathlib import PurePath

from heedful.errors import InputError

TEXT, MARKDOWN, TABLE = "text", "Markdown", "csv"
FORMATS: Mapping[str, tuple[str, ...]] = {
    TEXT: (".txt", ".text"),
    "Office": (
        ".docx", ".docm", ".dotx", ".dotm", ".pptx", ".pptm", ".ppsx", ".ppsm", ".potx", ".potm",
        ".xlsx", ".xlsm", ".xltx", ".xltm",
    ),
    "OpenDocument": (".odt", ".ott", ".ods", ".ots", ".odp", ".otp"),
    "HTML": (".html", ".htm", ".xhtml"),
    "EPUB": (".epub",),
    MARKDOWN: (".md", ".markdown"),
    "subtitles": (".srt", ".vtt"),
    "po": (".po", ".pot"),
    "xliff": (".xlf", ".xliff"),
    "tmx": (".tmx",),
    "json": (".json",),
    TABLE: (".csv", ".tsv"),
}  # fmt: skip
SUPPORTED = f"supported are {', '.join(FORMATS)}"


def suffixes() -> list[str]:
    """Return the ends of the names of files that can be read."""
    return sorted(suffix for ends in FORMATS.values() for suffix in ends)


def format_of(name: str) -> str | None:
    """Return the format that the name of a file ends in, in letters of either case; None: no document.

    >>> format_of("guide/INDEX.HTML")
    'HTML'
    """
    suffix = PurePath(name).suffix.lower()
    return next((each for each, ends in FORMATS.items() if suffix in ends), None)


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
    return _subtags(tag)[0]


def tag_of_language(language: str, tags: Iterable[str]) -> str | None:
    """Return the tag for a language: the same tag if it is among `tags`, otherwise one of the same language.

    >>> tag_of_language("de", ["en", "de-AT"])
    'de-AT'
    """
    subtags = _subtags(language)
    same = [each for each in tags if _subtags(each)[0] == subtags[0]]
    return min(same, key=lambda each: (_subtags(each) != subtags, len(_subtags(each))), default=None)


def _subtags(tag: str) -> list[str]:
    return re.split("[-_]", tag.lower())
