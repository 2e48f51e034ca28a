"""DeepL's endpoints for glossaries, v2 and v3."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from heedful.serving.deepl import REFUSALS
from heedful.serving.gateway import (
    Gateway,
    NonEmptyText,
    described_body,
    described_query,
    read_object,
    schema_of,
)
from heedful.serving.glossaries import (
    Dictionary,
    GlossaryStore,
    StoredGlossary,
    base_language,
    owned,
    pair_of,
    parse_entries,
    tsv_of,
)
from heedful.serving.refusals import InvalidError, NoSuchGlossaryError
from heedful.text.languages import language_code

M = TypeVar("M", bound=BaseModel)
_BODY_BYTES = 10 * 2**20  # of a glossary, as DeepL's
_MOST = 1000  # glossaries of a client
_MOST_ENTRIES = 100_000  # of a client's glossaries together; reading them takes a second
_TSV = "text/tab-separated-values"
_NEEDS_FILE = "glossaries are stored in a file; start the server with --glossaries FILE"


class _Strict(BaseModel, extra="forbid"):
    """Parameters; an unknown one is refused by its name."""

    auth_key: SkipJsonSchema[str] = ""


class _PairFields(_Strict):
    source_lang: NonEmptyText
    target_lang: NonEmptyText


class _DictionaryFields(_PairFields):
    entries: NonEmptyText
    entries_format: Literal["tsv", "csv"] = "tsv"


class _GlossaryFields(_DictionaryFields):
    name: NonEmptyText


class _MultilingualFields(_Strict):
    name: NonEmptyText
    dictionaries: Annotated[list[_DictionaryFields], Field(min_length=1)]


class _ChangeFields(_Strict):
    name: str = ""
    dictionaries: list[_DictionaryFields] = []


def supported_pairs(gateway: Gateway) -> list[tuple[str, str]]:
    """Return the pairs of languages that may have glossaries: those that a model translates directly."""
    pairs = {(base_language(pair.src), base_language(pair.tgt)) for pair in gateway.service.catalogue.pairs}
    return sorted(pair for pair in pairs if pair[0] != pair[1])


def _described(stored: StoredGlossary) -> dict[str, Any]:
    """Return a glossary as v3 describes it."""
    dictionaries = [_described_dictionary(each) for each in stored.dictionaries]
    return {
        "glossary_id": stored.id,
        "name": stored.name,
        "dictionaries": dictionaries,
        "creation_time": stored.created,
    }


def _described_dictionary(dictionary: Dictionary) -> dict[str, Any]:
    languages = {"source_lang": dictionary.source, "target_lang": dictionary.target}
    return languages | {"entry_count": len(dictionary.entries)}


def _described_of_v2(stored: StoredGlossary) -> dict[str, Any]:
    """Return a glossary of one dictionary as v2 describes it."""
    described = _described(stored)
    [dictionary] = described.pop("dictionaries")
    return {**described, **dictionary, "ready": True}


class _Endpoints:
    """The client, the store and checked dictionaries, for the routes of both versions."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._limits = replace(gateway.service.limits, body_bytes=_BODY_BYTES)

    async def asked(self, request: Request, model: type[M]) -> tuple[str, M]:
        """Return the client and the parameters of a request."""
        if request.method != "GET":
            self._gateway.check_origin(request)
        fields = await read_object(request, self._limits)
        return await self._gateway.checked(request, fields, model)

    @property
    def store(self) -> GlossaryStore:
        """The store.

        Raises:
            NoSuchGlossaryError: the server has none.
        """
        if self._gateway.glossaries is None:
            raise NoSuchGlossaryError(_NEEDS_FILE)
        return self._gateway.glossaries

    def languages(self, source: str, target: str) -> tuple[str, str]:
        """Return the codes of a pair.

        Raises:
            InvalidError: the server does not translate it.
        """
        pair = (base_language(language_code(source) or ""), base_language(language_code(target) or ""))
        if pair not in supported_pairs(self._gateway):
            raise InvalidError("Unsupported glossary source and target language pair")
        return pair

    async def dictionary(self, fields: _DictionaryFields) -> Dictionary:
        """Return a dictionary from its parameters; other requests are answered meanwhile."""
        source, target = self.languages(fields.source_lang, fields.target_lang)
        parse = partial(parse_entries, fields.entries, fields.entries_format, (source, target))
        entries = await asyncio.to_thread(parse)
        return Dictionary(source=source, target=target, entries=entries)

    async def create(self, owner: str, name: str, dictionaries: Sequence[Dictionary]) -> StoredGlossary:
        """Store a new glossary."""
        if len({pair_of(each) for each in dictionaries}) < len(dictionaries):
            raise InvalidError("Bad request. Reason: two dictionaries are of the same pair of languages")
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        token = secrets.token_hex(16)
        glossary_id = "-".join((token[:8], token[8:12], token[12:16], token[16:20], token[20:]))
        stored = StoredGlossary(
            id=glossary_id, owner=owner, name=name, created=created, dictionaries=list(dictionaries)
        )

        def add(glossaries: dict[str, StoredGlossary]) -> StoredGlossary:
            if sum(each.owner == owner for each in glossaries.values()) >= _MOST:
                raise InvalidError(f"Too many glossaries: there are {_MOST:,}; delete one")
            glossaries[stored.id] = stored
            _check_number_of_entries(glossaries, owner)
            return stored

        return await asyncio.to_thread(self.store.change, add)

    async def change(
        self, owner: str, glossary_id: str, work: Callable[[StoredGlossary], object]
    ) -> StoredGlossary:
        """Change a glossary."""

        def change(glossaries: dict[str, StoredGlossary]) -> StoredGlossary:
            stored = owned(glossaries, owner, glossary_id)
            work(stored)
            _check_number_of_entries(glossaries, owner)
            return stored

        return await asyncio.to_thread(self.store.change, change)

    async def delete(self, owner: str, glossary_id: str) -> Response:
        """Delete a glossary."""

        def delete(glossaries: dict[str, StoredGlossary]) -> None:
            del glossaries[owned(glossaries, owner, glossary_id).id]

        await asyncio.to_thread(self.store.change, delete)
        return Response(status_code=204)

    def of_one_pair(self, owner: str, glossary_id: str) -> StoredGlossary:
        """Return a glossary that v2 can describe.

        Raises:
            NoSuchGlossaryError: it has several dictionaries, or there is none.
        """
        stored = self.store.get(owner, glossary_id)
        if len(stored.dictionaries) != 1:
            raise NoSuchGlossaryError("Glossary not found: v2 has glossaries of one pair; ask /v3/glossaries")
        return stored


def _check_number_of_entries(glossaries: Mapping[str, StoredGlossary], owner: str) -> None:
    own = [
        dictionary for each in glossaries.values() if each.owner == owner for dictionary in each.dictionaries
    ]
    if (number := sum(len(each.entries) for each in own)) > _MOST_ENTRIES:
        raise InvalidError(
            f"Too many entries: all glossaries would have {number:,}, above {_MOST_ENTRIES:,}; delete some"
        )


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["DeepL"], responses=REFUSALS)
    endpoints = _Endpoints(gateway)
    _add_v2(routes, endpoints)
    _add_v3(routes, endpoints)
    _add_dictionaries(routes, endpoints)

    @routes.get("/v2/glossary-language-pairs")
    async def glossary_pairs() -> dict[str, list[dict[str, str]]]:
        """Return the pairs of languages that may have glossaries."""
        pairs = supported_pairs(gateway) if gateway.glossaries is not None else []
        return {"supported_languages": [{"source_lang": a, "target_lang": b} for a, b in pairs]}

    return routes


def _add_v2(routes: APIRouter, endpoints: _Endpoints) -> None:
    @routes.post(
        "/v2/glossaries", status_code=201, openapi_extra=described_body(_GlossaryFields.model_json_schema())
    )
    async def create(request: Request) -> dict[str, Any]:
        """Store a glossary of one pair of languages."""
        owner, asked = await endpoints.asked(request, _GlossaryFields)
        return _described_of_v2(
            await endpoints.create(owner, asked.name, [await endpoints.dictionary(asked)])
        )

    @routes.get("/v2/glossaries")
    async def listed(request: Request) -> dict[str, list[dict[str, Any]]]:
        """Return the glossaries of one pair of languages."""
        owner, _ = await endpoints.asked(request, _Strict)
        stored = [each for each in endpoints.store.of(owner) if len(each.dictionaries) == 1]
        return {"glossaries": [_described_of_v2(each) for each in stored]}

    @routes.get("/v2/glossaries/{glossary_id}")
    async def described(request: Request, glossary_id: str) -> dict[str, Any]:
        """Return what a glossary is, without its entries."""
        owner, _ = await endpoints.asked(request, _Strict)
        return _described_of_v2(endpoints.of_one_pair(owner, glossary_id))

    @routes.get("/v2/glossaries/{glossary_id}/entries", responses={200: {"content": {_TSV: {}}}})
    async def entries(request: Request, glossary_id: str) -> Response:
        """Return the entries as lines of source, tab and target."""
        owner, _ = await endpoints.asked(request, _Strict)
        [dictionary] = endpoints.of_one_pair(owner, glossary_id).dictionaries
        return Response(tsv_of(dictionary.entries), media_type=_TSV)

    @routes.delete("/v2/glossaries/{glossary_id}", status_code=204)
    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete a glossary."""
        owner, _ = await endpoints.asked(request, _Strict)
        return await endpoints.delete(owner, glossary_id)


def _add_v3(routes: APIRouter, endpoints: _Endpoints) -> None:
    @routes.post("/v3/glossaries", status_code=201)
    async def create(request: Request) -> dict[str, Any]:
        """Store a glossary with one dictionary for each pair of languages."""
        owner, asked = await endpoints.asked(request, _MultilingualFields)
        dictionaries = [await endpoints.dictionary(each) for each in asked.dictionaries]
        return _described(await endpoints.create(owner, asked.name, dictionaries))

    @routes.get("/v3/glossaries")
    async def listed(request: Request) -> dict[str, list[dict[str, Any]]]:
        """Return all glossaries, without their entries."""
        owner, _ = await endpoints.asked(request, _Strict)
        return {"glossaries": [_described(each) for each in endpoints.store.of(owner)]}

    @routes.get("/v3/glossaries/{glossary_id}")
    async def described(request: Request, glossary_id: str) -> dict[str, Any]:
        """Return what a glossary is, without its entries."""
        owner, _ = await endpoints.asked(request, _Strict)
        return _described(endpoints.store.get(owner, glossary_id))

    @routes.patch("/v3/glossaries/{glossary_id}")
    async def change(request: Request, glossary_id: str) -> dict[str, Any]:
        """Rename a glossary, and add entries to its dictionaries."""
        owner, asked = await endpoints.asked(request, _ChangeFields)
        dictionaries = [await endpoints.dictionary(each) for each in asked.dictionaries]

        def work(stored: StoredGlossary) -> None:
            stored.name = asked.name or stored.name
            for each in dictionaries:
                stored.put(each, merge=True)

        return _described(await endpoints.change(owner, glossary_id, work))

    @routes.delete("/v3/glossaries/{glossary_id}", status_code=204)
    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete a glossary."""
        owner, _ = await endpoints.asked(request, _Strict)
        return await endpoints.delete(owner, glossary_id)


def _add_dictionaries(routes: APIRouter, endpoints: _Endpoints) -> None:
    pair_in_query = described_query(schema_of(_PairFields))

    @routes.get("/v3/glossaries/{glossary_id}/entries", openapi_extra=pair_in_query)
    async def entries(request: Request, glossary_id: str) -> dict[str, list[dict[str, str]]]:
        """Return the entries of a dictionary as lines of source, tab and target."""
        owner, asked = await endpoints.asked(request, _PairFields)
        pair = endpoints.languages(asked.source_lang, asked.target_lang)
        stored = endpoints.store.get(owner, glossary_id).dictionary(*pair)
        described = {"source_lang": stored.source, "target_lang": stored.target}
        return {"dictionaries": [described | {"entries": tsv_of(stored.entries), "entries_format": "tsv"}]}

    @routes.put("/v3/glossaries/{glossary_id}/dictionaries")
    async def put(request: Request, glossary_id: str) -> dict[str, Any]:
        """Replace the dictionary of a pair of languages, or add it."""
        owner, asked = await endpoints.asked(request, _DictionaryFields)
        dictionary = await endpoints.dictionary(asked)
        await endpoints.change(owner, glossary_id, lambda stored: stored.put(dictionary, merge=False))
        return _described_dictionary(dictionary)

    @routes.delete("/v3/glossaries/{glossary_id}/dictionaries", status_code=204, openapi_extra=pair_in_query)
    async def delete_dictionary(request: Request, glossary_id: str) -> Response:
        """Delete the dictionary of a pair of languages."""
        owner, asked = await endpoints.asked(request, _PairFields)
        chosen = endpoints.languages(asked.source_lang, asked.target_lang)

        def work(stored: StoredGlossary) -> None:
            stored.dictionaries.remove(stored.dictionary(*chosen))

        await endpoints.change(owner, glossary_id, work)
        return Response(status_code=204)
