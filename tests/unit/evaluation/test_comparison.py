"""Confidence intervals and p-values are sacreBLEU's; those of our own metrics follow the same resamples."""

from types import ModuleType

import pytest
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF
from sacrebleu.metrics.ter import TER
from sacrebleu.significance import PairedTest
from tolerances import FLOAT32, FLOAT64, close

from heedful.errors import ConfigError
from heedful.evaluation.measurement import Measurement, Texts
from heedful.evaluation.metrics import METRICS, compare_systems, evaluate_texts, p_value
from heedful.evaluation.tokenization import tokenization_of
from heedful.settings import plugins
from heedful.settings.plugins import load_plugin

NOUNS = ("dog", "old woman", "child", "man in a red coat", "bird")
REFERENCES = [f"the {NOUNS[i % 5]} sees {i % 7} of the {NOUNS[i % 3]}s ." for i in range(31)]
GOOD = [line.replace("sees", "watches") if i % 4 == 0 else line for i, line in enumerate(REFERENCES)]
BAD = [line.replace("the", "a") if i % 3 == 0 else line for i, line in enumerate(REFERENCES)]


def test_intervals_and_p_values_equal_those_of_sacrebleu() -> None:
    theirs = {"bleu": BLEU(), "chrf": CHRF(), "ter": TER(case_sensitive=True)}
    tested = PairedTest([("good", GOOD), ("bad", BAD)], theirs, [REFERENCES], "bs", n_samples=200)
    _, found = tested()
    good, bad = compare_systems(REFERENCES, [GOOD, BAD], [REFERENCES], list(theirs), num_resamples=200)
    for name, shown in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        first, second = found[shown]
        assert good.confidence[name] == close(first.ci, FLOAT32.ROW)
        assert bad.confidence[name] == close(second.ci, FLOAT32.ROW)
        assert bad.p_values[name] == close(second.p_value, FLOAT64.ELEMENT)
        assert (good.scores[name], bad.scores[name]) == close((first.score, second.score), FLOAT64.ROW)
    assert good.p_values == {}


def test_the_interval_of_one_system_is_that_of_corpus_score() -> None:
    [report] = compare_systems(REFERENCES, [GOOD], [REFERENCES], ["bleu"])
    theirs = BLEU().corpus_score(GOOD, [REFERENCES], n_bootstrap=1000)
    assert report.confidence["bleu"] == close(theirs._ci, FLOAT32.ROW)


@pytest.mark.parametrize("name", METRICS)
def test_a_score_is_that_of_the_sum_of_its_rows(name: str) -> None:
    if name == "spbleu":
        pytest.skip("it is bleu, and needs a model (test_tokenization.py)")
    words = tokenization_of([REFERENCES])
    measured = METRICS[name](Texts(REFERENCES, BAD, [REFERENCES], lowercase=False, tokenization=words))
    assert measured.score == close(measured.score_of(measured.rows.sum(0)), FLOAT64.ROW)
    assert len(measured.rows) == len(
        REFERENCES if name not in ("per", "item_error_rate") else set(REFERENCES)
    )


def test_what_is_not_resampled_has_no_interval() -> None:
    report = evaluate_texts(REFERENCES, GOOD, [REFERENCES], ["exact"])
    assert (report.confidence, report.p_values) == ({}, {})
    assert "confidence" not in report.as_dict()


def test_equal_systems_do_not_differ_and_unequal_ones_do() -> None:
    half = Measurement.percentage([(i % 2, 1) for i in range(100)], "")
    nothing = Measurement.percentage([(0, 1)] * 100, "")
    both = half.resampled(100), nothing.resampled(100)
    assert p_value(half.score, half.score, (both[0], both[0])) == 1.0
    assert p_value(half.score, nothing.score, both) == close(1 / 101, FLOAT64.ELEMENT)
    assert half.score == 50.0


def test_a_metric_of_a_plugin_is_found_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("others")
    module.zero = lambda texts: Measurement.percentage([(0, 1) for _ in texts.hypotheses], "none")  # type: ignore[attr-defined]
    monkeypatch.setattr(plugins, "_LOADED", {})
    load_plugin(module)
    found = evaluate_texts(GOOD, GOOD, [GOOD], ["others:zero", "exact"])
    assert found.scores == {"others:zero": 0.0, "exact": 100.0}
    with pytest.raises(ConfigError, match="others:zero=1"):  # a function takes nothing
        evaluate_texts(GOOD, GOOD, [GOOD], ["others:zero=1"])
    with pytest.raises(ConfigError, match="'zero'"):
        evaluate_texts(GOOD, GOOD, [GOOD], ["others:zeroo"])
    with pytest.raises(ConfigError, match="'bleu'"):
        evaluate_texts(GOOD, GOOD, [GOOD], ["blue"])
