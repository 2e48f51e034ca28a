"""LibreTranslate's /suggest: a better translation, which the client's next request gets; and what undoes it.

A suggestion that does not look like a translation is kept in doubt: it is listed and exported with the
reason, and nothing else uses it before a person has confirmed it.
"""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel

from heedful import Pair
from heedful.data.memory_files import Segment
from heedful.documents import normalised, primary_language
from heedful.serving.gateway import Gateway, NonEmptyText, described_body, schema_of
from heedful.serving.libretranslate import REFUSALS, LibreError
from heedful.serving.memories import ClientMemory, MemoryStore, new_segment, similarity
from heedful.serving.refusals import NoSuchMemoryError, UnauthorizedError
from heedful.serving.service import TranslationRequest, TranslationService

# Nats a token by which the source must make a translation more probable. Of 300 sentences of two test sets
# (docs/serving.md), the least was 3.6; of texts such as "asdf asdf" or "lol" the most was 1.7.
_LEAST_INFORMATION = 2.0
_SIMILAR = 0.5  # to the model's own translation: a correction with words that the model does not know
_SURE = 0.95  # probability of another language
_LETTERS = 20  # of a text whose language is sure
_COPIED = "equal to its source"
_LANGUAGE = "looks like {}, not like {}"
_IMPROBABLE = "the model finds that it has nothing to do with its source"


async def doubt_of(service: TranslationService, pair: Pair, source: str, target: str) -> str:
    """Return why a translation should not be used before a person confirms it; "": it looks right."""
    if normalised(source) == normalised(target):
        return _COPIED
    if sum(map(str.isalpha, target)) >= _LETTERS:
        guess, *_ = await asyncio.to_thread(service.detector.ranked, target)
        is_other = primary_language(guess.language) != primary_language(pair.tgt)
        if is_other and guess.probability > _SURE:
            return _LANGUAGE.format(guess.language, pair.tgt)
    route = service.catalogue.route(pair.src, pair.tgt)
    if route is None or route.pivot is not None:
        return ""
    information = await asyncio.to_thread(service.model_of(pair).information, pair, source, target)
    if information >= _LEAST_INFORMATION:
        return ""
    asked = TranslationRequest(texts=(source,), source=pair.src, target=pair.tgt)
    [own] = await service.translate(asked)  # mostly in the cache: it was just corrected
    return "" if similarity(own.text, target) >= _SIMILAR else _IMPROBABLE


class _Fields(BaseModel):
    q: NonEmptyText
    s: NonEmptyText
    source: NonEmptyText
    target: NonEmptyText
    api_key: str = ""


class _KeyFields(BaseModel):
    api_key: str = ""


class Correction(BaseModel):
    """A better translation that is on the disk; `doubt` says why it is not used before it is confirmed."""

    success: bool = True
    id: str
    time: str
    client: str
    q: str
    s: str
    target: str
    doubt: str = ""


def _described(segment: Segment) -> Correction:
    return Correction(
        id=segment.id,
        time=segment.time,
        client=segment.client,
        q=segment.source,
        s=segment.target,
        target=segment.tgt,
        doubt=segment.doubt,
    )


def router(gateway: Gateway) -> APIRouter:
    """Return the routes."""
    missing: dict[str, Any] = {"model": LibreError, "description": "No such correction"}
    routes = APIRouter(tags=["LibreTranslate"], responses=REFUSALS | {404: missing})

    def store() -> MemoryStore:
        if gateway.memories is None:
            raise UnauthorizedError("Suggestions are not stored by this server (--memories)")
        return gateway.memories

    @routes.post("/suggest", openapi_extra=described_body(schema_of(_Fields)))
    async def suggest(request: Request) -> Correction:
        """Store a better translation (`s`) of a text (`q`)."""
        memories = store()
        gateway.check_origin(request)
        client, parameters = await gateway.parameters(request, _Fields)
        service = gateway.service
        service.check_size(1, len(parameters.q) + len(parameters.s))
        source, target = service.catalogue.languages(
            None if parameters.source == "auto" else parameters.source, parameters.target
        )
        guess, route = service.detected_route(source, target, [parameters.q])
        pair = Pair(guess.language, target) if route is None else route.ends
        doubt = await doubt_of(service, pair, parameters.q, parameters.s)
        segment = new_segment(client, pair.tgt, parameters.q, parameters.s, doubt)
        stored = await asyncio.to_thread(memories.add_correction, client, pair.src, segment)
        return _described(stored)

    @routes.get("/suggest")
    async def listed(request: Request) -> list[Correction]:
        """Return the client's corrections, the oldest first."""
        memories = store()
        client, _ = await gateway.parameters(request, _KeyFields)
        found = await asyncio.to_thread(lambda: list(memories.corrected(client)))
        return [_described(segment) for _, segment in found]

    async def change(request: Request, correction_id: str, **update: object) -> Correction:
        memories = store()
        gateway.check_origin(request)
        client, _ = await gateway.parameters(request, _KeyFields)

        def work() -> Segment:
            memory = _memory_of(memories, client, correction_id)
            return memory.change(client, correction_id, **update)

        return _described(await asyncio.to_thread(work))

    @routes.delete("/suggest/{correction_id}")
    async def undo(request: Request, correction_id: str) -> Correction:
        """Undo a correction: the translation is what it was before."""
        return await change(request, correction_id, removed=True)

    @routes.post("/suggest/{correction_id}")
    async def confirm(request: Request, correction_id: str) -> Correction:
        """Confirm a correction that was in doubt."""
        return await change(request, correction_id, doubt="")

    return routes


def _memory_of(memories: MemoryStore, client: str, correction_id: str) -> ClientMemory:
    for memory, segment in memories.corrected(client):
        if segment.id == correction_id:
            return memory
    raise NoSuchMemoryError("No such correction")
