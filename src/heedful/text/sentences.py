"""Where sentences end, how a text that is too long is split, and what joins the translations of its parts."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise

from heedful.text.scripts import CJK, UNSPACED
from heedful.text.tokenizer import Tokenizer

_LINE_END = re.compile(r"[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Full stops that need no space after them: Chinese and Japanese, Devanagari, Arabic and Urdu, Burmese, Khmer,
# Ethiopic.
_IDEOGRAPHIC = "。！？｡।॥؟۔။។៕።"
_CLOSING = "」』）】》”’\"')\\]"
# The end of a sentence: white space after a full stop (and quotes or brackets), or one of those above.
_SENTENCE_END = re.compile(
    rf"(?:(?<=[.!?…։])|(?<=[.!?…։]'')|(?<=[.!?…։][\"'»”’)\]}}]))\s+"
    rf"|(?<=[{_IDEOGRAPHIC}])(?![{_IDEOGRAPHIC}{_CLOSING}.]|$)\s*"
)
# Where a longer sentence is split if it has no doubtful end, the best first: at punctuation, at spaces.
_BOUNDARIES = (re.compile(r"(?<=[,;:–—])\s+|[、，；：،؛]+"), re.compile(r"\s+"))
# What no sentence starts with: closing punctuation, or the quote that ends the one before.
_NO_START = re.compile(r"[,;:.!?…)\]}»”’%/]|[\"'`]+(?:\s|$)")
# What ends in a full stop within a sentence: initials (J.), dotted abbreviations (e.g.), and these.
_ABBREVIATION = re.compile(
    r"(?<!\w)(?:[^\W\d_a-z]|\w\.\s?\w|(?i:dr|mr|mrs|ms|prof|st|sr|sra|jr|capt|gen|lt|sgt|rev|hon|gov|sen|rep|col"
    r"|mme|mlle|hr|fr|bzw|vs|v|av|al|cf|ca|approx|sog|მაგ|იხ))\.$"
    r"|(?<!\S)\(?\d{1,2}[°º]?\.$"  # 25. Dezember, or the number of a list
)
_UNCASED = re.compile(
    "[\u10d0-\u10ff]"
)  # Georgian, lower case in name only: Unicode's text segmentation, UAX 29
_ELLIPSIS = re.compile(r"(?:…|\.\.|\([.!?…]+\))$")  # or a full stop that is spoken of: (.)
_LETTER = re.compile(r"(?<!\w)\w\.$")  # z. B.
_BEFORE_NUMBERS = re.compile(r"(?<!\w)[^\W\d_]{1,4}[°º]?\.$")  # No. p. Abs. Sept. nº.
_AROUND = 16  # characters before and after a full stop that say whether a sentence ends there
_MAX_CHARACTERS = 1000  # of a sentence: the time to place its markup grows with the square of its length
_CJK = f"{CJK}\u3001-\u303f\uff01-\uff9f"  # letters and punctuation
_HAS_CJK = re.compile(f"[{_CJK}]")
_ENDS_WITHOUT_SPACE = re.compile(f"[{_CJK}{UNSPACED}{_IDEOGRAPHIC}،؛]$")


@dataclass(frozen=True)
class Sentence:
    """A sentence, or a part of one, and the white space that stands before it."""

    space: str
    text: str


def split_sentences(text: str, *, within_lines: bool = True, at_line_ends: bool = True) -> list[Sentence]:
    r"""Return the sentences of a text, each with the white space before it; the last may have no text.

    In doubt a sentence goes on: before a small letter (Georgian has none), after an ellipsis, abbreviation,
    initial or ordinal.

    >>> [(sentence.space, sentence.text) for sentence in split_sentences(" Hello. How are you?\n\nFine! ")]
    [(' ', 'Hello.'), (' ', 'How are you?'), ('\n\n', 'Fine!'), (' ', '')]

    Args:
        text: anything; the concatenation of all `space + text` is that text.
        within_lines: whether lines are split as well.
        at_line_ends: whether line ends separate sentences.
    """
    parts = [text]
    if at_line_ends:
        ends = chain.from_iterable(match.span() for match in _LINE_END.finditer(text))
        parts = _pieces(text, ends)
        if within_lines:
            parts = [*chain.from_iterable(map(_sentences, parts))]
    return _as_sentences(chain.from_iterable(_split(part, None, _MAX_CHARACTERS) for part in parts))


def split_text(text: str, tokenizer: Tokenizer | None, limit: int) -> list[Sentence]:
    """Split a text at line ends, and if it has more than `limit` tokens into parts, in linear time.

    A long text is split at the ends of all sentences; a longer one before small letters after a full stop,
    else at punctuation, else at spaces, else between tokens, into parts of about equal length.

    Args:
        text: the concatenation of all `space + text` is that text; the last may have no text.
        tokenizer: counts the tokens; None: each character is one.
        limit: the most tokens of a part.
    """
    lines = text.splitlines(keepends=True) if "\n" in text else [text]
    # A token stands for at least one byte, except for those that a tokenizer adds.
    if len(text.encode()) < limit or _lengths([text], tokenizer)[0] <= limit:
        return _as_sentences(lines)
    sentences = chain.from_iterable(map(_sentences, lines))
    return _as_sentences(chain.from_iterable(_split(part, tokenizer, limit) for part in sentences))


def joint(space: str, source: str, before: str, after: str) -> str:
    """Return what stands between the translations of two sentences of a text.

    Chinese and Japanese put no space between sentences, other languages do; more than one space, and line
    ends, are layout, and stay.

    >>> joint(" ", "Hello.", "你好。", "谢谢。"), joint("", "你好。", "Hello.", "Thanks.")
    ('', ' ')

    Args:
        space: what stands between the two in the source.
        source: the first.
        before: its translation.
        after: the translation of the second.
    """
    if space not in ("", " "):
        return space
    for neighbour, other in ((before[-1:], after), (after[:1], before)):
        if _HAS_CJK.match(neighbour) and _HAS_CJK.search(other):
            return ""
    return " " if space or _ENDS_WITHOUT_SPACE.search(source) else ""


def _as_sentences(parts: Iterable[str]) -> list[Sentence]:
    sentences: list[Sentence] = []
    space = ""
    for part in parts:
        core = part.strip()
        if not core:
            space += part
            continue
        start = part.index(core)
        sentences.append(Sentence(space + part[:start], core))
        space = part[start + len(core) :]
    if space:
        sentences.append(Sentence(space, ""))
    return sentences


def _sentences(line: str) -> list[str]:
    """Return the sentences of a line with the spaces after them; all of them together are the line."""
    ends = [match.end() for match in _SENTENCE_END.finditer(line) if not _goes_on(line, *match.span())]
    return _pieces(line, ends)


def _pieces(text: str, ends: Iterable[int]) -> list[str]:
    return [text[start:end] for start, end in pairwise([0, *ends, len(text)])]


def _goes_on(line: str, stop: int, start: int, *, before_small: bool = True) -> bool:
    """Return whether a sentence goes on behind a full stop, if the next would start at `start`.

    With `before_small`, it does before a small letter.
    """
    before, after = line[max(0, stop - _AROUND) : stop], line[start : start + _AROUND]
    if start == stop or before[-1] in _IDEOGRAPHIC or not after:
        return False
    if _NO_START.match(after) or _ELLIPSIS.search(before):
        return True
    if before[-2:-1].isspace():  # tokenised: a full stop is a word of its own
        return False
    if before_small and after[0].islower() and not _UNCASED.match(after):
        return True
    if after[1:2] == "." and _LETTER.search(before):
        return True
    if after[0].isdigit() and _BEFORE_NUMBERS.search(before):
        return True
    return _ABBREVIATION.search(before) is not None


def _split(text: str, tokenizer: Tokenizer | None, limit: int, *, level: int = 0) -> Iterator[str]:
    """Yield the parts of a sentence with the spaces around them; all of them together are the sentence."""
    if _lengths([text], tokenizer)[0] <= limit:
        yield text
    elif level > len(_BOUNDARIES):
        yield from _between_tokens(text, tokenizer, limit)
    else:
        ends = _doubtful_ends(text) if level == 0 else _ends(_BOUNDARIES[level - 1], text)
        units = [*filter(None, _pieces(text, ends))]
        for part in _merged(units, _lengths(units, tokenizer), limit):
            yield from _split(part, tokenizer, limit, level=level + 1)


def _doubtful_ends(text: str) -> list[int]:
    """Return where sentences of a text without capitals would start."""
    spans = (match.span() for match in _SENTENCE_END.finditer(text))
    return [start for stop, start in spans if not _goes_on(text, stop, start, before_small=False)]


def _ends(boundary: re.Pattern[str], text: str) -> list[int]:
    return [match.end() for match in boundary.finditer(text)]


def _lengths(texts: Sequence[str], tokenizer: Tokenizer | None) -> list[int]:
    return [*map(len, texts if tokenizer is None else tokenizer.encode_batch(texts))]


def _merged(units: Sequence[str], lengths: Sequence[int], limit: int) -> list[str]:
    """Join neighbours to as few texts of about equal length as the limit allows."""
    total = max(1, sum(lengths))
    target = math.ceil(total / math.ceil(total / limit))
    merged: list[list[str]] = []
    size = limit
    for unit, length in zip(units, lengths, strict=True):
        if size >= target or size + length > limit:
            merged.append([])
            size = 0
        merged[-1].append(unit)
        size += length
    return [*map("".join, merged)]


def _between_tokens(text: str, tokenizer: Tokenizer | None, limit: int) -> Iterator[str]:
    if tokenizer is None:
        yield from (text[start : start + limit] for start in range(0, len(text), limit))
        return
    # Somewhat more than a part, to see where its last token ends.
    start, width = 0, math.ceil(1.25 * len(text) * limit / len(tokenizer.encode(text)))
    while start < len(text):
        part = window = text[start : start + width]
        spans, count = tokenizer.spans(window), limit
        # Without the text around it, a part may have more tokens.
        while count and len(part) > 1 and len(tokenizer.encode(part)) > limit:
            part = window[: max(1, spans[min(count, len(spans)) - 1][1])]
            count = count * 15 // 16
        yield part
        start += len(part)
