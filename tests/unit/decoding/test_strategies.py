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
    ("text", "named"),
    [
        ("baem", "'beam'"),
        ("", "greedy, beam"),
        ("beam:size", "'size'"),
        ("beam:beam_sise=2", "'beam_size'"),
        ("greedy:beam_size=2", "'beam_size'"),
        ("beam:beam_size=2,beam_size=3", "'beam_size'"),
        ("beam:beam_size=two", "^beam_size='two'"),
        ("beam:beam_size=0", "^beam_size=0"),
        ("beam:early_stopping=soon", "^early_stopping='soon'"),
        ("sampling:top_p=high", "^top_p='high'"),
        ("mine:Contrastive", "^alpha"),
        ("mine:Contrastive:alpha=1,fast=yes", "^fast='yes'"),
        ("mine:Contrastiv", "'Contrastive'"),
        ("absent:Strategy", "'absent'"),
        ("mine:dataclass", "mine:dataclass"),
    ],
)
def test_a_mistake_gets_one_line_that_names_it(text: str, named: str) -> None:
    with pytest.raises((InputError, ConfigError), match=named) as caught:
        parse_strategy(text)
    assert "\n" not in str(caught.value)


def test_a_plugin_adds_a_strategy() -> None:
    found = parse_strategy("mine:Contrastive:alpha=0.5,fast=true,name=x")
    assert found == Contrastive(alpha=0.5, fast=True, name="x")
