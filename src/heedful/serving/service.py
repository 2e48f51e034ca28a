"""From a request in any dialect to its answers: languages, sentences, the queues, and text again."""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, compress, pairwise
from typing import TypeVar

from heedful import Glossary, Pair
from heedful.decoding.confidence import Confidence
from heedful.decoding.glossary import PlacedTerm, placed_terms
from heedful.documents.markup import TagRules, read_text
from heedful.documents.template import Template
from heedful.serving.languages import Catalogue, Detector, LanguageGuess, Route
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.model_queue import ModelQueue, SentenceCache, ServedModel, Turn
from heedful.serving.refusals import InvalidError, TextTooLongError, TooManyRequestsError, UnavailableError
from heedful.spans.sentences import (
    join,
    joined_pieces,
    restored,
    routed_text,
    split,
    without_placeholders,
)
from heedful.spans.sentences import route as to_route
from heedful.spans.spanned_text import SpannedText, has_letters, markup
from heedful.spans.words import Output, Outputs, words
from heedful.text.languages import closest_code
from heedful.text.sentences import Sentence, joint, split_text

T = TypeVar("T")


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
        probability: the probability of that language, from 0 to 1; 1 if the client named it.
        alternatives: other translations, best first.
        pivot: the language through which it was translated.
        sentences: the best translation of each, without markup, with the confidence in it.
        terms: of the glossary, those that apply to each sentence, and where they are in `text`; with markup
            it is not known where. Empty unless they are asked for.
        truncated: whether the length limit has cut the translation of a sentence.
    """

    text: str
    source: str
    probability: float = 1.0
    alternatives: tuple[str, ...] = ()
    pivot: str | None = None
    sentences: tuple[Output, ...] = ()
    terms: tuple[PlacedTerm, ...] = ()
    truncated: bool = False


@dataclass(frozen=True)
class Job:
    """Sentences of a text or a document on their way through the models.

    Attributes:
        route: the models, in order.
        turn: when its sentences are due in the queues.
        glossary: the terms to use; None: none.
        alternatives: how many other translations of each sentence to return.
        progress: called when a sentence is done, with its number of characters and its future.
    """

    route: Route
    turn: Turn
    glossary: Glossary | None
    alternatives: int = 0
    progress: Callable[[int, object], None] | None = None


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
        limits, num_texts, characters = self.limits, len(request.texts), sum(map(len, request.texts))
        for size, most in ((num_texts, limits.texts), (characters, limits.characters)):
            if size > most:
                raise TextTooLongError(f"request ({size}) exceeds text limit ({most})")
        if not 0 <= request.alternatives <= limits.alternatives:
            raise InvalidError(f"alternatives parameter must be from 0 to {limits.alternatives}")
        source, target = self.catalogue.languages(request.source, request.target)
        turn = Turn()
        async with self.load.admitted(characters):
            try:
                return await gathered(
                    [self._translate_text(each, source, target, request, turn) for each in request.texts]
                )
            finally:
                turn.is_over = True

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

    def terms(self, route: Route, glossary: Callable[[Pair], Glossary] | None) -> Glossary | None:
        """Return the terms of a route; a large glossary takes seconds at first.

        Raises:
            RefusedError: there is no such glossary, or the route is through another language.
        """
        if glossary is None:
            return None
        if route.pivot is not None:
            source, target = route.legs[0].src, route.legs[-1].tgt
            raise InvalidError(
                f"from {source} to {target} is by way of {route.pivot}: no glossary can be used"
            )
        return glossary(route.legs[0]).prepared()

    def ranked(self, text: str) -> list[LanguageGuess]:
        """Return the probable languages of a text, the most probable first, as the catalogue names them."""
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

    async def _translate_text(
        self, text: str, source: str | None, target: str, request: TranslationRequest, turn: Turn
    ) -> Answer:
        rules = None if request.rules is None else request.rules(text)

        def read() -> tuple[Template, list[list[SpannedText]]]:
            template = read_text(text, rules)
            return template, [split(each.source, within_lines=request.split) for each in template.units]

        template, pieces = await asyncio.to_thread(read) if len(text) > _SHORT else read()
        sentences = [each for of_unit in pieces for each in of_unit[1::2]]
        guess, route = self.detected_route(source, target, (each.text for each in sentences))
        self.metrics.characters.labels(f"{guess.language}-{target}").inc(len(text))
        if route is None:
            return Answer(text=text, source=guess.language, probability=guess.probability)
        glossary = None
        if request.glossary is not None:
            glossary = await asyncio.to_thread(self.terms, route, request.glossary)
        new, best = await self._translate_spanned(sentences, Job(route, turn, glossary, request.alternatives))
        # The n-th translation of a text is made of the n-th ones of its sentences.
        texts: dict[str, None] = {}
        for n in range(max(map(len, new), default=1)):
            left = iter([each[min(n, len(each) - 1)] for each in new])
            units = zip(template.units, pieces, strict=True)
            texts[template.joined([unit.written(join(of_unit, left)) for unit, of_unit in units])] = None
        text, *others = texts
        terms: tuple[PlacedTerm, ...] = ()
        if request.with_terms and glossary is not None:
            first = [each[0] for each in new]
            terms = await asyncio.to_thread(_terms_of, glossary, pieces, first, is_plain=rules is None)
        return Answer(
            text=text,
            source=guess.language,
            probability=guess.probability,
            alternatives=tuple(others),
            pivot=route.pivot,
            sentences=tuple(best),
            terms=terms,
            truncated=not all(each.finished for each in best),
        )

    async def _translate_spanned(
        self, sentences: Sequence[SpannedText], job: Job
    ) -> tuple[list[tuple[SpannedText, ...]], list[Output]]:
        """Return the translations of sentences, with their spans, and no placeholder lost or changed.

        Returns:
            The translations of each sentence; and the best ones without spans, with their confidence, except
            for sentences that were translated again because a placeholder was lost.
        """
        new: list[tuple[SpannedText, ...]] = [()] * len(sentences)
        best: list[Output] = []
        for way in (to_route, without_placeholders):  # the second for sentences that lost a placeholder
            left = [index for index, done in enumerate(new) if not done]
            routed = [way(sentences[index]) for index in left]
            texts, aligned = list(map(routed_text, routed)), [bool(each.spans) for each in routed]
            outputs = await self.translate_sentences(texts, aligned, job) if texts else []
            for index, one, of_sentence in zip(left, routed, outputs, strict=True):
                new[index] = restored(sentences[index], one, of_sentence)
                if new[index] and one is sentences[index]:
                    best.append(of_sentence[0])
        return new, best

    async def translate_sentences(
        self, texts: Sequence[str], aligned: Sequence[bool], job: Job
    ) -> list[Outputs]:
        """Return the translations of sentences by the models of a route; one without letters stays.

        One with too many tokens is translated part by part.

        Args:
            texts: one sentence each.
            aligned: whether each has the links of its words.
            job: the text or document with the sentences.
        """
        leg, *others = job.route.legs
        queue = self._queue_of[leg]

        def submit() -> tuple[list[list[Sentence]], list[str], list[Future[Outputs]]]:
            most = min(self.limits.sentence_tokens, queue.model.max_tokens or self.limits.sentence_tokens)
            parts = [split_text(text, queue.model.tokenizer, most) for text in texts]
            lettered = [[each.text for each in of_text if has_letters(each.text)] for of_text in parts]
            asked = list(chain.from_iterable(lettered))
            futures = queue.submit(
                leg,
                asked,
                alternatives=0 if others else job.alternatives,
                turn=job.turn,
                aligned=set(chain.from_iterable(compress(lettered, aligned))),
                glossary=job.glossary,
            )
            return parts, asked, futures

        is_long = job.glossary is not None or sum(map(len, texts)) > _SHORT
        parts, asked, futures = await asyncio.to_thread(submit) if is_long else submit()
        self.metrics.sentences.labels(str(leg)).inc(len(futures))
        self.metrics.cached_sentences.labels(str(leg)).inc(sum(future.done() for future in futures))
        waiting = [asyncio.wrap_future(future) for future in futures]
        if job.progress is not None and not others:
            for text, each in zip(asked, waiting, strict=True):
                each.add_done_callback(partial(job.progress, len(text)))
        done = iter(await gathered(waiting))
        outputs = [_joined_outputs(of_text, done) for of_text in parts]
        if not others:
            return outputs
        best = [each.text for each, *_ in outputs]
        after = await self.translate_sentences(best, aligned, replace(job, route=Route(tuple(others))))
        return [
            tuple(_composed(before, each) for each in written)
            for (before, *_), written in zip(outputs, after, strict=True)
        ]


def _terms_of(
    glossary: Glossary, pieces: Sequence[Sequence[SpannedText]], new: Sequence[SpannedText], *, is_plain: bool
) -> tuple[PlacedTerm, ...]:
    """Return the terms that apply to each sentence of a text, and where they are in the whole translation.

    Args:
        glossary: the glossary of the request.
        pieces: the pieces of each unit of the text.
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


def _joined_outputs(parts: Sequence[Sentence], translations: Iterator[Outputs]) -> Outputs:
    """Return the translations of a sentence, the n-th made of the n-th ones of its parts.

    A part without letters has none, and stays. The translations of a sentence have links if the links of all
    parts are known, and no word is in two parts.
    """
    outputs = [next(translations) if has_letters(each.text) else (Output(each.text),) for each in parts]
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
