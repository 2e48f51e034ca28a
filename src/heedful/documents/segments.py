"""A text as segments: sentences to translate, and what is between them."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, pairwise

from heedful.documents.marked_text import Document, MarkedText, Span
from heedful.documents.markup import TagRules, parse_document, plain_document
from heedful.errors import MissingExtraError, install_hint

_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# A sentence is cut there at the latest: the time of a translation grows with the square of its length, and
# others wait.
_MAX_CHARACTERS = 1000
_TAIL = 60  # characters of a sentence that say whether it is over
# Full stops of scripts that put no blank after them, with closing brackets and quotes.
_IDEOGRAPHIC_END = re.compile(r"(?<=[。！？।॥؟۔])(?![。！？।॥؟۔」』）】”’\"')\]])")
# Full stops, with quotes and brackets behind them.
_FULL_STOP = re.compile(r"[.!?…‼⁇⁈⁉؟।॥。！？][\"'»”’“)\]}*_]*$")
# Abbreviations that numbers follow, and days that months follow.
_NUMBERED = re.compile(
    r"\b(?:no|nos|nr|n|ch|chap|art|arts|par|para|vol|fig|sec|sect|sch|abs|pp?|cap|bd)\.$", re.I
)
_DAY = re.compile(r"\b\d{1,2}\.$")
_MONTH = re.compile(r"(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)")


@dataclass(frozen=True)
class Sentence:
    """A sentence and the white space that stands before it."""

    space: str
    text: str


def split_sentences(text: str, *, within_lines: bool = True, at_line_ends: bool = True) -> list[Sentence]:
    r"""Return the sentences of a text, each with the white space before it; the last may have no text.

    >>> [(each.space, each.text) for each in split_sentences(" Hello. How are you?\n\nFine! ")]
    [(' ', 'Hello.'), (' ', 'How are you?'), ('\n\n', 'Fine!'), (' ', '')]

    Args:
        text: anything; the concatenation of all `space + text` is that text.
        within_lines: whether lines are split as well.
        at_line_ends: whether line ends separate sentences.
    """
    segments = _segments(text, within_lines=within_lines) if at_line_ends else [text]
    return _as_sentences(chain.from_iterable(map(_cut, segments)))


def split_long_sentence(text: str, num_tokens: Callable[[str], int], max_tokens: int) -> list[Sentence]:
    """Return a sentence as parts of at most `max_tokens` tokens, split at blanks where there are some.

    Args:
        text: the sentence.
        num_tokens: returns the number of tokens of a text.
        max_tokens: of a part.
    """
    return _as_sentences(_halves(text, num_tokens, max_tokens))


def _as_sentences(segments: Iterable[str]) -> list[Sentence]:
    sentences: list[Sentence] = []
    space = ""
    for segment in segments:
        core = segment.strip()
        if not core:
            space += segment
            continue
        start = segment.index(core)
        sentences.append(Sentence(space + segment[:start], core))
        space = segment[start + len(core) :]
    if space:
        sentences.append(Sentence(space, ""))
    return sentences


def _segments(text: str, *, within_lines: bool) -> Iterator[str]:
    """Yield parts of a text, in order and complete: line ends, and sentences with the blanks around them."""
    at = 0
    for end in _LINE_END.finditer(text):
        yield from _sentences_of_line(text[at : end.start()], within_lines=within_lines)
        yield end.group()
        at = end.end()
    yield from _sentences_of_line(text[at:], within_lines=within_lines)


def _sentences_of_line(line: str, *, within_lines: bool) -> Iterator[str]:
    if not within_lines:
        yield line
        return
    for part in _IDEOGRAPHIC_END.split(line):
        bounds = [0, *_starts(part)[1:], len(part)]
        yield from (part[a:b] for a, b in pairwise(bounds))


def _cut(segment: str) -> Iterator[str]:
    """Yield the parts of a sentence that is too long: up to a blank, where there is one."""
    while len(segment) > _MAX_CHARACTERS:
        end = segment.rfind(" ", 1, _MAX_CHARACTERS)
        end = _MAX_CHARACTERS if end < 0 else end
        yield segment[:end]
        segment = segment[end:]
    yield segment


def _halves(text: str, num_tokens: Callable[[str], int], max_tokens: int) -> Iterator[str]:
    """Yield the parts of a text, halved until each has few enough tokens."""
    # A token stands for at least one byte, but for those that a tokenizer adds.
    if len(text) < 2 or len(text.encode()) < max_tokens or num_tokens(text) <= max_tokens:
        yield text
        return
    middle = len(text) // 2
    blank = text.rfind(" ", middle // 2, middle + 1)
    at = middle if blank < 1 else blank
    yield from _halves(text[:at], num_tokens, max_tokens)
    yield from _halves(text[at:], num_tokens, max_tokens)


def _starts(line: str) -> list[int]:
    """Return where the sentences of a line start."""
    try:
        from syntok import segmenter
        from syntok.tokenizer import Tokenizer
    except ImportError:
        raise MissingExtraError(f"finding sentences needs syntok: {install_hint('documents')}") from None
    tokens = Tokenizer().tokenize(line)
    starts = [sentence[0].offset for sentence in map(list, segmenter.split(tokens)) if sentence]
    return starts[:1] + [
        start
        for start in starts[1:]
        if not _goes_on(line[max(0, start - _TAIL) : start], line[start : start + _TAIL])
    ]


def _goes_on(before: str, after: str) -> bool:
    """Whether a sentence goes on where it was split: without a full stop, or after an abbreviation."""
    before = before.rstrip()
    if not _FULL_STOP.search(before):
        return True
    numbered = _NUMBERED.search(before)
    return bool(numbered and after[:1].isdigit()) or bool(_DAY.search(before) and _MONTH.match(after))


Segment = str | MarkedText
_MAX_JOINED = 2000  # characters of sentences that are one for a placeholder's sake


@dataclass(frozen=True)
class Segments:
    """A text taken apart.

    Attributes:
        segments: what stays as it is (str), and sentences, in order.
        document: where they come from.
    """

    segments: Sequence[Segment]
    document: Document

    @property
    def sentences(self) -> list[MarkedText]:
        """The segments that are translated."""
        return [segment for segment in self.segments if isinstance(segment, MarkedText)]

    def joined(self, translations: Sequence[str]) -> str:
        """Return the text with a translation for each sentence."""
        left = iter(translations)
        return "".join(segment if isinstance(segment, str) else next(left) for segment in self.segments)


def segment(text: str | Document, rules: TagRules | None, *, split: bool = True) -> Segments:
    """Return the segments of a text.

    Args:
        text: anything, or one that is taken apart already.
        rules: of its markup; None: it has none.
        split: whether lines are split into sentences.
    """
    if isinstance(text, Document):
        document = text
    else:
        document = plain_document(text) if rules is None else parse_document(text, rules)
    segments: list[Segment] = []
    for part, lines_matter in zip(document.parts, document.lines_matter, strict=True):
        if isinstance(part, str):
            segments.append(part)
        else:
            segments += _sentences(part, document.escape, split=split, lines=split or lines_matter)
    return Segments(segments, document)


def has_letters(text: str) -> bool:
    """Whether there is something to translate; numbers, signs and pictures stay as they are."""
    return any(map(str.isalpha, text))


def _sentences(
    part: MarkedText, escape: Callable[[str], str], *, split: bool, lines: bool
) -> Iterator[Segment]:
    cutter = _Cutter(part, escape)
    for start, end in _without_splits(
        split_sentences(part.text, within_lines=split, at_line_ends=lines), part
    ):
        if cutter.has_letters(start, end):
            yield cutter.untranslated(start, sentence_end=end)
            yield cutter.sentence(end)
            continue
        yield cutter.untranslated(start)
        if end > start:
            yield cutter.untranslated(end - 1)
    yield cutter.untranslated(len(part.text))


def _without_splits(sentences: Iterable[Sentence], part: MarkedText) -> Iterator[Span]:
    """Yield where sentences begin and end: those as one between which a placeholder was cut.

    Where that would be too long, the first of them goes to the end of the placeholder.
    """
    left = iter(part.placeholders)
    placeholder = next(left, None)
    sentence: Span | None = None
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
                while part.text[start].isspace():
                    start += 1
            yield sentence
        sentence = (start, at)
    if sentence is not None:
        yield sentence


class _Cutter:
    """Cuts a text with markers into segments from left to right; each marker is in exactly one of them.

    An element at an edge of a sentence is in the sentence if it is around a part of it, and around the
    sentence if it is around all of it, or more.
    """

    def __init__(self, part: MarkedText, escape: Callable[[str], str]) -> None:
        self._part = part
        self._escape = escape
        self._at = 0
        self._marker = 0
        self._placeholder = 0
        self._closing = {each.element: each.position for each in part.markers if each.kind == "close"}

    def has_letters(self, start: int, end: int) -> bool:
        """Return whether there is something to translate besides the placeholders."""
        at = start
        for first, behind in self._placeholders(end):
            if has_letters(self._part.text[at:first]):
                return True
            at = behind
        return has_letters(self._part.text[at:end])

    def untranslated(self, end: int, *, sentence_end: int | None = None) -> str:
        """Return what is before `end`, as it was written, with the markers up to there.

        Where a sentence follows, they end before the first that opens an element around its first words.
        """
        behind = self._behind(end)
        if sentence_end is not None:
            behind = next(
                (i for i in range(self._marker, behind) if self._is_first_words(i, end, sentence_end)), behind
            )
        written: list[str] = []
        first, self._marker = self._marker, behind
        for marker in self._part.markers[first:behind]:
            written += [self._text(marker.position), marker.raw]
        return "".join([*written, self._text(end)])

    def sentence(self, end: int) -> MarkedText:
        """Return what is before `end`, with the markers inside, and those that close elements of it there."""
        start, first, behind = self._at, self._marker, self._behind(end - 1)
        opened = {each.element for each in self._part.markers[first:behind] if each.kind == "open"}
        for i in range(behind, self._behind(end)):
            marker = self._part.markers[i]
            if marker.kind == "close" and marker.element in opened:
                behind = i + 1
        self._marker = behind
        markers = tuple(
            replace(each, position=each.position - start) for each in self._part.markers[first:behind]
        )
        placeholders = tuple((first - start, behind - start) for first, behind in self._placeholders(end))
        self._at = end
        return MarkedText(self._part.text[start:end], markers, placeholders)

    def _placeholders(self, end: int) -> Sequence[Span]:
        """Return the placeholders from where the text is cut already to before `end`."""
        spans = self._part.placeholders
        while self._placeholder < len(spans) and spans[self._placeholder][0] < self._at:
            self._placeholder += 1
        behind = self._placeholder
        while behind < len(spans) and spans[behind][0] < end:
            behind += 1
        return spans[self._placeholder : behind]

    def _is_first_words(self, index: int, start: int, end: int) -> bool:
        marker = self._part.markers[index]
        closing = self._closing.get(marker.element, end)
        return marker.kind == "open" and marker.position == start < closing < end

    def _text(self, end: int) -> str:
        start, self._at = self._at, end
        return self._escape(self._part.text[start:end])

    def _behind(self, last: int) -> int:
        """Return the index behind the markers that stand at `last` or before it."""
        behind = self._marker
        while behind < len(self._part.markers) and self._part.markers[behind].position <= last:
            behind += 1
        return behind
