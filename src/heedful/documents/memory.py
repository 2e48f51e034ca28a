"""Translation memories: units of TMX files, looked up by their source, and TMX made of translations.

TMX 1.4b: https://www.gala-global.org/tmx-14b. A file is read in blocks, however large it is. Nothing that it
declares is expanded or loaded.
"""

import gzip
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Self
from xml.parsers import expat

from heedful.decoding.translation import MemoryMatch
from heedful.documents.formats import tag_of_language
from heedful.documents.xml_text import NO_XML, as_attribute, as_text, parser_of_xml
from heedful.errors import InputError

_BLOCK = 2**20  # bytes
_GZIP = b"\x1f\x8b"  # the first bytes of its files
_MAX_DEPTH = 200  # nesting of elements
_MAX_SEGMENT = 2**20  # characters; a longer one is no sentence
_CODES = frozenset(("bpt", "ept", "ph", "it", "ut"))  # they contain code of another format
_ALL = "*all*"
_NO_TARGET = "the model does not name its target language, and the memory has several"


def normalised(text: str) -> str:
    r"""Return a text in Unicode's form NFC, with one blank for white space.

    >>> normalised(" The\tcafe\u0301 ")
    'The café'
    """
    return " ".join(unicodedata.normalize("NFC", text).split())


class TranslationMemory:
    """Translations by their normalised sources; of several for one source, the last counts.

    >>> memory = TranslationMemory([("The  cat", "Die Katze")])
    >>> memory.exact("The cat ").target, memory.exact("the cat")
    ('Die Katze', None)
    """

    def __init__(self, units: Iterable[tuple[str, str]]) -> None:
        """Take sources with their translations; empty ones are left out."""
        pairs = ((normalised(source), " ".join(target.split())) for source, target in units)
        self._target_of = {source: target for source, target in pairs if source and target}

    @classmethod
    def load(cls, paths: Sequence[Path], *, src: str | None, tgt: str | None, is_needed: bool = True) -> Self:
        """Read TMX files; a unit of a later one counts more.

        Args:
            paths: the paths of the files.
            src: the language to translate from, as a tag of BCP 47; None: the language in the files' headers.
            tgt: the language to translate into; None: the other one, if a unit has two.
            is_needed: whether a file without units of these languages is refused.

        Raises:
            InputError: a file that cannot be read, is damaged, or has no units of these languages.
        """
        units = (read_units(path, src=src, tgt=tgt, is_needed=is_needed) for path in paths)
        return cls(chain.from_iterable(units))

    def __len__(self) -> int:
        return len(self._target_of)

    def exact(self, text: str) -> MemoryMatch | None:
        """Return the unit with a text as its source, once both are normalised; None: there is none."""
        own = normalised(text)
        target = self._target_of.get(own)
        return None if target is None else MemoryMatch(own, target)


def read_units(
    path: Path, *, src: str | None, tgt: str | None, is_needed: bool = True
) -> Iterator[tuple[str, str]]:
    """Yield source and translation of each unit of a TMX file, gzipped or not, that has both.

    See `TranslationMemory.load`.

    A unit with codes of another format inside its text is left out: without them, it is another text.

    Raises:
        InputError: the file cannot be read, is damaged, or has no units of these languages.
    """
    reader = _TmxReader(src, tgt)
    try:
        with path.open("rb") as plain, gzip.open(plain) if plain.peek(2)[:2] == _GZIP else plain as file:
            is_last = False
            while not is_last:
                block = file.read(_BLOCK)
                is_last = not block
                reader.parser.Parse(block, is_last)
                yield from reader.units
                reader.units.clear()
        if is_needed:
            reader.check_languages()
    except (expat.ExpatError, ValueError, LookupError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(f"{path}: damaged, or no TMX: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


class _TmxReader:
    """Collects the units of a file, as its parser comes by them."""

    def __init__(self, src: str | None, tgt: str | None) -> None:
        self._src, self._tgt = src, tgt
        self._source = ""  # of the header
        self._of_unit = ""
        self._depth = 0
        self._variants: dict[str, str | None] = {}  # of the unit, by language; None: it has codes
        self._language = ""
        self._text: list[str] | None = None  # of the segment; None: outside of one
        self._length = 0
        self._has_codes = False  # in these, text is not collected
        self.units: list[tuple[str, str]] = []  # those read so far
        self._languages: dict[str, None] = {}
        self._num_units = 0
        self.parser = parser_of_xml()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._characters

    def check_languages(self) -> None:
        """Refuse a file without a unit of both languages.

        Raises:
            InputError: naming the languages that there are.
        """
        if not self._num_units:
            have = ", ".join(self._languages) or "none"
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
        elif local == "tuv":
            self._language = values.get("lang", "")
        elif local == "seg":
            self._text, self._length, self._has_codes = [], 0, False

    def _end(self, name: str) -> None:
        self._depth -= 1
        local = name.rpartition(" ")[2]
        if self._text is not None and local == "seg":
            self._variants.setdefault(self._language, None if self._has_codes else "".join(self._text))
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

    def _add_unit(self) -> None:
        self._languages |= dict.fromkeys(self._variants)
        source = tag_of_language(self._src or self._of_unit.lower().replace(_ALL, ""), self._variants)
        others = [tag for tag in self._variants if tag != source]
        if self._tgt is None and len(others) > 1:
            raise InputError(_NO_TARGET)
        target = tag_of_language(self._tgt or "", others)
        if source is None or target is None:
            return
        self._num_units += 1
        source_text, target_text = self._variants[source], self._variants[target]
        if source_text is not None and target_text is not None:
            self.units.append((source_text, target_text))


class TmxWriter:
    """Writes translations as TMX 1.4b, unit by unit."""

    def __init__(self, stream: BinaryIO, *, src: str, tgt: str) -> None:
        """Write the header; the languages are tags of BCP 47."""
        self._stream = stream
        self._src, self._tgt = as_attribute(src), as_attribute(tgt)
        self.num_removed = 0  # characters that XML cannot hold
        stream.write(
            '<?xml version="1.0" encoding="UTF-8"?>\n'
            '<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
            f'<header creationtool="heedful" creationtoolversion="{version("heedful")}" segtype="sentence" '
            f'o-tmf="heedful" adminlang="en" srclang="{self._src}" datatype="plaintext"/>\n<body>\n'.encode()
        )

    def write(self, source: str, target: str) -> None:
        """Write a unit; nothing if one of its texts is empty."""
        if not source.strip() or not target.strip():
            return
        variants = []
        for language, text in ((self._src, source), (self._tgt, target)):
            self.num_removed += len(NO_XML.findall(text))
            written = as_text(text).replace("\r", "&#13;")
            variants.append(f'<tuv xml:lang="{language}"><seg>{written}</seg></tuv>')
        self._stream.write(f"<tu>{''.join(variants)}</tu>\n".encode())

    def finish(self) -> None:
        """Write the end of the file."""
        self._stream.write(b"</body>\n</tmx>\n")
