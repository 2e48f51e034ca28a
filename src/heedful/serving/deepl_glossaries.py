"""DeepL's endpoints for glossaries, v2 and v3."""

import asyncio
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import uuid4

from fastapi import APIRouter, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field
from pydantic.json_schema import SkipJsonSchema

from heedful.documents import primary_language
from heedful.serving.deepl import REFUSALS
from heedful.serving.gateway import Gateway, M, NonEmptyText, described_body, described_query, schema_of
from heedful.serving.glossaries import Dictionary, GlossaryStore, StoredGlossary, owned, parse_entries
from heedful.serving.refusals import InvalidError, NoSuchGlossaryError
from heedful.text.languages import language_code

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


def _described(stored: StoredGlossary) -> dict[str, Any]:
    """Return a glossary as v3 describes it."""
    return {
        "glossary_id": stored.id,
        "name": stored.name,
        "dictionaries": list(map(_described_dictionary, stored.dictionaries)),
        "creation_time": stored.created,
    }


def _described_dictionary(dictionary: Dictionary) -> dict[str, Any]:
    source, target = dictionary.pair
    return {"source_lang": source, "target_lang": target, "entry_count": len(dictionary.entries)}


def _described_of_v2(stored: StoredGlossary) -> dict[str, Any]:
    """Return the description of a glossary in v2, if it has one dictionary.

    Raises:
        NoSuchGlossaryError: it has several.
    """
    if len(stored.dictionaries) != 1:
        raise NoSuchGlossaryError("Glossary not found: v2 has glossaries of one pair; ask /v3/glossaries")
    described = _described(stored)
    [dictionary] = described.pop("dictionaries")
    return {**described, **dictionary, "ready": True}


class _Clients:
    """Finds and changes clients' glossaries for the routes; slow work is done in threads."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        direct = gateway.service.catalogue.pairs  # a translation through a third language uses no terms
        pairs = {(primary_language(pair.src), primary_language(pair.tgt)) for pair in direct}
        self.pairs = sorted((src, tgt) for src, tgt in pairs if src != tgt)

    async def asked(self, request: Request, model: type[M]) -> tuple[str, M]:
        """Return the client and the parameters of a request."""
        if request.method != "GET":
            self._gateway.check_origin(request)
        return await self._gateway.parameters(request, model, most=_BODY_BYTES)

    async def glossaries(self, request: Request) -> list[StoredGlossary]:
        """Authorise a request without parameters; return the glossaries of its client."""
        owner, _ = await self.asked(request, _Strict)
        return await asyncio.to_thread(self.store.of, owner)

    async def glossary(self, request: Request, glossary_id: str) -> StoredGlossary:
        """Authorise a request without parameters; return a glossary of its client."""
        owner, _ = await self.asked(request, _Strict)
        return await asyncio.to_thread(self.store.get, owner, glossary_id)

    @property
    def store(self) -> GlossaryStore:
        """The store.

        Raises:
            NoSuchGlossaryError: the server has none.
        """
        if self._gateway.glossaries is None:
            raise NoSuchGlossaryError(_NEEDS_FILE)
        return self._gateway.glossaries

    def pair(self, fields: _PairFields) -> tuple[str, str]:
        """Return the codes of a pair of languages.

        Raises:
            InvalidError: no model translates it.
        """
        source, target = language_code(fields.source_lang), language_code(fields.target_lang)
        pair = (primary_language(source or ""), primary_language(target or ""))
        if pair not in self.pairs:
            raise InvalidError("Unsupported glossary source and target language pair")
        return pair

    async def dictionaries(self, asked: Sequence[_DictionaryFields]) -> list[Dictionary]:
        """Return dictionaries from their parameters."""
        pairs = [self.pair(fields) for fields in asked]

        def parse(fields: _DictionaryFields, pair: tuple[str, str]) -> Dictionary:
            entries = parse_entries(fields.entries, fields.entries_format, pair)
            return Dictionary(source=pair[0], target=pair[1], entries=entries)

        return await asyncio.to_thread(lambda: list(map(parse, asked, pairs)))

    async def create(self, owner: str, name: str, dictionaries: list[Dictionary]) -> StoredGlossary:
        """Store a new glossary."""
        if len({dictionary.pair for dictionary in dictionaries}) < len(dictionaries):
            raise InvalidError("Bad request. Reason: two dictionaries are of the same pair of languages")
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        stored = StoredGlossary(
            id=str(uuid4()), owner=owner, name=name, created=created, dictionaries=dictionaries
        )
        await self.changed(owner, lambda glossaries: glossaries.update({stored.id: stored}))
        return stored

    async def change(
        self, owner: str, glossary_id: str, work: Callable[[StoredGlossary], object]
    ) -> StoredGlossary:
        """Change a glossary."""
        changed: list[StoredGlossary] = []

        def change(glossaries: dict[str, StoredGlossary]) -> None:
            changed.append(owned(glossaries, owner, glossary_id))
            work(changed[0])

        await self.changed(owner, change)
        return changed[0]

    async def changed(self, owner: str, work: Callable[[dict[str, StoredGlossary]], object]) -> None:
        """Change the glossaries of a client, unless it would have too many or too large ones."""

        def change(glossaries: dict[str, StoredGlossary]) -> None:
            work(glossaries)
            kept = [stored for stored in glossaries.values() if stored.owner == owner]
            number = sum(stored.num_entries for stored in kept)
            if len(kept) > _MOST:
                raise InvalidError(f"Too many glossaries: there are {_MOST:,}; delete one")
            if number > _MOST_ENTRIES:
                raise InvalidError(
                    f"Too many entries: all glossaries would have {number:,}, above {_MOST_ENTRIES:,}; "
                    "delete some"
                )

        await asyncio.to_thread(self.store.change, change)


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    routes = APIRouter(tags=["DeepL"], responses=REFUSALS)
    clients = _Clients(gateway)
    _add_v2(routes, clients)
    _add_v3(routes, clients)
    _add_dictionaries(routes, clients)

    @routes.get("/v2/glossary-language-pairs")
    async def glossary_pairs() -> dict[str, list[dict[str, str]]]:
        """Return the pairs of languages that may have glossaries."""
        pairs = clients.pairs if gateway.glossaries is not None else []
        return {"supported_languages": [{"source_lang": a, "target_lang": b} for a, b in pairs]}

    @routes.delete("/v2/glossaries/{glossary_id}", status_code=204)
    @routes.delete("/v3/glossaries/{glossary_id}", status_code=204)
    async def delete(request: Request, glossary_id: str) -> Response:
        """Delete a glossary."""
        owner, _ = await clients.asked(request, _Strict)
        await clients.changed(owner, lambda known: known.pop(owned(known, owner, glossary_id).id))
        return Response(status_code=204)

    return routes


def _add_v2(routes: APIRouter, clients: _Clients) -> None:
    @routes.post(
        "/v2/glossaries", status_code=201, openapi_extra=described_body(_GlossaryFields.model_json_schema())
    )
    async def create(request: Request) -> dict[str, Any]:
        """Store a glossary of one pair of languages."""
        owner, asked = await clients.asked(request, _GlossaryFields)
        dictionaries = await clients.dictionaries([asked])
        return _described_of_v2(await clients.create(owner, asked.name, dictionaries))

    @routes.get("/v2/glossaries")
    async def listed(request: Request) -> dict[str, list[dict[str, Any]]]:
        """Return the glossaries of one pair of languages."""
        found = await clients.glossaries(request)
        return {"glossaries": [_described_of_v2(stored) for stored in found if len(stored.dictionaries) == 1]}

    @routes.get("/v2/glossaries/{glossary_id}")
    async def described(request: Request, glossary_id: str) -> dict[str, Any]:
        """Return the description of a glossary, without its entries."""
        return _described_of_v2(await clients.glossary(request, glossary_id))

    @routes.get("/v2/glossaries/{glossary_id}/entries", responses={200: {"content": {_TSV: {}}}})
    async def entries(request: Request, glossary_id: str) -> Response:
        """Return the entries as lines of source, tab and target."""
        stored = await clients.glossary(request, glossary_id)
        _described_of_v2(stored)  # raises if it has several dictionaries
        return Response(stored.dictionaries[0].tsv(), media_type=_TSV)


def _add_v3(routes: APIRouter, clients: _Clients) -> None:
    @routes.post("/v3/glossaries", status_code=201)
    async def create(request: Request) -> dict[str, Any]:
        """Store a glossary with one dictionary for each pair of languages."""
        owner, asked = await clients.asked(request, _MultilingualFields)
        dictionaries = await clients.dictionaries(asked.dictionaries)
        return _described(await clients.create(owner, asked.name, dictionaries))

    @routes.get("/v3/glossaries")
    async def listed(request: Request) -> dict[str, list[dict[str, Any]]]:
        """Return all glossaries, without their entries."""
        return {"glossaries": list(map(_described, await clients.glossaries(request)))}

    @routes.get("/v3/glossaries/{glossary_id}")
    async def described(request: Request, glossary_id: str) -> dict[str, Any]:
        """Return the description of a glossary, without its entries."""
        return _described(await clients.glossary(request, glossary_id))

    @routes.patch("/v3/glossaries/{glossary_id}")
    async def change(request: Request, glossary_id: str) -> dict[str, Any]:
        """Rename a glossary, and add entries to its dictionaries."""
        owner, asked = await clients.asked(request, _ChangeFields)
        dictionaries = await clients.dictionaries(asked.dictionaries)

        def work(stored: StoredGlossary) -> None:
            stored.name = asked.name or stored.name
            for dictionary in dictionaries:
                stored.put(dictionary, merge=True)

        return _described(await clients.change(owner, glossary_id, work))


def _add_dictionaries(routes: APIRouter, clients: _Clients) -> None:
    pair_in_query = described_query(schema_of(_PairFields))

    @routes.get("/v3/glossaries/{glossary_id}/entries", openapi_extra=pair_in_query)
    async def entries(request: Request, glossary_id: str) -> dict[str, list[dict[str, str]]]:
        """Return the entries of a dictionary as lines of source, tab and target."""
        owner, asked = await clients.asked(request, _PairFields)
        source, target = clients.pair(asked)
        stored = await asyncio.to_thread(clients.store.get, owner, glossary_id)
        tsv = stored.dictionary(source, target).tsv()
        described = {"source_lang": source, "target_lang": target, "entries": tsv, "entries_format": "tsv"}
        return {"dictionaries": [described]}

    @routes.put("/v3/glossaries/{glossary_id}/dictionaries")
    async def put(request: Request, glossary_id: str) -> dict[str, Any]:
        """Replace the dictionary of a pair of languages, or add it."""
        owner, asked = await clients.asked(request, _DictionaryFields)
        [dictionary] = await clients.dictionaries([asked])
        await clients.change(owner, glossary_id, lambda stored: stored.put(dictionary, merge=False))
        return _described_dictionary(dictionary)

    @routes.delete("/v3/glossaries/{glossary_id}/dictionaries", status_code=204, openapi_extra=pair_in_query)
    async def delete_dictionary(request: Request, glossary_id: str) -> Response:
        """Delete the dictionary of a pair of languages."""
        owner, asked = await clients.asked(request, _PairFields)
        pair = clients.pair(asked)
        await clients.change(
            owner, glossary_id, lambda stored: stored.dictionaries.remove(stored.dictionary(*pair))
        )
        return Response(status_code=204)
