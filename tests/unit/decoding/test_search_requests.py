from dataclasses import replace
from typing import Any

import pytest

from heedful.decoding.options import SearchOptions, search_options
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.errors import InputError, OptionError
from heedful.settings.run import DecodeConfig

BUNDLE = DecodeConfig(beam_size=3, length_penalty=0.4, max_length_offset=7)
SEARCH = SearchOptions(strategy=BeamSearch(beam_size=3), length_penalty=0.4, max_length_offset=7)
WRITTEN = {"max_length": 9, "min_length": 2, "no_repeat_ngram_size": 4, "repetition_penalty": 1.5}
FIXED = {
    "length_normalization": "power", "max_length": 9, "forced_first_id": 4, "forced_last_id": 2,
    "suppressed_ids": (1,),
}  # fmt: skip
ZEROS = {"length_penalty": 0.0, "max_length_offset": 0}
Settings = dict[str, Any]
# What is requested, what else the bundle says, and what is another than in the search of the bundle above.
REQUESTS: dict[str, tuple[Settings, Settings, Settings]] = {
    "nothing": ({}, {}, {}),
    "what cannot be requested": ({"beam_size": 3}, FIXED, FIXED),
    "rules": ({"length_normalization": "power", "early_stopping": "estimate"}, {},
              {"length_normalization": "power",
               "strategy": BeamSearch(beam_size=3, early_stopping="estimate")}),
    "zeros": (ZEROS, {}, ZEROS),
    "more outputs than the beam": ({"n_best": 5}, {}, {"n_best": 5, "strategy": BeamSearch(beam_size=5)}),
    "fewer outputs than the beam": ({"n_best": 2}, {}, {"n_best": 2}),
    "a bundle of many outputs": ({}, {"n_best": 4}, {"n_best": 4, "strategy": BeamSearch(beam_size=4)}),
    "a small beam": ({"beam_size": 1}, {"n_best": 3}, {"strategy": BeamSearch(beam_size=1)}),
    "a limit": ({"max_length": 7}, WRITTEN, WRITTEN | {"max_length": 7}),
    "no constraints": ({"min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}, WRITTEN,
                       {"max_length": 9}),
    "samples": ({"sample": True}, {}, {"strategy": Sampling()}),
    "samples of few tokens": ({"sample": True, "temperature": 0.5, "top_k": 4, "seed": 0, "n_best": 7}, {},
                              {"strategy": Sampling(temperature=0.5, top_k=4), "n_best": 7}),
    "minimum Bayes risk": ({"samples": 30, "n_best": 2}, {},
                           {"strategy": MinimumBayesRisk(samples=30), "n_best": 2}),
    "cut-offs of samples": ({"samples": 30, "epsilon": 0.02}, {"n_best": 3},
                            {"strategy": MinimumBayesRisk(samples=30, sampling=Sampling(epsilon=0.02))}),
    "a name": ({"strategy": "greedy", "length_penalty": 1.0}, {"n_best": 3},
               {"strategy": Greedy(), "length_penalty": 1.0}),
    "groups": ({"beam_size": 6, "num_groups": 3, "diversity_penalty": 0.5}, {},
               {"strategy": DiverseBeamSearch(beam_size=6, num_groups=3, diversity_penalty=0.5)}),
}  # fmt: skip


@pytest.mark.parametrize("name", REQUESTS)
def test_a_request_goes_over_the_bundle(name: str) -> None:
    requested, of_bundle, changes = REQUESTS[name]
    bundle = BUNDLE.replace(**of_bundle)
    assert search_options(requested, bundle) == replace(SEARCH, **changes)
    if not requested:
        assert SearchOptions.from_config(bundle) == replace(SEARCH, **changes)


@pytest.mark.parametrize(
    ("requested", "named"),
    [
        ({"early_stopping": "soon"}, "^early_stopping="),
        ({"n_best": 5, "beam_size": 4}, "n_best=5"),
        ({"num_groups": 2}, "num_groups=2"),
        *(
            ({"strategy": strategy, **beside}, next(iter(beside)))
            for strategy in ("beam", BeamSearch())
            for beside in ({"beam_size": 2}, {"sample": True}, {"temperature": 0.5}, {"samples": 9})
        ),
    ],
)
def test_a_request_that_contradicts_itself_is_refused(requested: Settings, named: str) -> None:
    with pytest.raises((InputError, OptionError), match=named):
        search_options(requested, BUNDLE)
