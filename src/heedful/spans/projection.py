"""Put the spans of a sentence into its translation: all of them, once each, properly nested.

An element is put around the words that are aligned with its content (`Aligned`); if no alignment is known,
around those in the same part of the sentence.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise, product

from heedful.spans.placeholders import Range, find
from heedful.spans.spanned_text import Builder, Code, Element, Kept, Span, SpannedText, edges, parts
from heedful.spans.words import Aligned, Links, is_mark, is_unspaced, words

_MAX_CUTS = 12  # of a word; one with more formats is no word
_CLOSING = ".,;:!?)]}»”’…%、。，！？；：）」』"
_OPENING = "([{«“„‘¿¡（「『"
_SHOWN = ("object", "sign", "placeholder")
_NEAR = 8  # characters beside a placeholder that could become a part of it


def project(sentence: SpannedText, translation: str, links: Links | None) -> SpannedText:
    """Return the translation of a sentence with its spans.

    Args:
        sentence: the source.
        translation: the translation of its text.
        links: between the `words` of both; None if they are not known.
    """
    if not sentence.spans:
        return SpannedText(translation)
    source, target, links = _cut_words(sentence, translation, links or ())
    gaps = _Gaps((sentence.text, source), (translation, target), links)
    writer = _Writer(translation, target)
    _place(sentence.spans, (0, len(target)), sentence.text, gaps, writer)
    writer.go_to(len(translation))
    return writer.built.built()


def _place(spans: Sequence[Span], bounds: Range, source: str, gaps: "_Gaps", writer: "_Writer") -> None:
    """Write spans between two gaps: each where it would be best, after the one before.

    Args:
        spans: the spans of the source, inside one element.
        bounds: the gaps of the translation between which they must be.
        source: the text of the source.
        gaps: the gaps of the translation.
        writer: the writer of the translation.
    """
    best = sorted(((gaps.of(span), span) for span in spans), key=_by_place)
    at, high = bounds
    for (first, last), span in best:
        start = min(max(first, at), high)
        at = min(max(last, start), high)
        if not isinstance(span, Element):
            writer.point(span, start, source)
            continue
        writer.open(span, start, source)
        _place(span.inside, (start, at), source, gaps, writer)
        writer.close(span, at, source)


def _by_place(placed: tuple[Range, Span]) -> tuple[bool, int]:
    """Return what spans are written by: those that go on after the text last, the others by their gaps."""
    (first, _), span = placed
    return isinstance(span, Element) and span.closing is None, first


def _cut_words(
    sentence: SpannedText, translation: str, links: Links
) -> tuple[list[Range], list[Range], Sequence[tuple[int, int]]]:
    """Return the words of a sentence and of its translation, cut where a span begins or ends in one.

    The target word with the same text, or else the longest linked word, is cut too: after the same letters if
    it has them (1<sup>st</sup>), otherwise in proportion. A soft hyphen cuts a word with the same text alone.

    Returns:
        The spans of both, and the links between them.
    """
    source, target = words(sentence.text), words(translation)
    links = [(src, tgt) for src, tgt in links if src < len(source) and tgt < len(target)]
    inside, cut_by_elements = _cuts(sentence, source)
    if not inside:
        return source, target, links
    targets = defaultdict[int, list[int]](list)  # of cut source words
    others: set[int] = set()  # which are linked with words that are not cut, and so stay whole
    for src, tgt in links:
        if src in inside:
            targets[src].append(tgt)
        else:
            others.add(tgt)
    by_text = defaultdict[str, list[int]](list)
    for tgt, (start, end) in enumerate(target):
        if tgt not in others:
            by_text[translation[start:end].casefold()].append(tgt)
    source_of: dict[int, int] = {}  # the cut source word of a target word
    tgt_cuts: dict[int, list[int]] = {}
    for src, cuts in inside.items():
        word = sentence.text[slice(*source[src])]
        same = by_text[word.casefold()]
        candidates = same[:1]
        if not same and src in cut_by_elements:
            free = (tgt for tgt in targets[src] if tgt not in source_of)
            candidates = sorted(free, key=lambda tgt: target[tgt][0] - target[tgt][1])
        for tgt in candidates[:1]:
            del same[:1]
            source_of[tgt] = src
            tgt_cuts[tgt] = _shares(word, cuts, translation[slice(*target[tgt])])
    chosen = {src: tgt for tgt, src in source_of.items() if tgt_cuts[tgt]}
    src_spans, src_parts = _with_cuts(source, {src: inside[src] for src in chosen})
    tgt_spans, tgt_parts = _with_cuts(target, tgt_cuts)
    # A cut source word is linked only with its target word, part by part; other links hold for all parts.
    part_links: list[tuple[int, int]] = []
    for src, tgt in links:
        if src not in chosen:
            part_links += product(src_parts[src], tgt_parts[tgt])
    for src, tgt in chosen.items():
        part_links += zip(src_parts[src], tgt_parts[tgt], strict=True)
    return src_spans, tgt_spans, part_links


def _cuts(sentence: SpannedText, source: Sequence[Range]) -> tuple[dict[int, list[int]], set[int]]:
    """Return the places of cuts inside words, by number of the word, and the words that elements cut."""
    starts = [start for start, _ in source]
    inside = defaultdict[int, set[int]](set)
    by_elements: set[int] = set()
    for position, what, span in edges(sentence.spans):
        number = bisect_left(starts, position) - 1
        if number >= 0 and (what != "point" or span.kind in ("point", "wbr")):
            start, end = source[number]
            if start < position < end and (start, end) not in sentence.placeholders:
                inside[number].add(position - start)
                if what != "point":
                    by_elements.add(number)
    return {number: sorted(cuts) for number, cuts in inside.items() if len(cuts) <= _MAX_CUTS}, by_elements


def _shares(word: str, cuts: Sequence[int], target: str) -> list[int]:
    """Return where the translation of a word is cut; nowhere if it has too few letters."""
    if len(target) <= len(cuts):
        return []
    places: list[int] = []
    for number, cut in enumerate(cuts):
        place = round(cut / len(word) * len(target))
        if target[:cut].casefold() == word[:cut].casefold() or cut == 1:
            place = cut
        elif target.casefold().endswith(word[cut:].casefold()):
            place = len(target) - len(word) + cut
        lowest = places[-1] + 1 if places else 1
        places.append(min(max(place, lowest), len(target) - len(cuts) + number))
    return places


def _with_cuts(spans: Sequence[Range], cuts: Mapping[int, Sequence[int]]) -> tuple[list[Range], list[range]]:
    """Return spans that are cut at some places, and the numbers of the parts of each."""
    finer: list[Range] = []
    parts: list[range] = []
    for number, (start, end) in enumerate(spans):
        first = len(finer)
        finer += pairwise((start, *(start + cut for cut in cuts.get(number, ())), end))
        parts.append(range(first, len(finer)))
    return finer, parts


class _Gaps:
    """Where parts of the source are in the translation, in gaps between its words.

    By the links of words; without any, by the share of the sentence before them.
    """

    def __init__(
        self,
        of_source: tuple[str, Sequence[Range]],
        of_translation: tuple[str, Sequence[Range]],
        links: Links,
    ) -> None:
        """Take the source and its words, the translation and its words, and the links between them."""
        (source, src_spans), (_, spans) = of_source, of_translation
        self.num_words = len(spans)
        self._starts = [start for start, _ in src_spans]
        # A link between a word and a sign is a mistake: of a full stop that the source does not have, mostly.
        self._src_signs, self._tgt_signs = _signs(*of_source), _signs(*of_translation)
        linked = [(src, tgt) for src, tgt in links if self._src_signs[src] == self._tgt_signs[tgt]]
        self._aligned = Aligned(linked, len(src_spans), len(spans))
        self._letters = [0, *accumulate(not character.isspace() for character in source)]
        self._ends = [0, *accumulate(end - start for start, end in spans)]

    def of(self, span: Span) -> Range:
        """Return the gaps around what stands for a span of the source."""
        if span.kind == "mark":  # after the word that it goes with
            number = self._word(span.start) - 1
            _, gap = self.span(self._starts[number], span.start) if number >= 0 else (0, 0)
            return gap, gap
        if not isinstance(span, Element):
            return self.span(span.start, span.start)
        start, end = self.span(span.start, span.end)
        return 0 if span.opening is None else start, self.num_words if span.closing is None else end

    def span(self, start: int, end: int) -> Range:
        """Return the gaps around what stands for the characters from `start` to before `end`."""
        first, behind = self._word(start), self._word(end)
        if first == behind:  # a point, or an element without words
            gap = self.gap(start)
            return gap, gap
        if span := self._aligned.span(first, behind):
            return span
        low, high = self._gap_by_share(start), self._gap_by_share(end)
        has_words = not all(self._src_signs[first:behind])
        candidates = [word for word, is_sign in enumerate(self._tgt_signs) if not is_sign or not has_words]
        if not candidates or any(low <= word < high for word in candidates):
            return low, high
        nearest = min(candidates, key=lambda word: abs(word - low))
        return nearest, nearest + 1

    def gap(self, position: int) -> int:
        """Return the gap that stands for the one before a character of the source."""
        return self._aligned.gap(self._word(position), near=self._gap_by_share(position))

    def _word(self, position: int) -> int:
        """Return the number of source words that begin before a character."""
        return bisect_left(self._starts, position)

    def _gap_by_share(self, position: int) -> int:
        words_before = self._ends[-1] * self._letters[position] / max(1, self._letters[-1])
        above = bisect_left(self._ends, words_before)
        return min((max(0, above - 1), above), key=lambda gap: abs(self._ends[gap] - words_before))


def _signs(text: str, ranges: Sequence[Range]) -> list[bool]:
    """Return whether each word has no letter and no digit."""
    return [not any(map(str.isalnum, text[start:end])) for start, end in ranges]


class _Writer:
    """Writes the translation from left to right, with spans in the gaps between its words."""

    def __init__(self, text: str, ranges: Sequence[Range]) -> None:
        self._text = text
        self._ends = [0, *(end for _, end in ranges)]  # of the word before each gap
        self._starts = [*(start for start, _ in ranges), len(text)]  # of the word after each gap
        self.built = Builder()
        self._at = 0
        self._last = ""  # the last character that was written, without tags
        self._run = ""  # text since the last tag or white space
        self._placeholders: set[Range] = set()  # in the run; nothing may be written after that changes them
        self._space_is_pending = False  # before the next text, after tags that close an element

    def open(self, element: Element, gap: int, source: str) -> None:
        """Begin an element in a gap, with as much white space before it as in the source."""
        match element.inside if element.is_empty else ():  # the space is outside of the element
            case (Kept() as first, *_):
                self._lead(first.beside[0], gap)
            case (Code(kind="object"), *_):
                self._lead(source[max(0, element.start - 1) : element.start], gap)
        if element.opening is not None:
            is_before_space = source[element.start : element.start + 1].isspace()
            self._go(gap, _spaces_before(source, element.start) if is_before_space else -1)
            self.built.open(element.opening, is_low=element.is_low, format=element.format)

    def close(self, element: Element, gap: int, source: str) -> None:
        """End an element in a gap."""
        if element.closing is None:
            return
        if element.is_empty:
            is_after_space = not element.inside and source[element.start : element.start + 1].isspace()
        else:
            last = (span for span in element.inside[-1:] if span.end == element.end)
            is_after_space = element.opening is not None and not any(span.kind in _SHOWN for span in last)
        spaces = _spaces_before(source, element.end) if is_after_space else 0
        self._go(gap, spaces)
        self.built.close(element.closing)
        if element.is_empty and spaces and self._at == self._starts[gap]:
            self._space_is_pending = True

    def point(self, span: Code | Kept, gap: int, source: str) -> None:
        """Write a point in a gap."""
        before, after = source[max(0, span.start - 1) : span.start], source[span.start : span.start + 1]
        if isinstance(span, Kept):
            self._kept(span, gap)
        elif span.kind in _SHOWN:
            self._shown(span, gap, (before, after))
        else:
            self._go(gap, 0 if before and not before.isspace() else -1)
            self.built.place(span)
            is_apart = before.isspace() and after.isspace() and span.kind != "wbr"
            if is_apart and self._at == self._starts[gap]:
                self._space_is_pending = True

    def _kept(self, span: Kept, gap: int) -> None:
        """Write what the model has not seen."""
        if span.kind == "placeholder":
            self._shown(span, gap, span.beside)
        elif span.kind == "mark":
            self._go(gap, 0)
            self.built.add(parts(span.text))
        else:  # in place of the white space
            self.go_to(self._ends[gap])
            self._space_is_pending = False
            self.built.add(parts(span.text))
            self._end_run()
            self._at, self._last = max(self._at, self._starts[gap]), " "

    def _go(self, gap: int, num_spaces: int) -> None:
        """Go to where a tag stands in a gap: after some characters of its white space; -1: after all."""
        behind = self._starts[gap]
        self.go_to(behind if num_spaces < 0 else min(behind, self._ends[gap] + num_spaces))
        if num_spaces:
            self._write_pending_space()
        self._end_run()

    def _lead(self, before: str, gap: int) -> None:
        """Write the space before what is shown first in an element, if the source has one, before its tag."""
        if not before.isspace():
            return
        self.go_to(self._ends[gap])
        if self._at == self._starts[gap] and _are_apart(before, self._last, _OPENING):
            self._write_pending_space()
            if not self._last.isspace():
                self._write(" ")

    def _shown(self, span: Code | Kept, gap: int, beside: tuple[str, str]) -> None:
        """Write a placeholder, or a point that is shown, with white space if the source has some."""
        self.go_to(self._ends[gap])
        before, after = beside
        is_touched = before != "" and not before.isspace()
        if self._space_is_pending and not (is_touched and self._last == before):
            self._write_pending_space()
        self._space_is_pending = False
        space_before = _are_apart(before, self._last, _OPENING)
        space_after = _are_apart(after, self._text[self._starts[gap] : self._starts[gap] + 1], _CLOSING)
        has_space = self._at < self._starts[gap]  # in the gap, and not yet written
        if space_before and has_space and not space_after:
            self.go_to(self._starts[gap])
        elif space_before:
            self._write(" ")
        if isinstance(span, Kept):
            self._write_placeholder(span.text)
        else:
            self.built.place(span)
            self._end_run()
            self._last = ">"
        self._space_is_pending = space_after and not has_space
        if has_space and before.isalnum() and after.isalnum():  # one&nbsp;two: the model was given a space
            self._at = self._starts[gap]

    def go_to(self, position: int) -> None:
        """Write the translation up to a position, if it is not yet written."""
        if position > self._at:
            if not self._text[self._at].isspace():
                self._write_pending_space()
            self._space_is_pending = False
            self._write(self._text[self._at : position])
            self._at = position

    def _write_pending_space(self) -> None:
        if self._space_is_pending:
            self._write(" ")
        self._space_is_pending = False

    def _write(self, text: str) -> None:
        self._keep_apart(self._placeholders, text[:_NEAR])
        self.built.text(text)
        self._last = text[-1:]
        last_space = max((at for at, char in enumerate(text) if char.isspace()), default=-1)
        if last_space >= 0:
            self._end_run()
        self._run += text[last_space + 1 :]

    def _write_placeholder(self, kept: SpannedText) -> None:
        own, at = set(find(kept.text)), len(self._run)
        self._keep_apart(self._placeholders | {(at + start, at + end) for start, end in own}, kept.text)
        self.built.add(parts(kept))
        self._last, self._run, self._placeholders = kept.text[-1:], kept.text, own

    def _keep_apart(self, expected: set[Range], following: str) -> None:
        """Write a space if a placeholder would be read as something else with what follows."""
        if self._run and expected and not expected <= set(find(self._run + following)):
            self.built.text(" ")
            self._end_run()

    def _end_run(self) -> None:
        self._run, self._placeholders = "", set()


def _spaces_before(text: str, position: int) -> int:
    return position - len(text[:position].rstrip())


def _are_apart(source: str, target: str, exempt: str) -> bool:
    """Return whether a space is written between a point and a character of the translation.

    Args:
        source: the character beside the point in the source; "": none.
        target: the one beside it in the translation; "": none.
        exempt: characters of the translation that need no space.
    """
    if not target or target.isspace():
        return False
    if source.isspace():
        return target not in exempt
    if not _is_of_word(target):
        return False
    if _is_of_word(source):
        return _is_joined(source) and not _is_joined(target)
    return not is_unspaced(target)


def _is_of_word(char: str) -> bool:
    return char.isalnum() or char == "_" or (char != "" and is_mark(char))


def _is_joined(char: str) -> bool:
    """Return whether words of the script follow placeholders without a space."""
    return is_unspaced(char) or "\uac00" <= char <= "\ud7af"
