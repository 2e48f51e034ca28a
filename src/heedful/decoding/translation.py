"""What comes of a line of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from heedful.decoding.hypotheses import Hypothesis
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextHypothesis:
    """One output, found or given, as text. The numbers are those of `Hypothesis`."""

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    finished: bool

    @classmethod
    def of(cls, found: Hypothesis, text: str) -> Self:
        """The hypothesis with its text on one line: byte pieces can spell line ends."""
        return cls(
            text=text.replace("\r", " ").replace("\n", " "),
            score=found.score,
            log_prob=found.log_prob,
            ids=found.ids,
            token_log_probs=found.token_log_probs,
            finished=found.finished,
        )


@dataclass(frozen=True)
class Translation:
    """What came of one line.

    Attributes:
        source: the line.
        text: the best output.
        score: its score (log-probability over length penalty).
        hypotheses: the n-best list, best first, or the samples as they were drawn; empty for an empty line,
            whose text is empty and score 0.
    """

    source: str
    text: str
    score: float
    hypotheses: tuple[TextHypothesis, ...]

    @classmethod
    def of(cls, source: str, found: Sequence[Hypothesis], tokenizer: Tokenizer) -> Self:
        """The translation of a line from what a search found, as the target's tokenizer spells it."""
        hypotheses = tuple(TextHypothesis.of(each, tokenizer.decode(each.ids)) for each in found)
        if not hypotheses:
            return cls(source, "", 0.0, ())
        return cls(source, hypotheses[0].text, hypotheses[0].score, hypotheses)
