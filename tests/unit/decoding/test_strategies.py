"""Strategies by their names, as the command line takes them."""

from dataclasses import dataclass
from importlib.metadata import EntryPoint

import pytest

from heedful.decoding.hypotheses import Hypothesis
from heedful.decoding.steps import Start
from heedful.decoding.strategies import protocol as module
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy, parse_strategy, strategy_names
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.decoding.task import SearchTask
from heedful.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Contrastive(Strategy):
    alpha: float
    fast: bool = False
    name: str = ""

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        raise NotImplementedError


def register(monkeypatch: pytest.MonkeyPatch, **values: str) -> None:
    entries = [EntryPoint(name, value, module.ENTRY_POINTS) for name, value in values.items()]
    monkeypatch.setattr("importlib.metadata.entry_points", lambda *, group: entries if group else [])
    monkeypatch.setattr(EntryPoint, "load", _loaded, raising=True)


_load = EntryPoint.load


def _loaded(entry: EntryPoint) -> object:
    return Contrastive if entry.value == "here:Contrastive" else _load(entry)


def test_every_built_in_strategy_has_a_name_and_defaults() -> None:
    built_in = [Greedy(), BeamSearch(), DiverseBeamSearch(), Sampling(), MinimumBayesRisk()]
    assert [parse_strategy(name) for name in strategy_names()[:5]] == built_in


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("beam:beam_size=8,early_stopping=first", BeamSearch(beam_size=8, early_stopping="first")),
        ("diverse-beam:diversity_penalty=0.25", DiverseBeamSearch(diversity_penalty=0.25)),
        ("sampling:top_k=4,seed=7", Sampling(top_k=4, seed=7)),
        ("sampling:top_k=none,temperature=2", Sampling(temperature=2.0)),
        ("mbr:samples=30,epsilon=0.02", MinimumBayesRisk(samples=30, sampling=Sampling(epsilon=0.02))),
    ],
)
def test_settings_follow_the_name(text: str, strategy: Strategy) -> None:
    assert parse_strategy(text) == strategy


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("baem", "strategy 'baem': unknown; did you mean 'beam'?"),
        ("", "strategy '': unknown; there are: greedy, beam, "),
        ("beam:size", "strategy 'beam': 'size' is not KEY=VALUE"),
        ("beam:beam_sise=2", "strategy 'beam': unknown setting 'beam_sise'; did you mean 'beam_size'?"),
        ("greedy:beam_size=2", "strategy 'greedy': unknown setting 'beam_size'; it has no settings"),
        ("beam:beam_size=2,beam_size=3", "strategy 'beam': 'beam_size' is set twice"),
        ("beam:beam_size=two", "beam_size='two': must be a whole number"),
        ("beam:beam_size=0", "beam_size=0: must be at least 1"),
        ("beam:early_stopping=soon", "early_stopping='soon': must be one of 'optimal', "),
        ("sampling:top_p=high", "top_p='high': must be a number"),
        ("contrastive", "alpha: missing; this strategy has no default for it"),
        ("contrastive:alpha=1,fast=yes", "fast='yes': must be true or false"),
        ("absent", "strategy 'absent': cannot import no_such_module:Nothing: "),
        ("plain", "strategy 'plain': fractions:Fraction is not a strategy "),
    ],
)
def test_a_mistake_gets_one_line(monkeypatch: pytest.MonkeyPatch, text: str, message: str) -> None:
    register(
        monkeypatch, contrastive="here:Contrastive", absent="no_such_module:Nothing",
        plain="fractions:Fraction",
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        parse_strategy(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_another_package_adds_names_and_takes_none_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    register(monkeypatch, contrastive="here:Contrastive", beam="here:Contrastive")
    assert strategy_names()[-1] == "contrastive"
    assert parse_strategy("beam") == BeamSearch()
    found = parse_strategy("contrastive:alpha=0.5,fast=true,name=x")
    assert found == Contrastive(alpha=0.5, fast=True, name="x")
