"""From texts to the ids that searches and scores are asked of, none of them too long."""

import logging
import math
import operator
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise
from typing import TypeVar

import numpy as np

from heedful.decoding.generator import Generator
from heedful.decoding.options import SearchOptions
from heedful.errors import InputError
from heedful.text.pair import TokenizerPair
from heedful.text.special_tokens import SpecialTokens
from heedful.text.tokenizer import Tokenizer

Ids = list[list[int]]
_Item = TypeVar("_Item")
# Where a text that is too long is split, the best first: at ends of sentences, at punctuation, at spaces.
_BOUNDARIES = (
    re.compile(r"(?:(?<=[.!?…])|(?<=[.!?…][\"'»”’)\]}]))\s+|[。！？।॥؟۔]+[」』）】”’]*"),
    re.compile(r"(?<=[,;:–—])\s+|[、，；：،؛]+"),
    re.compile(r"\s+"),
)
_IDEOGRAPHIC = frozenset("。！？।॥؟۔」』）】")  # ends of sentences that need no space after them
_ABBREVIATION = re.compile(r"(?<!\w)[A-Z]\w{0,2}\.$")  # Dr. Mr. St. J.
_TAIL = 8  # characters before the end of a sentence that say whether it is one
_log = logging.getLogger("heedful.decoding")
Target = str | Sequence[int]  # an output: its text, or the ids that the decoder writes


@dataclass(frozen=True)
class Sources:
    """The texts that are searched: lines, or the segments of lines that are too long for the model.

    Attributes:
        texts: the lines and segments, in order.
        ids: as the encoder reads them; an empty text has none.
        prefixes: the ids that their outputs begin with.
        gaps: for each line, what joins the output of each of its segments to the one before.
    """

    texts: list[str] = field(default_factory=list)
    ids: Ids = field(default_factory=list)
    prefixes: Ids = field(default_factory=list)
    gaps: list[list[str]] = field(default_factory=list)


def sources_and_prefixes(
    texts: Sequence[str],
    prefixes: Sequence[str] | None,
    *,
    tokenizers: TokenizerPair,
    framing: SpecialTokens,
    generator: Generator,
    options: SearchOptions,
    first_line: int,
) -> Sources:
    """Tokenise texts, of which those that are too long are split, and the beginnings of their translations.

    Args:
        texts: one sentence or line each.
        prefixes: for each text; for the first segment of one that is split; None: nothing.
        tokenizers: of the model.
        framing: its special-token template.
        generator: it knows how long sequences may be.
        options: of the search; without `max_source_tokens`, no text is split.
        first_line: the number of the first text, for messages.

    Raises:
        InputError: a text or a prefix that is too long, or unequal numbers of them.
    """
    _check_texts("texts", texts)
    encoded = _encoded(tokenizers.src, texts)
    beginnings = encoded_prefixes(prefixes, texts=texts, tokenizer=tokenizers.tgt) or [[] for _ in texts]
    most = min(options.max_source_tokens or sys.maxsize, generator.position_limit or sys.maxsize)
    num_special = len(framing.source(()))
    sources = Sources()
    for line, (text, ids, prefix) in enumerate(
        zip(texts, encoded, beginnings, strict=True), start=first_line
    ):
        segments, gaps, encoded_segments = [text], [""], [ids]
        if options.max_source_tokens is not None and len(ids) + num_special > most:
            _log.warning(
                "line %s: %s tokens, above %s=%s: translated in segments",
                f"{line:,}",
                f"{len(ids) + num_special:,}",
                "max_source_tokens" if most == options.max_source_tokens else "max_positions",
                f"{most:,}",
            )
            segments, gaps = split_text(text, tokenizers.src, max(1, most - num_special))
            encoded_segments = _encoded(tokenizers.src, segments)
        sources.gaps.append(gaps)
        for segment, ids_of_segment in zip(segments, encoded_segments, strict=True):
            source = framing.source(ids_of_segment) if ids_of_segment else []
            _check_length(f"line {line:,}", source, generator.position_limit)
            _check_prefix(line, prefix, generator.max_length(source, options) - num_before_prefix(options))
            sources.texts.append(segment)
            sources.ids.append(source)
            sources.prefixes.append(prefix)
            prefix = []
    return sources


def split_text(text: str, tokenizer: Tokenizer, limit: int) -> tuple[list[str], list[str]]:
    """Split a text into segments of at most `limit` tokens, in time linear in its length.

    It is split at the ends of all sentences; a longer sentence at punctuation, else at spaces, else between
    tokens, into segments of about equal length.

    Returns:
        The segments, and for each the space that joins it to the one before: one, or none.
    """
    segments: list[str] = []
    gaps: list[str] = []
    space_before = False
    for segment in _segments(text, tokenizer, limit):
        if inner := segment.strip():
            segments.append(inner)
            gaps.append(" " if gaps and (space_before or segment[0].isspace()) else "")
            space_before = False
        space_before = space_before or segment[-1:].isspace()
    return segments, gaps


def _segments(text: str, tokenizer: Tokenizer, limit: int, *, level: int = 0) -> Iterator[str]:
    """Yield the segments of a text with the spaces around them; all of them together are the text."""
    if level == len(_BOUNDARIES):
        yield from _between_tokens(text, tokenizer, limit)
        return
    matches = _BOUNDARIES[level].finditer(text)
    ends = [each.end() for each in matches if level or not _goes_on(text, each)]
    units = [text[start:end] for start, end in pairwise([0, *ends, len(text)]) if start < end]
    segments = _merged(units, _lengths(units, tokenizer), limit) if level else units
    for segment, length in zip(segments, _lengths(segments, tokenizer), strict=True):
        if length <= limit:
            yield segment
        else:
            yield from _segments(segment, tokenizer, limit, level=level + 1)


def _lengths(texts: Sequence[str], tokenizer: Tokenizer) -> list[int]:
    return [len(ids) for ids in tokenizer.encode_batch(texts)]


def _goes_on(text: str, end: re.Match[str]) -> bool:
    """Return whether a sentence goes on after a full stop: at an abbreviation, or before a small letter."""
    before, after = text[max(0, end.start() - _TAIL) : end.start()], text[end.end() : end.end() + 1]
    is_own_word = before[-2:-1].isspace() or before[-1:] in _IDEOGRAPHIC
    return not is_own_word and (after.islower() or _ABBREVIATION.search(before) is not None)


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
    return ["".join(each) for each in merged]


def _between_tokens(text: str, tokenizer: Tokenizer, limit: int) -> Iterator[str]:
    # Somewhat more than a segment, to see where its last token ends.
    start, width = 0, math.ceil(1.25 * len(text) * limit / len(tokenizer.encode(text)))
    while start < len(text):
        segment = window = text[start : start + width]
        spans, count = tokenizer.spans(window), limit
        # Without the text around it, a segment may have more tokens.
        while count and len(segment) > 1 and len(tokenizer.encode(segment)) > limit:
            segment = window[: max(1, spans[min(count, len(spans)) - 1][1])]
            count = count * 15 // 16
        yield segment
        start += len(segment)


def _check_prefix(line: int, prefix: Sequence[int], limit: int) -> None:
    if len(prefix) > limit:
        raise InputError(
            f"line {line:,}: a prefix of {len(prefix):,} tokens, but the translation may have "
            f"{limit:,}; shorten it, or raise max_length_offset and max_length"
        )


def sources_and_outputs(
    sources: Sequence[str],
    targets: Sequence[Target],
    *,
    tokenizers: TokenizerPair,
    framing: SpecialTokens,
    generator: Generator,
    options: SearchOptions,
    first_line: int,
) -> tuple[Ids, Ids]:
    """The ids of pairs, as the encoder reads and the decoder writes them.

    Args:
        sources: one sentence or line each.
        targets: the translation of each, as text, or as ids with the end token unless it is truncated; where
            both are empty, neither has ids.
        tokenizers: of the model.
        framing: its special-token template.
        generator: it knows how long sequences may be.
        options: of the search; no text has more tokens than its `max_source_tokens`.
        first_line: the number of the first pair, for messages.

    Raises:
        InputError: a text that is longer than that or than learned positions allow, ids that no output has,
            or unequal numbers of texts.
    """
    _check_texts("sources", sources)
    _check_texts("targets", targets, or_ids=True)
    check_one_for_each("targets", targets, "sources", sources)
    read: Ids = []
    written: Ids = []
    texts = [target if isinstance(target, str) else "" for target in targets]
    encoded = zip(_encoded(tokenizers.src, sources), _encoded(tokenizers.tgt, texts), targets, strict=True)
    for line, (src, tgt, target) in enumerate(encoded, start=first_line):
        output = _with_forced_first_id(framing.target(tgt), options) if isinstance(target, str) else [*target]
        is_nothing = not src and not (tgt if isinstance(target, str) else target)
        read.append([] if is_nothing else framing.source(src))
        written.append([] if is_nothing else output)
        if not isinstance(target, str) and not is_nothing:
            _check_ids(f"target line {line:,}", output, tokenizers.tgt)
        for name, ids in (("source", read[-1]), ("target", written[-1])):
            _check_length(f"{name} line {line:,}", ids, generator.position_limit)
            check_unsplit(f"{name} line {line:,}", ids, options.max_source_tokens)
    return read, written


def encoded_prefixes(
    prefixes: Sequence[str] | None, *, texts: Sequence[str], tokenizer: Tokenizer
) -> Ids | None:
    """The ids of what the outputs of texts begin with, if anything is given.

    Raises:
        InputError: unequal numbers of them.
    """
    if prefixes is not None:
        _check_texts("prefixes", prefixes)
    check_one_for_each("prefixes", prefixes, "texts", texts)
    return None if prefixes is None else tokenizer.encode_batch(prefixes)


def checked_ids(
    name: str, rows: Sequence[Sequence[int]], *, vocab_size: int, longest: int | None = None
) -> Ids:
    """Ids that somebody gives, as lists, before anything looks them up.

    Args:
        name: of what they are, for messages.
        rows: for each sentence its ids.
        vocab_size: they are below it.
        longest: as many as a sentence may have; None sets no limit.

    Raises:
        InputError: naming the first sentence with what is no id of the vocabulary, or with too many.
    """
    checked = []
    for number, row in enumerate(rows, start=1):
        where = f"{name}: sentence {number:,}"
        try:
            ids = [operator.index(each) for each in row]
        except TypeError:
            raise InputError(f"{where}: not a list of ids; give whole numbers, as in [[5, 12, 2]]") from None
        for position, each in enumerate(ids):
            if not 0 <= each < vocab_size:
                shown = f"{each:,}" if abs(each) < 1 << 63 else "a huge number"
                raise InputError(
                    f"{where}: {shown}, at place {position:,}, is no id; the model has those from 0 to "
                    f"{vocab_size - 1:,}"
                )
        _check_length(where, ids, longest)
        checked.append(ids)
    return checked


def check_one_for_each(name: str, values: Sequence[object] | None, to: str, others: Sequence[object]) -> None:
    """Refuse another number of things than there are others.

    Raises:
        InputError: it is.
    """
    if values is not None and len(values) != len(others):
        raise InputError(f"{name}: {len(values):,} for {len(others):,} {to}; give one for each")


def num_before_prefix(options: SearchOptions) -> int:
    """How many tokens an output has before its prefix."""
    return 0 if options.forced_first_id is None else 1


def without_line_ends(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a file without what ends them."""
    return (line.removesuffix("\n").removesuffix("\r") for line in lines)


def chunks(
    items: Iterator[_Item], prefixes: Iterable[str] | None, chunk_lines: int
) -> Iterator[tuple[int, list[_Item], list[str] | None]]:
    """Groups of a stream with their prefixes, and the number of the first of each, from 1.

    Raises:
        InputError: no lines in a chunk, or a line without a prefix.
    """
    if chunk_lines < 1:
        raise InputError(f"chunk_lines={chunk_lines}: must be at least 1")
    beginnings, first_line = without_line_ends(prefixes or ()), 1
    while chunk := list(islice(items, chunk_lines)):
        prefixes_of_chunk = None if prefixes is None else list(islice(beginnings, len(chunk)))
        if prefixes_of_chunk is not None and len(prefixes_of_chunk) < len(chunk):
            raise InputError(
                f"line {first_line + len(prefixes_of_chunk):,}: has no prefix; give one for each line"
            )
        yield first_line, chunk, prefixes_of_chunk
        first_line += len(chunk)


def check_unsplit(name: str, ids: Sequence[int], limit: int | None) -> None:
    """Refuse a text that is too long, where it cannot be split.

    Raises:
        InputError: it has more tokens than the limit, if there is one.
    """
    if limit is not None and len(ids) > limit:
        raise InputError(
            f"{name}: {len(ids):,} tokens, above max_source_tokens={limit:,}; give a shorter one, or raise it"
        )


def _check_texts(name: str, texts: Sequence[object], *, or_ids: bool = False) -> None:
    """Refuse what is no list of texts (or ids): one text would be read letter by letter.

    Raises:
        InputError: it is something else.
    """
    if isinstance(texts, str) or not hasattr(texts, "__len__"):
        what = "one string" if isinstance(texts, str) else type(texts).__name__
        raise InputError(f"{name}: {what} given; give a list of strings, as in translate([text])")
    for number, text in enumerate(texts, start=1):
        if not (isinstance(text, str) or or_ids):
            raise InputError(f"{name}: number {number:,} is {type(text).__name__}, not a string")


def _check_ids(name: str, ids: Sequence[int], tokenizer: Tokenizer) -> None:
    if not ids:
        raise InputError(f"{name}: no ids; an output without text is the end token, {tokenizer.eos_id}")
    if not all(isinstance(i, int | np.integer) and 0 <= i < tokenizer.vocab_size for i in ids):
        raise InputError(f"{name}: ids are whole numbers from 0 to {tokenizer.vocab_size - 1:,}")
    if tokenizer.eos_id in ids[:-1]:
        raise InputError(
            f"{name}: the end token, {tokenizer.eos_id}, before the last place; it ends an output"
        )


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Ids:
    """The ids of each text; none for one of spaces."""
    encoded = tokenizer.encode_batch(texts)
    return [ids if text.strip() else [] for ids, text in zip(encoded, texts, strict=True)]


def _with_forced_first_id(output: list[int], options: SearchOptions) -> list[int]:
    """An output as a search begins it: its text does not show the token that is forced to be first."""
    first = options.forced_first_id
    return output if first is None or first == output[0] else [first, *output]


def _check_length(name: str, ids: Sequence[int], longest: int | None) -> None:
    if longest is not None and len(ids) > longest:
        raise InputError(
            f"{name}: {len(ids):,} tokens, but this model's positions end at {longest:,}; split the line"
        )
