"""The parameters of a request, wherever they are: JSON, forms, the query string, and bodies of GET."""

import asyncio
import re
from collections.abc import Iterable
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import Request
from pydantic import BaseModel, Field, ValidationError
from starlette.datastructures import FormData
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException

from heedful.serving.catalogue import Catalogue
from heedful.serving.limits import Limits
from heedful.serving.refusals import (
    BodyTooLargeError,
    ClientGoneError,
    InvalidError,
    MediaTypeError,
    SlowBodyError,
)
from heedful.settings.parsing import Json, parse_json

_MAX_FIELDS = 1000
_JSON = re.compile(r"application/([\w.+-]*\+)?json")
_FORM = "application/x-www-form-urlencoded"
_MULTIPART = "multipart/form-data"
_NO_OBJECT = "Invalid JSON format: must be an object"

AUTO = "auto"  # in place of the source language: identify it
NonEmptyText = Annotated[str, Field(min_length=1)]
Fields = dict[str, Any]
M = TypeVar("M", bound=BaseModel)


async def read_fields(
    request: Request, limits: Limits, *, repeated: Iterable[str] = ()
) -> "Fields | list[Any]":
    """Return the parameters of a request: those of the body, then those of the query string.

    Args:
        request: of any method.
        limits: of the body.
        repeated: names that may come more than once; their values are then a list.

    Returns:
        A list where the body is JSON and one.

    Raises:
        InvalidError: a body that is not what it says to be.
        BodyTooLargeError: more bytes than the limit.
        SlowBodyError: it did not come in time.
        MediaTypeError: neither JSON nor a form.
    """
    names = frozenset(repeated)
    query = _collected(_urlencoded(request.scope["query_string"], "query string"), names)
    body = await _body(request, limits)
    if not body:
        return query
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if _JSON.fullmatch(kind) or (not kind and body.lstrip()[:1] in (b"{", b"[")):
        content = _json(body)
        if isinstance(content, list):
            return content
        if not isinstance(content, dict):
            raise InvalidError(_NO_OBJECT)
        return query | {name: value for name, value in content.items() if value is not None}
    if kind in (_FORM, ""):
        return query | _collected(_urlencoded(body, "form"), names)
    if kind == _MULTIPART:
        return query | _collected(await _multipart(request, body), names)
    raise MediaTypeError(f"{kind[:60]}: must be application/json, {_FORM} or {_MULTIPART}")


async def read_object(request: Request, limits: Limits) -> Fields:
    """Return the parameters of a request by their names, as `read_fields` does.

    Raises:
        InvalidError: the body is a JSON array, or see `read_fields`.
    """
    fields = await read_fields(request, limits)
    if isinstance(fields, list):
        raise InvalidError(_NO_OBJECT)
    return fields


def validated(model: type[M], fields: Fields) -> M:
    """Return the parameters as a model has them.

    Raises:
        InvalidError: one is missing or cannot be.
    """
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        name = str(first["loc"][0]) if first["loc"] else "request"
        if first["type"] in ("missing", "string_too_short", "too_short"):
            raise InvalidError(f"Invalid request: missing {name} parameter") from None
        if first["type"].startswith("int_"):
            raise InvalidError(f"Invalid request: {name} parameter is not a number") from None
        raise InvalidError(f"Invalid request: {name} parameter: {first['msg']}") from None


async def _body(request: Request, limits: Limits) -> bytes:
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            while True:
                message = await request.receive()
                if message["type"] == "http.disconnect":
                    raise ClientGoneError
                chunks.append(message.get("body", b""))
                size += len(chunks[-1])
                if size > limits.body_bytes:
                    raise BodyTooLargeError(f"a body may have {limits.body_bytes:,} bytes")
                if not message.get("more_body"):
                    return b"".join(chunks)
    except TimeoutError:
        raise SlowBodyError(f"the body did not come within {limits.body_seconds:g} seconds") from None


def _json(body: bytes) -> Json:
    try:
        return parse_json(body)
    except ValueError as error:
        raise InvalidError(f"Invalid JSON format: {error}") from None


def _urlencoded(encoded: bytes, what: str) -> list[tuple[str, str]]:
    try:
        return parse_qsl(
            encoded.decode("utf-8"), keep_blank_values=True, errors="strict", max_num_fields=_MAX_FIELDS
        )
    except ValueError as error:  # UnicodeDecodeError is one
        raise InvalidError(f"Invalid {what}: {error}") from None


async def _multipart(request: Request, body: bytes) -> list[tuple[str, str]]:
    """Return the fields of a multipart form; files are none."""
    delivered = False

    async def receive() -> dict[str, Any]:
        nonlocal delivered
        delivered = True
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        form: FormData = await Request(request.scope, receive).form(
            max_files=0, max_fields=_MAX_FIELDS, max_part_size=len(body)
        )
    except (HTTPException, MultiPartException, ValueError, KeyError, AssertionError) as error:
        detail = getattr(error, "detail", None) or getattr(error, "message", None) or error
        raise InvalidError(f"Invalid form: {detail}") from None
    return [(name, value) for name, value in form.multi_items() if isinstance(value, str)]


def _collected(items: Iterable[tuple[str, str]], repeated: frozenset[str]) -> Fields:
    values: Fields = {}
    for name, value in items:
        name = name.removesuffix("[]")
        _check_text(value)
        if name in repeated and name in values:
            before = values[name]
            values[name] = [*before, value] if isinstance(before, list) else [before, value]
        else:
            values[name] = value
    return values


def _check_text(value: str) -> None:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidError("Invalid request: text that is not UTF-8") from None


Schema = dict[str, Any]
_FORMS = ("application/json", "application/x-www-form-urlencoded")


def texts(limits: Limits) -> Schema:
    """Return the schema of one text, or of a list of them."""
    return {
        "oneOf": [
            {"type": "string", "minLength": 1, "maxLength": limits.characters},
            {
                "type": "array",
                "items": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": limits.characters // limits.texts,
                },
                "minItems": 1,
                "maxItems": limits.texts,
            },
        ]
    }


def libretranslate(catalogue: Catalogue, limits: Limits) -> Schema:
    """Return the schema of LibreTranslate's POST /translate."""
    return _object(
        {
            "q": texts(limits),
            "source": {"type": "string", "enum": [AUTO, *catalogue.sources]},
            "target": {"type": "string", "enum": list(catalogue.targets)},
            "format": {"type": "string", "enum": ["text", "html"], "default": "text"},
            "alternatives": {
                "type": "integer",
                "minimum": 0,
                "maximum": limits.alternatives,
                "default": 0,
            },
            "api_key": {"type": "string"},
        },
        required=["q", "source", "target"],
    )


def microsoft(limits: Limits) -> Schema:
    """Return the schema of Microsoft's POST /translate."""
    text = {"type": "string", "minLength": 1, "maxLength": limits.characters // limits.texts}
    item = _object({"text": text}, required=["text"])
    return {"type": "array", "items": item, "minItems": 1, "maxItems": limits.texts}


def detect(limits: Limits) -> Schema:
    """Return the schema of POST /detect."""
    text = {"type": "string", "minLength": 1, "maxLength": limits.characters}
    return _object({"q": text, "api_key": {"type": "string"}}, required=["q"])


def explain(catalogue: Catalogue, limits: Limits) -> Schema:
    """Return the schema of POST /explain."""
    return _object(
        {
            "q": {"type": "string", "minLength": 1, "maxLength": limits.characters},
            "source": {"type": "string", "enum": [AUTO, *catalogue.sources]},
            "target": {"type": "string", "enum": list(catalogue.targets)},
            "attention": {"type": "string", "enum": ["cross", "encoder", "decoder"]},
            "layer": {"type": "integer", "minimum": 1},
            "api_key": {"type": "string"},
        },
        required=["q", "source", "target"],
    )


def deepl(catalogue: Catalogue, limits: Limits) -> Schema:
    """Return the schema of DeepL's POST /v2/translate."""
    names = {"type": "array", "items": {"type": "string"}, "maxItems": 100}
    return _object(
        {
            "text": texts(limits),
            "target_lang": {"type": "string", "enum": [code.upper() for code in catalogue.targets]},
            "source_lang": {"type": "string", "enum": [code.upper() for code in catalogue.sources]},
            "split_sentences": {"type": "string", "enum": ["0", "1", "nonewlines"], "default": "1"},
            "tag_handling": {"type": "string", "enum": ["html", "xml"]},
            "splitting_tags": names,
            "non_splitting_tags": names,
            "ignore_tags": names,
        },
        required=["text", "target_lang"],
    )


def body(schema: Schema, *others: Schema) -> Schema:
    """Return OpenAPI's description of a body that is an object, as JSON or as a form, or others as JSON."""
    as_json = {"oneOf": [schema, *others]} if others else schema
    content = {_FORMS[0]: {"schema": as_json}, _FORMS[1]: {"schema": schema}}
    return {"requestBody": {"required": True, "content": content}}


def query(schema: Schema) -> Schema:
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


def _object(properties: Schema, *, required: list[str]) -> Schema:
    return {"type": "object", "properties": properties, "required": required}
