"""Glossaries of the clients, in a file that survives a kill, and DeepL's formats of their entries."""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

from cachetools import LRUCache
from pydantic import BaseModel, TypeAdapter

from heedful import Glossary, InputError, Pair
from heedful.decoding.glossary_files import Row, csv_rows, is_header
from heedful.documents import primary_language
from heedful.serving.journal import Journal, check_parent
from heedful.serving.refusals import InvalidError, NoSuchGlossaryError

_MOST_LINES = 100  # of the file, and four for each glossary; then it is written anew
_MOST_PREPARED = 200_000  # entries that are kept ready for lookups, some 600 bytes each
_LINE_END = re.compile(r"\r?\n|\r")  # U+2028 and others are part of a term


class Dictionary(BaseModel):
    """The terms of a pair of languages, which are codes without a region."""

    source: str
    target: str
    entries: dict[str, str]

    @property
    def pair(self) -> tuple[str, str]:
        """The two languages."""
        return self.source, self.target

    def tsv(self) -> str:
        """Return the entries as lines of source, tab and target."""
        return "\n".join(map("\t".join, self.entries.items()))


class StoredGlossary(BaseModel):
    """A glossary of a client."""

    id: str
    owner: str  # the name of a key; "" without keys
    name: str
    created: str
    dictionaries: list[Dictionary]

    def dictionary(self, source: str, target: str) -> Dictionary:
        """Return the terms of a pair of languages.

        Raises:
            NoSuchGlossaryError: there are none.
        """
        for dictionary in self.dictionaries:
            if dictionary.pair == (source, target):
                return dictionary
        raise NoSuchGlossaryError(f"the glossary has no dictionary from {source} to {target}")

    @property
    def num_entries(self) -> int:
        """The number of entries of all dictionaries."""
        return sum(len(dictionary.entries) for dictionary in self.dictionaries)

    def put(self, changed: Dictionary, *, merge: bool) -> None:
        """Add a dictionary; one of the same pair is replaced, or with `merge` extended."""
        by_pair = {dictionary.pair: dictionary for dictionary in self.dictionaries}
        before = by_pair.pop(changed.pair, None)
        if merge and before is not None:
            changed = changed.model_copy(update={"entries": before.entries | changed.entries})
        self.dictionaries = [*by_pair.values(), changed]


class _Deleted(BaseModel, extra="forbid"):
    deleted: str  # the id of a glossary


_LINE: TypeAdapter[StoredGlossary | _Deleted] = TypeAdapter(StoredGlossary | _Deleted)


class GlossaryStore:
    """The glossaries of all clients, in a file that several processes may share (`Journal`).

    A line is a glossary, which replaces an earlier one with its id, or the id of one that was deleted.
    """

    def __init__(self, path: Path) -> None:
        """Read the file, if there is one.

        Raises:
            InputError: it cannot be read or locked, or holds something else.
        """
        check_parent(path)
        self._terms: LRUCache[tuple[str, ...], tuple[dict[str, str], Glossary]] = LRUCache(
            _MOST_PREPARED, getsizeof=lambda known: len(known[0])
        )  # the keys are ids and pair
        self._clear()
        self._journal = Journal(path, self._add_line, self._clear)
        try:
            self._journal.read()
        except (OSError, ValueError) as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{path}: not a file of glossaries ({reason}); restore it, or choose another"
            ) from None

    def _clear(self) -> None:
        self._glossaries: dict[str, StoredGlossary] = {}
        self._num_lines = 0

    def _add_line(self, line: bytes) -> None:
        content = _LINE.validate_json(line)
        self._num_lines += 1
        if isinstance(content, _Deleted):
            del self._glossaries[content.deleted]
        else:
            self._glossaries[content.id] = content

    def of(self, owner: str) -> list[StoredGlossary]:
        """Return the glossaries of a client, the oldest first."""
        with self._journal.lock:
            self._journal.refresh()
            return [stored for stored in self._glossaries.values() if stored.owner == owner]

    def get(self, owner: str, glossary_id: str) -> StoredGlossary:
        """Return a glossary.

        Raises:
            NoSuchGlossaryError: the client has none with this id.
        """
        with self._journal.lock:
            self._journal.refresh()
            return owned(self._glossaries, owner, glossary_id)

    def terms(self, owner: str, ids: Sequence[str], pair: Pair) -> Glossary:
        """Return the terms of glossaries for a pair of languages; many of them take seconds at first.

        For a term in several glossaries, the first one counts.

        Raises:
            NoSuchGlossaryError: the client has no such glossary, or it has no terms for them.
        """
        languages = primary_language(pair.src), primary_language(pair.tgt)
        entries: dict[str, str] = {}
        for glossary_id in reversed(ids):
            entries |= self.get(owner, glossary_id).dictionary(*languages).entries
        key = (*ids, *languages)
        with self._journal.lock:
            known, terms = self._terms.get(key, (None, None))
        if terms is None or known != entries:
            terms = Glossary.of(entries).prepared()
            with self._journal.lock, suppress(ValueError):  # larger than all that is kept
                self._terms[key] = entries, terms
        return terms

    def change(self, work: Callable[[dict[str, StoredGlossary]], object]) -> None:
        """Change the glossaries by their ids, and write them; an error changes nothing.

        Raises:
            UnavailableError: the file cannot be read or written, or another process does not unlock it.
        """
        with self._journal.changing("the glossaries") as append:
            before = self._glossaries
            changed = {name: stored.model_copy(deep=True) for name, stored in before.items()}
            work(changed)
            if self._num_lines > _MOST_LINES + 4 * len(before):  # most of them are of the past
                self._journal.replace(stored.model_dump_json() for stored in changed.values())
                return
            lines = [_Deleted(deleted=name) for name in before if name not in changed]
            new = [stored for name, stored in changed.items() if stored != before.get(name)]
            append(line.model_dump_json() for line in (*lines, *new))


def owned(glossaries: dict[str, StoredGlossary], owner: str, glossary_id: str) -> StoredGlossary:
    """Return a glossary of a client.

    Raises:
        NoSuchGlossaryError: the client has none with this id.
    """
    stored = glossaries.get(glossary_id)
    if stored is None or stored.owner != owner:
        raise NoSuchGlossaryError("Glossary not found")
    return stored


def parse_entries(text: str, form: Literal["tsv", "csv"], pair: tuple[str, str]) -> dict[str, str]:
    """Return the entries of DeepL's TSV or CSV: source and target, and in CSV perhaps the two languages.

    As in a file of the command, CSV may have semicolons, and the first row may be source and target.

    Raises:
        InvalidError: naming the first bad line.
    """
    try:
        rows = [row for row in _rows(text, form) if any(map(str.strip, row.cells))]
        rows = rows[1:] if rows and is_header(rows[0].cells) else rows
    except InputError as error:
        raise InvalidError(f"Invalid glossary entries provided: {error}") from None
    entries: dict[str, str] = {}
    for number, row in rows:
        cells = [cell.strip() for cell in row]
        problem = _problem(cells, form, pair)
        if cells[0] in entries:
            problem = problem or f"duplicates the source {cells[0]!r}"
        if problem:
            raise InvalidError(f"Invalid glossary entries provided: line {number:,} {problem}")
        entries[cells[0]] = cells[1]
    if not entries:
        raise InvalidError("Invalid glossary entries provided: there are none")
    try:
        Glossary.of(entries)
    except InputError as error:
        raise InvalidError(f"Invalid glossary entries provided: {error}") from None
    return entries


def _rows(text: str, form: str) -> list[Row]:
    lines = _LINE_END.split(text)
    if form == "csv":
        return csv_rows(lines)
    return [Row(number, line.split("\t")) for number, line in enumerate(lines, start=1)]


def _problem(cells: Sequence[str], form: str, pair: tuple[str, str]) -> str:
    """Say why a line of a glossary cannot be; "": it can."""
    if len(cells) != 2 and (form, len(cells)) != ("csv", 4):
        return f"has {len(cells)} columns; give source and target"
    if not all(cells[:2]):
        return "has no source or no target"
    if not all(cell.isprintable() for cell in cells[:2]):
        return "has a control character"
    if len(cells) == 4 and tuple(map(primary_language, cells[2:])) != pair:
        return f"is of another pair of languages than {pair[0]} and {pair[1]}"
    return ""
