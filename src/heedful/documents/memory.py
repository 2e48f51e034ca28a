"""Translation memories: units of TMX files, looked up by their source, and TMX made of translations.

`heedful.data.tmx` reads the files.
"""

import gzip
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Self, cast

from heedful.data.files import DAMAGES, GZIP
from heedful.data.memory_files import units_of_memory
from heedful.data.tmx import DOUBT, units_of_tmx
from heedful.decoding.translation import MemoryMatch
from heedful.documents.xml_text import NO_XML, as_attribute, as_text
from heedful.errors import InputError

_NO_TARGET = "the model does not name its target language, and the memory has several: {}"


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

    A file whose name ends in `.memory` is one that `heedful serve` keeps.

    See `TranslationMemory.load`.

    A unit with codes of another format inside its text is left out: without them, it is another text.

    Raises:
        InputError: the file cannot be read, is damaged, or has no units of these languages.
    """
    try:
        with path.open("rb") as plain, gzip.open(plain) if plain.peek(2)[:2] == GZIP else plain as file:
            units = units_of_memory if ".memory" in path.suffixes else units_of_tmx
            blocks = units(cast(BinaryIO, file), src=src, tgt=tgt, is_needed=is_needed, remedy=_NO_TARGET)
            for unit in chain.from_iterable(blocks):
                if unit.source and unit.target:
                    yield unit.source, unit.target
    except DAMAGES as error:
        raise InputError(f"{path}: damaged, or no TMX: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {(error.strerror or str(error)).lower()}") from None
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


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

    def write(
        self,
        source: str,
        target: str,
        *,
        tgt: str = "",
        attributes: Mapping[str, str] = MappingProxyType({}),
        doubt: str = "",
    ) -> None:
        """Write a unit; nothing if one of its texts is empty.

        Args:
            source: the source.
            target: its translation.
            tgt: the language of the translation; "": that of the file.
            attributes: attributes of the unit, as TMX defines them.
            doubt: why nobody should use the unit before somebody confirms it; "": it is right.
        """
        if not source.strip() or not target.strip():
            return
        variants = [f'<prop type="{DOUBT}">{as_text(doubt)}</prop>'] if doubt else []
        for language, text in ((self._src, source), (as_attribute(tgt) if tgt else self._tgt, target)):
            self.num_removed += len(NO_XML.findall(text))
            written = as_text(text).replace("\r", "&#13;")
            variants.append(f'<tuv xml:lang="{language}"><seg>{written}</seg></tuv>')
        written = "".join(f' {name}="{as_attribute(value)}"' for name, value in attributes.items())
        self._stream.write(f"<tu{written}>{''.join(variants)}</tu>\n".encode())

    def finish(self) -> None:
        """Write the end of the file."""
        self._stream.write(b"</body>\n</tmx>\n")
