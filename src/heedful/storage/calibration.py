"""The calibration of a model's confidence: a few numbers of its bundle, and the formulas that they are for.

A confidence is a probability. That of a sentence: its translation is no error, so its chrF is at least
`level`. That of a word or a token: it stands in the reference too, at the place that an alignment by edit
distance gives it. Each is a logistic regression (Platt, 1999, "Probabilistic Outputs for Support Vector
Machines") of a few features of the token probabilities, which every search has anyway. The mean over the
sentence is what carries over to other text: there each single probability is too high. Fomicheva et al.
(2020), "Unsupervised Quality Estimation for Neural Machine Translation", compare such features.

`evaluation/calibration.py` fits the numbers with scikit-learn; none of it is needed here.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from heedful.settings.parsing import Json, is_whole, shown

KINDS = ("sentence", "word", "token")
NUM_FEATURES = {"sentence": 2, "word": 3, "token": 3}
_STEEPEST = 500.0  # the exponential of more is no number of 64 bits


def sentence_features(log_probs: Sequence[float]) -> NDArray[np.float64]:
    """Return the features (2,) of an output: the mean probability of its tokens, the log of their number.

    Args:
        log_probs: of each token that the decoder writes, at least one; with the end token.
    """
    return np.array([np.exp(log_probs).mean(), math.log(len(log_probs))])


def part_features(parts: Sequence[float], log_probs: Sequence[float]) -> NDArray[np.float64]:
    """Return the features (N, 3) of words or tokens: p, p², and the mean probability of the output's tokens.

    Args:
        parts: the log-probability of each word or token.
        log_probs: of each token of the output, as for `sentence_features`.
    """
    probs = np.exp(np.asarray(parts, dtype=np.float64))
    return np.stack([probs, probs**2, np.full(len(probs), np.exp(log_probs).mean())], axis=1)


@dataclass(frozen=True)
class LogisticCurve:
    """A logistic regression: the probability is 1 / (1 + exp(-(intercept + coefficients · features)))."""

    intercept: float
    coefficients: tuple[float, ...]

    def __call__(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities (...) of features (..., K)."""
        logits = self.intercept + features @ np.array(self.coefficients)
        probabilities: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(logits, -_STEEPEST, _STEEPEST)))
        return probabilities


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How the confidence of a model is computed, and the text that says so.

    Attributes:
        level: a sentence with a lower chrF is an error.
        lines: that it was fitted on.
        errors: how many of them were errors.
        src_tag: of the language that was translated from, where the model has many.
        tgt_tag: of the language that was translated into.
        sentence: of `sentence_features`.
        word: of `part_features`.
        token: of `part_features`.
        ece: the expected calibration error of each of these kinds, by cross-validation.
    """

    level: float
    lines: int
    errors: int
    src_tag: str | None
    tgt_tag: str | None
    sentence: LogisticCurve
    word: LogisticCurve
    token: LogisticCurve
    ece: Mapping[str, float]

    @classmethod
    def read(cls, saved: Json) -> Self:
        """Return a calibration as it is stored.

        Raises:
            ValueError: it is something else.
        """
        read = saved if isinstance(saved, dict) else {}
        if not (
            _is_number(read.get("level")) and all(is_whole(read.get(key)) for key in ("lines", "errors"))
        ):
            raise ValueError("no level, or no number of lines")
        src_tag, tgt_tag = read.get("src_tag"), read.get("tgt_tag")
        if not all(each is None or isinstance(each, str) for each in (src_tag, tgt_tag)):
            raise ValueError("its tags are not texts")
        ece = read.get("ece")
        if not (isinstance(ece, dict) and ece.keys() == {*KINDS} and all(map(_is_number, ece.values()))):
            raise ValueError("it has no calibration errors")
        return cls(
            level=read["level"],
            lines=read["lines"],
            errors=read["errors"],
            src_tag=src_tag,
            tgt_tag=tgt_tag,
            sentence=_curve(read.get("sentence"), "sentence"),
            word=_curve(read.get("word"), "word"),
            token=_curve(read.get("token"), "token"),
            ece=ece,
        )

    def as_json(self) -> dict[str, Any]:
        """Return what `read` reads."""
        return asdict(self)


def _curve(saved: Json, kind: str) -> LogisticCurve:
    read = saved if isinstance(saved, dict) else {}
    numbers = read.get("coefficients")
    if (
        not _is_number(read.get("intercept"))
        or not isinstance(numbers, list | tuple)
        or len(numbers) != NUM_FEATURES[kind]
        or not all(map(_is_number, numbers))
    ):
        raise ValueError(f"{kind}: {shown(saved)} is no curve of {NUM_FEATURES[kind]} features")
    return LogisticCurve(read["intercept"], tuple(numbers))


def _is_number(value: object) -> bool:
    return isinstance(value, float) or is_whole(value, least=-(2**31), most=2**31)
