"""From an HTTP request to its parameters, and past keys and rates to the service.

Parameters may be in JSON, forms, the query string, and bodies of GET. Their pydantic models are the schema:
the OpenAPI description is derived from them.
"""

import asyncio
import logging
import re
from collections import defaultdict
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from email.errors import HeaderParseError
from email.header import decode_header, make_header
from functools import cache, partial
from ipaddress import IPv6Address, IPv6Network
from typing import TYPE_CHECKING, Annotated, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field, ValidationError
from python_multipart.multipart import parse_options_header
from starlette.datastructures import FormData, Headers, UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect

from heedful import Glossary, Pair
from heedful.serving.access import ANY, ApiKey, label_of_key
from heedful.serving.adapters import ADAPTER_OF_KEY, adapter_of
from heedful.serving.limits import Limits
from heedful.serving.records import ClientRecords
from heedful.serving.refusals import (
    BodyTooLargeError,
    InvalidError,
    MediaTypeError,
    NoSuchGlossaryError,
    NoSuchMemoryError,
    RequestTimeoutError,
    UnauthorizedError,
    UnavailableError,
    not_stored,
)
from heedful.serving.service import Answer, Recall, TranslationRequest, TranslationService
from heedful.settings.parsing import parse_json

if TYPE_CHECKING:
    from heedful.serving.document_jobs import DocumentJobs
    from heedful.serving.glossaries import GlossaryStore
    from heedful.serving.memories import MemoryStore

_MAX_FIELDS = 1000
_BODY_BYTES = 2**17  # that a body may have at least; else 16 for each character of the limit
_LARGE = 2**13  # a larger body is parsed in a thread, not in the event loop
_MAX_PART = 2**16  # bytes of a parameter beside a file, and of all of them
_BYTES_A_SECOND = 2**17  # of a client that sends a document
_JSON = re.compile(r"application/([\w.+-]*\+)?json")
_PLAIN_JSON, _FORM = "application/json", "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_IDENTITY = "identity"  # not compressed
_EXTENDED_NAME = re.compile(r"filename\*\s*=\s*(?P<charset>[\w-]+)'[^']*'(?P<name>[^;\s]+)", re.IGNORECASE)
_ITEM = re.compile(r"(?P<list>\w+)\[(?P<number>\d{1,4})\]\.(?P<name>\w+)")
_EMPTY = ("missing", "string_too_short", "too_short")  # types of pydantic's errors
_UNKNOWN_KEY = "Invalid API key"
_NO_OBJECT = "Invalid JSON format: must be an object"
_AUTHORIZATION = re.compile(r"\s*(?:deepl-auth-key|bearer)\s+(?P<key>.+)", re.IGNORECASE)
_KEY_FIELDS = ("api_key", "auth_key", "subscription-key")  # one for each dialect
_ANYONE = ApiKey("", "")  # without a key
_log = logging.getLogger("heedful.serving")


def _names(value: object) -> object:
    return [name.strip() for name in value.split(",") if name.strip()] if isinstance(value, str) else value


FACTS = "heedful.facts"  # in the scope of a request: what the log says of it besides path, status and time
ITEMS = "[]"  # the parameter with the elements of a body that is a JSON array; no model has this name
AUTO = "auto"  # in place of the source language: identify it
NonEmptyText = Annotated[str, Field(min_length=1)]
# Texts, which may come as one; and names, which may come as one text with commas.
Texts = Annotated[list[str], BeforeValidator(lambda value: [value] if isinstance(value, str) else value)]
Names = Annotated[list[str], BeforeValidator(_names)]
# What else stays as it is: texts, and forms of programs by their names (presets of spans/marks.py).
KeptParts = Annotated[Texts, Field(max_length=100, examples=[["Acme Corp", "unity"]])]
Fields = dict[str, Any]
Schema = dict[str, Any]
M = TypeVar("M", bound=BaseModel)
T = TypeVar("T")
Route = TypeVar("Route", bound=Callable[..., Any])


@dataclass(frozen=True)
class Gateway:
    """Authorises the requests of all dialects, and cancels a request when its client leaves.

    Attributes:
        service: the service that translates.
        records: the records of clients; the client "" is everyone without a key.
        log_text: whether texts are logged.
        glossaries: the glossaries of the clients; None: there are none.
        documents: the documents of the clients; None: none are translated.
        memories: the translation memories and corrections of the clients; None: none are stored.
        origins: the origins of pages that may send requests from a browser; "*" means all.
    """

    service: TranslationService
    records: ClientRecords
    log_text: bool = False
    glossaries: "GlossaryStore | None" = None
    documents: "DocumentJobs | None" = None
    memories: "MemoryStore | None" = None
    origins: Sequence[str] = ()

    async def authorize(self, request: Request, fields: Mapping[str, Any], *, is_counted: bool = True) -> str:
        """Return the name of the client's key, or "" if no key is needed.

        Args:
            request: the request; the key may be in a header. Its address identifies a client without keys.
            fields: the parameters, which may have the key.
            is_counted: whether the request counts for the client's rate.

        Raises:
            UnauthorizedError: a key is needed, and it is missing or not known.
            TooManyRequestsError: too many requests.
            UnavailableError: the records cannot be reached.
        """
        client = _ANYONE
        if self.records.key_required:
            key = key_of(request, fields)
            known = await self.records.find(key)
            if known is None:
                raise UnauthorizedError(_UNKNOWN_KEY if key else "An API key is required")
            client = known
        per_minute = client.requests_per_minute or self.service.limits.requests_per_minute
        if per_minute and is_counted:
            await self.records.count_request(sender_of(request, client=client.name), per_minute)
        request.scope.setdefault(FACTS, {})["key"] = client.name
        request.scope[ADAPTER_OF_KEY] = client.adapter
        return client.name

    async def check_header(self, request: Request) -> None:
        """Refuse a key that is not known, if it is in a header: before a long body is read.

        Raises:
            UnauthorizedError: it is not known.
            UnavailableError: the records cannot be reached.
        """
        key = key_of(request, request.query_params)
        if self.records.key_required and key and await self.records.find(key) is None:
            raise UnauthorizedError(_UNKNOWN_KEY)

    def check_origin(self, request: Request) -> None:
        """Refuse a request that a page of another site makes a browser send (cross-site request forgery).

        Raises:
            UnauthorizedError: the page is of another host, which --cors does not name.
        """
        origin = request.headers.get("origin")
        if origin is None or ANY in self.origins or origin in self.origins:
            return
        with suppress(ValueError):  # "http://[" is the address of no page
            if urlsplit(origin).hostname == request.url.hostname:
                return
        raise UnauthorizedError("Pages of this origin may not change anything here (--cors)")

    async def parameters(
        self, request: Request, model: type[M], *, most: int | None = None, is_counted: bool = True
    ) -> tuple[str, M]:
        """Read and authorise a request (see `authorize`); return the name of its client, and its parameters.

        Args:
            request: the request; its body or query string has the parameters, which may contain the key.
            model: the model of the parameters.
            most: the most bytes of the body; None: 16 for each character of the limit, at least 128 KiB.
            is_counted: whether the request counts for the client's rate.

        Raises:
            RefusedError: as `read_fields` and `authorize`, or the body is a JSON array.
            ValidationError: a parameter is missing or cannot be.
        """
        if most is not None:
            await self.check_header(request)
        fields = await read_fields(request, self.service.limits, model, most=most)
        if ITEMS in fields:
            raise InvalidError(_NO_OBJECT)
        client = await self.authorize(request, fields, is_counted=is_counted)
        return client, model.model_validate(fields)

    def stored_terms(self, client: str, ids: Sequence[str]) -> Callable[[Pair], Glossary]:
        """Return a function for the terms of a client's glossaries (see `GlossaryStore.terms`).

        Raises:
            NoSuchGlossaryError: no glossaries are stored.
        """
        if self.glossaries is None:
            raise NoSuchGlossaryError("Glossary not found")
        return partial(self.glossaries.terms, client, ids)

    async def recall(self, client: str, named: Sequence[str] = (), percent: float = 100) -> Recall | None:
        """Return what looks texts up in the memories of a client (see `MemoryStore.recall`); None: none.

        Args:
            client: the client, whose corrections are looked up first.
            named: the ids of memories.
            percent: the least similarity of a match in these.

        Raises:
            NoSuchMemoryError: the client has no such memory.
        """
        if self.memories is None:
            if named:
                raise NoSuchMemoryError("Translation memory not found")
            return None
        if not named:
            return self.memories.recall(client)
        return await asyncio.to_thread(self.memories.recall, client, named, percent / 100)

    async def translate(self, request: Request, client: str, asked: TranslationRequest) -> list[Answer]:
        """Return the answers; stop if the client closes its connection.

        The client's corrections are used, also if `asked` names no memory.

        Raises:
            ClientDisconnect: the client has closed its connection.
        """
        asked = replace(asked, adapter=adapter_of(request, asked.adapter))
        if self.log_text:
            _log.info("%s -> %s: %r", asked.source or AUTO, asked.target, asked.texts)
        if asked.recall is None:
            asked = replace(asked, recall=await self.recall(client))
        answers = await unless_gone(request, self.service.translate(asked))
        characters = sum(map(len, asked.texts))
        sources = ",".join(sorted({answer.source for answer in answers}))
        request.scope[FACTS] |= {"pair": f"{sources}-{asked.target}", "characters": characters}
        await self.count_characters(client, characters)
        return answers

    async def adapters(self, request: Request) -> dict[str, list[str]]:
        """Return the adapters that an authorised request may name, with their pairs of languages."""
        names = await asyncio.to_thread(self.service.adapter_names)
        bound = adapter_of(request, "")
        return {name: list(map(str, pairs)) for name, pairs in names.items() if bound in ("", name)}

    async def count_characters(self, client: str, characters: int) -> None:
        """Count characters that a client had translated; an answer is not lost because that fails."""
        if client:
            self.service.metrics.key_characters.labels(label_of_key(client)).inc(characters)
        try:
            await self.records.add_characters(client, characters)
        except UnavailableError as error:
            _log.warning("usage is not counted: %s", error)


def key_of(request: Request, fields: Mapping[str, Any]) -> str:
    """Return the key of a request, from its parameters or a header; "": there is none."""
    given = [fields.get(name) for name in _KEY_FIELDS]
    authorization = _AUTHORIZATION.fullmatch(request.headers.get("authorization", ""))
    if authorization is not None:
        given.append(authorization["key"])
    given.append(request.headers.get("ocp-apim-subscription-key"))
    return next((str(key) for key in given if key), "")


def sender_of(request: Request, *, client: str = "") -> str:
    """Return the client to which limits apply: the name of its key, or without a key its address."""
    host = request.client.host if request.client else ""
    return f"key {client}" if client else f"address {_network(host)}"


def _network(host: str) -> str:
    """Return an address, or the /64 network of an IPv6 address, because a client has all addresses of it."""
    try:
        address = IPv6Address(host)
    except ValueError:  # an IPv4 address, or none
        return host
    return str(address.ipv4_mapped or IPv6Network((int(address), 64), strict=False))


async def unless_gone(request: Request, work: Awaitable[T]) -> T:
    """Return the result of work, which is given up when the client closes its connection.

    The body must have been read.

    Raises:
        ClientDisconnect: the client has closed it.
    """
    task = asyncio.ensure_future(work)

    async def until_gone() -> None:
        while (await request.receive())["type"] != "http.disconnect":
            pass
        task.cancel()

    watch = asyncio.ensure_future(until_gone())
    try:
        return await task
    except asyncio.CancelledError:
        if watch.done():
            raise ClientDisconnect from None
        raise
    finally:
        watch.cancel()


async def read_fields(
    request: Request, limits: Limits, model: type[BaseModel], *, most: int | None = None
) -> Fields:
    """Return the parameters of a request; those in the body replace those in the query string.

    Args:
        request: a request of any method; the elements of a JSON array become its parameter `ITEMS`.
        limits: the limits of the body.
        model: the model of the parameters; a parameter that is a list may occur more than once.
        most: the most bytes of the body; None: as the limit of characters needs.

    Raises:
        InvalidError: the body does not have the form that its header names.
        BodyTooLargeError: the body has more bytes than the limit.
        RequestTimeoutError: the body did not arrive in time.
        MediaTypeError: the body is neither JSON nor a form.
    """
    encoded = request.scope["query_string"]
    query = _urlencoded(encoded, "query string", model) if encoded else {}
    body = await read_body(request, limits, most or max(_BODY_BYTES, 16 * limits.characters))
    if not body:
        return query
    kind, boundary = _media_type(request)
    if kind == _MULTIPART:
        return query | await _multipart(body, boundary, model)
    if not kind:
        kind = _PLAIN_JSON if body.lstrip()[:1] in (b"{", b"[") else _FORM
    if len(body) > _LARGE:
        return query | await asyncio.to_thread(_parsed, body, kind, model)
    return query | _parsed(body, kind, model)


async def read_body(request: Request, limits: Limits, most: int) -> bytes:
    """Return the body of a request, which may have this number of bytes.

    Raises:
        BodyTooLargeError: it has more.
        RequestTimeoutError: it did not arrive in time.
    """
    async with _in_time(limits.body_seconds):
        return b"".join([chunk async for chunk in _chunks(request, most)])


def mistake(error: ValidationError) -> str:
    """Return what is wrong with the parameters of a request, as `dictionaries[0].name parameter: ...`."""
    errors = error.errors(include_url=False, include_input=False)
    kind, place = errors[0]["type"], errors[0]["loc"] or ("request",)
    steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    name, path = str(place[0]), "".join(steps).removeprefix(".")
    # A field that takes a text or a list has two errors if both are wrong.
    kinds_of_field = {other["type"] for other in errors if other["loc"][:1] == place[:1]}
    if not kinds_of_field.isdisjoint(_EMPTY):
        problem = f"missing {name} parameter"
    elif kind == "extra_forbidden":
        problem = f"{path!r} is not supported by this server"
    elif kind.startswith("int_"):
        problem = f"{name} parameter is not a number"
    else:  # the path, if it is in an object in a list
        problem = f"{path if len(place) > 2 else name} parameter: {errors[0]['msg']}"
    return f"Invalid request: {problem}"


@asynccontextmanager
async def read_upload(
    request: Request, limits: Limits, model: type[BaseModel]
) -> "AsyncIterator[tuple[Fields, UploadFile]]":
    """Yield the parameters of a multipart form and its file, which is never in memory as a whole.

    Args:
        request: the request with the form.
        limits: the limits of the document.
        model: the model of the parameters; a parameter that is a list may occur more than once.

    Raises:
        InvalidError: the body does not have the form that its header names, or has no file.
        BodyTooLargeError: the body has more bytes than a document may have.
        RequestTimeoutError: the body did not arrive in time.
        MediaTypeError: the body is no multipart form.
    """
    kind, boundary = _media_type(request)
    if kind != _MULTIPART:
        raise MediaTypeError(f"{kind[:60] or 'no type'}: must be {_MULTIPART}, with a file")
    chunks = _chunks(request, limits.document_bytes + _MAX_PART)
    async with _in_time(limits.body_seconds + limits.document_bytes / _BYTES_A_SECOND):
        form = await _form(chunks, boundary, max_files=1, max_part_size=_MAX_PART)
    try:
        files = [value for _, value in form.multi_items() if isinstance(value, UploadFile)]
        if not (files and files[0].filename):
            raise InvalidError("Invalid request: missing file parameter")
        if (files[0].size or 0) > limits.document_bytes:
            raise BodyTooLargeError(f"a document may have {limits.document_bytes:,} bytes")
        query = _urlencoded(request.scope["query_string"], "query string", model)
        yield query | _collected(form.multi_items(), model), files[0]
    finally:
        await form.close()


def name_of_upload(file: UploadFile) -> str:
    """Return the name of a file, which clients may write in ASCII by RFC 5987 or RFC 2047 (.NET by both)."""
    name = file.filename or ""
    extended = _EXTENDED_NAME.search(file.headers.get("content-disposition", ""))
    with suppress(LookupError, ValueError, HeaderParseError):  # it only looks like one
        if extended is not None:
            return unquote(extended["name"], encoding=extended["charset"], errors="strict")
        return str(make_header(decode_header(name)))
    return name


async def _chunks(request: Request, most: int) -> AsyncGenerator[bytes, None]:
    """Yield the parts of a body, which may have this number of bytes."""
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise BodyTooLargeError(f"a body may have {most:,} bytes")
        yield chunk


@asynccontextmanager
async def _in_time(seconds: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise RequestTimeoutError(f"the body did not come within {seconds:g} seconds") from None


def _media_type(request: Request) -> tuple[str, bytes]:
    """Return the type of a body, "" if its header is missing, and the boundary of a form's parts."""
    if (coding := request.headers.get("content-encoding", _IDENTITY)) != _IDENTITY:
        raise MediaTypeError(f"{coding[:60]}: the body must not be compressed (Content-Encoding)")
    kind, options = parse_options_header(request.headers.get("content-type"))
    return kind.decode("latin-1"), options.get(b"boundary", b"")


@contextmanager
def _refused(what: str) -> Iterator[None]:
    """Refuse a request with a part that cannot be read."""
    try:
        yield
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidError(f"Invalid {what}: {error}") from None


def _parsed(body: bytes, kind: str, model: type[BaseModel]) -> Fields:
    """Return the parameters in a body of this type."""
    if kind == _FORM:
        if body.lstrip()[:1] == b"{":
            raise InvalidError(f"Invalid form: this is JSON; send it with Content-Type: {_PLAIN_JSON}")
        return _urlencoded(body, "form", model)
    if not _JSON.fullmatch(kind):
        raise MediaTypeError(f"{kind[:60]}: must be {_PLAIN_JSON}, {_FORM} or {_MULTIPART}")
    with _refused("JSON format"):
        content = parse_json(body)
    if isinstance(content, list):
        return {ITEMS: content}
    if not isinstance(content, dict):
        raise InvalidError(_NO_OBJECT)
    return {name: value for name, value in content.items() if value is not None}


def _urlencoded(encoded: bytes, what: str, model: type[BaseModel]) -> Fields:
    with _refused(what):
        items = parse_qsl(
            encoded.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    return _collected(items, model)


async def _multipart(body: bytes, boundary: bytes, model: type[BaseModel]) -> Fields:
    """Return the fields of a multipart form; files are none."""
    if b"--" + boundary + b"--" not in body:
        raise InvalidError("Invalid form: it ends before its last boundary")
    with _refused("form"):
        body.decode("utf-8")  # starlette would take it for Latin-1

    async def chunks() -> AsyncGenerator[bytes, None]:
        yield body

    form = await _form(chunks(), boundary, max_files=0, max_part_size=len(body))
    return _collected(form.multi_items(), model)


async def _form(
    chunks: AsyncGenerator[bytes, None], boundary: bytes, *, max_files: int, max_part_size: int
) -> FormData:
    """Return a form, read as UTF-8 even if its header names another encoding."""
    headers = Headers(raw=[(b"content-type", b'%b; boundary="%b"' % (_MULTIPART.encode(), boundary))])
    parser = MultiPartParser(
        headers, chunks, max_files=max_files, max_fields=_MAX_FIELDS, max_part_size=max_part_size
    )
    try:
        return await parser.parse()
    except (MultiPartException, ValueError, KeyError, AssertionError) as error:
        raise InvalidError(f"Invalid form: {getattr(error, 'message', error)}") from None
    except OSError as error:
        raise not_stored(error) from None


@cache
def _lists(model: type[BaseModel]) -> frozenset[str]:
    """Return the names of the parameters that can be lists."""
    return frozenset(name for name, field in model.model_fields.items() if "list[" in str(field.annotation))


def _collected(items: Iterable[tuple[str, str | UploadFile]], model: type[BaseModel]) -> Fields:
    """Return the texts of a form by their names; `a[0].b` is field `b` of the first element of list `a`."""
    texts: dict[str, list[str]] = defaultdict(list)
    lists: dict[str, dict[int, Fields]] = defaultdict(lambda: defaultdict(dict))
    for name, value in items:
        item = _ITEM.fullmatch(name)
        if not isinstance(value, str):
            continue
        if item is not None:
            lists[item["list"]][int(item["number"])][item["name"]] = value
        else:
            texts[name.removesuffix("[]")].append(value)
    fields: Fields = {name: values[-1] for name, values in texts.items()}
    fields |= {name: values for name, values in texts.items() if len(values) > 1 and name in _lists(model)}
    return fields | {name: [elements[at] for at in sorted(elements)] for name, elements in lists.items()}


def schema_of_texts(limits: Limits) -> Schema:
    """Return the schema of one text, or of a list of them."""
    one = {"type": "string", "minLength": 1}
    shorter = one | {"maxLength": limits.characters // limits.texts}
    several = {"type": "array", "items": shorter, "minItems": 1, "maxItems": limits.texts}
    return {"oneOf": [one | {"maxLength": limits.characters}, several]}


def schema_of(model: type[BaseModel], **of_service: Schema) -> Schema:
    """Return the schema of a model's fields.

    Args:
        model: as pydantic describes it; "" and None, which stand for a missing parameter, are left out.
        of_service: for fields that depend on the languages and limits of the service, what that adds;
            alternatives ("oneOf") replace the field's own.
    """
    described = model.model_json_schema()
    properties = {
        name: _schema_of_field(field, of_service.get(name, {}))
        for name, field in described["properties"].items()
    }
    return {"type": "object", "properties": properties, "required": described["required"]}


def _schema_of_field(field: Schema, added: Schema) -> Schema:
    if "oneOf" in added:
        return added
    kinds = [kind for kind in field.pop("anyOf", ()) if kind["type"] != "null"]
    if kinds:
        field |= kinds[0]
    if "enum" in field:
        field["enum"] = [value for value in field["enum"] if value != ""]
    left_out = {"title", *(["minLength"] if "enum" in added else [])}
    if field.get("default") in ("", None, []):
        left_out.add("default")
    return {key: value for key, value in field.items() if key not in left_out} | added


def refusals(form: type[BaseModel], descriptions: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    """Return OpenAPI's descriptions of the errors that all dialects have, and of the given others."""
    shared = {
        408: "The body did not come in time",
        413: "The body is too large",
        415: "The body is neither JSON nor a form",
        429: "Too many requests; see Retry-After",
        503: "Not done in time; see Retry-After",
    }
    all_of_them = sorted((descriptions | shared).items())
    return {status: {"model": form, "description": text} for status, text in all_of_them}


def get_and_post(
    routes: APIRouter,
    path: str,
    schema: Schema,
    *,
    body: Schema | None = None,
    responses: dict[int | str, dict[str, Any]] | None = None,
) -> Callable[[Route], Route]:
    """Return a decorator for a route with parameters in a query string, or in a body.

    Args:
        routes: the router that gets the route.
        path: the path of the route.
        schema: the schema of the parameters.
        body: the description of the body; None: it is an object with the parameters.
        responses: the descriptions of responses, as FastAPI takes them.
    """
    options: dict[str, Any] = {"response_model_exclude_none": True, "responses": responses}

    def add(work: Route) -> Route:
        routes.get(path, openapi_extra=described_query(schema), **options)(work)
        return routes.post(path, openapi_extra=body or described_body(schema), **options)(work)

    return add


def described_body(schema: Schema, *others: Schema) -> Schema:
    """Return OpenAPI's description of a body that is an object, as JSON or as a form, or others as JSON."""
    as_json = {"oneOf": [schema, *others]} if others else schema
    content = {"application/json": {"schema": as_json}, _FORM: {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def described_query(schema: Schema) -> Schema:
    """Return OpenAPI's description of the same parameters in a query string."""
    parameters = [
        {
            "name": name,
            "in": "query",
            "required": name in schema["required"],
            "schema": value["oneOf"][0] if "oneOf" in value else value,
        }
        for name, value in schema["properties"].items()
        if value.get("type") != "array"
    ]
    return {"parameters": parameters}
