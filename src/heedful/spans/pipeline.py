"""From texts with marks to their translations: the one way that lists, documents and requests take.

work = prepare(texts)                   split into sentences, as a model reads them: the first try
while work.requests:
    translations = ...                  of `work.requests`: of a list, or of a queue; see `translated`
    work = work.settle(translations)    marks put in; a sentence that lost a placeholder is tried again
work.texts()                            the translations, with their marks

Nothing here knows a thread or a queue: who calls it decides how translations come.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Protocol

from heedful.decoding.glossary import Glossary, PlacedTerm, placed_terms
from heedful.decoding.translation import FindMatch, TextHypothesis, Translation, recalled
from heedful.spans.placeholders import Range
from heedful.spans.sentences import (
    Routed,
    Segments,
    between_translations,
    join,
    restored,
    route,
    split,
    without_placeholders,
)
from heedful.spans.spanned_text import SpannedText, has_letters, markup
from heedful.spans.words import words

if TYPE_CHECKING:
    from heedful.decoding.alignment import Alignment
    from heedful.decoding.options import SearchOptions
    from heedful.storage.adapter import Adapter

_CHUNK = 512  # sentences that are translated together


@dataclass(frozen=True)
class Request:
    """A sentence to translate.

    Attributes:
        text: the sentence as a model reads it.
        aligned: whether the translation needs the links of its `words`, because it has marks.
        adapter: what changes the model for it; None: nothing, or the translator's own.
    """

    text: str
    aligned: bool
    adapter: "Adapter | None" = None


Translate = Callable[[Sequence[Request]], Sequence[Translation]]


class SentenceTranslator(Protocol):
    """Translates sentences of one pair: a `Translator` is one."""

    @property
    def can_align(self) -> bool:
        """Whether translations can have the links of their words."""
        ...

    def translations(
        self,
        texts: Sequence[str],
        *,
        options: "SearchOptions | None" = None,
        prefixes: Sequence[str] | None = None,
        aligned: bool | Sequence[bool] = False,
        split: Callable[[str], list[Range]] = ...,
        adapter: "Sequence[Adapter | None] | None" = None,
    ) -> list[Translation]:
        """Return the translation of each text; `split` returns the words that links are between.

        With `prefixes`, the translation of each text begins with its prefix.
        """
        ...

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, split: Callable[[str], list[Range]]
    ) -> "list[Alignment]":
        """Return the alignment of each pair of texts."""
        ...


@dataclass(frozen=True)
class Sentence:
    """The state of the translation of a sentence.

    Attributes:
        source: the sentence.
        routed: the sentence as the model reads it: short placeholders stay at first, none in the second try.
        translation: its translation; None: it is not translated yet, or a placeholder was lost.
        spanned: its translations with marks, best first.
    """

    source: SpannedText
    routed: Routed
    translation: Translation | None = None
    spanned: tuple[SpannedText, ...] = ()

    def settled(self, translation: Translation) -> "Sentence":
        """Return the sentence with a translation, or for the second try if a placeholder was lost."""
        outputs = translation.hypotheses or (TextHypothesis.given(translation.text),)
        spanned = restored(self.source, self.routed, outputs)
        if spanned:
            return replace(self, translation=translation, spanned=spanned)
        return replace(self, routed=without_placeholders(self.source))


@dataclass(frozen=True)
class Work:
    """The state of the translation of texts; each step returns another value.

    Attributes:
        segments: each text as sentences and what is between them.
        sentences: the sentences of all texts, in order.
    """

    segments: tuple[Segments, ...]
    sentences: tuple[Sentence, ...] = field(repr=False)

    @cached_property
    def requests(self) -> list[Request]:
        """What to translate next: each text once; nothing if all is translated."""
        aligned: dict[str, bool] = {}
        for sentence in self.sentences:
            if sentence.translation is None:
                text, has_marks = sentence.routed.text, bool(sentence.routed.spanned.spans)
                aligned[text] = aligned.get(text, False) or has_marks
        return [Request(text, has_marks) for text, has_marks in aligned.items()]

    def settle(self, translations: Sequence[Translation]) -> "Work":
        """Return the work with the translations of its requests."""
        found = dict(zip((request.text for request in self.requests), translations, strict=True))
        sentences = tuple(
            sentence.settled(found[sentence.routed.text]) if sentence.translation is None else sentence
            for sentence in self.sentences
        )
        return replace(self, sentences=sentences)

    @property
    def whole_sentences(self) -> list[Translation]:
        """The translations, without markup, of the sentences that no placeholder was taken out of."""
        return [
            sentence.translation
            for sentence in self.sentences
            if sentence.translation is not None and sentence.routed.is_whole
        ]

    @property
    def finished(self) -> bool:
        """Whether all translations are complete; otherwise a length limit has cut one."""
        translations = [sentence.translation for sentence in self.sentences]
        return all(translation is None or translation.finished for translation in translations)

    @property
    def num_alternatives(self) -> int:
        """The most translations that a sentence has; 1 without sentences."""
        return max((len(sentence.spanned) for sentence in self.sentences), default=1)

    def texts(self, rank: int = 0) -> list[SpannedText]:
        """Return the translation of each text, made of the translations of this rank of its sentences."""
        return [join(segments, own) for segments, own in self._by_text(rank)]

    def terms(self, glossary: Glossary, *, is_plain: bool) -> tuple[PlacedTerm, ...]:
        """Return the terms that apply to each sentence, and where they are in the translation of all texts.

        Args:
            glossary: the glossary.
            is_plain: whether the texts have no markup; else it is not known where the terms are.
        """
        terms: list[PlacedTerm] = []
        at = 0
        searched = iter(self.sentences)
        for segments, own in self._by_text(0):
            between = [markup(text) for text in between_translations(segments, own)]
            for source, before, translation in zip(segments.sentences, between[:-1], own, strict=True):
                at += len(before)
                written = markup(translation)
                placed = placed_terms(
                    glossary.applicable(source.text), written if is_plain else translation.text
                )
                known = {term.source: term for term in _terms_of(next(searched))}
                for term in placed:
                    spans = _moved(term.spans, at) if is_plain else ()
                    terms.append(replace(known.get(term.source, term), target=term.target, spans=spans))
                at += len(written)
            at += len(between[-1])
        return tuple(terms)

    def _by_text(self, rank: int) -> Iterator[tuple[Segments, list[SpannedText]]]:
        """Yield each text with the translations of this rank of its sentences."""
        left = iter(self.sentences)
        for segments in self.segments:
            own = [next(left).spanned for _ in segments.sentences]
            yield segments, [spanned[min(rank, len(spanned) - 1)] for spanned in own]


def _terms_of(sentence: Sentence) -> tuple[PlacedTerm, ...]:
    return () if sentence.translation is None else sentence.translation.terms


def _moved(spans: Sequence[Range], by: int) -> tuple[Range, ...]:
    return tuple((start + by, end + by) for start, end in spans)


def prepare(texts: Sequence[SpannedText], *, within_lines: bool = True) -> Work:
    """Return the work of translating texts, before the first try.

    Args:
        texts: texts with their marks.
        within_lines: whether lines are split into sentences.
    """
    segments = tuple(split(text, within_lines=within_lines) for text in texts)
    return prepared(segments)


def prepared(segments: Sequence[Segments]) -> Work:
    """Return the work of translating texts that are split already."""
    sentences = tuple(Sentence(sentence, route(sentence)) for text in segments for sentence in text.sentences)
    return Work(tuple(segments), sentences)


def translate(work: Work, search: Translate) -> Work:
    """Return the work when it is done; `search` translates a list of requests."""
    while work.requests:
        work = work.settle(search(work.requests))
    return work


def translated(
    translator: SentenceTranslator,
    requests: Sequence[Request],
    *,
    options: "SearchOptions | None" = None,
    find: FindMatch | None = None,
    prefix: str = "",
) -> list[Translation]:
    """Return the translation of each request: a match of the memory, else the model's.

    A text without letters, which another model may have written, stays.

    Args:
        translator: the translator of the pair.
        requests: the sentences.
        options: the options of the search; None: the translator's.
        find: returns the match of a text in a memory; None: there is no memory.
        prefix: what each translation begins with.
    """
    lettered = [request for request in requests if has_letters(request.text)]
    texts = [request.text for request in lettered]
    aligned = [request.aligned and translator.can_align for request in lettered]

    adapters = [request.adapter for request in lettered]

    def search(left: Sequence[str]) -> list[Translation]:
        own = {"adapter": adapters} if any(adapters) else {}
        prefixes = [prefix] * len(left) if prefix else None
        return translator.translations(
            left, options=options, prefixes=prefixes, aligned=aligned, split=words, **own
        )

    found = recalled(texts, find, search)
    matched = [number for number, translation in enumerate(found) if translation.match and aligned[number]]
    if matched:
        sources, targets = [texts[number] for number in matched], [found[number].text for number in matched]
        alignments = alignments_of(translator, sources, targets)
        for number, target, alignment in zip(matched, targets, alignments, strict=True):
            found[number] = Translation.given(
                texts[number], target, match=found[number].match, alignment=alignment
            )
    translation_of = {request: Translation.given(request.text, request.text) for request in requests}
    translation_of.update(zip(lettered, found, strict=True))
    return [translation_of[request] for request in requests]


def alignments_of(
    translator: SentenceTranslator, sources: Sequence[str], targets: Sequence[str]
) -> "Sequence[Alignment | None]":
    """Return the links between the words of each source and a given translation; None: they are not known."""
    if not translator.can_align:
        return [None] * len(sources)
    return translator.align(sources, targets, split=words)


def onwards(requests: Sequence[Request], translations: Sequence[Translation]) -> list[Request]:
    """Return the requests of the next model, if translations are by way of another language."""
    return [replace(request, text=new.text) for request, new in zip(requests, translations, strict=True)]


def through(first: Translate, second: Translate) -> Translate:
    """Return the translation by way of another language: of what `first` returns, by `second`.

    The links of a translation are those through the words between.
    """

    def search(requests: Sequence[Request]) -> list[Translation]:
        between = first(requests)
        after = second(onwards(requests, between))
        return [new.through(old) for new, old in zip(after, between, strict=True)]

    return search


def search_of(
    translator: SentenceTranslator,
    options: "SearchOptions | None" = None,
    find: FindMatch | None = None,
    between: SentenceTranslator | None = None,
) -> Translate:
    """Return what translates requests: by a model, perhaps by way of another language.

    Args:
        translator: the translator into the target language.
        options: the options of its search; None: its own.
        find: returns the match of a text that it would translate in a memory; None: there is no memory.
        between: translates the texts first, into the language that `translator` reads; None: nobody does.
    """
    search: Translate = partial(translated, translator, options=options, find=find)
    return search if between is None else through(partial(translated, between), search)


class Unit(Protocol):
    """A text of a document."""

    @property
    def source(self) -> SpannedText:
        """The text to translate."""
        ...

    def written(self, translation: SpannedText) -> str:
        """Return a translation as the format writes it."""
        ...


def translate_units(units: Sequence[Unit], search: Translate) -> Iterator[list[str]]:
    """Yield what is written for the translations of units, in chunks.

    Args:
        units: the units of any document; only a chunk of them is split at a time.
        search: translates requests.
    """
    at = 0
    while at < len(units):
        chunk: list[Segments] = []
        size = 0
        while size < _CHUNK and at + len(chunk) < len(units):
            chunk.append(split(units[at + len(chunk)].source))
            size += len(chunk[-1].sentences)
        new = translate(prepared(chunk), search).texts()
        yield [unit.written(text) for unit, text in zip(units[at : at + len(chunk)], new, strict=True)]
        at += len(chunk)
