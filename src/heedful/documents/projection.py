"""Put the markers of a sentence into its translation: all of them, once each, properly nested.

An element is put around the words that are aligned with its content (`Aligned`); where no alignment is known,
around those in the same part of the sentence.
"""

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise, repeat
from typing import TYPE_CHECKING, Protocol

from heedful.documents.marked_text import (
    MarkedText,
    Marker,
    Span,
    find,
    is_faithful,
    may_be_shown,
    without_doubles,
    without_placeholders,
)
from heedful.documents.tag_writer import TagWriter, is_mark, is_unspaced
from heedful.errors import InputError

if TYPE_CHECKING:
    from heedful.decoding.alignment import Alignment
    from heedful.decoding.confidence import Confidence
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation

Links = Sequence[tuple[int, int]]  # (source word, target word), each from 0
_OWN = 4  # links with other words that one with the element's own outweighs, by measurement
_MAX_CUTS = 12  # of a word; one with more formats is no word
_FAR = 40  # words from a gap; links of those beyond count for nothing
_INNER = "'’-"  # between two letters, part of the word


def words(text: str) -> list[Span]:
    """Return where each word, sign and placeholder of a text begins and ends.

    Marks are part of what they follow. In scripts without spaces between words, each character is a word.
    """
    spans: list[Span] = []
    at = 0
    for start, end in find(text):
        _add_words(spans, text, at, start)
        spans.append((start, end))
        at = end
    _add_words(spans, text, at, len(text))
    return spans


def _add_words(spans: list[Span], text: str, first: int, behind: int) -> None:
    is_open = False  # whether a letter goes on with the last word
    for at in range(first, behind):
        char = text[at]
        if char.isspace():
            is_open = False
        elif spans and spans[-1][1] == at and (is_mark(char) or (is_open and _goes_on(text, at))):
            spans[-1] = (spans[-1][0], at + 1)
        else:
            spans.append((at, at + 1))
            is_open = _is_letter(char)


def _goes_on(text: str, at: int) -> bool:
    """Return whether a word has the character too, which follows one of its letters."""
    return _is_letter(text[at]) or (text[at] in _INNER and at + 1 < len(text) and _is_letter(text[at + 1]))


def _is_letter(char: str) -> bool:
    return (char.isalnum() or char == "_") and not is_unspaced(char)


class Aligned:
    """Finds what stands for parts of the source, by links of words.

    The time for one part grows with the number of its links, not with the length of the sentence.
    """

    def __init__(self, links: Links, num_source: int, num_targets: int) -> None:
        """Take the links of so many source and target words."""
        self._targets: list[list[int]] = [[] for _ in range(num_source)]
        self._num_links = [0] * num_targets  # of each target word
        for src, tgt in links:
            self._targets[src].append(tgt)
            self._num_links[tgt] += 1
        self._links_before = [0, *accumulate(self._num_links)]

    def span(self, first: int, behind: int) -> Span | None:
        """Return the span of target words that stands for the source words from `first` to before `behind`.

        Each link inside with these words counts `_OWN` for it, each link with others 1 against it: it is the
        span of the largest sum, and of these the shortest.

        Returns:
            None where no target word is linked with them, or too few of a word's links are.
        """
        inside = Counter(tgt for targets in self._targets[first:behind] for tgt in targets)
        best, best_sum = None, 0
        start, end, total = 0, 0, 0
        for tgt in sorted(inside):
            total -= self._links_before[tgt] - self._links_before[end]  # of the words between
            if total <= 0:
                start, total = tgt, 0
            end = tgt + 1
            total += (_OWN + 1) * inside[tgt] - self._num_links[tgt]
            if total > best_sum:
                best, best_sum = (start, end), total
        return best

    def gap(self, before: int, *, near: int) -> int:
        """Return the gap between target words that stands for the one before a source word.

        It is the one that the fewest links cross, those of words beside it counting most, and of these the
        one that is nearest to where it is expected.

        Args:
            before: number of the source word behind the gap.
            near: where the gap is expected.
        """
        changes = {0: 0.0}  # of the cost, from a gap on
        for src in range(max(0, before - _FAR), min(len(self._targets), before + _FAR)):
            distance = before - 1 - src if src < before else src - before
            cost = 0.5**distance
            for tgt in self._targets[src]:
                if src < before:  # it should be before the gap
                    changes[0] += cost
                    changes[tgt + 1] = changes.get(tgt + 1, 0.0) - cost
                else:
                    changes[tgt + 1] = changes.get(tgt + 1, 0.0) + cost
        starts = sorted(changes)
        costs = accumulate(changes[start] for start in starts)
        lasts = [*(start - 1 for start in starts[1:]), len(self._num_links)]
        nearest = (max(start, min(near, last)) for start, last in zip(starts, lasts, strict=True))
        return min((round(cost, 9), abs(gap - near), gap) for cost, gap in zip(costs, nearest, strict=True))[
            2
        ]


_UNSEEN = re.compile(r"<!--.*-->|<[!?].*>|</.*>|<(?!img|input)[^<>]*>", re.DOTALL)  # nothing that is shown


@dataclass
class _Node:
    """An element, or a point, in the sentence.

    Attributes:
        opening: the tag that opens it in this sentence; None where it is open already, and for a point.
        closing: the tag that closes it in this sentence; None where it stays open.
        start: in characters of the source.
        end: as `start`.
        element: its number; -1: a point.
        children: inside, in the order of the source.
        span: gaps of the translation, between which it is put.
        point: what is written for a point.
        spaces_before: number of white-space characters before the opening tag; -1: none is behind it.
        spaces_behind: number of white-space characters before the closing tag.
    """

    opening: str | None
    start: int
    element: int = -1
    closing: str | None = None
    end: int = -1
    children: "list[_Node]" = field(default_factory=list)
    span: Span = (0, 0)
    point: Marker | None = None
    spaces_before: int = -1
    spaces_behind: int = 0


def text_to_translate(sentence: MarkedText) -> str:
    """Return the text of a sentence, without the gaps that points leave in it."""
    if not any(each.kind in ("point", "placeholder") for each in sentence.markers):
        return sentence.text
    return re.sub(r" (?=[.,;:!?)]( |$))", "", " ".join(sentence.text.split()))


def project(sentence: MarkedText, translation: str, escape: Callable[[str], str], links: Links | None) -> str:
    """Return the translation with the markers of the sentence.

    Args:
        sentence: the source.
        translation: of its text.
        escape: writes text so that the format takes it for text.
        links: between the `words` of both; None where they are not known.
    """
    if not sentence.markers:
        return escape(translation)
    source, spans, links = _cut_words(sentence, translation, links or ())
    root = _tree(sentence)
    _insert(root.children, _Gaps((sentence.text, source), (translation, spans), links))
    _fit(root.children, 0, len(spans))
    writer = TagWriter(translation, spans, escape)
    for node in root.children:
        _write(node, writer)
    return writer.finished()


def _cut_words(
    sentence: MarkedText, translation: str, links: Links
) -> tuple[list[Span], list[Span], Sequence[tuple[int, int]]]:
    """Return the words of a sentence and of its translation, cut where an element begins or ends in one.

    What is linked with the word, if it is one word, is cut by the same letters (1<sup>st</sup>), else by the
    share of the letters.

    Returns:
        The spans of both, and the links between them.
    """
    source, target = words(sentence.text), words(translation)
    inside = _cuts(sentence, source)
    if not inside:
        return source, target, links
    targets: dict[int, list[int]] = {src: [] for src in inside}
    for src, tgt in links:
        if src in targets and tgt < len(target):
            targets[src].append(tgt)
    others = {tgt for src, tgt in links if src not in inside}
    of_text: dict[str, list[int]] = {}
    for tgt in range(len(target)):
        if tgt not in others:
            of_text.setdefault(translation[slice(*target[tgt])].casefold(), []).append(tgt)
    of_target: dict[int, tuple[int, list[int]]] = {}  # the source word, and where the target word is cut
    for src, cuts in inside.items():
        word = sentence.text[slice(*source[src])]
        same = of_text.get(word.casefold(), [])
        by_length = sorted(targets[src], key=lambda tgt: target[tgt][0] - target[tgt][1])
        best = same.pop(0) if same else next((tgt for tgt in by_length if tgt not in of_target), None)
        if best is not None:
            places = _shares(word, cuts, translation[slice(*target[best])])
            of_target[best] = src, [target[best][0] + place for place in places]
    chosen = {src: tgt for tgt, (src, places) in of_target.items() if places}
    src_spans, src_parts = _with_cuts(
        source, {src: [source[src][0] + each for each in inside[src]] for src in chosen}
    )
    tgt_spans, tgt_parts = _with_cuts(target, {tgt: of_target[tgt][1] for tgt in chosen.values()})
    own = {(src, tgt) for src, tgt in chosen.items()}
    finer = [
        (one, other)
        for src, tgt in {*links, *own}
        if src < len(src_parts) and tgt < len(tgt_parts) and (src not in chosen or (src, tgt) in own)
        for number, one in enumerate(src_parts[src])
        for place, other in enumerate(tgt_parts[tgt])
        if (src, tgt) not in own or number == place
    ]
    return src_spans, tgt_spans, finer


def _cuts(sentence: MarkedText, source: Sequence[Span]) -> dict[int, list[int]]:
    """Return by number the words in which an element begins or ends, and behind how many letters."""
    starts = [start for start, _ in source]
    inside: dict[int, set[int]] = {}
    for marker in sentence.markers:
        number = bisect_left(starts, marker.position) - 1
        if number >= 0 and marker.kind in ("open", "close"):
            start, end = source[number]
            if start < marker.position < end and (start, end) not in sentence.placeholders:
                inside.setdefault(number, set()).add(marker.position - start)
    return {number: sorted(each) for number, each in inside.items() if len(each) <= _MAX_CUTS}


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


def _with_cuts(spans: Sequence[Span], cuts: Mapping[int, Sequence[int]]) -> tuple[list[Span], list[range]]:
    """Return spans that are cut at some places, and the numbers of the parts of each."""
    finer: list[Span] = []
    parts: list[range] = []
    for number, (start, end) in enumerate(spans):
        first = len(finer)
        finer += pairwise((start, *cuts.get(number, ()), end))
        parts.append(range(first, len(finer)))
    return finer, parts


def _tree(sentence: MarkedText) -> _Node:
    root = _Node(None, 0)
    stack = [root]
    for marker in sentence.markers:
        if marker.kind == "open":
            node = _Node(marker.raw, marker.position, marker.element)
            if sentence.text[marker.position : marker.position + 1].isspace():
                node.spaces_before = _spaces_before(sentence.text, marker.position)
            stack[-1].children.append(node)
            stack.append(node)
        elif marker.kind == "close" and len(stack) > 1 and stack[-1].element == marker.element:
            node = stack.pop()
            node.closing, node.end = marker.raw, marker.position
            node.spaces_behind = _spaces_before(sentence.text, node.end) if node.end > node.start else 0
        elif marker.kind == "close" and len(stack) == 1:  # of an element that began before the sentence
            around = _Node(None, 0, marker.element, marker.raw, marker.position, root.children)
            root.children = [around]
        else:
            stack[-1].children.append(_point(sentence.text, marker))
    for node in stack[1:]:
        node.end = len(sentence.text)
    return root


def _spaces_before(text: str, position: int) -> int:
    at = position
    while at and text[at - 1].isspace():
        at -= 1
    return position - at


def _point(source: str, marker: Marker) -> _Node:
    at = marker.position
    if marker.kind == "point":
        marker = replace(marker, before=source[at - 1 : at] if at else "", after=source[at : at + 1])
    return _Node(None, at, end=at, point=marker)


def _insert(nodes: Sequence[_Node], gaps: "_Gaps") -> None:
    """Set the span of each node to where it would be best, whatever the others do."""
    for node in nodes:
        is_mark = node.point is not None and node.point.kind == "mark"
        start, end = gaps.behind_word(node.start) if is_mark else gaps.span(node.start, node.end)
        if node.element >= 0 and node.opening is None:
            start = 0
        if node.element >= 0 and node.closing is None:
            end = gaps.num_words
        node.span = (start, end)
        _insert(node.children, gaps)


class _Gaps:
    """Where parts of the source are in the translation, in gaps between its words.

    By the links of words; without any, by the share of the sentence before them.
    """

    def __init__(
        self, of_source: tuple[str, Sequence[Span]], of_translation: tuple[str, Sequence[Span]], links: Links
    ) -> None:
        """Take the source and its words, the translation and its words, and the links between them."""
        source, src_spans = of_source
        translation, spans = of_translation
        self.num_words = len(spans)
        self._starts = [start for start, _ in src_spans]
        # A link between a word and a sign is a mistake: of a full stop that the source does not have, mostly.
        self._src_signs, self._tgt_signs = _signs(source, src_spans), _signs(translation, spans)
        linked = [
            (src, tgt)
            for src, tgt in links
            if src < len(src_spans) and tgt < len(spans) and self._src_signs[src] == self._tgt_signs[tgt]
        ]
        self._aligned = Aligned(linked, len(src_spans), len(spans)) if linked else None
        self._letters = [0, *accumulate(not character.isspace() for character in source)]
        self._ends = [0, *accumulate(end - start for start, end in spans)]

    def behind_word(self, position: int) -> Span:
        """Return, twice, the gap behind what stands for the word that ends at a character of the source."""
        number = self._word(position) - 1
        _, gap = self.span(self._starts[number], position) if number >= 0 else (0, 0)
        return gap, gap

    def span(self, start: int, end: int) -> Span:
        """Return the gaps around what stands for the characters from `start` to before `end`."""
        first, behind = self._word(start), self._word(end)
        if first == behind:  # a point, or an element without words
            gap = self.gap(start)
            return gap, gap
        span = self._aligned.span(first, behind) if self._aligned else None
        if span is not None:
            return span
        low, high = self._gap_by_share(start), self._gap_by_share(end)
        has_words = not all(self._src_signs[first:behind])
        candidates = [word for word, is_sign in enumerate(self._tgt_signs) if not (is_sign and has_words)]
        if not candidates or any(low <= word < high for word in candidates):
            return low, high
        nearest = min(candidates, key=lambda word: abs(word - low))
        return nearest, nearest + 1

    def gap(self, position: int) -> int:
        """Return the gap that stands for the one before a character of the source."""
        near = self._gap_by_share(position)
        return self._aligned.gap(self._word(position), near=near) if self._aligned else near

    def _word(self, position: int) -> int:
        """Return the number of source words that begin before a character."""
        return bisect_left(self._starts, position)

    def _gap_by_share(self, position: int) -> int:
        words_before = self._ends[-1] * self._letters[position] / max(1, self._letters[-1])
        above = bisect_left(self._ends, words_before)
        below = max(0, above - 1)
        nearer = (
            above < len(self._ends) and self._ends[above] - words_before < words_before - self._ends[below]
        )
        return above if nearer else below


def _signs(text: str, spans: Sequence[Span]) -> list[bool]:
    """Return for each word whether it is a sign, without letters and digits."""
    return [not any(map(str.isalnum, text[start:end])) for start, end in spans]


def _fit(nodes: "list[_Node]", low: int, high: int) -> None:
    """Change spans so that those of one level do not overlap and children are inside their parents."""

    def order(node: _Node) -> tuple[bool, int]:
        return node.element >= 0 and node.closing is None, node.span[0]

    nodes.sort(key=order)  # what stays open comes last
    at = low
    for node in nodes:
        start = min(max(node.span[0], at), high)
        end = min(max(node.span[1], start), high)
        node.span, at = (start, end), end
        _fit(node.children, start, end)


def _write(node: _Node, writer: TagWriter) -> None:
    start, end = node.span
    if node.point is not None and node.point.kind == "mark":
        writer.tag(node.point.raw, start, num_spaces=0)
        return
    if node.point is not None and node.point.kind == "blank":
        writer.blank(node.point.raw, start)
        return
    if node.point is not None:
        before = node.point.before
        if node.point.kind == "point" and _UNSEEN.fullmatch(node.point.raw):
            writer.tag(
                node.point.raw,
                start,
                num_spaces=-1 if before.isspace() or not before else 0,
                is_apart=before.isspace()
                and node.point.after.isspace()
                and not node.point.raw.lower().startswith("<wbr"),
            )
        else:
            writer.point(node.point, start)
        return
    is_empty = node.opening is not None and node.closing is not None and node.start == node.end
    first = node.children[0].point if node.children and is_empty else None
    if first is not None and first.kind == "placeholder" and first.before.isspace():
        writer.lead(first, start)
    if node.opening is not None:
        writer.tag(node.opening, start, num_spaces=node.spaces_before)
    for child in node.children:
        _write(child, writer)
    if node.closing is not None:
        is_apart = is_empty and not node.children and node.spaces_before > 0
        writer.tag(
            node.closing,
            end,
            num_spaces=node.spaces_before if is_apart else node.spaces_behind,
            is_apart=is_apart,
        )


Escape = Callable[[str], str]


@dataclass(frozen=True)
class Output:
    """A translation of a sentence.

    Attributes:
        text: the translation.
        links: between the `words` of the sentence and of the translation; None where they are not known.
        confidence: in the translation; None where the model has no calibration, and of all but the best.
        finished: whether the model has ended it; False if the length limit has cut it.
    """

    text: str
    links: Links | None = None
    confidence: "Confidence | None" = None
    finished: bool = True


Outputs = tuple[Output, ...]  # the translations of a sentence, best first


class PairTranslator(Protocol):
    """Translates sentences of one pair: a `Translator` is one."""

    def translations(
        self, texts: Sequence[str], *, options: "SearchOptions | None" = None
    ) -> list["Translation"]:
        """Return the translation of each text."""
        ...

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, split: Callable[[str], list[Span]]
    ) -> list["Alignment"]:
        """Return the alignment of each pair of texts, whose words `split` returns."""
        ...


def aligned_outputs(
    translator: PairTranslator, texts: Sequence[str], outputs: Sequence[Sequence[str]]
) -> list[Outputs]:
    """Return the translations of texts with the links of their words, where they can be had."""
    sources = [text for text, of_text in zip(texts, outputs, strict=True) for _ in of_text]
    targets = [target for of_text in outputs for target in of_text]
    links: Iterator[Links | None]
    try:
        links = (each.links for each in translator.align(sources, targets, split=words))
    except InputError:  # an engine without attention
        if len(texts) > 1:
            return [
                of_text
                for text, each in zip(texts, outputs, strict=True)
                for of_text in aligned_outputs(translator, [text], [each])
            ]
        links = repeat(None)
    return [tuple(Output(target, next(links)) for target in of_text) for of_text in outputs]


class Passes:
    """Translates sentences with their markers, so that no placeholder is lost or changed.

    The first pass shows the placeholders to the model. The second translates, without them, the sentences in
    which the model has not kept them.

    Attributes:
        first: the sentences of the first pass.
    """

    def __init__(self, sentences: Sequence[tuple[MarkedText, Escape]]) -> None:
        """Take sentences, each with what writes text so that its format takes it for text."""
        self._sentences = sentences
        self._written: list[tuple[str, ...]] = [()] * len(sentences)
        self._shown = [index for index, (sentence, _) in enumerate(sentences) if may_be_shown(sentence)]
        self.first = [sentences[index][0] for index in self._shown]
        self._second: list[tuple[int, MarkedText]] = []

    def second(self, first: Sequence[Outputs]) -> list[MarkedText]:
        """Return the sentences of the second pass, after the outputs of the first."""
        for index, outputs in zip(self._shown, first, strict=True):
            sentence, escape = self._sentences[index]
            if is_faithful(sentence, outputs[0].text):
                faithful = [each for each in outputs if is_faithful(sentence, each.text)]
                projected = (project(sentence, each.text, escape, each.links) for each in faithful)
                self._written[index] = tuple(projected)
        lossy = (index for index, texts in enumerate(self._written) if not texts)
        self._second = [(index, without_placeholders(self._sentences[index][0])) for index in lossy]
        return [sentence for _, sentence in self._second]

    def written(self, second: Sequence[Outputs]) -> list[tuple[str, ...]]:
        """Return the translations of all sentences, with their markers, after the outputs of the second."""
        for (index, sentence), outputs in zip(self._second, second, strict=True):
            whole, escape = self._sentences[index]
            self._written[index] = tuple(
                project(sentence, text, escape, each.links if text == each.text else None)
                for each in outputs
                for text in [without_doubles(whole, each.text)]
            )
        return self._written
