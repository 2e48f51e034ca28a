"""What CONTRIBUTING.md shows works as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from surveyed import survey_of
from tiny_bundle import memorised

from heedful.data.cleaning import registry
from heedful.data.cleaning.pair import Pair
from heedful.decoding.backends.torch import TorchBackend
from heedful.decoding.translator import Translator
from heedful.evaluation import metrics

TEXT = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
METRIC, FILTER, BACKEND, STRATEGY = re.findall(r"```python\n(.*?)```", TEXT, flags=re.DOTALL)


def executed(code: str, **names: Any) -> SimpleNamespace:  # noqa: ANN401
    exec(code, names)
    return SimpleNamespace(**names)


def test_a_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "METRICS", dict(metrics.METRICS))
    executed(METRIC)
    report = metrics.evaluate_texts(["a", "b"], ["x y", "z"], [["u v", "w w"]], ["same-length"])
    assert report.scores == {"same-length": 50.0}
    assert report.signatures == {"same-length": "words:whitespace"}


def test_a_filter_of_parallel_text() -> None:
    shown = executed(FILTER)
    shouting, added = shown.shouting, shown.SHOUTING
    assert (added.name, added.finds, added.removes) == ("shouting", "A side has only capital letters.", False)
    assert [shouting(Pair(src, "so")) for src in ("HELP ME", "Help me")] == [True, False]
    checker = registry.PairChecker(survey_of([("HELP ME", "so")]), filters=(*registry.FILTERS, added))
    assert "shouting" in checker.faults(Pair("HELP ME", "so"))


def test_a_backend() -> None:
    bundle = memorised()
    shown = executed(BACKEND, bundle=bundle, MyBackend=lambda bundle: TorchBackend([bundle.model], "float32"))
    assert shown.translator.translate(["the cat sleeps ."]) == ["die Katze schläft ."]


def test_a_search_strategy() -> None:
    shown = executed(STRATEGY)
    assert Translator(memorised()).translate(["the cat sleeps ."], options=shown.options) == [
        "die Katze schläft ."
    ]
