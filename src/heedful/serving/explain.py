"""How a text was translated: tokens, their probabilities, the n-best list, and what attended to what."""

import asyncio
import functools
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from cachetools import LRUCache
from pydantic import BaseModel, Field

from heedful import HeedfulError, Pair
from heedful.analysis import AttentionKind
from heedful.analysis.attention_maps import AttentionMaps, attention_maps
from heedful.decoding.alignment import cut, texts_of_tokens
from heedful.documents.markup import read_text
from heedful.errors import MissingExtraError
from heedful.serving.gateway import AUTO, NonEmptyText
from heedful.serving.model_queue import ServedModel
from heedful.serving.refusals import InvalidError, NoSuchLayerError, NotImplementedHereError, TextTooLongError
from heedful.spans.sentences import split

if TYPE_CHECKING:
    import numpy as np

    from heedful import Bundle, Translation, Translator
    from heedful.serving.service import TranslationService

MAX_TOKENS = 200  # in all sources of a request
_REMEMBERED_BYTES = 2**25  # of attention maps
_DIGITS = 4

Json = dict[str, Any]


class ExplainRequest(BaseModel):
    """A text to explain: the heads of one kind of attention, in one layer (from 1) or in all."""

    q: NonEmptyText
    source: NonEmptyText
    target: NonEmptyText
    attention: AttentionKind | None = None
    layer: Annotated[int | None, Field(json_schema_extra={"minimum": 1})] = None
    api_key: str = ""


@dataclass(frozen=True)
class ExplainedSentence:
    """A sentence, its n-best list, and all attention of its best translation.

    Attributes:
        translation: the sentence and its hypotheses, best first; at least one.
        maps: the attention maps of the best hypothesis.
        source_texts: the part of the sentence that each source token stands for; "" for special ones.
        tokens: the tokens of each hypothesis, with the end token.
        texts: the part of the text that each token stands for.
    """

    translation: "Translation"
    maps: "AttentionMaps"
    source_texts: tuple[str, ...]
    tokens: tuple[tuple[str, ...], ...]
    texts: tuple[tuple[str, ...], ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the maps."""
        return sum(layer.weights.nbytes for layer in self.maps.layers)

    def as_dict(self, attention: AttentionKind | None, layer: int | None) -> Json:
        """Return the JSON for a client; the heads' maps as `heads[head][row][column]`.

        Raises:
            NoSuchLayerError: a layer that the model does not have.
        """
        hypotheses, cross = self.translation.hypotheses, self.maps.of("cross")
        rows = len(hypotheses[0].token_log_probs)
        mean = sum(each.weights.mean(axis=0) for each in cross) / len(cross)
        answer: Json = {
            "source": {
                "text": self.translation.source,
                "tokens": list(self.maps.source_tokens),
                "texts": list(self.source_texts),
            },
            "hypotheses": [
                {
                    "text": each.text,
                    "score": _rounded(each.score),
                    "log_prob": _rounded(each.log_prob),
                    "finished": each.finished,
                    "tokens": list(tokens),
                    "texts": list(texts),
                    "log_probs": _rounded(each.token_log_probs),
                    "confidence": each.confidence
                    and {name: _rounded(value) for name, value in vars(each.confidence).items()},
                }
                for each, tokens, texts in zip(hypotheses, self.tokens, self.texts, strict=True)
            ],
            "cross": _rounded(mean[:rows]),
            "layers": {kind: len(self.maps.of(kind)) for kind in ("cross", "encoder", "decoder")},
        }
        if attention is not None:
            answer["attention"] = self._attention(attention, layer)
        return answer

    def _attention(self, kind: AttentionKind, layer: int | None) -> Json:
        maps = self.maps.of(kind)
        if layer is not None and not 1 <= layer <= len(maps):
            raise NoSuchLayerError(f"layer parameter must be from 1 to {len(maps)}")
        rows, columns = self.maps.labels(kind)
        return {
            "kind": kind,
            "rows": list(rows),
            "columns": list(columns),
            "maps": [
                {"layer": each.layer, "heads": [_rounded(head) for head in each.weights]}
                for each in maps
                if layer in (None, each.layer)
            ],
        }


def explain_sentence(translator: "Translator", translation: "Translation") -> ExplainedSentence:
    """Return an explanation of a translation, with the attention of this translator's model."""
    bundle, hypotheses = translator.bundle, translation.hypotheses
    tgt = bundle.tokenizers.tgt
    backend = translator.generator.backend
    maps = attention_maps(bundle, translation.source, hypotheses[0].ids, backend=backend)
    return ExplainedSentence(
        translation,
        maps,
        source_texts=_source_texts(bundle, translation.source, maps.source_tokens),
        tokens=tuple(tuple(tgt.tokens(each.written_ids)) for each in hypotheses),
        texts=tuple(texts_of_tokens(tgt, each.text, each.written_ids) for each in hypotheses),
    )


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
        segments = split(read_text(request.q, None).units[0].source)
        sentences = [sentence.text for sentence in segments.sentences]
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
                        explained = explain_sentence(translator, translation)
                    known[translation.source] = explained
                    with suppress(ValueError):  # more bytes than all that may be remembered
                        self._known[model.name, pair, translation.source] = explained
        except HeedfulError as error:
            raise InvalidError(str(error)) from None
        return {
            "complete": len(chosen) == len(sentences),
            "sentences": [
                one.as_dict(request.attention, request.layer)
                for each in chosen
                if (one := known[each]) is not None
            ],
        }


def _rounded(numbers: Any) -> Any:  # noqa: ANN401
    """Round a number, or the numbers in nested lists, to four digits."""
    return np.asarray(numbers, np.float64).round(_DIGITS).tolist()


def _source_texts(bundle: "Bundle", text: str, tokens: Sequence[str]) -> tuple[str, ...]:
    """Cut a text into the parts of its tokens, which are all of it; special tokens around them have none."""
    tokenizer = bundle.tokenizers.src
    ends = [end for _, end in tokenizer.spans(text)]
    own = tokenizer.tokens(tokenizer.encode(text))
    first = next((at for at in range(len(tokens)) if list(tokens[at : at + len(own)]) == own), 0)
    parts = cut(text, ends)
    return (*[""] * first, *parts, *[""] * (len(tokens) - first - len(parts)))
