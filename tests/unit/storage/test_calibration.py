"""The formulas of the confidence, and their place in a bundle."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tiny_bundle import CALIBRATION, memorised, save_memorised
from tolerances import FLOAT64, close

from heedful.errors import BundleError
from heedful.storage.bundle import load_bundle, read_bundle, save_bundle
from heedful.storage.calibration import Calibration, LogisticCurve, part_features, sentence_features
from heedful.storage.description import store_calibration


def test_the_features_are_means_and_powers_of_probabilities() -> None:
    log_probs = [math.log(0.5), math.log(0.25), 0.0]
    assert sentence_features(log_probs).tolist() == close([1.75 / 3, math.log(3)], FLOAT64.ELEMENT)
    features = part_features([math.log(0.5), -math.inf], log_probs)
    assert features.tolist() == [
        close([0.5, 0.25, 1.75 / 3], FLOAT64.ELEMENT),
        close([0, 0, 1.75 / 3], FLOAT64.ELEMENT),
    ]


def test_a_curve_is_the_logistic_function_and_never_overflows() -> None:
    curve = LogisticCurve(-1.0, (2.0, 4.0))
    assert curve(np.array([0.5, 0.25])) == close(1 / (1 + math.exp(-1)), FLOAT64.ELEMENT)
    assert curve(np.array([[1e9, 0.0], [-1e9, 0.0]])).tolist() == close([1.0, 0.0], FLOAT64.ELEMENT)


def test_a_bundle_keeps_a_calibration_and_everything_else(tmp_path: Path) -> None:
    path = save_memorised(tmp_path / "bundle")
    before = json.loads((path / "config.json").read_bytes())
    assert load_bundle(path).calibration is None
    store_calibration(path, CALIBRATION)
    store_calibration(path, CALIBRATION)  # takes the place of the first
    assert load_bundle(path).calibration == read_bundle(path).calibration == CALIBRATION
    after = json.loads((path / "config.json").read_bytes())
    checksums = {name: after["sha256"][name] for name in after["sha256"] if name != "settings"}
    assert after.keys() - before.keys() == {"calibration"}
    assert {key: after[key] for key in before if key != "sha256"} == {
        key: before[key] for key in before if key != "sha256"
    }
    assert checksums.items() <= before["sha256"].items()
    assert sorted(each.name for each in path.iterdir()) == sorted([*checksums, "README.md", "config.json"])


def test_a_saved_bundle_has_the_calibration_of_the_one_in_memory(tmp_path: Path) -> None:
    save_bundle(replace(memorised(), calibration=CALIBRATION), tmp_path / "bundle", card="# Card\n")
    assert load_bundle(tmp_path / "bundle").calibration == CALIBRATION


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("level", "30"),
        ("lines", -1),
        ("errors", True),
        ("src_tag", 5),
        ("ece", {"word": 0.1}),
        ("sentence", {"intercept": 1.0, "coefficients": [1.0]}),
        ("word", {"intercept": None, "coefficients": [1.0, 1.0, 1.0]}),
        ("token", [1.0]),
    ],
)
def test_a_damaged_calibration_is_refused(key: str, value: object) -> None:
    with pytest.raises(ValueError, match=rf"calibration\.{key}"):
        Calibration.read(CALIBRATION.as_json() | {key: value})


def test_an_altered_calibration_does_not_pass_the_checksum(tmp_path: Path) -> None:
    path = save_memorised(tmp_path / "bundle")
    store_calibration(path, CALIBRATION)
    config = path / "config.json"
    config.write_text(config.read_text().replace("-36.0", "-36.5"), encoding="utf-8")
    with pytest.raises(BundleError, match="checksum differs"):
        load_bundle(path)


def test_a_calibration_is_used_for_the_languages_it_is_of() -> None:
    bundle = memorised()
    languages = bundle.config.languages.model_copy(update={"src_tag": "en_XX", "tgt_tag": "de_DE"})
    into_german = replace(bundle, config=bundle.config.model_copy(update={"languages": languages}))
    of_german = replace(CALIBRATION, src_tag="en_XX", tgt_tag="de_DE")
    assert replace(bundle, calibration=CALIBRATION).calibration_in_use == CALIBRATION
    assert replace(bundle, calibration=of_german).calibration_in_use is None
    assert replace(into_german, calibration=CALIBRATION).calibration_in_use is None
    assert replace(into_german, calibration=of_german).calibration_in_use == of_german
