"""Strategies by their names, as the command line takes them."""

import sys
from dataclasses import dataclass

import pytest

from heedful.decoding.options import parse_strategy
from heedful.decoding.steps import Start
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.decoding.task import Hypothesis, SearchTask
from heedful.errors import ConfigError, InputError
from heedful.settings import plugins


@dataclass(frozen=True, kw_only=True)
class Contrastive(Strategy):
    alpha: float
    fast: bool = False
    name: str = ""

    def search(self, start: Start, task: SearchTask) -> list[list[Hypothesis]]:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def _this_file_is_a_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mine", sys.modules[__name__])
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(sys.modules[__name__], "__name__", "mine")
    plugins.load_plugin(sys.modules["mine"])


def test_every_built_in_strategy_has_a_name_and_defaults() -> None:
    built_in = [Greedy(), BeamSearch(), DiverseBeamSearch(), Sampling(), MinimumBayesRisk()]
    names = ["greedy", "beam", "diverse-beam", "sampling", "mbr"]
    assert [parse_strategy(name) for name in names] == built_in


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
        ("mine:Contrastive", "alpha: missing; this strategy has no default for it"),
        ("mine:Contrastive:alpha=1,fast=yes", "fast='yes': must be true or false"),
        ("mine:Contrastiv", "strategy=mine:Contrastiv: the plugin has no 'Contrastiv'; did you mean 'Cont"),
        ("absent:Strategy", "strategy=absent:Strategy: no plugin 'absent' is loaded"),
        ("mine:dataclass", "strategy mine:dataclass: is not a strategy "),
    ],
)
def test_a_mistake_gets_one_line(text: str, message: str) -> None:
    with pytest.raises((InputError, ConfigError)) as caught:
        parse_strategy(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


def test_a_plugin_adds_a_strategy() -> None:
    found = parse_strategy("mine:Contrastive:alpha=0.5,fast=true,name=x")
    assert found == Contrastive(alpha=0.5, fast=True, name="x")
