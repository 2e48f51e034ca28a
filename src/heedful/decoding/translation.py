"""The translations of a line of text."""

import logging
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import Self

from heedful.decoding.alignment import Alignment, words_before
from heedful.decoding.confidence import Confidence
from heedful.decoding.glossary import PlacedTerm
from heedful.decoding.task import Hypothesis
from heedful.notebook_html import text_table
from heedful.text.sentences import joint

_log = logging.getLogger("heedful.decoding")


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
    def joined(
        cls,
        segments: Sequence["TextHypothesis"],
        src_words: Sequence[int],
        sources: Sequence[str],
        gaps: Sequence[str],
        *,
        score: float,
    ) -> Self:
        """Return the outputs of the segments of a line as one.

        Args:
            segments: the outputs of the segments.
            src_words: for each segment, the number of words of the line before it.
            sources: the segments.
            gaps: the space before each segment.
            score: the score of the joined output.
        """
        texts: list[str] = []
        starts: list[int] = []
        text, source, space = "", "", ""
        for segment, own, gap in zip(segments, sources, gaps, strict=True):
            space = space or gap
            if text and segment.text:
                texts.append(joint(space, source, text, segment.text) + segment.text)
            else:
                texts.append(segment.text)
            text, source, space = text + texts[-1], own, "" if segment.text else space
            starts.append(len(text) - len(segment.text))
        links: list[tuple[int, int]] = []
        for segment, src, tgt in zip(segments, src_words, words_before(text, starts), strict=True):
            if segment.alignment is not None:
                links += segment.alignment.moved(src, tgt).links
        return cls(
            text=text,
            score=score,
            log_prob=sum(each.log_prob for each in segments),
            ids=tuple(chain.from_iterable(each.ids for each in segments)),
            token_log_probs=tuple(chain.from_iterable(each.token_log_probs for each in segments)),
            finished=all(each.finished for each in segments),
            written_ids=tuple(chain.from_iterable(each.written_ids for each in segments)),
            alignment=None if segments[0].alignment is None else Alignment(tuple(dict.fromkeys(links))),
            confidence=Confidence.joined([each.confidence for each in segments], texts),
        )


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

    @classmethod
    def joined(cls, source: str, segments: Sequence["Translation"], gaps: Sequence[str]) -> Self:
        """Return the translation of a line from the translations of its segments.

        The first hypothesis joins the first hypotheses of all segments, and so on. Log-probabilities are
        added. A score is the mean of the segments' scores, weighted by the tokens of their best outputs.

        Args:
            source: the line.
            segments: the translations of the segments.
            gaps: the space before each segment; for the text between outputs, see `joint`.
        """
        starts, end = [], 0
        for each in segments:
            starts.append(max(end, source.find(each.source, end)))
            end = starts[-1] + len(each.source)
        parts = zip(segments, words_before(source, starts), gaps, strict=True)
        filled = [(each, src, gap) for each, src, gap in parts if each.hypotheses]
        weights = [len(each.hypotheses[0].written_ids) for each, _, _ in filled]
        src_words, own_gaps = [src for _, src, _ in filled], [gap for _, _, gap in filled]
        sources = [each.source for each, _, _ in filled]
        hypotheses = []
        for rank in zip(*(each.hypotheses for each, _, _ in filled), strict=False):
            weighted = sum(each.score * weight for each, weight in zip(rank, weights, strict=True))
            score = weighted / max(sum(weights), 1)
            hypotheses.append(TextHypothesis.joined(rank, src_words, sources, own_gaps, score=score))
        if not hypotheses:
            return cls(source, "", 0.0, ())
        return cls(source, hypotheses[0].text, hypotheses[0].score, tuple(hypotheses))

    def _repr_html_(self) -> str:
        """Return the hypotheses as a table, for notebooks."""
        rows = [[each.text, f"{each.score:.4f}", f"{each.log_prob:.4f}"] for each in self.hypotheses]
        return text_table(self.source, ["translation", "score", "log-probability"], rows)


def warn_of_cut(num_cut: int) -> None:
    """Log the number of translations that end at their length limit; the command line adds these up."""
    message = (
        "translations that end at their length limit, without an end token: %s; see max_length_ratio, "
        "max_length_offset and max_length"
    )
    _log.warning(message, f"{num_cut:,}", extra={"num_cut": num_cut})


@contextmanager
def without_warnings() -> Iterator[None]:
    """Silence the log of searches in the block."""
    was, _log.disabled = _log.disabled, True
    try:
        yield
    finally:
        _log.disabled = was


def _one_line(text: str) -> str:
    """Return the text without line ends, which byte tokens can form."""
    return text.replace("\r", " ").replace("\n", " ")
