"""Units of TMX files, the format in which translation memories are exchanged: texts with their translations.

TMX 1.4b: https://www.gala-global.org/tmx-14b. A file is read in blocks, however large it is. Nothing that it
declares is expanded or loaded.
"""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple, Protocol
from xml.parsers import expat

from heedful.errors import InputError
from heedful.text.languages import tag_of_language
from heedful.text.xml_parser import parser_of_xml

_BLOCK = 2**20  # bytes
_MAX_DEPTH = 200  # nesting of elements
_MAX_SEGMENT = 2**20  # characters; a longer one is no sentence
_CODES = frozenset(("bpt", "ept", "ph", "it", "ut"))  # they contain code of another format
ALL = "*all*"  # languages
DOUBT = "x-doubt"  # a property of units that nobody has confirmed


class Unit(NamedTuple):
    """A source with its translation, and the line of the file where it begins.

    A text is empty if the unit lacks its language, or has codes of another format in it: without them, it
    is another text. The target of a unit in doubt (a property `x-doubt`) is empty too. `language` is the tag
    of the target in the file.
    """

    line: int
    source: str
    target: str
    language: str = ""


def units_of_tmx(
    file: BinaryIO, *, src: str | None, tgt: str | None, is_needed: bool = True, remedy: str = ""
) -> Iterator[list[Unit]]:
    """Yield the units of a TMX file in order, one list for each block.

    Args:
        file: the file, decompressed.
        src: the language of the sources, as a tag of BCP 47; None: the source language that the file names.
        tgt: the language of the targets; None: the other one, if all units have the same two; `ALL`: a unit
            for each other language.
        is_needed: whether a file without a unit of both languages is refused.
        remedy: what to do if the languages are not known, or not there.

    Raises:
        InputError: the file is damaged, or no TMX, or has no units of these languages, or several languages
            to choose from.
    """
    reader = _TmxReader(src, tgt, remedy)
    yield from read_blocks(reader, file, "TMX")
    if is_needed:
        reader.check_languages()


def languages_of_tmx(file: BinaryIO) -> tuple[str, list[str]]:
    """Return the source language of a TMX file, and the others: tags as in the file.

    Raises:
        InputError: the file is damaged, or no TMX.
    """
    reader = _TmxReader(None, "zxx", "")  # "zxx": no language, so that it chooses none of several
    for _ in read_blocks(reader, file, "TMX"):
        pass
    source = tag_of_language(reader.source, reader.languages) or reader.source
    return source, [language for language in reader.languages if language != source]


class UnitReader(Protocol):
    """Collects `units` while its parser reads."""

    parser: expat.XMLParserType
    units: list[Unit]


def read_blocks(reader: UnitReader, file: BinaryIO, name: str) -> Iterator[list[Unit]]:
    """Yield the units of each block of a file; `name` is its format, for messages.

    Raises:
        InputError: the file is damaged.
    """
    try:
        is_last = False
        while not is_last:
            block = file.read(_BLOCK)
            is_last = not block
            reader.parser.Parse(block, is_last)
            if reader.units:
                yield reader.units
            reader.units = []
    except (expat.ExpatError, LookupError, ValueError) as error:  # as of an encoding that is unknown
        raise InputError(f"damaged, or no {name}: {error}") from None


class _TmxReader:
    """Collects the units of a file, as its parser comes by them."""

    def __init__(self, src: str | None, tgt: str | None, remedy: str) -> None:
        self._src, self._tgt, self._remedy = src, tgt, remedy
        self._source = ""  # of the header
        self._of_unit = ""
        self._line = 0  # of the unit
        self._is_doubtful = False
        self._depth = 0
        self._variants: dict[str, str] = {}  # of the unit, by language
        self._language = ""
        self._text: list[str] | None = None  # of the segment; None: outside of one
        self._length = 0
        self._has_codes = False  # in these, text is not collected
        self.units: list[Unit] = []  # those read so far
        self.languages: dict[str, None] = {}
        self._has_both = False  # whether a unit has both languages
        self._first_source = ""  # of the units, if the file does not name its source language
        self._targets: set[str] = set()  # the languages of the other texts, without regions
        self.parser = parser_of_xml()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters
        self.parser.SkippedEntityHandler = self._refuse_entity

    def check_languages(self) -> None:
        """Refuse a file without a unit of both languages.

        Raises:
            InputError: naming the languages that there are.
        """
        if not self._has_both:
            have = ", ".join(self.languages) or "none"
            raise InputError(
                f"no unit has a text in {self._src or 'its source language'} and one in "
                f"{self._tgt or 'another'}; its languages: {have}"
            )

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        local = name.rpartition(" ")[2]
        values = {key.rpartition(" ")[2].lower(): value for key, value in attributes.items()}
        if not self._depth and local != "tmx":
            raise InputError(f"no TMX: it begins with the element {local}")
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise InputError(f"damaged XML: more than {_MAX_DEPTH} elements in each other")
        if self._text is not None:
            self._has_codes |= local in _CODES
        elif local == "header":
            self._source = values.get("srclang", "")
        elif local == "tu":
            self._variants, self._of_unit = {}, values.get("srclang") or self._source
            self._is_doubtful = False
            self._line = self.parser.CurrentLineNumber
        elif local == "prop":
            self._is_doubtful |= values.get("type") == DOUBT
        elif local == "tuv":
            self._language = values.get("lang", "")
        elif local == "seg":
            self._text, self._length, self._has_codes = [], 0, False

    def _end(self, name: str) -> None:
        self._depth -= 1
        local = name.rpartition(" ")[2]
        if self._text is not None and local == "seg":
            self._variants.setdefault(self._language, "" if self._has_codes else "".join(self._text))
            self._text = None
        elif self._text is None and local == "tu":
            self._add_unit()

    def _characters(self, data: str) -> None:
        if self._text is None or self._has_codes:
            return
        self._length += len(data)
        if self._length > _MAX_SEGMENT:
            raise InputError(f"a segment has more than {_MAX_SEGMENT:,} characters; this is no memory")
        self._text.append(data)

    def _refuse_entity(self, name: str, is_parameter: bool) -> None:  # noqa: FBT001
        """Refuse what expat would leave out, because a document type may declare it elsewhere (XML, 4.1)."""
        if self._text is not None and not is_parameter:
            raise InputError(
                f"line {self.parser.CurrentLineNumber:,}: the file does not declare the entity &{name};, and "
                "its text would lose it; write the character itself"
            )

    def _add_unit(self) -> None:
        self.languages |= dict.fromkeys(self._variants)
        named = self._src or self._of_unit.lower().replace(ALL, "") or self._first_source
        source = tag_of_language(named, self._variants)
        self._first_source = self._first_source or source or ""
        others = [tag for tag in self._variants if tag != source]
        source_text = self._variants.get(source or "", "")
        targets: list[str | None] = [*others]
        if self._tgt != ALL or not others:
            targets = [self._target(others)]
        for target in targets:
            self._has_both |= source is not None and target is not None
            text = "" if self._is_doubtful else self._variants.get(target or "", "")
            self.units.append(Unit(self._line, source_text, text, target or ""))

    @property
    def source(self) -> str:
        """The source language: of the header, else of the first unit."""
        return self._source.lower().replace(ALL, "") or self._first_source

    def _target(self, others: list[str]) -> str | None:
        """Return the tag of the target; if no language is wanted, the unit must have just one other."""
        if self._tgt is None:
            self._targets |= {tag.lower().replace("_", "-").split("-")[0] for tag in others}
            if len(others) > 1 or len(self._targets) > 1:
                raise InputError(self._remedy.format(", ".join(self.languages)))
        return tag_of_language(self._tgt or "", others)
