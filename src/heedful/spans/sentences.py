"""The steps of a text with marks through a model, which `pipeline.py` takes.

segments = split(text)                 its sentences, and what is between them
routed = route(sentence)               as the model reads it: it may keep a few placeholders itself
restored(sentence, routed, outputs)    with the spans of the sentence; nothing if a placeholder is lost:
                                       the sentence is translated again `without_placeholders`
join(segments, translations)           the translation of the text, in the same form
"""

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from heedful.decoding.translation import TextHypothesis
from heedful.spans.placeholders import Range, find, placeholders
from heedful.spans.projection import project
from heedful.spans.spanned_text import (
    DIRECTIONS,
    Builder,
    Edge,
    Kept,
    SpannedText,
    are_opposite,
    edges,
    has_letters,
    moved,
    parts,
)
from heedful.text.scripts import UNSPACED
from heedful.text.sentences import Sentence, joint, split_sentences

_WITHOUT_GAP = ("element", "blank", "mark")  # kinds of spans
_MAX_JOINED = 2000  # characters of sentences joined so that no placeholder is cut
_MAX_SHOWN = 100  # characters of the placeholders of a sentence that a model sees; it would not keep more
_BETWEEN = re.compile(r"[!-/:-@\[-`|~\u00b7\u2013\u2014\u2026]{0,3}")  # of two that stay together: %d/%d
_IS_WORD = re.compile(r"[0-9A-Za-z_\u00c0-\u024f]")
_DIRECTION = re.compile(f"[{DIRECTIONS}]")
_ISOLATES = ("\u2066", "\u2067", "\u2068")  # begin a part with a direction of its own, which U+2069 ends
_ENDS_LINE = re.compile(r"[^\S\n\r\v]*+(?:[\n\r\v]|\Z)")
# Soft hyphens, joiners of words, marks of the direction, and places for line ends: not where they are between
# words (Khmer).
_INVISIBLE = re.compile(rf"[\u00ad\u2060\ufeff{DIRECTIONS}]|(?<![{UNSPACED}])\u200b(?![{UNSPACED}])")


@dataclass(frozen=True)
class Segments:
    """A text as its sentences, and what stays around them.

    Attributes:
        sentences: the sentences, in order.
        between: what is before each sentence, and after the last one: one more than sentences.
    """

    sentences: tuple[SpannedText, ...]
    between: tuple[SpannedText, ...]


@dataclass(frozen=True)
class Routed:
    """A sentence as a model reads it.

    Attributes:
        spanned: the sentence, with points for the placeholders that were taken out.
        is_whole: whether nothing was taken out.
    """

    spanned: SpannedText
    is_whole: bool

    @property
    def text(self) -> str:
        """The text that a model reads, without the gaps that points leave in it."""
        if all(span.kind in _WITHOUT_GAP for _, _, span in edges(self.spanned.spans)):
            return self.spanned.text
        # Wide and no-break spaces alone are no gap.
        text = re.sub(r"\s+", lambda run: " " if min(run[0]) <= " " else run[0], self.spanned.text.strip())
        return re.sub(r" (?=[.,;:!?)]( |$))", "", text)


def split(text: SpannedText, *, within_lines: bool = True) -> Segments:
    """Return the sentences of a text, and what is between them.

    Each edge of a span is in exactly one of these. An element at an edge of a sentence belongs to the
    sentence if it covers only a part of it, otherwise to the text around it.

    Args:
        text: any.
        within_lines: whether lines are split into sentences.
    """
    left = list(edges(text.spans))
    positions = [position for position, _, _ in left]
    starts = [start for start, _ in text.placeholders]
    sentences: list[SpannedText] = []
    between: list[SpannedText] = []
    at = edge = 0
    for start, end in _without_splits(split_sentences(text.text, within_lines=within_lines), text):
        placeholders = text.placeholders[bisect_left(starts, start) : bisect_left(starts, end)]
        ranges = [_with_isolates(text.text, placeholder, positions) for placeholder in placeholders]
        if not has_letters(_outside(text.text, ranges, start, end)):
            continue
        outer_start, outer_end = start, end
        start, end = _without_directions(text.text, at, start, end, ranges)
        first = behind = bisect_right(positions, start)
        for i in range(edge, first):
            _, what, span = left[i]
            if what == "open" and outer_start <= span.start <= start < span.end < end:
                first = i  # around the first words
                break
        between.append(_cut(text, left[edge:first], at, start, unfolds=True))
        last = behind = bisect_left(positions, end, lo=first)
        opened = {id(span) for _, what, span in left[first:last] if what == "open"}
        for i in range(last, bisect_right(positions, outer_end, lo=last)):
            if left[i][1] == "close" and id(left[i][2]) in opened:
                behind = i + 1
        own = _cut(text, left[first:behind], start, end)
        inside = tuple((low - start, high - start) for low, high in ranges)
        sentences.append(_without_invisible(SpannedText(own.text, own.spans, inside)))
        at, edge = end, behind
    between.append(_cut(text, left[edge:], at, len(text.text), unfolds=True))
    return Segments(tuple(sentences), tuple(between))


def _with_isolates(text: str, placeholder: Range, positions: Sequence[int]) -> Range:
    """Return where a placeholder begins and ends, with the marks that isolate it from the text around it.

    Args:
        text: the text with the placeholder.
        placeholder: where it is.
        positions: the positions of the edges of spans: none may be between it and the marks.
    """
    start, end = placeholder
    is_isolated = text[start - 1 : start] in _ISOLATES and text[end : end + 1] == "\u2069"
    if not is_isolated or bisect_left(positions, start) < bisect_right(positions, end):
        return placeholder
    return start - 1, end + 1


def _without_directions(text: str, at: int, start: int, end: int, ranges: Sequence[Range]) -> Range:
    """Return where a sentence begins and ends without marks of the direction at the start and end of a line.

    Args:
        text: the text of the sentence.
        at: where the sentence before it ends.
        start: index of its first character.
        end: index after its last.
        ranges: its placeholders, which stay in it.
    """
    first, last = (ranges[0][0], ranges[-1][1]) if ranges else (end, start)
    own = text[start:end]
    if (text[at:start].rstrip(" \t") or text[at - 1 : at])[-1:] in ("", "\n", "\r", "\v"):
        start = min(first, end - len(own.lstrip(f"{DIRECTIONS} ")))
    if _ENDS_LINE.match(text, end):
        end = max(last, end - len(own) + len(own.rstrip(f"{DIRECTIONS} ")))
    return start, end


def _cut(
    text: SpannedText, between: Sequence[Edge], start: int, end: int, *, unfolds: bool = False
) -> SpannedText:
    builder = Builder()
    builder.add(parts(text, between, start=start, end=end), unfolds=unfolds)
    return builder.built()


def between_translations(segments: Segments, translations: Sequence[SpannedText]) -> list[SpannedText]:
    """Return what is before the translation of each sentence, and after the last; `joint` says what."""
    sentences, between = segments.sentences, list(segments.between)
    for number in range(1, len(sentences)):
        if not between[number].spans:
            neighbours = (sentences[number - 1], translations[number - 1], translations[number])
            between[number] = SpannedText(joint(between[number].text, *[text.text for text in neighbours]))
    if any(_DIRECTION.search(text.text) for text in between):
        source, translation = ("".join(text.text for text in texts) for texts in (sentences, translations))
        if are_opposite(source, translation):  # a mark for the start of the one is wrong for the other
            between = [_without_invisible(text) for text in between]
    return between


def join(segments: Segments, translations: Sequence[SpannedText]) -> SpannedText:
    """Return the text with its sentences translated."""
    first, *others = between_translations(segments, translations)
    builder = Builder()
    builder.add(parts(first))
    for translation, after in zip(translations, others, strict=True):
        builder.add(parts(translation))
        builder.add(parts(after))
    return builder.built()


def _without_splits(sentences: Iterable[Sentence], text: SpannedText) -> list[Range]:
    """Return where sentences begin and end: two are one if a placeholder would be cut between them.

    If that would be too long, the first of them goes to the end of the placeholder.
    """
    ends = [end for _, end in text.placeholders]
    found = [(0, 0)]  # before the first sentence
    at = 0
    for sentence in sentences:
        first, stop = found[-1]
        start = at + len(sentence.space)
        at = start + len(sentence.text)
        number = bisect_right(ends, stop)
        cut = [end for low, end in text.placeholders[number : number + 1] if low < stop]
        if cut and (at - first <= _MAX_JOINED or cut[0] >= at):
            found[-1] = first, at
            continue
        if cut:
            found[-1] = first, cut[0]
            start = at - len(text.text[cut[0] : at].lstrip())
        found.append((start, at))
    return found[1:]


def _without_invisible(sentence: SpannedText) -> SpannedText:
    """Return a sentence without invisible characters: a model knows the word without them."""
    text = sentence.text
    starts = [start for start, _ in sentence.placeholders]

    def is_free(at: int) -> bool:
        number = bisect_right(starts, at) - 1
        return number < 0 or at >= sentence.placeholders[number][1]

    found = (match.start() for match in _INVISIBLE.finditer(text))
    removed = [at for at in found if is_free(at)]
    if not removed:
        return sentence

    def move(position: int) -> int:
        return position - bisect_left(removed, position)

    left = _outside(text, ((at, at + 1) for at in removed))
    placeholders = tuple((move(start), move(end)) for start, end in sentence.placeholders)
    return SpannedText(left, moved(sentence.spans, move), placeholders)


def _outside(text: str, ranges: Iterable[Range], start: int = 0, end: int | None = None) -> str:
    """Return a part of a text without some ranges in it."""
    bounds = [start, *chain.from_iterable(ranges), end]
    return "".join(text[low:high] for low, high in [*pairwise(bounds)][::2])


def route(sentence: SpannedText) -> Routed:
    """Return a sentence as a model reads it: without placeholders unless they are short and stand alone."""
    ranges = sentence.placeholders
    is_short = sum(end - start for start, end in ranges) <= _MAX_SHOWN
    is_cut = any(span.kind == "break" for _, _, span in edges(sentence.spans))
    if not ranges or (is_short and not is_cut and tuple(find(sentence.text)) == ranges):
        return Routed(sentence, is_whole=True)
    return without_placeholders(sentence)


def restored(
    sentence: SpannedText, routed: Routed, outputs: Sequence[TextHypothesis]
) -> tuple[SpannedText, ...]:
    """Return the translations of a sentence with its spans and placeholders.

    Args:
        sentence: the source.
        routed: what the model has read.
        outputs: its translations, best first.

    Returns:
        Nothing if the best one has not kept the placeholders that the model has seen.
    """
    own = Counter(sentence.text[start:end] for start, end in sentence.placeholders)
    if routed.is_whole and own:
        if placeholders(outputs[0].text) != own:
            return ()
        outputs = [output for output in outputs if placeholders(output.text) == own]
    projected: list[SpannedText] = []
    for output in outputs:
        text = output.text if routed.is_whole else _without(own, output.text)
        links = output.alignment.links if output.alignment and text == output.text else None
        projected.append(project(routed.spanned, text, links))
    return tuple(projected)


def _without(own: Counter[str], translation: str) -> str:
    """Return a translation without placeholders that the model has not seen."""
    return _outside(translation, (place for place in find(translation) if translation[slice(*place)] in own))


def without_placeholders(sentence: SpannedText) -> Routed:
    """Return a sentence with points in place of its placeholders."""
    text, builder = sentence.text, Builder()
    left = list(edges(sentence.spans))
    positions = [position for position, _, _ in left]
    at = done = 0
    for start, end in _units(sentence, positions):
        behind = bisect_right(positions, start)
        builder.add(parts(sentence, left[done:behind], start=at, end=start))
        done, at = bisect_left(positions, end), end
        inside = [edge for edge in left[behind:done] if edge[2].kind == "break"]
        beside = text[start - 1 : start], text[end : end + 1]
        builder.place(Kept(0, 0, "placeholder", _cut(sentence, inside, start, end), beside))
        if all(map(_IS_WORD.match, beside)):
            builder.text(" ")
        builder.add(("point", "", span) for _, _, span in left[behind:done] if span.kind != "break")
    builder.add(parts(sentence, left[done:], start=at))
    return Routed(builder.built(), is_whole=False)


def _units(sentence: SpannedText, positions: Sequence[int]) -> Iterator[Range]:
    """Yield the placeholders of a sentence; those with only punctuation between them count as one."""
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
