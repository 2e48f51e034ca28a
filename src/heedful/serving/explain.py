"""How a text was translated: tokens, their probabilities, the n-best list, and what attended to what."""

import asyncio
import functools
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated, Any

from cachetools import LRUCache
from pydantic import BaseModel, Field

from heedful import HeedfulError, Pair
from heedful.analysis import AttentionKind, ExplainedSentence
from heedful.documents import read_text
from heedful.errors import MissingExtraError
from heedful.serving.gateway import AUTO, NonEmptyText
from heedful.serving.model_queue import ServedModel
from heedful.serving.refusals import InvalidError, NoSuchLayerError, NotImplementedHereError, TextTooLongError

if TYPE_CHECKING:
    from heedful.serving.service import TranslationService

MAX_TOKENS = 200  # in all sources of a request
_REMEMBERED_BYTES = 2**25  # of attention maps

Json = dict[str, Any]


class ExplainRequest(BaseModel):
    """A text to explain: the heads of one kind of attention, in one layer (from 1) or in all."""

    q: NonEmptyText
    source: NonEmptyText
    target: NonEmptyText
    attention: AttentionKind | None = None
    layer: Annotated[int | None, Field(json_schema_extra={"minimum": 1})] = None
    api_key: str = ""


class Explainer:
    """Explains texts in one thread of its own, within the limits of a service."""

    def __init__(self, service: "TranslationService") -> None:
        """Make the thread; it starts with the first request."""
        self._service = service
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="heedful explain")
        self._known: LRUCache[tuple[str, Pair, str], ExplainedSentence] = LRUCache(
            _REMEMBERED_BYTES, getsizeof=lambda explained: explained.nbytes
        )

    async def explain(self, request: ExplainRequest) -> Json:
        """Return languages and an explanation of each sentence, as far as there are not too many tokens.

        Raises:
            RefusedError: too much, a language that is not served, a pair without a model of its own, or
                no torch if the model needs it.
        """
        service, limits = self._service, self._service.limits
        characters = len(request.q)
        if characters > limits.characters:
            raise TextTooLongError(f"request ({characters}) exceeds text limit ({limits.characters})")
        source, target = service.catalogue.languages(
            None if request.source == AUTO else request.source, request.target
        )
        guess, route = service.detected_route(source, target, [request.q])
        if route is None:
            return {"source": target, "target": target, "complete": True, "sentences": []}
        pair = Pair(guess.language, target)
        if route.pivot is not None:
            raise InvalidError(f"a translation through {route.pivot} has two models; explain one at a time")
        work = functools.partial(self._explained, service.model_of(pair), pair, request)
        async with service.load.admitted(characters):
            answer = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        return {"source": pair.src, "target": pair.tgt, **answer}

    def close(self) -> None:
        """End the thread; what has not started is given up."""
        self._thread.shutdown(cancel_futures=True)

    def _explained(self, model: ServedModel, pair: Pair, request: ExplainRequest) -> Json:
        try:
            translator = model.served(pair).translator_here
        except MissingExtraError as error:
            raise NotImplementedHereError(f"explanations: {error}") from None
        if translator is None:
            raise NotImplementedHereError("this model has no explanations")
        sentences = [sentence.source.text for sentence in read_text(request.q, None).work().sentences]
        chosen, left = [], MAX_TOKENS
        for sentence in sentences:
            left -= len(translator.bundle.tokenizers.src.encode(sentence))
            if left < 0:
                break
            chosen.append(sentence)
        known = {each: self._known.get((model.name, pair, each)) for each in chosen}
        new = [each for each, explained in known.items() if explained is None]
        try:
            for translation in model.hypotheses(pair, new) if new else ():
                if translation.hypotheses:
                    with model.idle():  # the torch backend records whatever its model computes
                        explained = ExplainedSentence.of(translator, translation)
                    known[translation.source] = explained
                    with suppress(ValueError):  # more bytes than all that may be remembered
                        self._known[model.name, pair, translation.source] = explained
        except HeedfulError as error:
            raise InvalidError(str(error)) from None
        return {
            "complete": len(chosen) == len(sentences),
            "sentences": [
                _as_dict(shown, request) for sentence in chosen if (shown := known[sentence]) is not None
            ],
        }


def _as_dict(explained: ExplainedSentence, request: ExplainRequest) -> Json:
    """Return the JSON for a client.

    Raises:
        NoSuchLayerError: a layer that the model does not have.
    """
    kind, layer = request.attention, request.layer
    if kind is not None and layer is not None:
        most = len(explained.maps.of(kind))
        if not 1 <= layer <= most:
            raise NoSuchLayerError(f"layer parameter must be from 1 to {most}")
    return explained.as_dict(kind, layer)
