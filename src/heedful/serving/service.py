"""From a request in any dialect to its answers: languages, sentences, the queues, and text again."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress, pairwise
from typing import TypeVar

from heedful.decoding.confidence import Confidence
from heedful.decoding.glossary import Glossary, PlacedTerm, placed_terms
from heedful.documents.alignment import Output, Outputs, words
from heedful.documents.markup import TagRules, read_text
from heedful.documents.sentences import (
    join,
    joined_pieces,
    restored,
    route,
    routed_text,
    split,
    without_placeholders,
)
from heedful.documents.spans import SpannedText, has_letters, markup
from heedful.documents.template import Template
from heedful.serving.languages import Catalogue, Detector, Route
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_queue import ModelQueue, SentenceCache, ServedModel, Turn
from heedful.serving.refusals import InvalidError, TextTooLongError, TooManyRequestsError, UnavailableError
from heedful.text.languages import Pair
from heedful.text.sentences import Sentence, joint, split_text

T = TypeVar("T")
Submitted = tuple[list[list[Sentence]], list[Future[Outputs]]]  # the parts of texts, and their translations


async def gathered(awaitables: Sequence[Awaitable[T]]) -> list[T]:
    """Return all results, in order; if one fails, cancel the rest."""
    tasks = [asyncio.ensure_future(each) for each in awaitables]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


_RECENT = 0.2  # weight of the latest request in the mean duration
_LONGEST_RETRY = 60


class LoadLimiter:
    """Counts the characters of all requests that are worked on; for one event loop."""

    def __init__(self, limits: Limits) -> None:
        """Take the limits of characters and of the seconds of a request."""
        self._limits = limits
        self.characters = 0
        self._mean_seconds = 1.0

    @asynccontextmanager
    async def admitted(self, characters: int) -> AsyncIterator[None]:
        """Reserve capacity for a request with this number of characters, for the time that it may take.

        Raises:
            TooManyRequestsError: there is no place; it says when to come back.
            UnavailableError: the time is over.
        """
        if self.characters + characters > self._limits.waiting_characters:
            retry = min(_LONGEST_RETRY, max(1, math.ceil(self._mean_seconds)))
            raise TooManyRequestsError("the server is overloaded; try again later", retry_after=retry)
        self.characters += characters
        started = time.monotonic()
        seconds = self._limits.seconds
        try:
            async with asyncio.timeout(seconds):
                yield
        except TimeoutError:
            message = f"not done within {seconds:g} seconds; try again, with less text"
            raise UnavailableError(message, retry_after=5) from None
        finally:
            self.characters -= characters
            self._mean_seconds += _RECENT * (time.monotonic() - started - self._mean_seconds)


_SHORT = 500  # characters that the event loop can split by itself


@dataclass(frozen=True, kw_only=True)
class TranslationRequest:
    """Texts to translate.

    Attributes:
        texts: any number.
        target: language.
        source: language; None: identified for each text.
        rules: returns the rules of the markup of a text, or None for plain text; None: all texts are plain.
        alternatives: how many other translations of each text.
        split: whether lines are split into sentences.
        glossary: returns the terms of a pair of languages, or raises a RefusedError; None: no terms.
        with_terms: whether the answers say which terms apply.
    """

    texts: tuple[str, ...]
    target: str
    source: str | None = None
    rules: Callable[[str], TagRules | None] | None = None
    alternatives: int = 0
    split: bool = True
    glossary: Callable[[Pair], Glossary] | None = None
    with_terms: bool = False


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The translation of a text.

    Attributes:
        text: the best one.
        source: language of the text.
        probability: of that language, from 0 to 1; 1 where the client said it.
        alternatives: other translations, best first.
        pivot: the language through which it was translated.
        sentences: the best translation of each, without markup, with the confidence in it.
        terms: of the glossary, those that apply to each sentence, and where they are in `text`; with markup
            it is not known where. Empty unless they are asked for.
    """

    text: str
    source: str
    probability: float = 1.0
    alternatives: tuple[str, ...] = ()
    pivot: str | None = None
    sentences: tuple[Output, ...] = ()
    terms: tuple[PlacedTerm, ...] = ()

    @property
    def truncated(self) -> bool:
        """Whether the length limit has cut the translation of a sentence."""
        return not all(each.finished for each in self.sentences)


@dataclass(frozen=True)
class Job:
    """Sentences of a text or a document on their way through the models.

    Attributes:
        route: the models, in order.
        turn: when its sentences are due.
        glossary: the terms to use; None: none.
        alternatives: how many other translations of each.
        progress: is called with the number of source characters of each sentence that is done.
    """

    route: Route
    turn: Turn
    glossary: Glossary | None
    alternatives: int = 0
    progress: Callable[[int], None] | None = None


class TranslationService:
    """Translates for any number of clients at once; its methods belong to one event loop."""

    def __init__(self, models: Sequence[ServedModel], limits: Limits, metrics: Metrics) -> None:
        """Start a queue for each model; the first that has a pair translates it."""
        self.limits = limits
        self.metrics = metrics
        self.detector = Detector()
        self.load = LoadLimiter(limits)
        cache = SentenceCache(limits.cached_characters)
        self._queues = [
            ModelQueue(model, limits, cache, observe_batch=metrics.batch_sentences.observe)
            for model in models
        ]
        self._queue_of: Mapping[Pair, ModelQueue] = {
            pair: queue for queue in reversed(self._queues) for pair in queue.model.pairs
        }
        self.catalogue = Catalogue(frozenset(self._queue_of))
        metrics.watch(lambda: sum(map(len, self._queues)), lambda: self.load.characters)

    async def translate(self, request: TranslationRequest) -> list[Answer]:
        """Return the answer to each text.

        Raises:
            RefusedError: too much, a language that is not served, too many requests, or not done in time.
        """
        characters = sum(map(len, request.texts))
        limits = self.limits
        if len(request.texts) > limits.texts:
            raise TextTooLongError(f"request ({len(request.texts)}) exceeds text limit ({limits.texts})")
        if characters > limits.characters:
            raise TextTooLongError(f"request ({characters}) exceeds text limit ({limits.characters})")
        if not 0 <= request.alternatives <= limits.alternatives:
            raise InvalidError(f"alternatives parameter must be from 0 to {limits.alternatives}")
        fixed, target = self.languages(request.source, request.target)
        turn = Turn()
        async with self.load.admitted(characters):
            return await gathered(
                [self._translate_text(text, fixed, target, request, turn) for text in request.texts]
            )

    def languages(self, source: str | None, target: str) -> tuple[str | None, str]:
        """Return the codes of the languages that a client means; the source may be None, or the target.

        Raises:
            LanguageError: one is not served, or not from that source.
        """
        code = self.catalogue.target(target, source=source)
        fixed = None if source is None else self.catalogue.source(source, target=code)
        if fixed not in (None, code):
            self.catalogue.required_route(fixed, code)
        return fixed, code

    def terms(self, route: Route, glossary: Callable[[Pair], Glossary] | None) -> Glossary | None:
        """Return the terms of a route; a large glossary takes seconds at first.

        Raises:
            RefusedError: there are none, or it is by way of another language.
        """
        if glossary is None:
            return None
        if len(route.legs) > 1:
            source, target = route.legs[0].src, route.legs[-1].tgt
            raise InvalidError(
                f"from {source} to {target} is by way of {route.pivot}: no glossary can be used"
            )
        return glossary(route.legs[0]).prepared()

    @property
    def models(self) -> list[ServedModel]:
        """All models."""
        return [queue.model for queue in self._queues]

    def model_of(self, pair: Pair) -> ServedModel:
        """Return the model that translates a pair."""
        return self._queue_of[pair].model

    def close(self) -> None:
        """Translate what is waiting, and end the threads."""
        for queue in self._queues:
            queue.close()

    async def _translate_text(
        self, text: str, source: str | None, target: str, request: TranslationRequest, turn: Turn
    ) -> Answer:
        rules = None if request.rules is None else request.rules(text)

        def read() -> tuple[Template, list[list[SpannedText]]]:
            template = read_text(text, rules)
            return template, [split(each.source, within_lines=request.split) for each in template.units]

        template, pieces = await asyncio.to_thread(read) if len(text) > _SHORT else read()
        sentences = [each for of_unit in pieces for each in of_unit[1::2]]
        probability = 1.0
        if source is None:
            words_of_text = " ".join(sentence.text for sentence in sentences)
            detected = self.detector.source(words_of_text, self.catalogue.sources_of(target), target)
            source, probability = detected.language, detected.probability
        self.metrics.characters.labels(str(Pair(source, target))).inc(len(text))
        if source == target:
            return Answer(text=text, source=source, probability=probability)
        route = self.catalogue.required_route(source, target)
        glossary = None
        if request.glossary is not None:
            glossary = await asyncio.to_thread(self.terms, route, request.glossary)
        job = Job(route, turn, glossary, request.alternatives)
        new, outputs = await self._translate_sentences(sentences, job)

        def written(n: int) -> str:
            left = iter([each[min(n, len(each) - 1)] for each in new])
            units = zip(template.units, pieces, strict=True)
            return template.joined([unit.written(join(of_unit, left)) for unit, of_unit in units])

        # The n-th translation of a text is made of the n-th ones of its sentences.
        best, *others = dict.fromkeys(map(written, range(max(map(len, new), default=1))))
        terms: tuple[PlacedTerm, ...] = ()
        if request.with_terms and job.glossary is not None:
            first = [each[0] for each in new]
            terms = await asyncio.to_thread(_terms_of, job.glossary, pieces, first, is_plain=rules is None)
        return Answer(
            text=best,
            source=source,
            probability=probability,
            alternatives=tuple(others),
            pivot=route.pivot,
            sentences=tuple(outputs),
            terms=terms,
        )

    async def _translate_sentences(
        self, sentences: Sequence[SpannedText], job: Job
    ) -> tuple[list[tuple[SpannedText, ...]], list[Output]]:
        """Return the translations of sentences, with their spans, and no placeholder lost or changed.

        Returns:
            The translations of each, and the best ones without spans, with the confidence in them.
        """
        routed = [route(each) for each in sentences]
        outputs = await self._translate_by_route(routed, job)
        new = list(map(restored, sentences, routed, outputs))
        # The model is asked again where it lost a placeholder: its confidence was in another output.
        best = [
            of_sentence[0]
            for sentence, one, done, of_sentence in zip(sentences, routed, new, outputs, strict=True)
            if done and one is sentence
        ]
        lost = [index for index, done in enumerate(new) if not done]
        again = [without_placeholders(sentences[index]) for index in lost]
        for index, one, of_sentence in zip(
            lost, again, await self._translate_by_route(again, job), strict=True
        ):
            new[index] = restored(sentences[index], one, of_sentence)
        return new, best

    async def _translate_by_route(self, sentences: Sequence[SpannedText], job: Job) -> list[Outputs]:
        """Return the translations of sentences by each model of the route; of marked ones with links."""
        outputs: list[Outputs] = [(Output(routed_text(sentence)),) for sentence in sentences]
        translatable = [index for index, (best,) in enumerate(outputs) if has_letters(best.text)]
        texts = [outputs[index][0].text for index in translatable]
        aligned = [bool(sentences[index].spans) for index in translatable]
        for index, written in zip(
            translatable, await self.translate_sentences(texts, aligned, job), strict=True
        ):
            outputs[index] = written
        return outputs

    async def translate_sentences(
        self, texts: Sequence[str], aligned: Sequence[bool], job: Job
    ) -> list[Outputs]:
        """Return the translations of sentences with letters by each model of the route.

        Args:
            texts: one sentence each.
            aligned: whether each has the links of its words.
            job: the text or document with the sentences.
        """
        outputs: list[Outputs] = [(Output(text),) for text in texts]
        for leg in job.route.legs:
            done = await self._translate_leg(leg, [best.text for best, *_ in outputs], aligned, job)
            is_first = leg == job.route.legs[0]
            outputs = [
                written if is_first else tuple(_composed(before[0], each) for each in written)
                for before, written in zip(outputs, done, strict=True)
            ]
        return outputs

    async def _translate_leg(
        self, leg: Pair, texts: Sequence[str], aligned: Sequence[bool], job: Job
    ) -> list[Outputs]:
        """Return the translations of sentences by one model; of those with too many tokens part by part."""
        queue, is_last = self._queue_of[leg], leg == job.route.legs[-1]

        def submit() -> Submitted:
            most = min(self.limits.sentence_tokens, queue.model.max_tokens or self.limits.sentence_tokens)
            parts = [split_text(text, queue.model.tokenizer, most) for text in texts]
            lettered = [[each.text for each in of_text if has_letters(each.text)] for of_text in parts]
            futures = queue.submit(
                leg,
                list(chain.from_iterable(lettered)),
                alternatives=job.alternatives if is_last else 0,
                turn=job.turn,
                aligned=set(chain.from_iterable(compress(lettered, aligned))),
                glossary=job.glossary,
            )
            return parts, futures

        is_long = job.glossary is not None or sum(map(len, texts)) > _SHORT
        parts, futures = await _in_thread(submit) if is_long else submit()
        self.metrics.sentences.labels(str(leg)).inc(len(futures))
        self.metrics.cached_sentences.labels(str(leg)).inc(sum(future.done() for future in futures))
        waiting = [asyncio.wrap_future(future) for future in futures]
        if job.progress is not None and is_last:
            asked = [each.text for of_text in parts for each in of_text if has_letters(each.text)]
            for text, each in zip(asked, waiting, strict=True):
                each.add_done_callback(partial(_report, job.progress, len(text)))
        done = iter(await gathered(waiting))
        return [
            _joined_outputs(
                of_text,
                [next(done) if has_letters(each.text) else (Output(each.text),) for each in of_text],
            )
            for of_text in parts
        ]


async def _in_thread(submit: Callable[[], Submitted]) -> Submitted:
    """Return what a function returns that runs in a thread; cancelled, the futures are cancelled too."""
    work = asyncio.ensure_future(asyncio.to_thread(submit))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        work.add_done_callback(_cancel_submitted)
        raise


def _cancel_submitted(work: "asyncio.Future[Submitted]") -> None:
    if not work.cancelled() and work.exception() is None:
        for future in work.result()[1]:
            future.cancel()


def _terms_of(
    glossary: Glossary, pieces: Sequence[Sequence[SpannedText]], new: Sequence[SpannedText], *, is_plain: bool
) -> tuple[PlacedTerm, ...]:
    """Return the terms that apply to each sentence of a text, and where they are in the whole translation.

    Args:
        glossary: of the request.
        pieces: of the units of the text.
        new: the translations of its sentences.
        is_plain: whether the text has no markup; else it is not known where the terms are.
    """
    terms: list[PlacedTerm] = []
    at, left = 0, iter(new)
    for of_unit in pieces:
        for number, translation in enumerate(joined_pieces(of_unit, left)):
            written = markup(translation)
            if number % 2:
                placed = placed_terms(
                    glossary.applicable(of_unit[number].text), written if is_plain else translation.text
                )
                terms += [
                    replace(term, spans=tuple((at + start, at + end) for start, end in term.spans * is_plain))
                    for term in placed
                ]
            at += len(written)
    return tuple(terms)


def _report(progress: Callable[[int], None], characters: int, _: object) -> None:
    progress(characters)


def _joined_outputs(parts: Sequence[Sentence], outputs: Sequence[Outputs]) -> Outputs:
    """Return the translations of a sentence, the n-th made of the n-th ones of its parts.

    They have links if the links of all parts are known, and no word is in two parts.
    """
    if len(parts) == 1 and not parts[0].space:
        return outputs[0]
    text = "".join(each.space + each.text for each in parts)
    return tuple(
        _joined(text, parts, [each[min(n, len(each) - 1)] for each in outputs])
        for n in range(max(map(len, outputs), default=1))
    )


def _joined(source: str, parts: Sequence[Sentence], outputs: Sequence[Output]) -> Output:
    texts = [parts[0].space + outputs[0].text]
    for (part, output), (next_part, next_output) in pairwise(zip(parts, outputs, strict=True)):
        texts.append(joint(next_part.space, part.text, output.text, next_output.text) + next_output.text)
    target, confidence = "".join(texts), Confidence.joined([each.confidence for each in outputs], texts)
    finished = all(each.finished for each in outputs)
    links: list[tuple[int, int]] = []
    num_src = num_tgt = 0
    for part, output in zip(parts, outputs, strict=True):
        if output.links is None:
            return Output(target, None, confidence, finished)
        links += [(num_src + src, num_tgt + tgt) for src, tgt in output.links]
        num_src, num_tgt = num_src + len(words(part.text)), num_tgt + len(words(output.text))
    whole = (num_src, num_tgt) == (len(words(source)), len(words(target)))
    return Output(target, links if whole else None, confidence, finished)


def _composed(pivot: Output, output: Output) -> Output:
    """Return a translation of a translation, with links between its words and the words of the first source.

    No confidence is known: a model is calibrated on what people wrote.
    """
    finished = pivot.finished and output.finished
    if pivot.links is None or output.links is None:
        return Output(output.text, finished=finished)
    links = {(src, tgt) for src, middle in pivot.links for again, tgt in output.links if middle == again}
    return Output(output.text, sorted(links), finished=finished)
