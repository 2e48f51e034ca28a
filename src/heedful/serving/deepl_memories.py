"""DeepL's endpoints for translation memories: /v3/translation_memories, with imports and exports as jobs."""

import asyncio
import io
import re
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response
from pydantic import BaseModel, Field, ValidationError
from pydantic.json_schema import SkipJsonSchema

from heedful import InputError, Pair
from heedful.data.memory_files import Segment
from heedful.data.tmx import ALL, languages_of_tmx, units_of_tmx
from heedful.runtime.durable import why_not_written, write_atomically
from heedful.serving.corrections import doubt_of
from heedful.serving.deepl import REFUSALS
from heedful.serving.gateway import Gateway, M, NonEmptyText, described_body, read_body, schema_of
from heedful.serving.memories import MOST_SEGMENTS, ClientMemory, MemoryStore, new_segment, now
from heedful.serving.refusals import InvalidError, NoSuchMemoryError, RefusedError, UnavailableError
from heedful.text.languages import language_code

_PATH = "/v3/translation_memories"
_NEEDS_DIRECTORY = "translation memories are kept in a directory; start the server with --memories DIR"
_JOB_SECONDS = 3600.0
_JOB = re.compile(r"[0-9a-f-]{36}")
_JOBS = "jobs"  # the folder of jobs, beside those of clients
_MOST_LISTED = 25
T = TypeVar("T")


class _Strict(BaseModel, extra="forbid"):
    """Parameters; an unknown one is refused by its name."""

    auth_key: SkipJsonSchema[str] = ""


class _PageFields(_Strict):
    page: Annotated[int, Field(ge=0)] = 0
    page_size: Annotated[int, Field(ge=1, le=_MOST_LISTED)] = 10


class _CreateFields(_Strict):
    name: NonEmptyText
    source_language: NonEmptyText


class _NameFields(_Strict):
    name: NonEmptyText


class _SegmentFields(_Strict):
    source_text: NonEmptyText
    target_text: NonEmptyText
    target_language: NonEmptyText


class _SegmentsFields(_Strict):
    page_size: Annotated[int, Field(ge=1, le=100)] = 50
    page_cursor: str = ""
    filter_text: Annotated[str, Field(min_length=2)] | None = None
    filter_case_sensitive: bool = False


class _SourceFile(BaseModel, extra="forbid"):
    file_name: NonEmptyText
    content_length: Annotated[int, Field(ge=1)]
    content_type: str = "application/xml"


class _Parameters(BaseModel, extra="forbid"):
    display_name: str = ""


class _ImportFields(_Strict):
    source_file: _SourceFile
    parameters: _Parameters = _Parameters()


class _Job(BaseModel):
    """An import or an export, as its file has it.

    Its id is a random name, and who knows it may upload or download the file: clients send no key with these.
    """

    id: str
    owner: str
    operation: Literal["import", "export"]
    created: str
    expires: float  # seconds since 1970
    status: Literal["awaiting_input", "completed", "failed"] = "awaiting_input"
    memory_id: str = ""
    name: str = ""
    source_file: _SourceFile | None = None
    num_skipped: int = 0
    error: str = ""


def described(memory: ClientMemory) -> dict[str, Any]:
    """Return a memory as DeepL describes it."""
    assert memory.head is not None
    segments = memory.listed()
    return {
        "translation_memory_id": memory.id,
        "name": memory.head.memory,
        "source_language": memory.head.src,
        "target_languages": list(dict.fromkeys(segment.tgt for segment in segments)),
        "segment_count": len(segments),
        "creation_time": memory.head.created,
        "updated_time": memory.changed or memory.head.created,
    }


def _described_segment(segment: Segment) -> dict[str, Any]:
    """Return a segment as DeepL describes it, and who added it, and why it is in doubt if it is."""
    times = {"creation_time": segment.time, "updated_time": segment.time}
    target = {
        "target_segment_id": segment.id,
        "target_language": segment.tgt,
        "target_text": segment.target,
        "client": segment.client,
        **({"status": "doubtful", "doubt": segment.doubt} if segment.doubt else {}),
        **times,
    }
    return {
        "source_segment_id": segment.id,
        "source_text": segment.source,
        "targets": [target],
        **times,
    }


def _page_of(segments: Sequence[Segment], asked: _SegmentsFields) -> dict[str, Any]:
    """Return a page of segments; the cursor is the id of the last one of the page before."""
    ids = [segment.id for segment in segments]
    start = ids.index(asked.page_cursor) + 1 if asked.page_cursor in ids else 0
    if asked.page_cursor and not start:
        raise InvalidError("Invalid page_cursor: the segment is no longer there; list from the beginning")
    wanted = asked.filter_text or ""
    fold = str if asked.filter_case_sensitive else str.casefold
    found = [
        segment
        for segment in segments[start:]
        if fold(wanted) in fold(segment.source) or fold(wanted) in fold(segment.target)
    ]
    page = found[: asked.page_size]
    answer: dict[str, Any] = {
        "segments": list(map(_described_segment, page)),
        "segment_count": len(segments),
    }
    if len(found) > len(page):
        answer["next_page_cursor"] = page[-1].id
    return answer


def segments_of_tmx(content: bytes, client: str) -> tuple[str, list[Segment], int]:
    """Return source language and segments of a TMX file, and how many others have no text or language of use.

    Raises:
        InvalidError: it is damaged, or has a source language that is not known, or too many segments.
    """
    try:
        source, _ = languages_of_tmx(io.BytesIO(content))
        src = language_code(source)
        if src is None:
            raise InputError(f"its source language is {source or 'not named'}, which is not known")
        segments: list[Segment] = []
        num_skipped = 0
        for units in units_of_tmx(io.BytesIO(content), src=source, tgt=ALL, is_needed=False):
            for unit in units:
                tgt = language_code(unit.language)
                if tgt and unit.source.strip() and unit.target.strip():
                    segments.append(new_segment(client, tgt, unit.source, unit.target))
                else:
                    num_skipped += 1
            if len(segments) > MOST_SEGMENTS:
                raise InputError(f"a translation memory may have {MOST_SEGMENTS:,} segments")
    except InputError as error:
        raise InvalidError(f"The file cannot be imported: {error}") from None
    if not segments:
        raise InvalidError("The file cannot be imported: no unit has a text in two languages")
    return src, segments, num_skipped


class _Jobs:
    """Imports and exports, in files that all processes of a server read."""

    def __init__(self, store: MemoryStore) -> None:
        self._folder = store.directory / _JOBS

    def begin(self, owner: str, operation: Literal["import", "export"], **about: Any) -> _Job:  # noqa: ANN401
        """Store a new job; those that are long over are removed."""
        self._folder.mkdir(mode=0o700, exist_ok=True)
        for path in self._folder.iterdir():
            if path.stat().st_mtime < time.time() - 2 * _JOB_SECONDS:
                path.unlink(missing_ok=True)
        expires = time.time() + _JOB_SECONDS
        job = _Job(id=str(uuid4()), owner=owner, operation=operation, created=now(), expires=expires, **about)
        return self.put(job)

    def put(self, job: _Job) -> _Job:
        """Store the state of a job."""
        write_atomically(self._folder / f"{job.id}.json", job.model_dump_json())
        return job

    def get(self, job_id: str, owner: str | None = None) -> _Job:
        """Return a job.

        Raises:
            NoSuchMemoryError: the client has none with this id.
        """
        try:
            if not _JOB.fullmatch(job_id):
                raise FileNotFoundError
            job = _Job.model_validate_json((self._folder / f"{job_id}.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            raise NoSuchMemoryError("Job not found") from None
        if owner not in (None, job.owner):
            raise NoSuchMemoryError("Job not found")
        return job

    def file(self, job: _Job) -> Path:
        """Return the path of the exported file."""
        return self._folder / f"{job.id}.tmx"


def _described_job(job: _Job, address: str) -> dict[str, Any]:
    expires = datetime.fromtimestamp(job.expires, UTC).isoformat()
    is_over = job.status == "awaiting_input" and job.expires < time.time()
    result: dict[str, Any] = {"status": "expired" if is_over else job.status, "expires_at": expires}
    parameters: dict[str, Any] = {"display_name": job.name}
    if job.operation == "export":
        parameters = {"translation_memory_id": job.memory_id}
        result["download_url"] = address
    elif job.status == "completed":
        result |= {"translation_memory_id": job.memory_id, "skipped_segment_count": job.num_skipped}
    elif job.status == "failed":
        result["error"] = {"message": job.error}
    else:
        result["status_metadata"] = {"required_action": f"PUT the file to {address}"}
    answer = {
        "job_id": job.id,
        "operation": job.operation,
        "product": "translation_memory",
        "creation_time": job.created,
        "updated_time": job.created,
        "parameters": parameters,
        "results": [result],
    }
    if job.source_file is not None:
        answer["source_file"] = job.source_file.model_dump()
    return answer


class _Clients:
    """What the routes share: who asks, for what, and where it is kept."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway

    @property
    def store(self) -> MemoryStore:
        """The store.

        Raises:
            NoSuchMemoryError: the server has none.
        """
        if self.gateway.memories is None:
            raise NoSuchMemoryError(_NEEDS_DIRECTORY)
        return self.gateway.memories

    @property
    def jobs(self) -> _Jobs:
        """The jobs; errors as for `store`."""
        return _Jobs(self.store)

    async def asked(self, request: Request, model: type[M]) -> tuple[str, M]:
        """Return the client and the parameters of a request."""
        if request.method != "GET":
            self.gateway.check_origin(request)
        return await self.gateway.parameters(request, model)

    async def memory(self, request: Request, memory_id: str) -> tuple[str, ClientMemory]:
        """Authorise a request without parameters; return its client and a memory."""
        owner, _ = await self.asked(request, _Strict)
        return owner, await stored(partial(self.store.get, owner, memory_id))

    def source(self, code: str) -> str:
        """Return the code of a source language that is served."""
        catalogue = self.gateway.service.catalogue
        return catalogue.languages(code, catalogue.targets[0])[0] or code

    def import_file(self, job: _Job, content: bytes) -> _Job:
        """Write a new memory with the segments of a file."""
        try:
            src, segments, num_skipped = segments_of_tmx(content, job.owner)
            memory = self.store.create(job.owner, job.name, src, segments, memory_id=job.id)
        except RefusedError as error:
            return self.jobs.put(job.model_copy(update={"status": "failed", "error": error.message}))
        done = {"status": "completed", "memory_id": memory.id, "num_skipped": num_skipped}
        return self.jobs.put(job.model_copy(update=done))

    def export_memory(self, owner: str, memory: ClientMemory) -> _Job:
        """Write a memory as a file."""
        job = self.jobs.begin(owner, "export", memory_id=memory.id)
        stream = io.BytesIO()
        memory.export(stream)
        write_atomically(self.jobs.file(job), stream.getvalue())
        return self.jobs.put(job.model_copy(update={"status": "completed"}))


async def stored(work: Callable[[], T]) -> T:
    """Return the result of work on files, which is done in a thread.

    Raises:
        UnavailableError: a file cannot be written.
    """
    try:
        return await asyncio.to_thread(work)
    except OSError as error:
        message = f"the translation memory cannot be written: {why_not_written(error)}"
        raise UnavailableError(message, retry_after=60) from None


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["DeepL"], responses=REFUSALS)
    clients = _Clients(gateway)
    _add_jobs(routes, clients)  # their paths come first: "jobs" is no memory
    _add_memories(routes, clients)
    _add_segments(routes, clients)
    return routes


def _add_memories(routes: APIRouter, clients: _Clients) -> None:
    @routes.get(_PATH)
    async def listed(request: Request) -> dict[str, Any]:
        """Return the client's memories, the oldest first."""
        owner, asked = await clients.asked(request, _PageFields)
        found = await stored(partial(clients.store.of, owner))
        start = asked.page * asked.page_size
        page = found[start : start + asked.page_size]
        return {"translation_memories": list(map(described, page)), "total_count": len(found)}

    @routes.post(_PATH, status_code=201, openapi_extra=described_body(schema_of(_CreateFields)))
    async def create(request: Request) -> dict[str, Any]:
        """Make an empty memory."""
        owner, asked = await clients.asked(request, _CreateFields)
        source = clients.source(asked.source_language)
        return described(await stored(partial(clients.store.create, owner, asked.name, source)))

    @routes.get(f"{_PATH}/{{memory_id}}")
    async def get(request: Request, memory_id: str) -> dict[str, Any]:
        """Return the description of a memory."""
        _, memory = await clients.memory(request, memory_id)
        return described(memory)

    @routes.patch(f"{_PATH}/{{memory_id}}", openapi_extra=described_body(schema_of(_NameFields)))
    async def rename(request: Request, memory_id: str) -> dict[str, Any]:
        """Give a memory another name."""
        owner, asked = await clients.asked(request, _NameFields)
        memory = await stored(partial(clients.store.get, owner, memory_id))
        await stored(partial(memory.rename, asked.name))
        return described(memory)

    @routes.delete(f"{_PATH}/{{memory_id}}", status_code=204)
    async def delete(request: Request, memory_id: str) -> Response:
        """Delete a memory."""
        _, memory = await clients.memory(request, memory_id)
        await stored(memory.delete)
        return Response(status_code=204)


def _add_segments(routes: APIRouter, clients: _Clients) -> None:
    path = f"{_PATH}/{{memory_id}}/segments"

    @routes.get(path)
    async def segments(request: Request, memory_id: str) -> dict[str, Any]:
        """Return a page of the segments of a memory."""
        owner, asked = await clients.asked(request, _SegmentsFields)
        memory = await stored(partial(clients.store.get, owner, memory_id))
        return await stored(lambda: _page_of(memory.listed(), asked))

    @routes.post(path, status_code=201, openapi_extra=described_body(schema_of(_SegmentFields)))
    async def add(request: Request, memory_id: str) -> dict[str, Any]:
        """Add a segment."""
        owner, asked = await clients.asked(request, _SegmentFields)
        service = clients.gateway.service
        service.check_size(1, len(asked.source_text) + len(asked.target_text))
        memory = await stored(partial(clients.store.get, owner, memory_id))
        assert memory.head is not None
        _, target = service.catalogue.languages(None, asked.target_language)
        pair = Pair(memory.head.src, target)
        doubt = await doubt_of(service, pair, asked.source_text, asked.target_text)
        segment = new_segment(owner, target, asked.source_text, asked.target_text, doubt)
        [added] = await stored(partial(memory.add, [segment]))
        return _described_segment(added)

    @routes.post(f"{path}/{{segment_id}}")
    async def confirm(request: Request, memory_id: str, segment_id: str) -> dict[str, Any]:
        """Confirm a segment that was in doubt."""
        owner, memory = await clients.memory(request, memory_id)
        return _described_segment(await stored(partial(memory.change, owner, segment_id, doubt="")))

    @routes.delete(f"{path}/{{segment_id}}", status_code=204)
    async def remove(request: Request, memory_id: str, segment_id: str) -> Response:
        """Remove a segment; an earlier one with this source counts again."""
        owner, memory = await clients.memory(request, memory_id)
        await stored(partial(memory.change, owner, segment_id, removed=True))
        return Response(status_code=204)


def _add_jobs(routes: APIRouter, clients: _Clients) -> None:
    limits = clients.gateway.service.limits
    jobs_path = f"{_PATH}/jobs/{{job_id}}"

    def address(request: Request, job: _Job) -> str:
        return f"{str(request.base_url).rstrip('/')}{_PATH}/jobs/{job.id}/file"

    @routes.post(f"{_PATH}/import", status_code=201, openapi_extra=described_body(schema_of(_ImportFields)))
    async def begin_import(request: Request) -> dict[str, Any]:
        """Begin to import a TMX file as a new memory; it is then sent to `upload_url`."""
        owner, asked = await clients.asked(request, _ImportFields)
        file = asked.source_file
        if file.content_length > limits.document_bytes:
            raise InvalidError(f"a translation memory may have {limits.document_bytes:,} bytes")
        name = asked.parameters.display_name or file.file_name
        begin = partial(clients.jobs.begin, owner, "import", name=name, source_file=file)
        job = await stored(begin)
        expires = datetime.fromtimestamp(job.expires, UTC).isoformat()
        return {"job_id": job.id, "upload_url": address(request, job), "expires_at": expires}

    @routes.post(f"{_PATH}/{{memory_id}}/export", status_code=202)
    async def begin_export(request: Request, memory_id: str) -> dict[str, Any]:
        """Export a memory as TMX."""
        owner, memory = await clients.memory(request, memory_id)
        job = await stored(partial(clients.export_memory, owner, memory))
        return _described_job(job, address(request, job))

    @routes.get(jobs_path)
    async def job(request: Request, job_id: str) -> dict[str, Any]:
        """Return how far an import or an export is."""
        owner, _ = await clients.asked(request, _Strict)
        found = await stored(partial(clients.jobs.get, job_id, owner))
        return _described_job(found, address(request, found))

    @routes.put(f"{jobs_path}/file", status_code=200)
    async def upload(request: Request, job_id: str) -> Response:
        """Receive the file of an import, and import it."""
        found = await stored(partial(clients.jobs.get, job_id))
        if found.operation != "import" or found.expires < time.time():
            raise NoSuchMemoryError("Job not found")
        content = await read_body(request, limits, limits.document_bytes)
        if found.status == "awaiting_input":  # a repeated upload changes nothing
            await stored(partial(clients.import_file, found, content))
        return Response()

    @routes.get(f"{jobs_path}/file")
    async def download(job_id: str) -> Response:
        """Return an exported file."""
        found = await stored(partial(clients.jobs.get, job_id))
        path = clients.jobs.file(found)
        if not path.exists():
            raise NoSuchMemoryError("Job not found")
        return FileResponse(path, media_type="application/xml")
