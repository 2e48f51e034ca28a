"""From a request in any dialect to its answers: languages, sentences, the queues, and text again."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol, TypeVar

from heedful import Glossary, InputError, Pair, Translation
from heedful.decoding import Alignment, MemoryMatch, PlacedTerm
from heedful.documents import TagRules, Template, normalised, read_text
from heedful.serving.languages import Catalogue, Detector, LanguageGuess, Route
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_queue import ModelQueue, SentenceCache, ServedModel, Turn
from heedful.serving.refusals import InvalidError, TextTooLongError, TooManyRequestsError, UnavailableError
from heedful.spans import KeepRule, Parted, Request, Work, keeping, onwards
from heedful.storage.adapter import Adapter
from heedful.text.languages import closest_code

T = TypeVar("T")


class Recall(Protocol):
    """Looks texts up in translation memories."""

    def __call__(self, pair: Pair, texts: Sequence[str]) -> Mapping[str, MemoryMatch]:
        """Return the matches by the texts; the pair is that of source and target."""
        ...

    def is_long(self, pair: Pair) -> bool:
        """Return whether that takes too long for an event loop."""
        ...


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


_MOST_SHOWN = 60  # characters of a name, in a message
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
        adapter: the name of the adapter that changes the model; "": none.
        keep: what else stays as it is.
        recall: looks texts up in translation memories; None: there are none.
        prefix: what the translation of the only text begins with, if it is one sentence.
    """

    texts: tuple[str, ...]
    target: str
    source: str | None = None
    rules: Callable[[str], TagRules | None] | None = None
    alternatives: int = 0
    split: bool = True
    glossary: Callable[[Pair], Glossary] | None = None
    with_terms: bool = False
    adapter: str = ""
    keep: tuple[KeepRule, ...] = ()
    recall: Recall | None = None
    prefix: str = ""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The translation of a text.

    Attributes:
        text: the best one.
        source: language of the text.
        probability: the probability of that language, from 0 to 1; 1 if the client named it.
        alternatives: other translations, best first.
        pivot: the language through which it was translated.
        sentences: the translation of each, without markup, with the confidence in it; sentences that a
            placeholder was taken out of are left out.
        terms: of the glossary, those that apply to each sentence, and where they are in `text`; with markup
            it is not known where. Empty unless they are asked for.
        truncated: whether the length limit has cut the translation of a sentence.
    """

    text: str
    source: str
    probability: float = 1.0
    alternatives: tuple[str, ...] = ()
    pivot: str | None = None
    sentences: tuple[Translation, ...] = ()
    terms: tuple[PlacedTerm, ...] = ()
    truncated: bool = False


@dataclass(frozen=True)
class _ReadText:
    """A text before its translation.

    Attributes:
        text: as it came.
        is_plain: whether it has no markup.
        template: what is around its sentences.
        work: its sentences.
        guess: its language.
        route: the models; None: the text is in the target language already.
    """

    text: str
    is_plain: bool
    template: Template
    work: Work
    guess: LanguageGuess
    route: Route | None


@dataclass(frozen=True)
class Job:
    """Sentences of a text or a document on their way through the models.

    Attributes:
        route: the models, in order.
        turn: when its sentences are due in the queues.
        glossary: the terms to use; None: none.
        alternatives: how many other translations of each sentence to return.
        progress: called when a sentence is done, with its number of characters and its future.
        adapters: what changes the models, by the languages of a leg.
        recall: looks sentences up in translation memories; None: there are none.
        prefix: what the translation of each sentence begins with.
    """

    route: Route
    turn: Turn
    glossary: Glossary | None
    alternatives: int = 0
    progress: Callable[[int, object], None] | None = None
    adapters: Mapping[Pair, Adapter] = field(default_factory=dict)
    recall: Recall | None = None
    prefix: str = ""


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
        self.check_size(len(request.texts), characters)
        if not 0 <= request.alternatives <= self.limits.alternatives:
            raise InvalidError(f"alternatives parameter must be from 0 to {self.limits.alternatives}")
        source, target = self.catalogue.languages(request.source, request.target)
        is_long = source is None or characters > _SHORT

        def read() -> list[_ReadText]:
            return [self._read(text, source, target, request) for text in request.texts]

        turn = Turn()
        async with self.load.admitted(characters):
            try:
                with keeping(request.keep):  # in the tasks and threads that begin here
                    texts = await _done(read, is_long=is_long)
                    works = [self._translate_text(text, target, request, turn) for text in texts]
                    return await gathered(works)
            finally:
                turn.is_over = True

    def check_size(self, num_texts: int, characters: int) -> None:
        """Refuse a request with too many texts or characters.

        Raises:
            TextTooLongError: it has.
        """
        for size, most in ((num_texts, self.limits.texts), (characters, self.limits.characters)):
            if size > most:
                raise TextTooLongError(f"request ({size}) exceeds text limit ({most})")

    def detected_route(
        self, source: str | None, target: str, texts: Iterable[str]
    ) -> tuple[LanguageGuess, Route | None]:
        """Return the language of texts, and the route to the target; the route is None if both are equal.

        Raises:
            LanguageError: there is no way.
        """
        guess = LanguageGuess(source or "", 1.0)
        if source is None:
            guess = self.detector.source(" ".join(texts), self.catalogue.sources_of(target), target)
        is_done = guess.language == target
        return guess, None if is_done else self.catalogue.required_route(guess.language, target)

    def terms(
        self, route: Route, glossary: Callable[[Pair], Glossary] | None, texts: Sequence[str] = ()
    ) -> Glossary | None:
        """Return the terms of a route; a large glossary takes seconds at first.

        Raises:
            RefusedError: there is no such glossary, the route is through another language, or the vocabulary
                of its model lacks a character of a term in the texts.
        """
        if glossary is None:
            return None
        if route.pivot is not None:
            source, target = route.legs[0].src, route.legs[-1].tgt
            raise InvalidError(
                f"from {source} to {target} is by way of {route.pivot}: no glossary can be used"
            )
        [leg] = route.legs
        terms, tokenizer = glossary(leg).prepared(), self._queue_of[leg].model.tgt_tokenizer
        if tokenizer is not None:
            try:
                terms.check_writable(tokenizer, texts=texts)
            except InputError as error:
                raise InvalidError(str(error)) from None
        return terms

    def adapters(self, route: Route, name: str) -> dict[Pair, Adapter]:
        """Return the adapter of a name for each leg of a route whose model it changes; reads new files.

        Raises:
            InvalidError: it changes no model of the route.
        """
        if not name:
            return {}
        shelves = {leg: self._queue_of[leg].model.adapters for leg in route.legs}
        found = {leg: own.find(name) for leg, own in shelves.items() if own is not None}
        adapters = {leg: adapter for leg, adapter in found.items() if adapter is not None}
        if not adapters:
            pair = f"{route.legs[0].src}-{route.legs[-1].tgt}"
            named = f"adapter parameter (or style_id): {name[:_MOST_SHOWN]!r}"
            raise InvalidError(f"{named} is none for {pair}; /adapters lists them")
        return adapters

    def adapter_names(self) -> dict[str, list[Pair]]:
        """Return the pairs of languages of each adapter; reads new files."""
        names: dict[str, list[Pair]] = {}
        for pair in sorted(self._queue_of):
            own = self._queue_of[pair].model.adapters
            for name in own.names() if own is not None else ():
                names.setdefault(name, []).append(pair)
        return names

    async def ranked(self, texts: Sequence[str]) -> list[list[LanguageGuess]]:
        """Return the probable languages of each text, the most probable first, as the catalogue names them.

        Raises:
            RefusedError: too much, or too many requests.
        """
        characters = sum(map(len, texts))
        self.check_size(len(texts), characters)
        async with self.load.admitted(characters):
            return await asyncio.to_thread(lambda: list(map(self._ranked, texts)))

    def _ranked(self, text: str) -> list[LanguageGuess]:
        catalogue = self.catalogue
        guesses = self.detector.ranked(text) or [LanguageGuess(catalogue.sources[0], 0.0)]
        return [
            replace(each, language=closest_code(each.language, catalogue.all) or each.language)
            for each in guesses
        ]

    def model_of(self, pair: Pair) -> ServedModel:
        """Return the model that translates a pair."""
        return self._queue_of[pair].model

    def close(self) -> None:
        """Translate what is waiting, and end the threads."""
        for queue in self._queues:
            queue.close()

    def _read(self, text: str, source: str | None, target: str, request: TranslationRequest) -> _ReadText:
        rules = None if request.rules is None else request.rules(text)
        template = read_text(text, rules)
        work = template.work(within_lines=request.split)
        sentences = (sentence.source.text for sentence in work.sentences)
        return _ReadText(text, rules is None, template, work, *self.detected_route(source, target, sentences))

    async def _translate_text(
        self, read: _ReadText, target: str, request: TranslationRequest, turn: Turn
    ) -> Answer:
        guess, route, work = read.guess, read.route, read.work
        self.metrics.characters.labels(f"{guess.language}-{target}").inc(len(read.text))
        if route is None:
            return Answer(text=read.text, source=guess.language, probability=guess.probability)
        recall = None if request.prefix else request.recall
        if recall is not None and (whole := await self._recalled_whole(read, route, recall)):
            return Answer(text=whole, source=guess.language, probability=guess.probability)
        glossary = None
        if request.glossary is not None:
            sentences = [sentence.source.text for sentence in work.sentences]
            glossary = await asyncio.to_thread(self.terms, route, request.glossary, sentences)
        adapters = await asyncio.to_thread(self.adapters, route, request.adapter) if request.adapter else {}
        if request.prefix and len(work.sentences) != 1:
            raise InvalidError(f"prefix: the text must be one sentence; it has {len(work.sentences)}")
        job = Job(
            route,
            turn,
            glossary,
            request.alternatives,
            adapters=adapters,
            recall=recall,
            prefix=request.prefix,
        )
        while work.requests:
            work = work.settle(await self.translate_sentences(work.requests, job))
        best, *others = read.template.translations(work)
        terms: tuple[PlacedTerm, ...] = ()
        if request.with_terms and glossary is not None:
            terms = await asyncio.to_thread(work.terms, glossary, is_plain=read.is_plain)
        return Answer(
            text=best,
            source=guess.language,
            probability=guess.probability,
            alternatives=tuple(others),
            pivot=route.pivot,
            sentences=tuple(work.whole_sentences),
            terms=terms,
            truncated=not work.finished,
        )

    async def _recalled_whole(self, read: _ReadText, route: Route, recall: Recall) -> str:
        """Return the translation that a memory has for a whole text, within its white space; "": none."""
        found = await _done(partial(recall, route.ends, [read.text]), is_long=recall.is_long(route.ends))
        match = found.get(read.text)
        if match is None or match.source != normalised(read.text):  # of a similar text, markup would be lost
            return ""
        begin, _, end = read.text.partition(read.text.strip())
        return begin + match.target.strip() + end

    async def translate_sentences(self, requests: Sequence[Request], job: Job) -> list[Translation]:
        """Return the translations of sentences: of translation memories, else of the models of a route.

        Args:
            requests: one sentence each.
            job: the text or document with the sentences.
        """
        found = {} if job.recall is None else await self._recalled(requests, job.recall, job)
        left = [request for request in requests if request.text not in found]
        if left:
            new = await self._translate_by_models(left, job)
            found |= {request.text: translation for request, translation in zip(left, new, strict=True)}
        return [found[request.text] for request in requests]

    async def _recalled(
        self, requests: Sequence[Request], recall: Recall, job: Job
    ) -> dict[str, Translation]:
        """Return the translations that memories have; they have links of words if there are marks."""
        pair, texts = job.route.ends, [request.text for request in requests]
        matches = await _done(partial(recall, pair, texts), is_long=recall.is_long(pair))
        marked = [request.text for request in requests if request.aligned and request.text in matches]
        links: dict[str, Alignment | None] = {}
        if marked and job.route.pivot is None:
            [leg] = job.route.legs
            targets = [matches[text].target for text in marked]
            align = self.model_of(leg).alignments
            links = dict(zip(marked, await asyncio.to_thread(align, leg, marked, targets), strict=True))
        if job.progress is not None:
            for text in matches:
                job.progress(len(text), None)
        return {
            text: Translation.given(text, match.target, match=match, alignment=links.get(text))
            for text, match in matches.items()
        }

    async def _translate_by_models(self, requests: Sequence[Request], job: Job) -> list[Translation]:
        *before, last = job.route.legs
        first: list[Translation] = []
        for leg in before:  # only the last model gives alternatives
            first = await self._translate_leg(
                requests, leg, replace(job, alternatives=0, progress=None, prefix="")
            )
            requests = onwards(requests, first)
        translations = await self._translate_leg(requests, last, job)
        if not before:
            return translations
        return [new.through(old) for new, old in zip(translations, first, strict=True)]

    async def _translate_leg(self, requests: Sequence[Request], leg: Pair, job: Job) -> list[Translation]:
        """Return the translations of sentences by one model; a text without letters is unchanged.

        A sentence with too many tokens is translated part by part.
        """
        queue = self._queue_of[leg]

        def submit() -> tuple[Parted, list[Future[Translation]]]:
            most = min(self.limits.sentence_tokens, queue.model.max_tokens or self.limits.sentence_tokens)
            parted = Parted.of(requests, queue.model.tokenizer, most)
            return parted, queue.submit(
                leg,
                [request.text for request in parted.requests],
                alternatives=job.alternatives,
                turn=job.turn,
                aligned={request.text for request in parted.requests if request.aligned},
                glossary=job.glossary,
                adapter=job.adapters.get(leg),
                prefix=job.prefix,
            )

        is_long = job.glossary is not None or sum(len(request.text) for request in requests) > _SHORT
        parted, futures = await _done(submit, is_long=is_long)
        self.metrics.sentences.labels(str(leg)).inc(len(futures))
        self.metrics.cached_sentences.labels(str(leg)).inc(sum(future.done() for future in futures))
        waiting = [asyncio.wrap_future(future) for future in futures]
        if job.progress is not None:
            for request, future in zip(parted.requests, waiting, strict=True):
                future.add_done_callback(partial(job.progress, len(request.text)))
        return parted.joined(await gathered(waiting))


async def _done(work: Callable[[], T], *, is_long: bool) -> T:
    """Return the result of work, which is done in a thread if it is too long for the event loop."""
    return await asyncio.to_thread(work) if is_long else work()
