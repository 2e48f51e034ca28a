"""Minimum Bayes risk: of many samples, the one that the others agree with most."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.ranges import check_whole
from heedful.decoding.sampling import Sampling
from heedful.decoding.steps import SearchTask, Start
from heedful.decoding.strategies import Strategy
from heedful.decoding.translation import Translation

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions


@dataclass(frozen=True, kw_only=True)
class MinimumBayesRisk(Strategy):
    """Minimum Bayes risk: draw samples, and take the text with the best expected utility, sentence chrF.

    Attributes:
        samples: how many outputs to draw of each sentence.
        sampling: how to draw them.
    """

    samples: int = 100
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        check_whole("samples", self.samples, 1, 100_000)

    def check(self, options: "SearchOptions") -> None:
        """See `Strategy`."""
        self.sampling.check(options)

    def num_hypotheses(self, n_best: int) -> int:
        """See `Strategy`: the samples, among which `choose` chooses."""
        return self.samples

    def batch_limit(self, n_best: int, vocab_size: int) -> int | None:
        """See `Strategy`."""
        return self.sampling.batch_limit(self.samples, vocab_size)

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        """Draw the samples of each sentence: see `Strategy`."""
        options = replace(task.options, strategy=self.sampling, n_best=self.samples)
        return self.sampling.search(start, replace(task, options=options))

    def choose(self, translation: Translation, n_best: int) -> Translation:
        """See `Strategy`; scores are expected utilities, from 0 to 100."""
        return least_risk(translation, sentence_chrf, n_best=n_best)


def sentence_chrf(hypothesis: str, reference: str) -> float:
    """Return sacreBLEU's chrF of a hypothesis against a reference, for this one sentence: 0 to 100."""
    from sacrebleu.metrics.chrf import CHRF  # for those who need it: it takes a while to import

    return float(CHRF().sentence_score(hypothesis, [reference]).score)


def least_risk(
    translation: Translation, utility: Callable[[str, str], float], *, n_best: int = 1
) -> Translation:
    """Rank the distinct texts of samples by their expected utility (Eikema and Aziz, 2020, section 7).

    The expectation is the mean over all samples as references, the text itself among them; what was drawn
    more often counts more. It takes as many utilities as the square of the number of distinct texts.

    Args:
        translation: its hypotheses are samples, drawn by the model's own probabilities.
        utility: of a text, given a reference; the more, the better.
        n_best: how many texts to keep.

    Returns:
        The translation with hypotheses best first, and with their expected utilities for scores; equal ones
        as they were drawn. An empty line stays as it is.
    """
    counts = Counter(each.text for each in translation.hypotheses)
    expected = {
        text: sum(count * utility(text, reference) for reference, count in counts.items()) / counts.total()
        for text in counts
    }
    first_drawn = {each.text: each for each in reversed(translation.hypotheses)}
    ranked = sorted(counts, key=expected.__getitem__, reverse=True)[:n_best]
    if not ranked:
        return translation
    hypotheses = tuple(replace(first_drawn[text], score=expected[text]) for text in ranked)
    return Translation(translation.source, hypotheses[0].text, hypotheses[0].score, hypotheses)
