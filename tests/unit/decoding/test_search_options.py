import dataclasses
import math
from collections.abc import Sequence
from typing import Any, get_type_hints

import pytest

from heedful.decoding.options import SearchOptions, SearchSettings
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy, Strategy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.errors import InputError
from heedful.settings.run import DecodeConfig


def test_the_defaults_are_the_papers() -> None:
    options = SearchOptions()
    assert (options.strategy.beam_size, options.length_penalty, options.max_length_offset) == (4, 0.6, 50)
    assert SearchOptions.from_config(DecodeConfig()) == options


def test_keywords_of_a_search_are_the_fields_of_the_strategies() -> None:
    fields = dict[str, object]()
    for kind in (DiverseBeamSearch, Sampling, MinimumBayesRisk, SearchOptions):
        hints = get_type_hints(kind)
        fields |= {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    del fields["sampling"]  # of `MinimumBayesRisk`: its settings are given themselves
    fields |= {"strategy": Strategy | str, "suppressed_ids": Sequence[int] | None, "sample": bool}
    assert get_type_hints(SearchSettings) == fields


def test_each_setting_of_the_search_is_read_from_the_configuration() -> None:
    config = DecodeConfig(
        beam_size=7, n_best=3, length_penalty=1.5, length_normalization="power", early_stopping="first",
        max_length_ratio=1.5, max_length_offset=11, max_length=99, forced_first_id=4, forced_last_id=5,
        suppressed_ids=(6, 8),
        min_length=2, renormalize=True, no_repeat_ngram_size=3, repetition_penalty=1.25,
        replace_unknown=True,
    )  # fmt: skip
    found = dataclasses.asdict(SearchOptions.from_config(config))
    asked_for_each_time = ("coverage_penalty", "threads", "cancelled", "glossary")
    assert [found.pop(key) for key in asked_for_each_time] == [0.0, None, None, None]
    assert found | found.pop("strategy") == config.model_dump(exclude={"batch_tokens"})


BAD: dict[type, dict[str, list[object]]] = {
    SearchOptions: {
        "n_best": [0, 2.5, True, "3", 5],
        "length_penalty": ["x", -0.1, math.nan],
        "length_normalization": ["none"],
        "coverage_penalty": [1e39, -1],
        "max_length": [0, 2**31 + 1],
        "max_length_offset": [None, -1, 2**31 + 1],
        "max_length_ratio": [0.0],
        "min_length": [-1, 2**31 + 1],
        "no_repeat_ngram_size": [1.5, -1],
        "repetition_penalty": ["2", 0.0, math.inf, 5e37],
        "forced_first_id": [-1, 2**31 + 1],
        "forced_last_id": [-1],
        "suppressed_ids": [(4, -1)],
    },
    BeamSearch: {"beam_size": [0, 2.5, "x", 1001], "early_stopping": ["never"]},
    DiverseBeamSearch: {
        "beam_size": [0],
        "num_groups": [0, 3],
        "diversity_penalty": [-0.1, 1e39],
        "early_stopping": ["never"],
    },
    Sampling: {
        "temperature": ["x", 0.0, math.inf],
        "top_k": [1.5, 0],
        "top_p": [0.0, 1.1],
        "min_p": [-0.1],
        "epsilon": [1.5, math.nan],
        "seed": [-1],
    },
    MinimumBayesRisk: {"samples": [0, 100_001]},
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_value_is_an_input_error_that_names_its_key(kind: type) -> None:
    for key, values in BAD[kind].items():
        for value in values:
            with pytest.raises(InputError, match=f"^{key}="):
                kind(**{key: value})


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, 57),  # 6.1
        ({"max_length_ratio": 1.0}, 57),
        ({"max_length_ratio": 2.5}, 68),
        ({"max_length_ratio": 0.5, "max_length_offset": 0}, 4),
        ({"max_length_ratio": 2.5, "max_length": 60}, 60),
    ],
)
def test_the_limit_is_the_ratio_times_the_source_and_the_offset(options: dict[str, Any], limit: int) -> None:
    assert SearchOptions(**options).length_limit(7) == limit


def test_the_shortest_output_may_not_be_longer_than_the_longest() -> None:
    assert SearchOptions(min_length=7, max_length=7).max_length == 7
    with pytest.raises(InputError, match=r"^min_length=8.*max_length=7"):
        SearchOptions(min_length=8, max_length=7)


@pytest.mark.parametrize(
    "options",
    [
        {"strategy": Greedy(), "n_best": 2},
        {"strategy": Greedy(), "coverage_penalty": 0.2},
        {"strategy": DiverseBeamSearch(), "n_best": 5},
        {"strategy": MinimumBayesRisk(), "coverage_penalty": 0.2},
        {"strategy": "beam"},
    ],
)
def test_what_a_strategy_cannot_meet_is_an_input_error(options: dict[str, object]) -> None:
    with pytest.raises(InputError):
        SearchOptions(**options)  # type: ignore[arg-type]


def test_samples_need_no_beam_to_be_many() -> None:
    assert SearchOptions(strategy=Sampling(), n_best=9).n_best == 9
