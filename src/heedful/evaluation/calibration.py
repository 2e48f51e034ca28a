"""Calibrate the confidence of a model on lines with references, and measure how well it is calibrated.

The reference decides what is right. A sentence is right if its chrF is at least `ERROR_BELOW`. A word
is right if it stands in the reference, at the place that an alignment of least edit distance gives it; so
Wang et al. (2020), "On the Inference Calibration of Neural Machine Translation", label tokens, with the
alignment of TER. A good translation with other words than the reference's counts as wrong, here as there.

scikit-learn fits the logistic regressions of `storage/calibration.py`, by maximum likelihood with a small L2
penalty on standardised features. A calibration error of the same lines would be too low, so the stored one is
of cross-validation: the confidence of each line is by curves that were fitted on others.
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from itertools import pairwise
from typing import Any

import numpy as np
from sacrebleu.metrics.chrf import CHRF

from heedful.decoding.alignment import split_words, texts_of_tokens
from heedful.decoding.confidence import word_log_probs
from heedful.decoding.steps import Bools, Floats, Ints
from heedful.decoding.translation import TextHypothesis, Translation
from heedful.errors import CorpusError, MissingExtraError, install_hint
from heedful.evaluation.metrics import edit_distances
from heedful.evaluation.tokenization import References
from heedful.storage.calibration import (
    KINDS,
    NUM_FEATURES,
    Calibration,
    LogisticCurve,
    part_features,
    sentence_features,
)
from heedful.text.tokenizer import Tokenizer

ERROR_BELOW = 30.0  # chrF of a sentence
FLAGGED = 0.1  # the share of sentences that are checked first
_BINS = 15  # as Guo et al. (2017), "On Calibration of Modern Neural Networks"
_FOLDS, _SEED = 10, 12345
_FEWEST = 10  # errors, and lines that are none, without which nothing can be fitted
_STRENGTH = 1.0  # scikit-learn's C


@dataclass(frozen=True)
class _Parts:
    """The sentences, words or tokens of all lines.

    Attributes:
        features: (N, K), the features of `storage/calibration.py`.
        confidences: (N,), the model's confidence; empty if it has no calibration yet.
        is_right: (N,), whether each is right by the reference.
        lines: (N,), the number of the line that each is in.
    """

    features: Floats
    confidences: Floats
    is_right: Bools
    lines: Ints


@dataclass(frozen=True, kw_only=True)
class CalibrationReport:
    """How well the confidence of a model is calibrated on some lines.

    Attributes:
        ece: the expected calibration error of sentences, words and tokens, from 0 to 1.
        lines: the number of lines that have a translation.
        errors: the number of lines that are errors.
        level: the chrF below which a line is an error.
        flagged: the number of lines in the least confident tenth.
        errors_flagged: the number of errors in that tenth.
    """

    ece: Mapping[str, float]
    lines: int
    errors: int
    level: float
    flagged: int
    errors_flagged: int

    @property
    def lift(self) -> float:
        """The error rate of the flagged lines over the error rate of all lines; NaN without errors."""
        return self.errors_flagged / self.flagged / (self.errors / self.lines) if self.errors else math.nan

    def __str__(self) -> str:
        """Return the report in one line, of several sentences."""
        errors = ", ".join(f"{self.ece[kind]:.3f} of {kind}s" for kind in KINDS)
        text = f"ECE {errors}; {self.errors:,} of {self.lines:,} lines are errors (chrF below {self.level:g})"
        if not self.errors:
            return text
        tenth = f"the least confident {FLAGGED:.0%}".replace("%", " %")
        text += f", {self.errors_flagged:,} of them in {tenth} ({self.lift:.1f} times the average)"
        return text if self.lift > 1 else f"{text}: this confidence does not find the errors"

    def as_dict(self) -> dict[str, object]:
        """Return the report for `--json`."""
        return asdict(self) | {"ece": dict(self.ece), "lift": None if math.isnan(self.lift) else self.lift}


def check_scikit_learn() -> None:
    """Raise a MissingExtraError if scikit-learn is not installed."""
    if find_spec("sklearn") is None:
        raise MissingExtraError(f"calibration needs scikit-learn: {install_hint('calibrate')}")


def calibrate(
    translations: Sequence[Translation],
    references: References,
    tokenizer: Tokenizer,
    *,
    tags: tuple[str | None, str | None] = (None, None),
) -> tuple[Calibration, CalibrationReport]:
    """Fit the confidence of a model to translations and their references.

    Args:
        translations: the translations of N lines by the model alone; the best hypothesis of each counts.
        references: one list of N lines for each reference file.
        tokenizer: the tokenizer of the target.
        tags: the tags of the source and the target language.

    Returns:
        The calibration, and a report by cross-validation.

    Raises:
        CorpusError: too few lines that are errors, or that are none.
    """
    parts = _parts(translations, references, tokenizer, level=ERROR_BELOW)
    right = parts["sentence"].is_right
    num_errors = int((~right).sum())
    if min(num_errors, len(right) - num_errors) < _FEWEST:
        raise CorpusError(
            f"calibration: {num_errors:,} of {len(right):,} lines are errors (chrF below {ERROR_BELOW:g}); "
            f"at least {_FEWEST} must be errors, and {_FEWEST} must be none: give more lines, or other ones"
        )
    curves = {kind: _fitted(each.features, each.is_right) for kind, each in parts.items()}
    held_out = {kind: replace(each, confidences=_cross_validated(each)) for kind, each in parts.items()}
    report = _report(held_out, level=ERROR_BELOW)
    calibration = Calibration(
        level=ERROR_BELOW, lines=report.lines, errors=report.errors, src_tag=tags[0], tgt_tag=tags[1],
        **curves, ece=report.ece,
    )  # fmt: skip
    return calibration, report


def measure_calibration(
    translations: Sequence[Translation],
    references: References,
    tokenizer: Tokenizer,
    *,
    level: float,
) -> CalibrationReport:
    """Return how well the confidence of translations is calibrated.

    The arguments are as in `calibrate`; `level` is the level of the calibration.
    """
    return _report(_parts(translations, references, tokenizer, level=level), level=level)


def expected_calibration_error(confidences: Floats, is_right: Bools, *, num_bins: int = _BINS) -> float:
    """Return the mean distance between confidence and accuracy, over bins of equally many confidences.

    Naeini et al. (2015), "Obtaining Well Calibrated Probabilities Using Bayesian Binning"; with bins of equal
    mass, as Nixon et al. (2019), "Measuring Calibration in Deep Learning", recommend.

    Args:
        confidences: (N,), from 0 to 1.
        is_right: (N,), whether each was right.
        num_bins: the number of bins, at most N.
    """
    order = np.argsort(confidences, kind="stable")
    bounds = np.linspace(0, len(order), min(num_bins, len(order)) + 1).round().astype(int)
    bins = [order[start:end] for start, end in pairwise(bounds.tolist())]
    distances = [len(rows) * abs(confidences[rows].mean() - is_right[rows].mean()) for rows in bins]
    return float(sum(distances) / max(1, len(order)))


def matches(output: Sequence[object], reference: Sequence[object]) -> list[bool]:
    """Return which items of an output stand in the reference, in an alignment of least edit distance.

    Of several such alignments, it is the one that keeps what is equal as far to the end as it can.

    >>> matches("the red cat".split(), "the big red cat".split())
    [True, True, True]
    """
    rows = [*edit_distances(output, reference)]
    is_match = [False] * len(output)
    i, j = len(output), len(reference)
    while i and j:
        cost = rows[i][j]
        if cost == rows[i - 1][j - 1] + (output[i - 1] != reference[j - 1]):
            i, j = i - 1, j - 1
            is_match[i] = output[i] == reference[j]
        elif cost == rows[i - 1][j] + 1:
            i -= 1
        else:
            j -= 1
    return is_match


def _parts(
    translations: Sequence[Translation],
    references: References,
    tokenizer: Tokenizer,
    *,
    level: float,
) -> dict[str, _Parts]:
    """Return the sentences, words and tokens of all lines that have a translation."""
    chrf = CHRF()
    features = {kind: [np.empty((0, NUM_FEATURES[kind]))] for kind in KINDS}
    confidences, is_right, lines = (defaultdict[str, list[Any]](list) for _ in range(3))
    for number, (translation, *of_line) in enumerate(zip(translations, *references, strict=True)):
        if not translation.hypotheses:
            continue
        best = translation.hypotheses[0]
        rights = {
            "sentence": [chrf.sentence_score(best.text, of_line).score >= level],
            "word": _right(split_words(best.text), [split_words(each) for each in of_line]),
            "token": _right(best.ids, [tokenizer.encode(each) for each in of_line]),
        }
        for kind, of_kind in _features(best, tokenizer).items():
            features[kind].append(of_kind)
            is_right[kind] += rights[kind]
            lines[kind] += [number] * len(of_kind)
        if (known := best.confidence) is not None:
            confidences["sentence"].append(known.sentence)
            confidences["word"] += known.words
            confidences["token"] += known.tokens
    return {
        kind: _Parts(
            np.concatenate(features[kind]),
            np.array(confidences[kind], dtype=np.float64),
            np.array(is_right[kind], dtype=bool),
            np.array(lines[kind], dtype=np.int64),
        )
        for kind in KINDS
    }


def _features(output: TextHypothesis, tokenizer: Tokenizer) -> dict[str, Floats]:
    """Return the features of an output, and of its words and tokens."""
    log_probs = output.token_log_probs
    is_text = [i != tokenizer.eos_id for i in output.written_ids]  # segments of a line each have an end token
    of_tokens = [each for each, shown in zip(log_probs, is_text, strict=True) if shown]
    texts = texts_of_tokens(tokenizer, output.text, output.ids)
    return {
        "sentence": sentence_features(log_probs)[None],
        "word": part_features(word_log_probs(output.text, texts, of_tokens), log_probs),
        "token": part_features(of_tokens, log_probs),
    }


def _right(output: Sequence[object], references: Sequence[Sequence[object]]) -> list[bool]:
    """Return which items of an output are right by any of its references."""
    return [any(each) for each in zip(*(matches(output, reference) for reference in references), strict=True)]


def _fitted(features: Floats, is_right: Bools) -> LogisticCurve:
    """Return the logistic regression of features, fitted by scikit-learn."""
    from sklearn.linear_model import LogisticRegression

    means, scales = features.mean(axis=0), features.std(axis=0)
    scales[scales == 0] = 1.0
    fitted = LogisticRegression(C=_STRENGTH).fit((features - means) / scales, is_right)
    coefficients = fitted.coef_[0] / scales
    return LogisticCurve(float(fitted.intercept_[0] - coefficients @ means), tuple(map(float, coefficients)))


def _cross_validated(parts: _Parts) -> Floats:
    """Return the confidences (N,); the confidence of a line is by a curve that was fitted on other lines."""
    numbers, of_parts = np.unique(parts.lines, return_inverse=True)
    folds = np.random.default_rng(_SEED).permutation(len(numbers))[of_parts] % _FOLDS
    confidences = np.empty(len(folds))
    for fold in range(_FOLDS):
        held = folds == fold
        curve = _fitted(parts.features[~held], parts.is_right[~held])
        confidences[held] = curve(parts.features[held])
    return confidences


def _report(parts: Mapping[str, _Parts], *, level: float) -> CalibrationReport:
    sentences = parts["sentence"]
    num_flagged = math.ceil(FLAGGED * len(sentences.confidences))
    flagged = np.argsort(sentences.confidences, kind="stable")[:num_flagged]
    return CalibrationReport(
        ece={
            kind: expected_calibration_error(each.confidences, each.is_right) for kind, each in parts.items()
        },
        lines=len(sentences.confidences),
        errors=int((~sentences.is_right).sum()),
        level=level,
        flagged=num_flagged,
        errors_flagged=int((~sentences.is_right[flagged]).sum()),
    )
