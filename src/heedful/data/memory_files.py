"""Files of translation memories that a service keeps (`.memory`): JSON Lines, one line for each change.

The first line is a `MemoryHead`; a later one replaces it. All other lines are segments as they stand: a later
line with the same id replaces the segment, or removes it. So a file is only ever added to.
"""

from collections.abc import Iterator
from typing import BinaryIO

from pydantic import BaseModel, TypeAdapter, ValidationError

from heedful.data.tmx import Unit
from heedful.errors import InputError
from heedful.text.languages import tag_of_language


class MemoryHead(BaseModel, extra="forbid"):
    """What a memory is.

    Attributes:
        memory: the name of the memory.
        owner: the name of the client's key; "" without keys.
        src: the language of the sources, a tag of BCP 47.
        created: when it was made (ISO 8601).
    """

    memory: str
    owner: str
    src: str
    created: str


class Segment(BaseModel, extra="forbid"):
    """A text and its translation.

    Attributes:
        id: a name that no other segment has.
        time: when it was added, confirmed or removed (ISO 8601).
        client: the name of the key that did so; "" without keys.
        tgt: the language of the translation.
        source: the text.
        target: the translation.
        doubt: why it is not used before a person confirms it; "": it is used.
        removed: whether it is removed.
    """

    id: str
    time: str
    client: str
    tgt: str
    source: str
    target: str
    doubt: str = ""
    removed: bool = False


_LINE: TypeAdapter[Segment | MemoryHead] = TypeAdapter(Segment | MemoryHead)


def parse_line(line: bytes) -> Segment | MemoryHead:
    """Return what a line of a file holds; a ValueError says that it holds something else."""
    return _LINE.validate_json(line)


def units_of_memory(
    file: BinaryIO, *, src: str | None, tgt: str | None, remedy: str = "", is_needed: bool = True
) -> Iterator[list[Unit]]:
    """Yield the units of a file, in the order of their last change; those in doubt have no target.

    Args:
        file: the file, decompressed.
        src: the language of the sources; None: the memory's.
        tgt: the language of the targets; None: the only one.
        remedy: what to do if the language of the targets is not known.
        is_needed: whether a file without units of both languages is refused.

    Raises:
        InputError: the file is damaged, or of other languages, or has several to choose from.
    """
    head: MemoryHead | None = None
    segments: dict[str, tuple[int, Segment]] = {}
    for number, line in enumerate(file, start=1):
        if not line.endswith(b"\n"):  # a process was killed while it wrote this
            break
        try:
            content = parse_line(line)
        except ValidationError:
            raise InputError(f"line {number:,}: damaged, or no memory of heedful serve") from None
        if isinstance(content, MemoryHead):
            head = content
            continue
        segments.pop(content.id, None)
        if not content.removed:
            segments[content.id] = number, content
    languages = dict.fromkeys(segment.tgt for _, segment in segments.values())
    if tgt is None and len(languages) > 1:
        raise InputError(remedy.format(", ".join(languages)))
    wanted = tag_of_language(tgt or "", languages)
    is_of_source = head is not None and tag_of_language(src or "", [head.src]) is not None
    if is_needed and not (wanted and is_of_source):
        have = ", ".join(([head.src] if head else []) + [*languages]) or "none"
        raise InputError(f"no unit is of {src or 'its source language'} and {tgt or 'another'}; has: {have}")
    yield [
        Unit(number, segment.source, "" if segment.doubt else segment.target)
        for number, segment in segments.values()
        if is_of_source and segment.tgt == wanted
    ]
