"""Fitting and measuring confidence, against scikit-learn and brute force."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from sacrebleu import sentence_chrf
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tiny_bundle import SOURCES, memorised
from tolerances import FLOAT64, close

from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.errors import CorpusError
from heedful.evaluation.calibration import (
    CalibrationReport,
    calibrate,
    expected_calibration_error,
    matches,
    measure_calibration,
)
from heedful.evaluation.metrics import edit_distance
from heedful.storage.calibration import sentence_features

TOKENIZER = memorised().tokenizers.tgt
# Half of these the model knows; of the others it makes something, and the reference is something else.
LINES = [
    *SOURCES,
    "dog cat ?",
    "sees . the",
    "sleep does cat",
    "? the dog ?",
    "sees sees",
    ". cat sleeps",
] * 4


@pytest.fixture(scope="module")
def translations() -> list[Translation]:
    return Translator(memorised()).translations(LINES)


@pytest.fixture(scope="module")
def references(translations: list[Translation]) -> list[str]:
    wrong = "Xylophon quer Pizza"
    return [
        each.text if each.source in SOURCES[:5] or n % 17 == 0 else wrong
        for n, each in enumerate(translations)
    ]


def test_the_curve_of_sentences_is_scikit_learns(
    translations: list[Translation], references: list[str]
) -> None:
    features = np.array([sentence_features(each.hypotheses[0].token_log_probs) for each in translations])
    right = [
        sentence_chrf(each.text, [reference]).score >= 30
        for each, reference in zip(translations, references, strict=True)
    ]
    expected = make_pipeline(StandardScaler(), LogisticRegression()).fit(features, right)
    calibration, report = calibrate(translations, [references], TOKENIZER)
    assert calibration.sentence(features) == close(expected.predict_proba(features)[:, 1], FLOAT64.MODEL)
    assert (calibration.lines, calibration.errors) == (len(LINES), right.count(False))
    assert (report.lines, report.errors, report.ece) == (len(LINES), right.count(False), calibration.ece)
    assert report.flagged == 5  # a tenth of 48, rounded up
    assert (calibration.src_tag, calibration.tgt_tag) == (None, None)


def test_what_is_measured_is_the_confidence_of_the_translations(
    translations: list[Translation], references: list[str]
) -> None:
    calibration, by_others = calibrate(translations, [references], TOKENIZER, tags=(None, None))
    bundle = memorised()
    confident = Translator(type(bundle)(**{**vars(bundle), "calibration": calibration})).translations(LINES)
    report = measure_calibration(confident, [references], TOKENIZER, level=30)
    known = [each.confidence for each in confident if each.confidence]
    right = np.array(
        [sentence_chrf(t.text, [r]).score >= 30 for t, r in zip(confident, references, strict=True)]
    )
    expected = expected_calibration_error(np.array([each.sentence for each in known]), right)
    assert report.ece["sentence"] == close(expected, FLOAT64.ROW)
    assert report.errors == by_others.errors == (~right).sum()
    first = np.argsort([each.sentence for each in known], kind="stable")[: report.flagged]
    assert report.errors_flagged == (~right[first]).sum()
    assert report.lift == close((~right[first]).mean() / (~right).mean(), FLOAT64.ROW)


def test_empty_lines_count_for_nothing(translations: list[Translation], references: list[str]) -> None:
    with_empty = [Translation("", "", 0.0, ()), *translations]
    once, _ = calibrate(translations, [references], TOKENIZER)
    twice, report = calibrate(with_empty, [["", *references]], TOKENIZER)
    assert twice.sentence == once.sentence
    assert report.lines == len(LINES)
    nothing = measure_calibration(with_empty[:1], [[""]], TOKENIZER, level=30)
    assert (nothing.lines, nothing.errors, nothing.flagged) == (0, 0, 0)
    assert nothing.as_dict()["lift"] is None


def test_a_reference_among_several_is_enough(translations: list[Translation], references: list[str]) -> None:
    swapped = ["Xylophon quer Pizza"] * len(references)
    one, _ = calibrate(translations, [references], TOKENIZER)
    two, _ = calibrate(translations, [swapped, references], TOKENIZER)
    assert two.word == one.word
    assert two.token == one.token


@pytest.mark.parametrize("is_right", [True, False])
def test_too_few_errors_or_too_few_others_are_refused(
    translations: list[Translation], *, is_right: bool
) -> None:
    references = [each.text if is_right else "Xylophon quer Pizza" for each in translations]
    message = f"{0 if is_right else 48} of 48 lines are errors (chrF below 30); at least 10 must be errors"
    with pytest.raises(CorpusError, match=re.escape(message)):
        calibrate(translations, [references], TOKENIZER)


def test_the_calibration_error_is_the_mean_distance_of_scikit_learns_curve() -> None:
    generator = np.random.default_rng(7)
    confidences = generator.permutation(np.linspace(0.01, 0.99, 1500))
    right = generator.random(1500) < confidences**2
    accuracies, means = calibration_curve(right, confidences, n_bins=15, strategy="quantile")
    expected = np.abs(accuracies - means).mean()  # all bins have 100
    assert expected_calibration_error(confidences, right) == close(expected, FLOAT64.ROW)
    assert expected > 0.1


def test_the_calibration_error_of_few_and_of_perfect_confidences() -> None:
    sure = np.array([0.0, 1.0, 1.0])
    assert expected_calibration_error(sure, sure.astype(bool)) == 0
    assert expected_calibration_error(np.array([0.75]), np.array([False])) == 0.75
    assert expected_calibration_error(np.array([]), np.array([], dtype=bool)) == 0


def all_matches(output: Sequence[str], reference: Sequence[str]) -> dict[tuple[bool, ...], int]:
    """Return the least cost of the alignments of each set of matches."""
    if not output or not reference:
        return {(False,) * len(output): len(output) + len(reference)}
    found: dict[tuple[bool, ...], int] = {}
    is_same = output[0] == reference[0]
    for first, rest, cost in (
        ((is_same,), all_matches(output[1:], reference[1:]), int(not is_same)),
        ((False,), all_matches(output[1:], reference), 1),
        ((), all_matches(output, reference[1:]), 1),
    ):
        for each, more in rest.items():
            found[first + each] = min(cost + more, found.get(first + each, 1000))
    return found


def test_matches_are_those_of_an_alignment_of_least_cost() -> None:
    generator = np.random.default_rng(3)
    for _ in range(60):
        output = list("".join(generator.choice(list("abc"), generator.integers(0, 6))))
        reference = list("".join(generator.choice(list("abc"), generator.integers(0, 6))))
        costs = all_matches(output, reference)
        found = tuple(matches(output, reference))
        assert costs[found] == min(costs.values()) == edit_distance(output, reference)


def test_the_report_reads_as_a_sentence() -> None:
    report = CalibrationReport(
        ece={"sentence": 0.0142, "word": 0.0171, "token": 0.02},
        lines=1000, errors=19, level=30.0, flagged=100, errors_flagged=13,
    )  # fmt: skip
    assert str(report) == (
        "ECE 0.014 of sentences, 0.017 of words, 0.020 of tokens; 19 of 1,000 lines are errors (chrF "
        "below 30), 13 of them in the least confident 10 % (6.8 times the average)"
    )
    blind = str(replace(report, errors_flagged=1))
    assert blind.endswith("10 % (0.5 times the average): this confidence does not find the errors")
