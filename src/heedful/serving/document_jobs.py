"""Documents of clients: files in a directory of the server's own, and their translation one by one.

Each document has a folder with its file, its state, and the translated file. All processes of a server read
the folders; only the process that received a document translates it and writes its state. Sentences go
through the queues of the models as for texts, with one share for each document.
"""

import asyncio
import logging
import os
import secrets
import shutil
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal

import filelock
import psutil
from pydantic import TypeAdapter

from heedful import Glossary, HeedfulError, InputError, Pair, Translation
from heedful.documents import format_of, read_document
from heedful.runtime.durable import atomic_output, why_not_written
from heedful.serving.access import fingerprint
from heedful.serving.model_queue import Turn
from heedful.serving.refusals import (
    NoSuchDocumentError,
    RefusedError,
    TextTooLongError,
    TooManyRequestsError,
    UnavailableError,
    not_stored,
)
from heedful.serving.service import Job, Recall, TranslationService
from heedful.spans import KeepRule, Request, keeping, translate_units

_PREFIX = "heedful-documents-"
_LOCK = "lock"
_STATE, _RESULT, _SOURCE, _TAKEN = "state.json", "result", "source", ".taken"
_UNPACKED = 8  # times the size of a file: the most text and markup in it
_DETECTED = 2_000  # characters that decide the language of a document
_SECONDS = 1.0  # between two states of a document that is being translated
_SWEEP_SECONDS = 30.0
_CLOSING_SECONDS = 10.0
_BUSY_SECONDS = 10  # after which a refused client may come back
_INTERNAL = "Internal error; its reason is in the server's log"
_NOT_FOUND = "Document not found"
COLUMNS_FIELD = "the form field 'columns'"
_log = logging.getLogger("heedful.serving")

Status = Literal["queued", "translating", "done", "error"]


@dataclass(frozen=True, kw_only=True)
class DocumentState:
    """The state of a document.

    Attributes:
        id: a random name, by which clients ask for it.
        fingerprint: hash of the document's key; empty if none is needed.
        owner: the client's API key; empty without keys.
        sender: the API key or address that the limit for each client counts.
        name: the name of the file, as the client has it.
        status: queued, translating, done, or error.
        characters: number to translate; 0 until the file is read.
        seconds_remaining: until it is done; None if it is not known.
        error: why it cannot be translated.
        process: process id and start time of the process that translates it.
        changed: when the state was written, in seconds since 1970.
    """

    id: str
    fingerprint: str
    owner: str
    sender: str
    name: str
    status: Status = "queued"
    characters: int = 0
    seconds_remaining: int | None = None
    error: str = ""
    process: tuple[int, float]
    changed: float = 0.0

    @property
    def is_at_work(self) -> bool:
        """Whether its process is alive and still works on it."""
        number, started = self.process
        try:
            return self.status not in ("done", "error") and psutil.Process(number).create_time() == started
        except psutil.Error:
            return False


_STATES = TypeAdapter(DocumentState)


@contextmanager
def documents_directory() -> Iterator[Path]:
    """Yield a directory for the documents of a server, and remove those that killed servers left behind.

    Raises:
        InputError: there is no directory for temporary files.
    """
    try:
        parent = Path(tempfile.gettempdir())
    except FileNotFoundError:
        raise InputError("no directory for documents can be written; set TMPDIR to one") from None
    for each in parent.glob(f"{_PREFIX}*/{_LOCK}"):  # if no process holds the lock, its server has ended
        path = each.parent
        with suppress(OSError, filelock.Timeout):
            is_own = not hasattr(os, "getuid") or path.lstat().st_uid == os.getuid()
            if is_own and each.is_file() and not path.is_symlink():
                with filelock.FileLock(each, timeout=0):
                    shutil.rmtree(path, ignore_errors=True)
    path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    try:
        with filelock.FileLock(path / _LOCK):
            yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


class DocumentStore:
    """The folders of documents, by their ids."""

    def __init__(self, path: Path) -> None:
        """Take the directory."""
        self._path = path

    def states(self) -> list[DocumentState]:
        """Return the states of all documents that are not being downloaded, the oldest first."""
        folders = (each for each in self._path.iterdir() if each.is_dir() and each.suffix != _TAKEN)
        states = (_read(each) for each in folders)
        return sorted((each for each in states if each is not None), key=lambda each: each.changed)

    def add(self, state: DocumentState, file: BinaryIO) -> None:
        """Store a document."""
        (self._path / state.id).mkdir(mode=0o700)
        with self.source(state).open("wb") as copy:
            shutil.copyfileobj(file, copy)
        self.write(state)

    def write(self, state: DocumentState) -> None:
        """Replace the state of a document; one that was removed stays so."""
        folder = self._path / state.id
        with suppress(FileNotFoundError):
            temporary = folder / f"{_STATE}.new"
            temporary.write_bytes(_STATES.dump_json(replace(state, changed=time.time())))
            temporary.replace(folder / _STATE)

    def source(self, state: DocumentState) -> Path:
        """Return the path of the file of the client."""
        return self._path / state.id / f"{_SOURCE}{Path(state.name).suffix.lower()}"

    def result(self, state: DocumentState) -> Path:
        """Return the path of the translated file."""
        return self._path / state.id / _RESULT

    def get(self, document_id: str, *, owner: str | None, key: str) -> DocumentState:
        """Return the state of a document.

        Args:
            document_id: the id of the document.
            owner: the client who asks; None: whoever has the id.
            key: the key of the document; "": it must have none.

        Raises:
            NoSuchDocumentError: there is none of this id, key and client.
        """
        is_id = document_id.isalnum() and document_id.isascii()
        state = _read(self._path / document_id) if is_id else None
        if (
            state is None
            or state.fingerprint != (fingerprint(key) if key else "")
            or owner not in (None, state.owner)
        ):
            raise NoSuchDocumentError(_NOT_FOUND)
        if state.status in ("queued", "translating") and not state.is_at_work:
            return replace(state, status="error", error="The server stopped; send the document again")
        return state

    def claim(self, state: DocumentState) -> Path:
        """Return the folder of a document; until it is given back, the document is not found.

        Raises:
            NoSuchDocumentError: it is being downloaded already.
        """
        taken = self._path / f"{state.id}{_TAKEN}"
        try:
            return (self._path / state.id).rename(taken)
        except OSError:
            raise NoSuchDocumentError(_NOT_FOUND) from None

    def give_back(self, state: DocumentState) -> None:
        """Let its client ask for a document again that was claimed."""
        with suppress(OSError):  # it was removed, because it was too old
            (self._path / f"{state.id}{_TAKEN}").rename(self._path / state.id)

    def remove(self, state: DocumentState) -> None:
        """Remove a document with all its files."""
        for each in (state.id, f"{state.id}{_TAKEN}"):
            shutil.rmtree(self._path / each, ignore_errors=True)

    def sweep(self, seconds: float) -> None:
        """Remove all finished or abandoned documents that are older than this many seconds."""
        for folder in self._path.iterdir():
            if not folder.is_dir():
                continue
            state = _read(folder)
            with suppress(FileNotFoundError):
                is_old = time.time() - (state.changed if state else folder.stat().st_mtime) > seconds
                if is_old and not (state and state.is_at_work):
                    shutil.rmtree(folder, ignore_errors=True)


def _read(folder: Path) -> DocumentState | None:
    try:
        return _STATES.validate_json((folder / _STATE).read_bytes())
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, kw_only=True)
class DocumentRequest:
    """A document to translate.

    Attributes:
        name: the name of the file; its extension says the format.
        file: that was received.
        columns: the columns of a table that hold text.
        target: code of the language.
        source: code of the language; None: it is detected.
        glossary: returns the terms of a pair of languages, or raises a RefusedError; None: no terms.
        recall: looks sentences up in translation memories; None: there are none.
        owner: the client.
        sender: see `DocumentState`.
        key: that is needed to ask for it; "": none.
        adapter: the name of the adapter that changes the model; "": none.
        count: counts the characters that the client had translated.
        keep: what else stays as it is.
    """

    name: str
    file: BinaryIO
    columns: Sequence[str] = ()
    target: str
    source: str | None
    glossary: Callable[[Pair], Glossary] | None
    recall: Recall | None = None
    owner: str
    sender: str
    key: str
    adapter: str = ""
    count: Callable[[int], Awaitable[None]]
    keep: tuple[KeepRule, ...] = ()


class DocumentJobs:
    """Translates documents, one at a time, so that only one is in memory; for one event loop."""

    def __init__(self, service: TranslationService, path: Path) -> None:
        """Take the service that translates sentences, and the directory."""
        self.store = DocumentStore(path)
        self._service, self._limits = service, service.limits
        self._share = -(-service.limits.documents // 2)  # that one client may have
        self._turn = asyncio.Lock()
        self._uploads: Counter[str] = Counter()  # that are being received, by their addresses
        self._admission = asyncio.Lock()
        self._tasks: dict[str, asyncio.Task[DocumentState]] = {}
        self._sweeper: asyncio.Task[None] | None = None
        self._process = (os.getpid(), psutil.Process().create_time())

    def start(self) -> None:
        """Remove old documents from now on."""
        self._sweeper = asyncio.ensure_future(self._sweep())

    async def close(self) -> None:
        """Give up what is not translated yet."""
        tasks = [*self._tasks.values(), *([self._sweeper] if self._sweeper else [])]
        for each in tasks:
            each.cancel()
        if tasks:  # a thread that reads a document may not hear of it, and ends with the process
            await asyncio.wait(tasks, timeout=_CLOSING_SECONDS)

    async def _kept(self) -> list[DocumentState]:
        return [each for each in await asyncio.to_thread(self.store.states) if each.status != "error"]

    @asynccontextmanager
    async def admitted(self, address: str) -> AsyncIterator[None]:
        """Reserve a slot for an upload; documents that could not be translated count no more.

        Args:
            address: the address of the sender; the key is in the body, so it is not known yet.

        Raises:
            TooManyRequestsError: the server is full, or this address sends too many at the same time.
        """
        if len(await self._kept()) + self._uploads.total() >= self._limits.documents:
            raise _busy("the server has too many documents (--max-documents); download yours, or")
        if (number := self._uploads[address]) >= self._share:
            raise _busy(
                f"you are sending {number} documents at the same time, and a client may have {self._share} "
                "(half of --max-documents);"
            )
        self._uploads[address] += 1
        try:
            yield
        finally:
            self._uploads[address] -= 1
            self._uploads += Counter()  # forgets those without any

    async def submit(self, request: DocumentRequest) -> "tuple[DocumentState, asyncio.Task[DocumentState]]":
        """Store a document, and translate it when it is its turn; return its first state, and its last.

        Raises:
            TooManyRequestsError: the client has its share of documents already.
            UnavailableError: it cannot be stored.
        """
        state = DocumentState(
            id=secrets.token_hex(16).upper(),
            fingerprint=fingerprint(request.key) if request.key else "",
            owner=request.owner,
            sender=request.sender,
            name=request.name,
            process=self._process,
        )
        try:
            async with self._admission:
                number = sum(each.sender == request.sender for each in await self._kept())
                if number >= self._share:
                    raise _busy(
                        f"you have {number} documents on the server, and a client may have {self._share} "
                        "(half of --max-documents); a document of /v2/document is removed when it is "
                        "downloaded;"
                    )
                await asyncio.to_thread(self.store.add, state, request.file)
        except OSError as error:
            self.store.remove(state)
            raise not_stored(error) from None
        self._tasks[state.id] = task = asyncio.ensure_future(self._run(state, request))

        def forget(task: "asyncio.Task[DocumentState]") -> None:
            del self._tasks[state.id]
            if task.cancelled():  # it may not have begun
                self.store.remove(state)

        task.add_done_callback(forget)
        return state, task

    async def _run(self, state: DocumentState, request: DocumentRequest) -> DocumentState:
        """Translate a document, and return its last state: done, or the error."""
        run = _Run(self._service, self.store, state)
        try:
            async with self._turn:
                done = await run.translated(request)
            await request.count(done.characters)
        except (HeedfulError, RefusedError) as error:
            done = run.failed(str(error).replace(str(self.store.source(state)), state.name))
        except OSError as error:
            done = run.failed(f"the translation cannot be stored: {why_not_written(error)}")
        except Exception as error:
            where = "".join(traceback.format_tb(error.__traceback__))  # its message may be of the document
            _log.error("a document could not be translated: %s\n%s", type(error).__name__, where)
            done = run.failed(_INTERNAL)
        self.store.source(state).unlink(missing_ok=True)
        try:
            self.store.write(done)
            if done.status == "error":
                states = await asyncio.to_thread(self.store.states)
                failed = [each for each in states if each.status == "error"]
                for each in failed[: -self._limits.documents]:  # the oldest
                    self.store.remove(each)
        except OSError as error:  # its client would ask for ever
            self.store.remove(state)
            done = run.failed(str(not_stored(error)))
        return done

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(min(_SWEEP_SECONDS, self._limits.document_seconds))
            try:
                await asyncio.to_thread(self.store.sweep, self._limits.document_seconds)
            except OSError as error:
                _log.error("old documents cannot be removed: %s", error.strerror)


def _busy(reason: str) -> TooManyRequestsError:
    return TooManyRequestsError(f"{reason} try again later", retry_after=_BUSY_SECONDS)


_STOPPED = "the server stopped; send the document again"
_MARKS = 100_000  # tags and elements that any document may have


class _Run:
    """One document on its way: read, translated and written in a thread, which waits for the event loop."""

    def __init__(self, service: TranslationService, store: DocumentStore, state: DocumentState) -> None:
        self._state = state
        self._service, self._limits, self._store = service, service.limits, store
        self._turn = Turn()  # it is over if the document is not needed any more
        self._asked: Future[list[Translation]] | None = None  # what the thread waits for
        self._characters = self._characters_done = 0
        self._characters_read = self._marks_read = 0
        self._started = 0.0

    def failed(self, message: str) -> DocumentState:
        """Return the state of a document that cannot be translated."""
        return replace(self._state, status="error", error=message, seconds_remaining=None)

    async def translated(self, request: DocumentRequest) -> DocumentState:
        """Write the translated file, and return the state.

        Raises:
            HeedfulError, RefusedError: the document cannot be read, translated or written.
        """
        done: Future[None] = Future()
        done.set_running_or_notify_cancel()
        loop = asyncio.get_running_loop()

        def work() -> None:
            try:
                with keeping(request.keep):
                    self._translate(request, loop)
                done.set_result(None)
            except BaseException as error:
                done.set_exception(error)

        # A process does not wait for a daemon when it ends.
        threading.Thread(target=work, name="heedful document", daemon=True).start()
        waiting = asyncio.wrap_future(done)
        try:
            self._write_state()
            while not (await asyncio.wait((waiting,), timeout=_SECONDS))[0]:
                self._write_state()
            waiting.result()
            return replace(self._state, status="done", characters=self._characters, seconds_remaining=None)
        finally:
            self._turn.is_over = True
            if self._asked is not None:
                self._asked.cancel()
            await asyncio.wait((waiting,))
            waiting.exception()  # retrieved: the state reports it, or it follows from the cancellation

    def _write_state(self) -> None:
        """Write how far the document is."""
        remaining = None
        if self._characters_done:
            seconds = time.monotonic() - self._started
            left = max(0, self._characters - self._characters_done)
            remaining = max(1, round(seconds * left / self._characters_done))
        self._state = replace(
            self._state, status="translating", characters=self._characters, seconds_remaining=remaining
        )
        with suppress(OSError):  # the disk may be full; the translation goes on
            self._store.write(self._state)

    def _translate(self, request: DocumentRequest, loop: asyncio.AbstractEventLoop) -> None:
        limits, service = self._limits, self._service
        file, result = self._store.source(self._state), self._store.result(self._state)
        self._started = time.monotonic()
        most = 2 * limits.document_characters  # Markdown is parsed as a whole, and a line may take kilobytes
        if format_of(file.name) == "Markdown" and file.stat().st_size > most:
            raise TextTooLongError(f"the document has more than {most:,} bytes of Markdown; split it")
        document = read_document(
            file,
            columns=request.columns,
            option=COLUMNS_FIELD,
            language=request.target,
            source=request.source,
            max_bytes=_UNPACKED * limits.document_bytes,
            watch=self._watch,
        )
        texts = [each.characters for each in document.units]
        self._characters = sum(map(len, texts))
        beginning = " ".join(texts[:_DETECTED])[:_DETECTED]
        guess, route = service.detected_route(request.source, request.target, [beginning])
        if route is None:
            shutil.copyfile(file, result)
            return
        job = Job(
            route,
            self._turn,
            service.terms(route, request.glossary, texts),
            progress=self._add_characters,
            adapters=service.adapters(route, request.adapter),
            recall=request.recall,
        )
        self._started = time.monotonic()

        def translate(requests: Sequence[Request]) -> list[Translation]:
            work = service.translate_sentences(requests, job)
            self._asked = asyncio.run_coroutine_threadsafe(work, loop)
            if self._turn.is_over:
                self._asked.cancel()
            return self._asked.result()

        try:
            translations = list(chain.from_iterable(translate_units(document.units, translate)))
        except CancelledError:
            raise UnavailableError(_STOPPED) from None
        with atomic_output(result) as stream:
            document.write(translations, stream)
        service.metrics.characters.labels(f"{guess.language}-{request.target}").inc(self._characters)

    def _watch(self, characters: int, marks: int) -> None:
        """Count what is read, and stop if it is too much or the server stops.

        Raises:
            RefusedError: the document is too large or takes too long, or the server stops.
        """
        if self._turn.is_over:
            raise UnavailableError(_STOPPED)
        if time.monotonic() - self._started > (seconds := self._limits.seconds):
            raise TextTooLongError(f"the document was not read within {seconds:g} seconds; split it")
        self._characters_read += characters
        self._marks_read += marks
        most = self._limits.document_characters
        if self._characters_read > most:
            raise TextTooLongError(f"the document has more than {most:,} characters; split it")
        if self._marks_read > most // 2 + _MARKS:
            raise TextTooLongError(f"the document has more than {most // 2 + _MARKS:,} tags; split it")

    def _add_characters(self, characters: int, _: object) -> None:
        self._characters_done += characters
