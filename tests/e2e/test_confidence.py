"""Confidence through the command line and the service: calibrated, measured, shown."""

import json
import shutil
from pathlib import Path

import pytest
from command_line import assert_one_clear_line, heedful, text
from tiny_bundle import CALIBRATION, PAIRS, SOURCES, TARGETS, save_memorised
from tolerances import FLOAT64, close
from translation_server import translation_server

from heedful.storage.bundle import load_bundle
from heedful.storage.calibration import Calibration
from heedful.storage.description import store_calibration

pytestmark = pytest.mark.by_class

UNKNOWN = ["dog cat ?", "sees . the", "sleep does cat", "? the dog ?", "sees sees", ". cat sleeps"]
LINES = [*SOURCES, *UNKNOWN] * 4
REFERENCES = [*TARGETS, *(["Xylophon quer Pizza"] * len(UNKNOWN))] * 4


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("confidence") / "tiny")


@pytest.fixture(scope="module")
def sure(bundle: Path) -> Path:
    """Return a calibrated bundle."""
    path = bundle.with_name("sure")
    shutil.copytree(bundle, path)
    store_calibration(path, CALIBRATION)
    return path


def files(folder: Path, src: list[str], tgt: list[str]) -> list[object]:
    (folder / "s.en").write_bytes(text(src))
    (folder / "t.de").write_bytes(text(tgt))
    return [folder / "s.en", folder / "t.de"]


def test_a_model_is_calibrated_once_and_measured_wherever_it_is_evaluated(
    bundle: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    shutil.copytree(bundle, own)
    src, ref = files(tmp_path, LINES, REFERENCES)
    before = heedful("evaluate", own, "--src", src, "--ref", ref)
    assert "confidence" not in before.out
    fitted = heedful("evaluate", own, "--src", src, "--ref", ref, "--calibrate")
    assert fitted.code == 0, fitted.err
    line = next(each for each in fitted.out.splitlines() if each.startswith("confidence: "))
    assert (
        "24 of 48 lines are errors (chrF below 30), 5 of them in the least confident 10 % (2.0 times" in line
    )
    assert line.endswith(f", by cross-validation; stored in {own}")
    calibration = load_bundle(own).calibration
    assert calibration is not None
    assert (calibration.lines, calibration.errors) == (48, 24)
    after = json.loads(heedful("evaluate", own, "--src", src, "--ref", ref, "--json").out)["calibration"]
    assert (after["lines"], after["errors"], after["flagged"], after["errors_flagged"]) == (48, 24, 5, 5)
    assert after["lift"] == close(2, FLOAT64.ELEMENT)
    assert after["ece"].keys() == {"sentence", "word", "token"}
    shown = heedful("inspect", own).out
    assert "confidence: calibrated on 48 lines" in shown
    told = json.loads(heedful("inspect", own, "--json").out)["bundle"]["calibration"]
    assert Calibration.read(told) == calibration
    assert "confidence: not calibrated" in heedful("inspect", bundle).out


def test_text_that_cannot_calibrate_a_model_leaves_it_unchanged(bundle: Path, tmp_path: Path) -> None:
    src, ref = files(tmp_path, SOURCES, TARGETS)
    before = (bundle / "config.json").read_bytes()
    outcome = heedful("evaluate", bundle, "--src", src, "--ref", ref, "--calibrate")
    assert_one_clear_line(outcome, 1, "0 of 6 lines are errors", "at least 10 must be errors")
    outcome = heedful("evaluate", "--hyp", ref, "--ref", ref, "--calibrate")
    assert_one_clear_line(outcome, 2, "--calibrate is for RUN")
    outcome = heedful("evaluate", tmp_path, "--src", src, "--ref", ref, "--calibrate")
    assert_one_clear_line(outcome, 1, "holds no bundle")
    assert (bundle / "config.json").read_bytes() == before


def test_json_has_the_confidence_of_sentences_words_and_tokens(bundle: Path, sure: Path) -> None:
    known, unknown = (
        json.loads(line)
        for line in heedful(
            "translate", sure, "--json", stdin=text([SOURCES[0], UNKNOWN[2]])
        ).out.splitlines()
    )
    assert known["text"] == TARGETS[0]
    assert unknown["confidence"] < 0.8 < 0.9 < known["confidence"]
    for line in (known, unknown):
        [best] = line["hypotheses"]
        assert best["confidence"]["sentence"] == line["confidence"]
        assert len(best["confidence"]["words"]) == len(line["text"].split())
        assert len(best["confidence"]["tokens"]) == len(best["ids"]) - 1  # all but the end
    [line] = heedful("translate", bundle, "--json", stdin=text(SOURCES[:1])).out.splitlines()
    assert json.loads(line)["confidence"] is json.loads(line)["hypotheses"][0]["confidence"] is None


def test_the_lines_to_check_first_are_the_least_confident(sure: Path, tmp_path: Path) -> None:
    lines = [*SOURCES, "", *UNKNOWN]
    translated = heedful("translate", sure, "--json", stdin=text(lines)).out.splitlines()
    outputs = [json.loads(each)["text"] for each in translated]
    src, tgt = files(tmp_path, lines, outputs)
    every = [
        json.loads(each)["confidence"]
        for each in heedful("score", sure, "--src", src, "--tgt", tgt, "--json").out.splitlines()
    ]
    assert every[6] is None
    order = sorted((each["sentence"], number) for number, each in enumerate(every, start=1) if each)
    flagged = heedful("score", sure, "--src", src, "--tgt", tgt, "--flag", "25%")
    assert flagged.code == 0, flagged.err
    rows = [line.split("\t") for line in flagged.out.splitlines()]
    assert rows == [
        [str(number), f"{confidence:.4f}", lines[number - 1], outputs[number - 1]]
        for confidence, number in order[:3]
    ]
    assert "12 pairs" in flagged.err
    two = heedful("score", sure, "--src", src, "--tgt", tgt, "--flag", "2", "--json").out.splitlines()
    assert [json.loads(each)["line"] for each in two] == [number for _, number in order[:2]]


@pytest.mark.parametrize("flag", ["0", "0%", "101%", "1.5", "-1", "ten", "%", "1e3", ""])
def test_shares_outside_0_to_100_percent_are_refused(sure: Path, tmp_path: Path, flag: str) -> None:
    src, tgt = files(tmp_path, SOURCES, TARGETS)
    outcome = heedful("score", sure, "--src", src, "--tgt", tgt, f"--flag={flag}")
    assert_one_clear_line(outcome, 1, f"--flag {flag}: ")


def test_a_model_without_calibration_flags_nothing(bundle: Path, tmp_path: Path) -> None:
    src, tgt = files(tmp_path, SOURCES, TARGETS)
    outcome = heedful("score", bundle, "--src", src, "--tgt", tgt, "--flag", "10%")
    assert_one_clear_line(outcome, 1, "--calibrate")


@pytest.mark.slow
def test_the_service_says_how_sure_it_is_where_it_is_asked(bundle: Path, sure: Path) -> None:
    asked = {"source": "en", "target": "de", "confidence": True}
    with translation_server(f"en-de={sure}", f"de-fr={bundle}") as server:
        reply = server.post("/translate", {"q": f"{PAIRS[0][0]}\n12\n{UNKNOWN[2]}", **asked}).json
        told = reply["confidence"]
        first, last = told["sentences"]
        assert reply["translatedText"] == f"{first['text']}\n12\n{last['text']}"
        assert (first["text"], first["unsure"], last["unsure"]) == (PAIRS[0][1], False, True)
        assert [each["text"] for each in first["words"]] == PAIRS[0][1].split()
        assert told["value"] == min(each["value"] for each in told["sentences"]) == last["value"]
        markup = {"q": ["the <b>cat</b> sleeps .", "12"], **asked, "format": "html"}
        of_texts = server.post("/translate", markup).json["confidence"]
        assert of_texts[0]["sentences"][0]["text"] == PAIRS[0][1]
        assert of_texts[1] is None
        assert (
            "confidence" not in server.post("/translate", {**asked, "q": "a cat", "confidence": False}).json
        )
        assert "confidence" not in server.post("/translate", {**asked, "q": "12"}).json
        pivot = server.post("/translate", {**asked, "q": PAIRS[0][0], "target": "fr"}).json
        assert pivot["pivot"] == "de"
        assert "confidence" not in pivot  # of two models, nothing is known
        own = server.post("/translate", {**asked, "q": PAIRS[0][1], "source": "de", "target": "fr"}).json
        assert "confidence" not in own  # it is not calibrated
        deepl = server.post("/v2/translate", {"text": [PAIRS[0][0]], "target_lang": "DE"}).json
        assert "confidence" not in json.dumps(deepl)
