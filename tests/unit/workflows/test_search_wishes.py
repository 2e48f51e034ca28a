import pytest

from heedful.config import DecodeConfig
from heedful.decoding.options import Sampling, SearchOptions
from heedful.errors import InputError
from heedful.workflows.loading import SamplingWishes, SearchWishes

BUNDLE = DecodeConfig(beam_size=3, length_penalty=0.4, max_length_offset=7)


def test_without_wishes_the_bundle_decides() -> None:
    options = SearchWishes().options(BUNDLE)
    assert options == SearchOptions(beam_size=3, length_penalty=0.4, max_length_offset=7)


def test_what_cannot_be_wished_stays_as_the_bundle_has_it() -> None:
    bundle = BUNDLE.replace(
        length_normalization="average",
        early_stopping="first",
        max_length=9,
        forced_first_id=4,
        forced_last_id=2,
        suppressed_ids=(1,),
    )
    assert SearchWishes(beam_size=3).options(bundle) == SearchOptions.from_config(bundle)


def test_the_rules_of_a_search_may_be_wished_and_must_exist() -> None:
    options = SearchWishes(length_normalization="average", early_stopping="estimate").options(BUNDLE)
    assert (options.length_normalization, options.early_stopping) == ("average", "estimate")
    assert options.length_penalty == 0.4
    with pytest.raises(InputError, match="must be one of 'optimal', 'estimate', 'first'"):
        SearchWishes(early_stopping="soon").options(BUNDLE)


def test_a_wish_for_zero_is_a_wish() -> None:
    options = SearchWishes(length_penalty=0.0, max_length_offset=0).options(BUNDLE)
    assert (options.length_penalty, options.max_length_offset) == (0.0, 0)


def test_the_beam_grows_with_the_n_best_list_unless_it_was_chosen() -> None:
    assert SearchWishes(n_best=5).options(BUNDLE).beam_size == 5
    assert SearchWishes(n_best=2).options(BUNDLE).beam_size == 3
    with pytest.raises(InputError, match="n_best=5"):
        SearchWishes(n_best=5, beam_size=4).options(BUNDLE)


def test_a_smaller_beam_shortens_the_bundles_own_n_best_list() -> None:
    options = SearchWishes(beam_size=1).options(BUNDLE.replace(n_best=3))
    assert (options.beam_size, options.n_best) == (1, 1)


def test_each_wish_for_what_is_written_goes_over_the_bundles() -> None:
    bundle = BUNDLE.replace(max_length=9, min_length=2, no_repeat_ngram_size=4, repetition_penalty=1.5)
    kept = SearchWishes(max_length=7).options(bundle)
    assert (kept.max_length, kept.min_length, kept.no_repeat_ngram_size) == (7, 2, 4)
    changed = SearchWishes(min_length=0, no_repeat_ngram_size=0, repetition_penalty=1.0).options(bundle)
    assert (changed.max_length, changed.min_length, changed.no_repeat_ngram_size) == (9, 0, 0)
    assert (kept.repetition_penalty, changed.repetition_penalty) == (1.5, 1.0)


def test_chance_is_a_wish_of_its_own() -> None:
    assert SearchWishes().options(BUNDLE).sampling is None
    assert SearchWishes(sampling=SamplingWishes()).options(BUNDLE).sampling == Sampling()
    wishes = SamplingWishes(temperature=0.5, top_k=4, seed=0)
    options = SearchWishes(sampling=wishes, n_best=7).options(BUNDLE)
    assert (options.sampling, options.n_best) == (Sampling(temperature=0.5, top_k=4), 7)


def test_minimum_bayes_risk_draws_so_many_samples() -> None:
    options = SearchWishes(mbr_samples=30, n_best=2).options(BUNDLE)
    assert (options.sampling, options.n_best) == (Sampling(), 30)
    wishes = SearchWishes(mbr_samples=30, sampling=SamplingWishes(epsilon=0.02))
    assert wishes.options(BUNDLE).sampling == Sampling(epsilon=0.02)


def test_groups_of_a_beam_are_wished_each_time() -> None:
    options = SearchWishes(beam_size=6, num_groups=3, diversity_penalty=0.5).options(BUNDLE)
    assert (options.beam_size, options.num_groups, options.diversity_penalty) == (6, 3, 0.5)
    with pytest.raises(InputError, match="num_groups=2"):
        SearchWishes(num_groups=2).options(BUNDLE)
