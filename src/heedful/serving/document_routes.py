"""Documents in both dialects: LibreTranslate's /translate_file, and DeepL's /v2/document."""

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path, PurePath
from typing import Annotated, Any, ClassVar, TypeVar
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import Response, StreamingResponse
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema
from starlette.background import BackgroundTask

from heedful import InputError
from heedful.documents import check_document
from heedful.serving import deepl, libretranslate
from heedful.serving.adapters import adapter_of
from heedful.serving.document_jobs import (
    COLUMNS_FIELD,
    DocumentJobs,
    DocumentRequest,
    DocumentState,
    DocumentStore,
    Status,
)
from heedful.serving.gateway import (
    AUTO,
    Gateway,
    KeptParts,
    NonEmptyText,
    Schema,
    Texts,
    get_and_post,
    name_of_upload,
    read_upload,
    schema_of,
    sender_of,
    unless_gone,
)
from heedful.serving.refusals import InvalidError, NoSuchDocumentError, UnauthorizedError, UnavailableError
from heedful.serving.server import DELIVERED, WITHOUT_BODY
from heedful.spans import literal_rules

_LONGEST_NAME = 150  # characters of a file's name
_NOT_FOUND = "Document not found"
_CHUNK = 2**16
_REMOVALS: set[asyncio.Future[None]] = set()
_BINARY: dict[int | str, dict[str, Any]] = {200: {"content": {"application/octet-stream": {}}}}


class TranslatedFile(BaseModel):
    """Where a translated document is."""

    url: Annotated[str, Field(serialization_alias="translatedFileUrl")]


_Columns = Annotated[
    Texts,
    Field(
        default_factory=list,
        description="Names or numbers (from 1) of the columns that hold text. A table in CSV or TSV needs "
        "them, and other formats must not have them. Repeat the field, or write commas between them; a name "
        "with a comma is in double quotes.",
        examples=[["title", "description"]],
    ),
]


class _FileFields(BaseModel):
    source: NonEmptyText
    target: NonEmptyText
    columns: _Columns
    adapter: str = ""
    keep: KeptParts = []
    api_key: str = ""
    filename: ClassVar[str] = ""  # DeepL's field, for the name of the file
    output_format: ClassVar[str] = ""

    @property
    def languages(self) -> tuple[str | None, str]:
        """The source, None to identify it, and the target."""
        return None if self.source == AUTO else self.source, self.target


class DocumentHandle(BaseModel):
    """The names by which a client asks for its document."""

    document_id: str
    document_key: str


class DocumentStatus(BaseModel):
    """How far a document is."""

    document_id: str
    status: Status
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


class _DocumentFields(deepl.SharedFields):
    filename: str = ""
    output_format: str = ""
    columns: _Columns

    @property
    def languages(self) -> tuple[str | None, str]:
        """The source, None to identify it, and the target."""
        return self.source_lang or None, self.target_lang

    @property
    def adapter(self) -> str:
        """The name of the adapter; "": none."""
        return self.style_id


class _HandleFields(BaseModel):
    document_key: NonEmptyText
    auth_key: SkipJsonSchema[str] = ""


F = TypeVar("F", _FileFields, _DocumentFields)


def _described_upload(schema: Schema) -> dict[str, Any]:
    file = {"type": "string", "format": "binary"}
    form = schema | {
        "properties": {"file": file, **schema["properties"]},
        "required": ["file", *schema["required"]],
    }
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": form}}}}


def _jobs(gateway: Gateway) -> DocumentJobs:
    if gateway.documents is None:
        raise UnauthorizedError("Documents are not translated by this server")
    return gateway.documents


@asynccontextmanager
async def _received(
    gateway: Gateway, request: Request, model: type[F]
) -> AsyncIterator[tuple[DocumentJobs, F, DocumentRequest]]:
    """Read the upload of an authorised client; yield the jobs, the parameters and the document.

    The document has no glossary and no key yet.

    Raises:
        InvalidError: a file of no known format, or languages or columns that are not possible.
    """
    jobs, service = _jobs(gateway), gateway.service
    gateway.check_origin(request)
    await gateway.check_header(request)
    upload = read_upload(request, service.limits, model)
    async with jobs.admitted(sender_of(request)), upload as (fields, file):
        client = await gateway.authorize(request, fields)
        parameters = model.model_validate(fields)
        name = _name(parameters.filename or name_of_upload(file))
        if parameters.output_format.lower() not in ("", PurePath(name).suffix[1:].lower()):
            raise InvalidError("'output_format' must be the format of the document.")
        source, target = service.catalogue.languages(*parameters.languages)
        check = partial(check_document, columns=parameters.columns, option=COLUMNS_FIELD)
        try:
            columns = await asyncio.to_thread(check, name, file.file)
        except InputError as error:
            raise InvalidError(str(error)) from None
        adapter = adapter_of(request, parameters.adapter)
        if adapter and adapter not in await asyncio.to_thread(service.adapter_names):
            raise InvalidError(f"adapter parameter (or style_id): {adapter!r} is not known")
        document = DocumentRequest(
            name=name,
            file=file.file,
            columns=columns,
            source=source,
            target=target,
            glossary=None,
            recall=await gateway.recall(client),
            owner=client,
            sender=sender_of(request, client=client),
            key="",
            adapter=adapter,
            count=partial(gateway.count_characters, client),
            keep=literal_rules(parameters.keep),
        )
        yield jobs, parameters, document


def _name(name: str) -> str:
    """Return the name of an uploaded file, without its folders, and not too long."""
    path = PurePath("".join(filter(str.isprintable, PurePath(name.replace("\\", "/")).name)))
    return path.stem[: _LONGEST_NAME - len(path.suffix)] + path.suffix


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    libre = APIRouter(tags=["LibreTranslate"], responses=libretranslate.REFUSALS)
    _add_translate_file(libre, gateway)
    of_deepl = APIRouter(tags=["DeepL"], responses=deepl.REFUSALS)
    _add_upload(of_deepl, gateway)
    _add_status(of_deepl, gateway)
    routes = APIRouter()
    routes.include_router(libre)
    routes.include_router(of_deepl)
    return routes


def _add_translate_file(routes: APIRouter, gateway: Gateway) -> None:
    catalogue = gateway.service.catalogue
    schema = schema_of(
        _FileFields, source={"enum": [AUTO, *catalogue.sources]}, target={"enum": [*catalogue.targets]}
    )

    @routes.post("/translate_file", openapi_extra=_described_upload(schema), response_model=TranslatedFile)
    async def translate_file(request: Request) -> TranslatedFile:
        """Translate a document, and return where it can be downloaded."""
        async with _received(gateway, request, _FileFields) as (jobs, _, document):
            _, last_state = await jobs.submit(document)
        state = await unless_gone(request, last_state)
        if state.status == "error":
            jobs.store.remove(state)
            raise InvalidError(state.error)
        name = PurePath(state.name)
        translated = quote(f"{name.stem}_{document.target}{name.suffix}", safe="")
        return TranslatedFile(url=f"{request.base_url}download_file/{state.id}.{translated}")

    not_found = {"model": libretranslate.LibreError, "description": "Removed, or never there"}

    @routes.get("/download_file/{name}", responses={**_BINARY, 404: not_found})
    async def download_file(name: str) -> Response:
        """Return a translated document, until it is removed."""
        document_id, _, own_name = name.partition(".")
        store = _jobs(gateway).store
        state = store.get(document_id, owner=None, key="")
        if state.status != "done":
            raise NoSuchDocumentError(_NOT_FOUND)
        return _file(store.result(state), own_name)


def _file(path: Path, name: str, *, then: BackgroundTask | None = None) -> Response:
    """Return a file as a download; it is opened first, for it may be removed while it is sent.

    Raises:
        NoSuchDocumentError: it was removed.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        raise NoSuchDocumentError(_NOT_FOUND) from None
    headers = {
        "Content-Length": str(os.fstat(file.fileno()).st_size),
        "Content-Disposition": f"attachment; filename*=utf-8''{quote(name, safe='')}",
    }

    def chunks() -> Iterator[bytes]:
        with file:
            yield from iter(partial(file.read, _CHUNK), b"")

    return StreamingResponse(
        chunks(), media_type="application/octet-stream", headers=headers, background=then
    )


def _add_upload(routes: APIRouter, gateway: Gateway) -> None:
    catalogue = gateway.service.catalogue
    schema = schema_of(
        _DocumentFields,
        target_lang={"enum": [code.upper() for code in catalogue.targets]},
        source_lang={"enum": [code.upper() for code in catalogue.sources]},
        output_format={"description": "The format of the file."},
    )

    @routes.post("/v2/document", openapi_extra=_described_upload(schema), response_model=DocumentHandle)
    async def upload(request: Request) -> DocumentHandle:
        """Send a document, which is translated when it is its turn."""
        async with _received(gateway, request, _DocumentFields) as (jobs, parameters, document):
            glossary = deepl.glossary_of(parameters, gateway, document.owner)
            if glossary is not None and document.source not in (None, document.target):
                route = catalogue.required_route(document.source, document.target)
                await asyncio.to_thread(gateway.service.terms, route, glossary)
            recall = await deepl.recall_of(parameters, gateway, document.owner)
            key = secrets.token_hex(32).upper()
            state, _ = await jobs.submit(replace(document, glossary=glossary, recall=recall, key=key))
        return DocumentHandle(document_id=state.id, document_key=key)


def _add_status(routes: APIRouter, gateway: Gateway) -> None:
    schema = schema_of(_HandleFields)

    async def state_of(request: Request, document_id: str) -> DocumentState:
        client, parameters = await gateway.parameters(request, _HandleFields, is_counted=False)
        return _jobs(gateway).store.get(document_id, owner=client, key=parameters.document_key)

    @get_and_post(routes, "/v2/document/{document_id}", schema)
    async def status(request: Request, document_id: str) -> DocumentStatus:
        """Return how far a document is."""
        state = await state_of(request, document_id)
        return DocumentStatus(
            document_id=state.id,
            status=state.status,
            seconds_remaining=state.seconds_remaining,
            billed_characters=state.characters if state.status == "done" else None,
            error_message=state.error or None,
        )

    @get_and_post(routes, "/v2/document/{document_id}/result", schema, responses=_BINARY)
    async def result(request: Request, document_id: str) -> Response:
        """Return a translated document; it is removed when the client has all of it."""
        state = await state_of(request, document_id)
        store = _jobs(gateway).store
        if state.status == "error":
            store.remove(state)
            raise NoSuchDocumentError(f"Document not translated: {state.error}")
        if state.status != "done":
            raise UnavailableError("Document not ready: its translation is not done yet", retry_after=2)
        if request.scope.get(WITHOUT_BODY):  # HEAD changes nothing (RFC 9110, 9.2.1)
            return _file(store.result(state), state.name)
        path = store.claim(state) / store.result(state).name
        return _file(path, state.name, then=BackgroundTask(_removed_soon, request, store, state))


async def _removed_soon(request: Request, store: DocumentStore, state: DocumentState) -> None:
    """Remove a document, unless the client turns out not to have got all of it."""
    delivered: Callable[[], Awaitable[bool]] | None = getattr(request.state, DELIVERED, None)

    async def remove() -> None:
        if delivered is None or await delivered():
            await asyncio.to_thread(store.remove, state)
        else:
            store.give_back(state)

    removal = asyncio.ensure_future(remove())
    _REMOVALS.add(removal)  # asyncio itself forgets tasks
    removal.add_done_callback(_REMOVALS.discard)
