"""Minimum Bayes risk: of many samples, the one that the others agree with most."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from heedful.decoding.translation import Translation


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
