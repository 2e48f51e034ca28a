from dataclasses import replace

import pytest

from heedful.decoding.options import SearchOptions, search_options
from heedful.decoding.strategies.beam import BeamSearch, DiverseBeamSearch
from heedful.decoding.strategies.protocol import Greedy
from heedful.decoding.strategies.sampling import MinimumBayesRisk, Sampling
from heedful.errors import InputError, OptionError
from heedful.settings.run import DecodeConfig

BUNDLE = DecodeConfig(beam_size=3, length_penalty=0.4, max_length_offset=7)


def test_without_a_request_the_bundle_decides() -> None:
    options = search_options({}, BUNDLE)
    assert options == SearchOptions(strategy=BeamSearch(beam_size=3), length_penalty=0.4, max_length_offset=7)


def test_what_cannot_be_requested_stays_as_the_bundle_has_it() -> None:
    bundle = BUNDLE.replace(
        length_normalization="power",
        early_stopping="first",
        max_length=9,
        forced_first_id=4,
        forced_last_id=2,
        suppressed_ids=(1,),
    )
    assert search_options({"beam_size": 3}, bundle) == SearchOptions.from_config(bundle)


def test_the_rules_of_a_search_may_be_requested_and_must_exist() -> None:
    options = search_options({"length_normalization": "power", "early_stopping": "estimate"}, BUNDLE)
    assert (options.length_normalization, options.strategy.early_stopping) == ("power", "estimate")
    assert options.length_penalty == 0.4
    with pytest.raises(InputError, match=r"^early_stopping="):
        search_options({"early_stopping": "soon"}, BUNDLE)


def test_a_request_for_zero_is_a_request() -> None:
    options = search_options({"length_penalty": 0.0, "max_length_offset": 0}, BUNDLE)
    assert (options.length_penalty, options.max_length_offset) == (0.0, 0)


def test_the_beam_grows_with_the_n_best_list_unless_it_was_chosen() -> None:
    assert search_options({"n_best": 5}, BUNDLE).strategy == BeamSearch(beam_size=5)
    assert search_options({"n_best": 2}, BUNDLE).strategy == BeamSearch(beam_size=3)
    assert search_options({}, BUNDLE.replace(n_best=4)).strategy == BeamSearch(beam_size=4)
    assert SearchOptions.from_config(BUNDLE.replace(n_best=4)).strategy == BeamSearch(beam_size=4)
    with pytest.raises(InputError, match="n_best=5"):
        search_options({"n_best": 5, "beam_size": 4}, BUNDLE)


def test_a_smaller_beam_shortens_the_bundles_own_n_best_list() -> None:
    options = search_options({"beam_size": 1}, BUNDLE.replace(n_best=3))
    assert (options.strategy.beam_size, options.n_best) == (1, 1)


def test_each_request_for_what_is_written_goes_over_the_bundles() -> None:
    bundle = BUNDLE.replace(max_length=9, min_length=2, no_repeat_ngram_size=4, repetition_penalty=1.5)
    kept = search_options({"max_length": 7}, bundle)
    assert (kept.max_length, kept.min_length, kept.no_repeat_ngram_size) == (7, 2, 4)
    changed = search_options({"min_length": 0, "no_repeat_ngram_size": 0, "repetition_penalty": 1.0}, bundle)
    assert (changed.max_length, changed.min_length, changed.no_repeat_ngram_size) == (9, 0, 0)
    assert (kept.repetition_penalty, changed.repetition_penalty) == (1.5, 1.0)


def test_sampling_is_a_request_of_its_own() -> None:
    assert search_options({}, BUNDLE).strategy == BeamSearch(beam_size=3)
    assert search_options({"sample": True}, BUNDLE).strategy == Sampling()
    overrides = {"sample": True, "temperature": 0.5, "top_k": 4, "seed": 0, "n_best": 7}
    options = search_options(overrides, BUNDLE)
    assert (options.strategy, options.n_best) == (Sampling(temperature=0.5, top_k=4), 7)


def test_minimum_bayes_risk_draws_so_many_samples() -> None:
    options = search_options({"samples": 30, "n_best": 2}, BUNDLE)
    assert (options.strategy, options.n_best) == (MinimumBayesRisk(samples=30), 2)
    assert search_options({"samples": 30, "epsilon": 0.02}, BUNDLE.replace(n_best=3)) == replace(
        options, strategy=MinimumBayesRisk(samples=30, sampling=Sampling(epsilon=0.02)), n_best=1
    )


def test_a_strategy_may_be_requested_by_its_name() -> None:
    overrides = {"strategy": "greedy", "length_penalty": 1.0}
    options = search_options(overrides, BUNDLE.replace(n_best=3))
    assert (options.strategy, options.n_best, options.length_penalty) == (Greedy(), 1, 1.0)


@pytest.mark.parametrize("beside", [{"beam_size": 2}, {"sample": True}, {"temperature": 0.5}, {"samples": 9}])
def test_a_strategy_with_its_settings_takes_none_beside_it(beside: dict[str, object]) -> None:
    for strategy in ("beam", BeamSearch()):
        with pytest.raises(OptionError, match=next(iter(beside))):
            search_options({"strategy": strategy, **beside}, BUNDLE)


def test_groups_of_a_beam_are_requested_each_time() -> None:
    options = search_options({"beam_size": 6, "num_groups": 3, "diversity_penalty": 0.5}, BUNDLE)
    assert options.strategy == DiverseBeamSearch(beam_size=6, num_groups=3, diversity_penalty=0.5)
    with pytest.raises(InputError, match="num_groups=2"):
        search_options({"num_groups": 2}, BUNDLE)
