"""What comes of a line of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from heedful.decoding.hypotheses import Hypothesis
from heedful.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class TextHypothesis:
    """One output of a search, as text. The numbers are those of `Hypothesis`."""

    text: str
    score: float
    log_prob: float
    ids: tuple[int, ...]
    token_log_probs: tuple[float, ...]
    finished: bool


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
        hypotheses = tuple(
            TextHypothesis(
                text=_one_line(tokenizer.decode(each.ids)),
                score=each.score,
                log_prob=each.log_prob,
                ids=each.ids,
                token_log_probs=each.token_log_probs,
                finished=each.finished,
            )
            for each in found
        )
        if not hypotheses:
            return cls(source, "", 0.0, ())
        return cls(source, hypotheses[0].text, hypotheses[0].score, hypotheses)


def _one_line(text: str) -> str:
    """Byte pieces can spell line ends, which would break the count of lines."""
    return text.replace("\r", " ").replace("\n", " ")
