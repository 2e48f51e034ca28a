"""The way of a text through a model: split into sentences, routed, translated, and joined again.

pieces = split(text)                         sentences, and what is between them
routed = [route(each) for each in sentences] as the model reads them: it may keep a few placeholders itself
outputs = ...                                of the model, for `routed_text` of each
restored(sentence, routed, outputs)          with the spans of the sentence; nothing if a placeholder is lost:
                                             the sentence is translated again `without_placeholders`
join(pieces, translations)                   the translation of the text, in the same form
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from heedful.documents.alignment import Output
from heedful.documents.placeholders import Range, find, placeholders
from heedful.documents.projection import project
from heedful.documents.spans import Builder, SpannedText, edges, has_letters, moved, parts
from heedful.text.scripts import UNSPACED
from heedful.text.sentences import Sentence, joint, split_sentences

_MAX_JOINED = 2000  # characters of sentences that are one for a placeholder's sake
_MAX_SHOWN = 100  # characters of the placeholders of a sentence that a model sees; it would not keep more
_BETWEEN = re.compile(r"[!-/:-@\[-`|~\u00b7\u2013\u2014\u2026]{0,3}")  # of two that stay together: %d/%d
_IS_WORD = re.compile(r"[0-9A-Za-z_\u00c0-\u024f]")
# Soft hyphens, joiners of words, and places for line ends: not where they are between words (Khmer).
_INVISIBLE = re.compile(rf"[\u00ad\u2060\ufeff]|(?<![{UNSPACED}])\u200b(?![{UNSPACED}])")


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text: a sentence, or what is between two and stays."""

    text: SpannedText
    is_sentence: bool


def split(text: SpannedText, *, within_lines: bool = True) -> list[Piece]:
    """Return the sentences of a text, and before and behind each what stays.

    Args:
        text: any.
        within_lines: whether lines are split into sentences.
    """
    cutter = _Cutter(text)
    found = split_sentences(text.text, within_lines=within_lines)
    for start, end in _without_splits(found, text):
        cutter.cut(start, end)
    return cutter.finished()


def sentences_of(pieces: Iterable[Piece]) -> list[SpannedText]:
    """Return the sentences among the pieces of a text."""
    return [each.text for each in pieces if each.is_sentence]


def joined_pieces(pieces: Sequence[Piece], translations: Iterable[SpannedText]) -> list[SpannedText]:
    """Return the pieces of a translation, one for each of the source; `joint` says what is between two."""
    left = iter(translations)
    new = [next(left) if each.is_sentence else _unfolded(each.text) for each in pieces]
    for i in range(1, len(new) - 1):
        before, space, after = pieces[i - 1 : i + 2]
        if before.is_sentence and after.is_sentence and not space.text.spans:
            between = joint(space.text.text, before.text.text, new[i - 1].text, new[i + 1].text)
            new[i] = SpannedText(between)
    return new


def join(pieces: Sequence[Piece], translations: Iterable[SpannedText]) -> SpannedText:
    """Return the text with a translation for each of its sentences."""
    builder = Builder()
    for each in joined_pieces(pieces, translations):
        builder.add(parts(each))
    return builder.built()


def _unfolded(text: SpannedText) -> SpannedText:
    """Return a text that is not translated with what its marks and blanks keep in place of them."""
    if not text.spans:
        return text
    builder = Builder()
    for each in parts(text):
        builder.add([each] if each[2].kept is None else parts(each[2].kept))
    return builder.built()


def _without_splits(sentences: Iterable[Sentence], text: SpannedText) -> Iterator[Range]:
    """Yield where sentences begin and end: two are one if a placeholder would be cut between them.

    If that would be too long, the first of them goes to the end of the placeholder.
    """
    left = iter(text.placeholders)
    placeholder = next(left, None)
    sentence: Range | None = None
    at = 0
    for each in sentences:
        start = at + len(each.space)
        at = start + len(each.text)
        if sentence is not None:
            while placeholder is not None and placeholder[1] <= sentence[1]:
                placeholder = next(left, None)
            if placeholder is not None and placeholder[0] < sentence[1]:
                if at - sentence[0] <= _MAX_JOINED or placeholder[1] >= at:
                    sentence = (sentence[0], at)
                    continue
                sentence, start = (sentence[0], placeholder[1]), placeholder[1]
                while text.text[start].isspace():
                    start += 1
            yield sentence
        sentence = (start, at)
    if sentence is not None:
        yield sentence


class _Cutter:
    """Cuts a text into pieces from left to right; each edge of a span is in exactly one of them.

    An element at an edge of a sentence is in the sentence if it is around a part of it, and around the
    sentence if it is around all of it, or more.
    """

    def __init__(self, text: SpannedText) -> None:
        self._text = text
        self._edges = list(edges(text.spans))
        self._positions = [position for position, _, _ in self._edges]
        self._at = self._edge = self._placeholder = 0
        self._kept = Builder()  # since the last sentence
        self._pieces: list[Piece] = []

    def cut(self, start: int, end: int) -> None:
        """Cut off a sentence, and what is before it; what has no letters besides placeholders stays."""
        ranges = self._placeholders(start, end)
        bounds = [start, *(at for each in ranges for at in each), end]
        if not any(has_letters(self._text.text[bounds[i] : bounds[i + 1]]) for i in range(0, len(bounds), 2)):
            return
        behind = bisect_right(self._positions, start)
        first = next((i for i in range(self._edge, behind) if self._is_inside(i, start, end)), behind)
        self._keep(start, first)
        self._pieces.append(Piece(self._kept.built(), is_sentence=False))
        self._kept = Builder()
        self._pieces.append(Piece(self._sentence(end, ranges), is_sentence=True))

    def finished(self) -> list[Piece]:
        """Return the pieces, with what is behind the last sentence."""
        self._keep(len(self._text.text), len(self._edges))
        return [*self._pieces, Piece(self._kept.built(), is_sentence=False)]

    def _keep(self, end: int, behind: int) -> None:
        self._kept.add(parts(self._text, self._edges[self._edge : behind], start=self._at, end=end))
        self._at, self._edge = end, behind

    def _sentence(self, end: int, ranges: Sequence[Range]) -> SpannedText:
        """Return what is before `end`, with the edges inside, and those that close elements of it there."""
        start, first = self._at, self._edge
        last = bisect_left(self._positions, end, lo=first)
        opened = {id(span) for _, what, span in self._edges[first:last] if what == "open"}
        behind = last
        for i in range(last, bisect_right(self._positions, end, lo=last)):
            _, what, span = self._edges[i]
            if what == "close" and id(span) in opened:
                behind = i + 1
        builder = Builder()
        builder.add(parts(self._text, self._edges[first:behind], start=start, end=end))
        self._at, self._edge = end, behind
        cut = builder.built()
        own = tuple((first - start, behind - start) for first, behind in ranges)
        return _without_invisible(SpannedText(cut.text, cut.spans, own))

    def _placeholders(self, start: int, end: int) -> Sequence[Range]:
        """Return the placeholders of a sentence."""
        ranges = self._text.placeholders
        while self._placeholder < len(ranges) and ranges[self._placeholder][0] < start:
            self._placeholder += 1
        behind = self._placeholder
        while behind < len(ranges) and ranges[behind][0] < end:
            behind += 1
        return ranges[self._placeholder : behind]

    def _is_inside(self, index: int, start: int, end: int) -> bool:
        """Return whether an edge opens an element around the first words of a sentence, not all of it."""
        position, what, span = self._edges[index]
        closing = end if span.closing is None else span.end
        return what == "open" and position == start < closing < end


def _without_invisible(sentence: SpannedText) -> SpannedText:
    """Return a sentence without characters that nobody sees: a model knows the word without them."""
    text = sentence.text
    if not _INVISIBLE.search(text):
        return sentence
    starts = [start for start, _ in sentence.placeholders]

    def is_free(at: int) -> bool:
        number = bisect_right(starts, at) - 1
        return number < 0 or at >= sentence.placeholders[number][1]

    removed = [each.start() for each in _INVISIBLE.finditer(text) if is_free(each.start())]

    def move(position: int) -> int:
        return position - bisect_left(removed, position)

    left = [text[start + 1 : end] for start, end in pairwise((-1, *removed, len(text)))]
    placeholders = tuple((move(start), move(end)) for start, end in sentence.placeholders)
    return SpannedText("".join(left), moved(sentence.spans, move), placeholders)


def route(sentence: SpannedText) -> SpannedText:
    """Return a sentence as a model reads it: without placeholders unless they are short and stand alone."""
    ranges = sentence.placeholders
    is_short = sum(end - start for start, end in ranges) <= _MAX_SHOWN
    is_cut = any(span.kind == "break" for _, _, span in edges(sentence.spans))
    if not ranges or (is_short and not is_cut and tuple(find(sentence.text)) == ranges):
        return sentence
    return without_placeholders(sentence)


def routed_text(routed: SpannedText) -> str:
    """Return the text that a model reads, without the gaps that points leave in it."""
    if all(span.kind in ("element", "low", "blank", "mark") for _, _, span in edges(routed.spans)):
        return routed.text
    return re.sub(r" (?=[.,;:!?)]( |$))", "", " ".join(routed.text.split()))


def restored(
    sentence: SpannedText, routed: SpannedText, outputs: Iterable[Output]
) -> tuple[SpannedText, ...]:
    """Return the translations of a sentence with its spans and placeholders.

    Args:
        sentence: the source.
        routed: as it was translated.
        outputs: its translations, best first.

    Returns:
        Nothing if the best one has not kept the placeholders that the model has seen.
    """
    own = Counter(sentence.text[start:end] for start, end in sentence.placeholders)
    if routed is sentence:
        best, *others = outputs
        if own and placeholders(best.text) != own:
            return ()
        kept = [best, *(each for each in others if not own or placeholders(each.text) == own)]
        return tuple(project(sentence, each.text, each.links) for each in kept)
    texts = ((each, _without(own, each.text)) for each in outputs)
    return tuple(project(routed, text, each.links if text == each.text else None) for each, text in texts)


def _without(own: Counter[str], translation: str) -> str:
    """Return a translation without placeholders that the model has not seen."""
    left: list[str] = []
    at = 0
    for start, end in find(translation):
        if translation[start:end] in own:
            left.append(translation[at:start])
            at = end
    return "".join([*left, translation[at:]])


def without_placeholders(sentence: SpannedText) -> SpannedText:
    """Return a sentence with points in place of its placeholders."""
    text, builder, at = sentence.text, Builder(), 0
    left = list(edges(sentence.spans))
    positions = [position for position, _, _ in left]
    done = 0
    for start, end in _units(sentence, positions):
        behind = bisect_right(positions, start)
        builder.add(parts(sentence, left[done:behind], start=at, end=start))
        done = bisect_left(positions, end)
        inside = [each for each in left[behind:done] if each[2].kind == "break"]
        kept = Builder()
        kept.add(parts(sentence, inside, start=start, end=end))
        beside = text[start - 1 : start], text[end : end + 1]
        builder.point("", "placeholder", kept=kept.built(), beside=beside)
        at = end
        if all(map(_IS_WORD.match, beside)):
            builder.text(" ")
        builder.add(
            parts(sentence, [each for each in left[behind:done] if each[2].kind != "break"], start=at, end=at)
        )
    builder.add(parts(sentence, left[done:], start=at))
    return builder.built()


def _units(sentence: SpannedText, positions: Sequence[int]) -> Iterator[Range]:
    """Yield the placeholders of a sentence, those as one that nothing but punctuation is between."""
    unit: Range | None = None
    for start, end in sentence.placeholders:
        if unit is not None:
            has_edge = bisect_left(positions, unit[1]) < bisect_right(positions, start)
            if not has_edge and _BETWEEN.fullmatch(sentence.text, unit[1], start):
                unit = (unit[0], end)
                continue
            yield unit
        unit = (start, end)
    if unit is not None:
        yield unit
