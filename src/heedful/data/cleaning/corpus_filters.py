"""Corpus filters: duplicates, overlap with validation and test sets, outliers, wrong scripts and languages.

Each takes a survey and returns a mask of faulty pairs, or a check of a pair, or None if it cannot be applied
to this corpus.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from heedful.data.cleaning.pair import (
    MIN_LETTERS,
    NO_LANGUAGE,
    Identifier,
    Pair,
    Sentence,
    alike,
    foreign_letters,
)
from heedful.data.cleaning.survey import HeldOut, Keys, Survey

Mask = npt.NDArray[np.bool_]

MAX_FOREIGN = 0.5
MIN_PROBABILITY = 0.05
SURE = 0.5
MIN_SWAPPED, SWAPPED_ODDS = 0.1, 100.0
MAX_DEVIATION = 6.0
MIN_PAIRS = 1000


def duplicate_pair(survey: Survey) -> Mask:
    """The same pair has come before."""
    return _repeated(survey.pairs)


def near_duplicate(survey: Survey) -> Mask:
    """A pair that differs in case, digits and punctuation alone has come before."""
    return _repeated(survey.shapes) & ~_repeated(survey.pairs)


def duplicate_source(survey: Survey) -> Mask:
    """The same source has come before, with another target."""
    return _repeated(survey.sources) & ~_repeated(survey.pairs)


def in_held_out(survey: Survey, held_out: HeldOut) -> Mask:
    """The pair is in the held-out set."""
    return np.isin(survey.pairs, held_out.pairs)


def nearly_in_held_out(survey: Survey, held_out: HeldOut) -> Mask:
    """A pair that differs in case, digits and punctuation alone is in the held-out set."""
    return np.isin(survey.shapes, held_out.shapes) & ~in_held_out(survey, held_out)


def source_in_held_out(survey: Survey, held_out: HeldOut) -> Mask:
    """The source is in the held-out set, with another target."""
    return np.isin(survey.sources, held_out.sources) & ~in_held_out(survey, held_out)


def outlier(survey: Survey) -> Mask | None:
    """The difference in length is over 6 standard deviations from the corpus's mean.

    The difference of a target from its expected length, over the square root of both, is about normal; the
    standard deviation is estimated from the median. Not applied to corpora of under 1,000 pairs.
    """
    src, tgt = survey.src_lengths.astype(np.float64), survey.tgt_lengths.astype(np.float64)
    if len(src) < MIN_PAIRS or not src.sum() or not tgt.sum():
        return None
    ratio = tgt.sum() / src.sum()
    deviations = np.abs(tgt - ratio * src) / np.sqrt(np.maximum(1.0, tgt + ratio * src))
    usual = 1.4826 * float(np.median(deviations))
    mask: Mask = deviations > MAX_DEVIATION * max(usual, 0.1)
    return mask


def other_script(survey: Survey) -> Callable[[Pair], bool] | None:
    """Over half of the letters of a side are in a script that is rare there in the corpus (under 5 %).

    Words that both sides have, such as names, do not count, unless a side has no others.
    """
    texts = (survey.src, survey.tgt)
    if not all(text.scripts for text in texts):
        return None
    foreign = [foreign_letters("".join(text.characters).casefold(), text.scripts) for text in texts]

    def check(pair: Pair) -> bool:
        sides = zip(pair.sentences, reversed(pair.sentences), foreign, strict=True)
        return any(
            not letters.isdisjoint(side.shape) and _is_foreign(side, other, letters)
            for side, other, letters in sides
        )

    return check


def _is_foreign(side: Sentence, other: Sentence, foreign: frozenset[str]) -> bool:
    """Return whether over half of the letters in the words that the other side lacks are foreign ones."""
    words, shared = side.shape.split(), {*other.shape.split()}
    own = "".join(word for word in words if word not in shared) or side.shape
    num_letters = len(own) - own.count(" ") - own.count("0")
    return sum(map(foreign.__contains__, own)) > MAX_FOREIGN * num_letters


def other_language(survey: Survey) -> Callable[[Pair], bool] | None:
    """A side is in another language: its own has a probability below 0.05, and another one over 0.5.

    Not applied to sentences of under 20 letters; similar languages count as one.
    """
    if survey.identified is None:
        return None
    identifier, src, tgt = survey.identified
    swapped = swapped_languages(survey)

    def check(pair: Pair) -> bool:
        wrong = _is_other(pair.src, src, identifier) or _is_other(pair.tgt, tgt, identifier)
        return wrong and not (swapped is not None and swapped(pair))

    return check


def swapped_languages(survey: Survey) -> Callable[[Pair], bool] | None:
    """The source is in the language of the target, and the target in that of the source.

    The product of both probabilities is over 0.1, and a hundred times the product for the right direction.
    One of both has at least 20 letters.
    """
    if survey.identified is None:
        return None
    identifier, src, tgt = survey.identified
    if alike(src, tgt):
        return None

    def check(pair: Pair) -> bool:
        if max(pair.src.num_letters, pair.tgt.num_letters) < MIN_LETTERS:
            return False
        if identifier.best(pair.src.text)[0] == src or identifier.best(pair.tgt.text)[0] == tgt:
            return False
        of_src, of_tgt = identifier.probabilities(pair.src.text), identifier.probabilities(pair.tgt.text)
        swapped = of_src.get(tgt, 0.0) * of_tgt.get(src, 0.0)
        right = of_src.get(src, 0.0) * of_tgt.get(tgt, 0.0)
        return swapped > max(MIN_SWAPPED, SWAPPED_ODDS * right)

    return check


def _is_other(sentence: Sentence, language: str, identifier: Identifier) -> bool:
    if sentence.num_letters < MIN_LETTERS:
        return False
    best, probability = identifier.best(sentence.text)
    if probability < SURE or best == NO_LANGUAGE or alike(best, language):
        return False
    return identifier.probabilities(sentence.text).get(language, 0.0) < MIN_PROBABILITY


def _repeated(keys: Keys) -> Mask:
    """Return which keys occurred before."""
    order = np.argsort(keys, kind="stable")
    again = np.zeros(len(keys), dtype=np.bool_)
    again[order[1:]] = keys[order[1:]] == keys[order[:-1]]
    return again
