"""The translations of a line of text."""

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import Self

from heedful.decoding.alignment import Alignment, SplitWords, words_before, words_between_spaces
from heedful.decoding.confidence import Confidence
from heedful.decoding.glossary import PlacedTerm
from heedful.decoding.task import Hypothesis
from heedful.notebook_html import text_table
from heedful.text.sentences import joint

_log = logging.getLogger("heedful.decoding")
_DOUBTFUL_TERMS = {
    "met, improbable": "glossary terms that are improbable where they are: %s; check these translations",
    "met, replacing": "glossary terms put in place of words of the translation: %s; check the words around",
}
_NOT_IN_LINES = str.maketrans("\r\n", "  ", "\0")


@dataclass(frozen=True)
class TextHypothesis:
    """One output of a search, as text, with the numbers of `Hypothesis`.

    `written_ids` are all ids that the decoder wrote: `ids`, and the end token if the output is finished. If a
    line was split, each segment has its end token. `alignment` links words of source and output; None if it
    was not asked for. `confidence` is None if the model has no calibration.
    """

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...] = field(repr=False)
    token_log_probs: tuple[float, ...] = field(repr=False)
    finished: bool
    written_ids: tuple[int, ...] = field(repr=False)
    alignment: Alignment | None = field(default=None, repr=False)
    confidence: Confidence | None = field(default=None, repr=False)

    @classmethod
    def of(cls, hypothesis: Hypothesis, text: str, *, eos_id: int) -> Self:
        """Return a hypothesis as text: its numbers, its ids, and the text on one line."""
        has_end = hypothesis.finished and bool(hypothesis.token_log_probs)  # an empty text has no tokens
        written_ids = (*hypothesis.ids, *[eos_id] * has_end)
        return cls(text=_one_line(text), written_ids=written_ids, **vars(hypothesis))

    @classmethod
    def given(cls, text: str, alignment: Alignment | None = None) -> Self:
        """Return an output that no search has written: it has no tokens, and its log-probability is 0."""
        return cls(text, 0.0, 0.0, (), (), finished=True, written_ids=(), alignment=alignment)

    @classmethod
    def joined(cls, outputs: Sequence["TextHypothesis"], parts: "_Parts", *, score: float) -> Self:
        """Return the outputs of the parts of a text as one."""
        added = parts.added([output.text for output in outputs])
        return cls(
            text="".join(added),
            score=score,
            log_prob=sum(output.log_prob for output in outputs),
            ids=tuple(chain.from_iterable(output.ids for output in outputs)),
            token_log_probs=tuple(chain.from_iterable(output.token_log_probs for output in outputs)),
            finished=all(output.finished for output in outputs),
            written_ids=tuple(chain.from_iterable(output.written_ids for output in outputs)),
            alignment=parts.alignment([output.alignment for output in outputs], added),
            confidence=Confidence.joined([output.confidence for output in outputs], added),
        )

    def through(self, first: "TextHypothesis") -> "TextHypothesis":
        """Return this output of the output `first`, with links between its words and the first source's.

        No confidence is known: a model is calibrated on what people wrote.
        """
        alignment = None
        if self.alignment is not None and first.alignment is not None:
            alignment = first.alignment.then(self.alignment)
        finished = self.finished and first.finished
        return replace(self, alignment=alignment, confidence=None, finished=finished)


@dataclass(frozen=True)
class _Parts:
    """The parts of a text that are translated one by one.

    Attributes:
        source: the text.
        texts: its parts.
        gaps: the space before each part.
        split: returns the words of a text.
    """

    source: str
    texts: Sequence[str]
    gaps: Sequence[str]
    split: SplitWords

    def added(self, outputs: Sequence[str]) -> list[str]:
        """Return what the output of each part adds to the translation: the space before it, and its text."""
        added: list[str] = []
        whole, source, space = "", "", ""
        last = len(self.texts) - 1
        for number, (part, gap, output) in enumerate(zip(self.texts, self.gaps, outputs, strict=True)):
            space = space or gap
            is_at_an_end = number == 0 or (number == last and not part)  # of the text
            if whole and output:
                between = joint(space, source, whole, output)
            else:
                between = space if is_at_an_end else ""
            added.append(between + output)
            whole, source = whole + added[-1], part
            if output:
                space = ""
        return added

    def alignment(self, alignments: Sequence[Alignment | None], added: Sequence[str]) -> Alignment | None:
        """Return the links of all parts, by the words of the whole; None if a part has no known links."""
        known = [alignment for alignment in alignments if alignment is not None]
        if len(known) < len(self.texts):
            return None
        starts, end = [], 0
        for part in self.texts:
            starts.append(max(end, self.source.find(part, end)))
            end = starts[-1] + len(part)
        ends = accumulate(map(len, added), initial=0)
        src_words = words_before(self.source, starts, self.split)
        tgt_words = words_before("".join(added), list(ends)[:-1], self.split)
        moved = [
            alignment.moved(src, tgt) for alignment, src, tgt in zip(known, src_words, tgt_words, strict=True)
        ]
        return Alignment(tuple(dict.fromkeys(chain.from_iterable(part.links for part in moved))))


@dataclass(frozen=True)
class ScoredText(TextHypothesis):
    """A scored output, as text, with the numbers of `ScoredOutput`."""

    model_log_probs: tuple[float, ...] = field(kw_only=True, repr=False)

    @classmethod
    def unknown(cls, text: str) -> Self:
        """Return an output that is not scored: its numbers are NaN, and it has no tokens."""
        return cls(
            text=_one_line(text),
            score=math.nan,
            log_prob=math.nan,
            ids=(),
            token_log_probs=(),
            finished=False,
            written_ids=(),
            model_log_probs=(),
        )

    @property
    def model_log_prob(self) -> float:
        """The model's own log-probability of the output, independent of the options; NaN if not scored."""
        return math.nan if math.isnan(self.log_prob) else float(sum(self.model_log_probs))


@dataclass(frozen=True)
class MemoryMatch:
    """A unit of a translation memory with the source text.

    Attributes:
        source: the source of the unit, normalised.
        target: the translation of the unit.
    """

    source: str
    target: str


@dataclass(frozen=True)
class Translation:
    """The translations of one line.

    >>> [translation] = translator.translations(["The house is small."], n_best=2)
    >>> translation.text, len(translation.hypotheses)
    ('Das Haus ist klein.', 2)

    Attributes:
        source: the line.
        text: the best output.
        score: the score of the best output: log-probability over length penalty, plus coverage penalty.
        hypotheses: the n-best list, best first, or the samples in the order of drawing. An empty line has no
            hypotheses, an empty text and score 0.
        terms: the glossary terms that apply to the line, and their forms in the text.
        match: the unit of a translation memory that the text comes from; None: the model translated.
    """

    source: str
    text: str
    score: float
    hypotheses: tuple[TextHypothesis, ...] = field(repr=False)
    terms: tuple[PlacedTerm, ...] = field(default=(), repr=False)
    match: MemoryMatch | None = field(default=None, repr=False)

    @property
    def num_tokens(self) -> int:
        """The number of tokens of the best output, end tokens included."""
        return len(self.hypotheses[0].written_ids) if self.hypotheses else 0

    @property
    def finished(self) -> bool:
        """Whether the best output has its end token; otherwise its length limit has cut it."""
        return all(each.finished for each in self.hypotheses[:1])

    @property
    def confidence(self) -> Confidence | None:
        """The confidence of the best output; None for an empty line or a model without calibration."""
        return self.hypotheses[0].confidence if self.hypotheses else None

    @classmethod
    def of(cls, source: str, n_best: Sequence[Hypothesis], texts: Sequence[str], *, eos_id: int) -> Self:
        """Return the translation of a line from its hypotheses and their texts."""
        hypotheses = tuple(
            TextHypothesis.of(each, text, eos_id=eos_id) for each, text in zip(n_best, texts, strict=True)
        )
        if not hypotheses:
            return cls(source, "", 0.0, ())
        return cls(source, hypotheses[0].text, hypotheses[0].score, hypotheses)

    @property
    def alignment(self) -> Alignment | None:
        """The links of words of the best output; None if they were not asked for."""
        return self.hypotheses[0].alignment if self.hypotheses else None

    @classmethod
    def given(
        cls, source: str, text: str, *, match: MemoryMatch | None = None, alignment: Alignment | None = None
    ) -> Self:
        """Return a translation that no model has written: a match of a memory, or a text that stays.

        A match is on one line, as what a model writes: a line end would divide a subtitle or a row in two.
        """
        text = text if match is None else _one_line(text)
        return cls(source, text, 0.0, (TextHypothesis.given(text, alignment),), match=match)

    @classmethod
    def joined(
        cls,
        source: str,
        parts: Sequence["Translation"],
        gaps: Sequence[str],
        *,
        split: SplitWords = words_between_spaces,
    ) -> Self:
        """Return the translation of a text from the translations of its parts.

        The first hypothesis joins the first hypotheses of all parts, and so on; if a part has no more of
        them, its last one is taken again. Log-probabilities are added. A score is the mean of the parts'
        scores, weighted by the tokens of their best outputs.

        Args:
            source: the text.
            parts: the translations of its parts.
            gaps: the space before each part; for the text between outputs, see `joint`.
            split: returns the words of a text, which links are between.
        """
        filled = [(part, gap) for part, gap in zip(parts, gaps, strict=True) if part.hypotheses]
        if not filled:
            return cls(source, "", 0.0, ())
        whole = _Parts(source, [part.source for part, _ in filled], [gap for _, gap in filled], split)
        weights = [part.num_tokens for part, _ in filled]
        hypotheses: list[TextHypothesis] = []
        for rank in range(max(len(part.hypotheses) for part, _ in filled)):
            outputs = [part.hypotheses[min(rank, len(part.hypotheses) - 1)] for part, _ in filled]
            weighted = sum(output.score * weight for output, weight in zip(outputs, weights, strict=True))
            score = weighted / max(sum(weights), 1)
            hypotheses.append(TextHypothesis.joined(outputs, whole, score=score))
        return cls(source, hypotheses[0].text, hypotheses[0].score, tuple(hypotheses))

    def through(self, first: "Translation") -> "Translation":
        """Return this translation of the best output of `first` as the translation of its source."""
        hypotheses = tuple(hypothesis.through(first.hypotheses[0]) for hypothesis in self.hypotheses)
        return replace(self, source=first.source, hypotheses=hypotheses)

    def with_alternatives(self, others: Iterable[TextHypothesis], most: int) -> "Translation":
        """Return this translation with at most this many other outputs, which all differ, after the best."""
        distinct = {hypothesis.text: hypothesis for hypothesis in others}
        distinct.pop(self.text, None)
        return replace(self, hypotheses=(*self.hypotheses[:1], *list(distinct.values())[:most]))

    def led_by(self, best: TextHypothesis, terms: tuple[PlacedTerm, ...]) -> "Translation":
        """Return this translation with another best output, and its terms; the last output is left out."""
        hypotheses = (best, *self.hypotheses)[: len(self.hypotheses)]
        return replace(self, text=best.text, score=best.score, hypotheses=hypotheses, terms=terms)

    def without_tokens(self) -> "Translation":
        """Return this translation without its ids and their numbers, which take most of its memory."""
        hypotheses = tuple(
            replace(hypothesis, ids=(), token_log_probs=(), written_ids=()) for hypothesis in self.hypotheses
        )
        return replace(self, hypotheses=hypotheses)

    def _repr_html_(self) -> str:
        """Return the hypotheses as a table, for notebooks."""
        rows = [[each.text, f"{each.score:.4f}", f"{each.log_prob:.4f}"] for each in self.hypotheses]
        return text_table(self.source, ["translation", "score", "log-probability"], rows)


FindMatch = Callable[[str], MemoryMatch | None]  # returns the match of a text in a memory


def recalled(
    texts: Sequence[str], find: FindMatch | None, search: Callable[[Sequence[str]], Sequence[Translation]]
) -> list[Translation]:
    """Return the translation of each text: from a match of the memory, else what the search finds.

    Args:
        texts: sentences or lines.
        find: returns the match of a text in a memory; None: there is no memory.
        search: translates texts; those with a match are "", which costs nothing.
    """
    if find is None:
        return list(search(texts))
    matches = [find(text) for text in texts]
    left = [text if match is None else "" for text, match in zip(texts, matches, strict=True)]
    return [
        searched if match is None else Translation.given(text, match.target, match=match)
        for text, match, searched in zip(texts, matches, search(left), strict=True)
    ]


def warn_of_cut(num_cut: int) -> None:
    """Log the number of translations that end at their length limit; the command line adds these up."""
    message = (
        "translations that end at their length limit, without an end token: %s; see max_length_ratio, "
        "max_length_offset and max_length"
    )
    _log.warning(message, f"{num_cut:,}", extra={"number": num_cut})


def warn_of_improbable_terms(translations: Iterable[Translation]) -> None:
    """Log the number of translations with a term that the model finds improbable, if there are any."""
    terms = [term for translation in translations for term in translation.terms]
    for status, text in _DOUBTFUL_TERMS.items():
        if number := sum(term.status == status for term in terms):
            _log.warning(text, f"{number:,}", extra={"number": number})


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence the log of searches in the block."""
    was, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = was


def _one_line(text: str) -> str:
    """Return the text without line ends and NUL, which byte tokens can form."""
    return text.translate(_NOT_IN_LINES)
