"""Translation memories of the clients, and their corrections: a folder for each client, a file for each.

A client's corrections of one source language are a memory of their own (`corrections-en`), which each request
of the client asks first. The files can be read by all commands that read TMX (`heedful.data.memory_files`).
"""

import threading
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from cachetools import LRUCache
from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from heedful import InputError, Pair
from heedful.data.memory_files import MemoryHead, Segment, parse_line
from heedful.decoding import MemoryMatch
from heedful.documents import TmxWriter, normalised
from heedful.runtime.durable import sync
from heedful.serving.access import label_of_key
from heedful.serving.journal import Journal
from heedful.serving.refusals import InvalidError, NoSuchMemoryError
from heedful.serving.service import Recall
from heedful.text.languages import tag_of_language

SUFFIX = ".memory"
_CORRECTIONS = "corrections-{}"
_ANYONE = "everyone"  # the folder of clients without keys
_WHAT = "the translation memory"
_MOST_OPEN = 1000  # memories that are kept
MOST_SEGMENTS = 200_000  # of a memory
_LONG = 2**16  # bytes of a file that an event loop should not read
_SCANNED = 2000  # sources that are compared in one call, which holds the interpreter's lock for milliseconds

_Sources = dict[str, dict[str, dict[str, Segment]]]  # segments by target language, normalised source and id


def now() -> str:
    """Return the time as it is written into files and answers."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def new_segment(client: str, tgt: str, source: str, target: str, doubt: str = "") -> Segment:
    """Return a segment with an id of its own, of now."""
    return Segment(
        id=str(uuid.uuid4()), time=now(), client=client, tgt=tgt, source=source, target=target, doubt=doubt
    )


class ClientMemory:
    """A memory in a file that several processes may change; for any number of threads."""

    def __init__(self, path: Path, head: MemoryHead | None = None) -> None:
        """Take a file; `head` is written into it with its first segment, if it does not exist."""
        self.id = path.name.removesuffix(SUFFIX)
        self.can_begin = head is not None
        self._new_head = head
        self._journal = Journal(path, self._add_line, self._clear)
        self._clear()

    def _clear(self) -> None:
        self.head = self._new_head
        self.changed = ""  # when the last segment was
        self.segments: dict[str, Segment] = {}
        self._used: _Sources = defaultdict(lambda: defaultdict(dict))
        self._doubtful: _Sources = defaultdict(lambda: defaultdict(dict))

    def _add_line(self, line: bytes) -> None:
        content = parse_line(line)
        if isinstance(content, MemoryHead):
            self.head = content
            return
        self.changed = content.time
        before = self.segments.pop(content.id, None)
        if before is not None:
            sources, source = self._sources_of(before)[before.tgt], normalised(before.source)
            del sources[source][before.id]
            if not sources[source]:
                del sources[source]
        if not content.removed:
            self.segments[content.id] = content
            self._sources_of(content)[content.tgt][normalised(content.source)][content.id] = content

    def _sources_of(self, segment: Segment) -> _Sources:
        return self._doubtful if segment.doubt else self._used

    @property
    def num_unread(self) -> int:
        """The bytes of the file that are not read yet."""
        return self._journal.num_unread

    def refreshed(self, owner: str) -> MemoryHead:
        """Read what is new; return what the memory is.

        Raises:
            NoSuchMemoryError: it was deleted, or is another client's.
        """
        self._journal.refresh()
        if self.head is None or self.head.owner != owner:
            raise NoSuchMemoryError("Translation memory not found")
        return self.head

    def add(self, segments: Sequence[Segment]) -> list[Segment]:
        """Add segments, and return them; one that says what the memory says already is not added again.

        Raises:
            InvalidError: the memory would have too many.
            NoSuchMemoryError: it was deleted.
            UnavailableError: it cannot be written.
        """
        with self._journal.changing(_WHAT) as append:
            if self.head is None:
                raise NoSuchMemoryError("Translation memory not found")
            known = [self._same(segment) for segment in segments]
            new = [segment for segment, same in zip(segments, known, strict=True) if same is None]
            if len(self.segments) + len(new) > MOST_SEGMENTS:
                raise InvalidError(f"a translation memory may have {MOST_SEGMENTS:,} segments; delete some")
            head = [] if self._journal.path.exists() else [self.head]
            append(line.model_dump_json() for line in (*head, *new))
        return [same or segment for segment, same in zip(segments, known, strict=True)]

    def _same(self, segment: Segment) -> Segment | None:
        """Return the latest segment of a source, if it has the same translation; else None."""
        for sources in (self._used, self._doubtful):
            of_source = sources[segment.tgt].get(normalised(segment.source), {})
            last = next(reversed(of_source.values()), None)
            if last is not None and last.target == segment.target:
                return last
        return None

    def change(self, client: str, segment_id: str, **update: object) -> Segment:
        """Confirm (`doubt=""`) or remove (`removed=True`) a segment, and return it.

        Raises:
            NoSuchMemoryError: there is none with this id.
            UnavailableError: the memory cannot be written.
        """
        with self._journal.changing(_WHAT) as append:
            segment = self.segments.get(segment_id)
            if segment is None:
                raise NoSuchMemoryError("Segment not found")
            changed = segment.model_copy(update={**update, "time": now(), "client": client})
            append([changed.model_dump_json()])
        return changed

    def rename(self, name: str) -> None:
        """Give the memory another name."""
        with self._journal.changing(_WHAT) as append:
            if self.head is None:
                raise NoSuchMemoryError("Translation memory not found")
            append([self.head.model_copy(update={"memory": name}).model_dump_json()])

    def write_whole(self, segments: Sequence[Segment]) -> None:
        """Write a new memory, or nothing of it."""
        assert self._new_head is not None
        lines = (line.model_dump_json() for line in (self._new_head, *segments))
        with self._journal.changing(_WHAT):
            self._journal.replace(lines)

    def delete(self) -> None:
        """Delete the file."""
        with self._journal.changing(_WHAT):
            self._journal.path.unlink(missing_ok=True)
            sync(self._journal.path.parent)

    def listed(self) -> list[Segment]:
        """Return all segments, the oldest first."""
        with self._journal.lock:
            return list(self.segments.values())

    def export(self, stream: BinaryIO) -> None:
        """Write the memory as TMX; a segment in doubt has a property `x-doubt` with the reason."""
        assert self.head is not None
        segments = self.listed()
        writer = TmxWriter(stream, src=self.head.src, tgt=segments[0].tgt if segments else "x-target")
        for segment in segments:
            changed = datetime.fromisoformat(segment.time).strftime("%Y%m%dT%H%M%SZ")
            attributes = {"tuid": segment.id, "changedate": changed, "changeid": segment.client}
            writer.write(
                segment.source,
                segment.target,
                tgt=segment.tgt,
                attributes={name: value for name, value in attributes.items() if value},
                doubt=segment.doubt,
            )
        writer.finish()

    def matches(self, pair: Pair, texts: Iterable[str], least: float) -> dict[str, MemoryMatch]:
        """Return the match of each text that has one.

        Args:
            pair: the languages.
            texts: texts, not normalised.
            least: the least similarity of a match, from 0 to 1 (`similarity`); 1: the same text.
        """
        with self._journal.lock:
            languages = [] if self.head is None else [self.head.src]
            tgt = tag_of_language(pair.tgt, self._used)
            if tgt is None or tag_of_language(pair.src, languages) is None:
                return {}
            sources = self._used[tgt]
            found: dict[str, MemoryMatch] = {}
            for text in texts:
                source = normalised(text)
                if source not in sources and least < 1:
                    source = _most_similar(source, sources, least) or source
                if source in sources:
                    target = next(reversed(sources[source].values())).target
                    found[text] = MemoryMatch(source, target)
            return found


def similarity(one: str, other: str) -> float:
    """Return 1 minus the edit distance in characters over the length of the longer text."""
    return float(Levenshtein.normalized_similarity(one, other))


def _most_similar(text: str, sources: Iterable[str], least: float) -> str | None:
    """Return the text that is most similar to another one; None: none is similar enough."""
    best, found = least, None
    rest = iter(sources)
    while part := list(islice(rest, _SCANNED)):
        match = process.extractOne(text, part, scorer=Levenshtein.normalized_similarity, score_cutoff=best)
        if match is not None and (found is None or match[1] > best):
            found, best = match[0], match[1]
    return found


@dataclass(frozen=True)
class _Recall:
    """What a request looks texts up in; see `MemoryStore.recall`."""

    store: "MemoryStore"
    owner: str
    named: Sequence[ClientMemory]
    least: float

    def __call__(self, pair: Pair, texts: Sequence[str]) -> dict[str, MemoryMatch]:
        """Return the matches of texts, by the texts."""
        found = self.store.corrections(self.owner, pair.src).matches(pair, texts, 1.0)
        for memory in self.named:
            left = [text for text in texts if text not in found]
            found |= memory.matches(pair, left, self.least)
        return found

    def is_long(self, pair: Pair) -> bool:
        """Return whether texts are compared, or much of a file is to be read."""
        return bool(self.named) or self.store.num_unread(self.owner, pair.src) > _LONG


class MemoryStore:
    """The memories of all clients, in a directory."""

    def __init__(self, directory: Path) -> None:
        """Take the directory.

        Raises:
            InputError: there is none.
        """
        if not directory.is_dir():
            raise InputError(f"{directory}: there is no such directory; make it")
        self.directory = directory
        self._open: LRUCache[Path, ClientMemory] = LRUCache(_MOST_OPEN)
        self._lock = threading.Lock()

    def folder(self, owner: str) -> Path:
        """Return the folder of a client: named like its key in /metrics, for names may have any letter."""
        return self.directory / (label_of_key(owner) if owner else _ANYONE)

    def of(self, owner: str) -> list[ClientMemory]:
        """Return the memories of a client, the oldest first."""
        found: list[tuple[str, ClientMemory]] = []
        for path in self.folder(owner).glob(f"*{SUFFIX}"):
            with suppress(NoSuchMemoryError):  # it was deleted meanwhile
                memory = self._opened(path)
                found.append((memory.refreshed(owner).created, memory))
        return [memory for _, memory in sorted(found, key=lambda dated: dated[0])]

    def get(self, owner: str, memory_id: str) -> ClientMemory:
        """Return a memory.

        Raises:
            NoSuchMemoryError: the client has none with this id.
        """
        if not memory_id.replace("-", "").isalnum():
            raise NoSuchMemoryError("Translation memory not found")
        memory = self._opened(self.folder(owner) / f"{memory_id}{SUFFIX}")
        memory.refreshed(owner)
        return memory

    def corrections(self, owner: str, src: str) -> ClientMemory:
        """Return the memory of a client's corrections of translations from a language."""
        name = _CORRECTIONS.format(src.split("-")[0])
        head = MemoryHead(memory=name, owner=owner, src=src, created=now())
        memory = self._opened(self.folder(owner) / f"{name}{SUFFIX}", head)
        memory.refreshed(owner)
        return memory

    def num_unread(self, owner: str, src: str) -> int:
        """The bytes of a client's corrections that are not read yet."""
        name = _CORRECTIONS.format(src.split("-")[0])
        return self._opened(self.folder(owner) / f"{name}{SUFFIX}").num_unread

    def create(
        self, owner: str, name: str, src: str, segments: Sequence[Segment] = (), *, memory_id: str = ""
    ) -> ClientMemory:
        """Write a new memory; with an id, a memory of this id is replaced: the caller did it before.

        Raises:
            InvalidError: it has too many segments.
            UnavailableError: it cannot be written.
        """
        if len(segments) > MOST_SEGMENTS:
            raise InvalidError(f"a translation memory may have {MOST_SEGMENTS:,} segments")
        head = MemoryHead(memory=name, owner=owner, src=src, created=now())
        memory = ClientMemory(self._made_folder(owner) / f"{memory_id or uuid.uuid4()}{SUFFIX}", head)
        memory.write_whole(segments)
        return self.get(owner, memory.id)

    def add_correction(self, owner: str, src: str, segment: Segment) -> Segment:
        """Add a correction, and return it; see `ClientMemory.add`."""
        self._made_folder(owner)
        return self.corrections(owner, src).add([segment])[0]

    def corrected(self, owner: str) -> Iterator[tuple[ClientMemory, Segment]]:
        """Yield all corrections of a client with their memories."""
        for memory in self.of(owner):
            if memory.id.startswith(_CORRECTIONS.format("")):
                for segment in memory.listed():
                    yield memory, segment

    def recall(self, owner: str, named: Sequence[str] = (), least: float = 1.0) -> Recall:
        """Return what looks texts up: exactly in the corrections of a client, then in named memories.

        Args:
            owner: the client.
            named: the ids of memories.
            least: the least similarity of a match in these.

        Raises:
            NoSuchMemoryError: the client has no such memory.
        """
        return _Recall(self, owner, [self.get(owner, memory_id) for memory_id in named], least)

    def _opened(self, path: Path, head: MemoryHead | None = None) -> ClientMemory:
        with self._lock:
            memory = self._open.get(path)
            if memory is None or (head is not None and not memory.can_begin):
                memory = self._open[path] = ClientMemory(path, head)
            return memory

    def _made_folder(self, owner: str) -> Path:
        folder = self.folder(owner)
        if not folder.exists():
            folder.mkdir(mode=0o700, exist_ok=True)
            sync(self.directory)
        return folder
