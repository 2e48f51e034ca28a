"""Split a text into sentences, so that sentences and what is between them make up the text again."""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, pairwise

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
    from syntok import segmenter
    from syntok.tokenizer import Tokenizer

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
