"""The calibration of a model's confidence: a few numbers of its bundle, and the formulas that they are for.

A confidence is a probability. For a sentence: its translation is no error, so its chrF is at least
`level`. For a word or a token: it stands in the reference too, at the place that an alignment by edit
distance gives it. Each is a logistic regression (Platt, 1999, "Probabilistic Outputs for Support Vector
Machines") of a few features of the token probabilities, which every search has anyway. The mean over the
sentence is what carries over to other text: there each single probability is too high. Fomicheva et al.
(2020), "Unsupervised Quality Estimation for Neural Machine Translation", compare such features.

`evaluation/calibration.py` fits the numbers with scikit-learn; none of it is needed here.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, Field, Strict, TypeAdapter, ValidationError

from heedful.settings.parsing import MAX_WHOLE

KINDS = ("sentence", "word", "token")
NUM_FEATURES = {"sentence": 2, "word": 3, "token": 3}
_STEEPEST = 500.0  # the exponential of more is no number of 64 bits
_Number = Annotated[float, Strict(), Field(ge=-(2**31), le=2**31)]
_Count = Annotated[int, Strict(), Field(ge=0, le=MAX_WHOLE)]


def sentence_features(log_probs: Sequence[float]) -> NDArray[np.float64]:
    """Return the features (2,) of an output: the mean probability of its tokens, the log of their number.

    `log_probs` are the log-probabilities of an output's tokens, the end token included.
    """
    return np.array([np.exp(log_probs).mean(), math.log(len(log_probs))])


def part_features(parts: Sequence[float], log_probs: Sequence[float]) -> NDArray[np.float64]:
    """Return the features (N, 3) of words or tokens: p, p², and the mean probability of the output's tokens.

    `parts` are the log-probabilities of words or tokens, `log_probs` as for `sentence_features`.
    """
    probs = np.exp(np.asarray(parts, dtype=np.float64))
    return np.stack([probs, probs**2, np.full(len(probs), np.exp(log_probs).mean())], axis=1)


@dataclass(frozen=True)
class LogisticCurve:
    """A logistic regression: the probability is 1 / (1 + exp(-(intercept + coefficients · features)))."""

    intercept: _Number
    coefficients: tuple[_Number, ...]

    def __call__(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the probabilities (...) of features (..., K)."""
        logits = self.intercept + features @ np.array(self.coefficients)
        probabilities: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-np.clip(logits, -_STEEPEST, _STEEPEST)))
        return probabilities


def _check(is_right: Callable[[Any], bool], what: str) -> AfterValidator:
    def check(value: object) -> object:
        if not is_right(value):
            raise ValueError(f"must have {what}")
        return value

    return AfterValidator(check)


def _has_features(kind: str) -> AfterValidator:
    count = NUM_FEATURES[kind]
    return _check(lambda curve: len(curve.coefficients) == count, f"{count} coefficients")


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """How the confidence of a model is computed, and the text that says so.

    Attributes:
        level: a sentence with a lower chrF is an error.
        lines: the number of lines that it was fitted on.
        errors: how many of them were errors.
        src_tag: the tag of the source language, if the model has several.
        tgt_tag: the tag of the target language.
        sentence: the curve over `sentence_features`.
        word: the curve over `part_features` of words.
        token: the curve over `part_features` of tokens.
        ece: the expected calibration error of sentences, words and tokens, by cross-validation.
    """

    level: _Number
    lines: _Count
    errors: _Count
    src_tag: Annotated[str, Strict()] | None
    tgt_tag: Annotated[str, Strict()] | None
    sentence: Annotated[LogisticCurve, _has_features("sentence")]
    word: Annotated[LogisticCurve, _has_features("word")]
    token: Annotated[LogisticCurve, _has_features("token")]
    ece: Annotated[
        Mapping[str, _Number], _check(lambda numbers: numbers.keys() == {*KINDS}, ", ".join(KINDS))
    ]

    @classmethod
    def read(cls, saved: Mapping[str, Any]) -> Self:
        """Return a calibration as it is stored."""
        try:
            return TypeAdapter(cls).validate_python(saved)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, ("calibration", *first["loc"])))
            raise ValueError(f"{place}: {first['msg']}; calibrate it again") from None

    def as_json(self) -> dict[str, Any]:
        """Return what `read` reads."""
        return asdict(self)
