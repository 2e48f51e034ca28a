"""Units of XLIFF files (1.1, 1.2 and 2), in which translations are exchanged: texts with their translations.

https://docs.oasis-open.org/xliff/xliff-core/v2.1. A file is read in blocks, however large it is, and nothing
that it declares is expanded or loaded, as in `tmx.py`.
"""

from collections.abc import Iterator
from typing import BinaryIO

from heedful.data.tmx import Unit, read_blocks
from heedful.errors import InputError
from heedful.text.languages import tag_of_language
from heedful.text.xml_parser import parser_of_xml

_MAX_SEGMENT = 2**20  # characters
_UNITS = ("trans-unit", "segment")
_SUGGESTIONS = ("alt-trans", "matches")  # they have sources and targets of other units
_TEXTS = ("source", "target")
_AROUND_TEXT = ("g", "pc", "mrk", "hi")  # elements whose text belongs to the segment; all others are codes
_UNTRANSLATED = ("new", "initial")
_UNFINISHED = "needs-"  # needs-translation, needs-review-l10n
_LANGUAGES = (("source-language", "target-language"), ("srcLang", "trgLang"))


def units_of_xliff(
    file: BinaryIO, *, src: str | None, tgt: str | None, remedy: str = ""
) -> Iterator[list[Unit]]:
    """Yield the units of an XLIFF file in order, one list for each block.

    A target has no text if its state says that it is no translation yet, or needs work. A text with codes in
    it, such as `x` and `ph`, is left out: without them, it is another text.

    Args:
        file: the file, decompressed.
        src: the language of the sources, as a tag of BCP 47; None: the source language of the file.
        tgt: the language of the targets; None: the other one.
        remedy: what to do if there are several languages, which no XLIFF file has.

    Raises:
        InputError: the file is damaged, or no XLIFF, or for other languages, or has no translation.
    """
    reader = _XliffReader(src, tgt)
    yield from read_blocks(reader, file, "XLIFF")
    if not reader.num_translated:
        raise InputError("no unit has a translation; XLIFF for training needs its targets filled")


class _XliffReader:
    """Collects the units of a file, as its parser comes by them."""

    def __init__(self, src: str | None, tgt: str | None) -> None:
        self._wanted = src, tgt
        self._path: list[str] = []
        self._texts: dict[str, str] = {}  # of the unit
        self._text: list[str] | None = None  # of the source or target; None: outside of one
        self._length = 0
        self._depth = 0  # of the source or target
        self._has_codes = self._is_unfinished = self._is_swapped = False
        self._line = 0
        self.num_translated = 0
        self.units: list[Unit] = []  # those read so far
        self.parser = parser_of_xml()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        if not self._path and local != "xliff":
            raise InputError(f"no XLIFF: it begins with the element {local}")
        self._path.append(local)
        self._choose_languages(attributes)
        if self._text is not None:
            self._has_codes |= local not in _AROUND_TEXT
        elif local in _UNITS:
            self._texts, self._line = {}, self.parser.CurrentLineNumber
            self._is_unfinished = _is_unfinished(attributes)
        elif local in _TEXTS and self._path[-2] in _UNITS and not {*self._path} & {*_SUGGESTIONS}:
            self._text, self._length, self._depth, self._has_codes = [], 0, len(self._path), False
            self._is_unfinished |= _is_unfinished(attributes)

    def _end(self, name: str) -> None:
        local = name.rpartition(" ")[2]
        if self._text is not None and len(self._path) == self._depth:
            self._texts[local] = "" if self._has_codes else "".join(self._text)
            self._text = None
        elif local in _UNITS:
            source = self._texts.get("source", "")
            target = "" if self._is_unfinished else self._texts.get("target", "")
            self.num_translated += bool(source and target)
            both = (target, source) if self._is_swapped else (source, target)
            self.units.append(Unit(self._line, *both))
        self._path.pop()

    def _characters(self, data: str) -> None:
        if self._text is not None:
            self._length += len(data)
            if self._length > _MAX_SEGMENT:
                raise InputError(f"a segment has more than {_MAX_SEGMENT:,} characters; this is no text")
            self._text.append(data)

    def _choose_languages(self, attributes: dict[str, str]) -> None:
        """Note which side of the next units is the source that is wanted.

        Raises:
            InputError: the units are in other languages.
        """
        for names in _LANGUAGES:
            tags = [attributes[name] for name in names if name in attributes]
            if not tags or names[0] not in attributes:
                continue
            src, tgt = self._wanted
            source = tag_of_language(src or tags[0], tags)
            target = tag_of_language(tgt, tags) if tgt is not None and len(tags) > 1 else ""
            if source is None or target is None:
                raise InputError(
                    f"its languages are {' and '.join(tags)}, and the pairs are wanted in "
                    f"{src or 'its source'} and {tgt or 'another'}"
                )
            self._is_swapped = len(tags) > 1 and source == tags[1] != tags[0]


def _is_unfinished(attributes: dict[str, str]) -> bool:
    state = attributes.get("state", "")
    return state in _UNTRANSLATED or state.startswith(_UNFINISHED)
