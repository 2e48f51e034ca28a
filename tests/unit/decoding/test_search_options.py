import dataclasses

import pytest

from heedful.config import DecodeConfig
from heedful.decoding.options import Sampling, SearchOptions
from heedful.errors import InputError


def test_the_defaults_are_the_papers() -> None:
    options = SearchOptions()
    assert (options.beam_size, options.length_penalty, options.max_length_offset) == (4, 0.6, 50)
    assert SearchOptions.from_config(DecodeConfig()) == options


def test_each_setting_of_the_search_is_read_from_the_configuration() -> None:
    config = DecodeConfig(
        beam_size=7, n_best=3, length_penalty=1.5, length_normalization="average", early_stopping="first",
        max_length_offset=11, max_length=99, forced_first_id=4, forced_last_id=5, suppressed_ids=(6, 8),
        min_length=2, renormalize=True, no_repeat_ngram_size=3, repetition_penalty=1.25,
    )  # fmt: skip
    found = dataclasses.asdict(SearchOptions.from_config(config))
    asked_for_each_time = (
        *("sampling", "num_groups", "diversity_penalty", "prefix_bias"),
        *("coverage_penalty", "replace_unknown"),
    )
    assert [found.pop(key) for key in asked_for_each_time] == [None, 1, 0.0, None, 0.0, False]
    assert found == config.model_dump(exclude={"batch_tokens"})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("beam_size", 0),
        ("n_best", 0),
        ("n_best", 5),
        ("length_penalty", -0.1),
        ("length_penalty", float("nan")),
        ("diversity_penalty", -0.1),
        ("prefix_bias", -0.1),
        ("prefix_bias", 1.0),
        ("num_groups", 0),
        ("num_groups", 3),
        ("max_length_offset", -1),
        ("min_length", -1),
        ("no_repeat_ngram_size", -1),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", float("inf")),
        ("early_stopping", "never"),
        ("length_normalization", "none"),
        ("max_length", 0),
        ("forced_first_id", -1),
        ("forced_last_id", -1),
        ("suppressed_ids", (4, -1)),
    ],
)
def test_a_bad_value_is_an_input_error_that_names_its_key(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{key}="):
        SearchOptions(**{key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", 0.0),
        ("temperature", float("inf")),
        ("top_k", 0),
        ("top_p", 0.0),
        ("top_p", 1.1),
        ("min_p", -0.1),
        ("epsilon", 1.5),
        ("epsilon", float("nan")),
        ("seed", -1),
    ],
)
def test_a_bad_value_of_sampling_is_an_input_error_that_names_its_key(key: str, value: float) -> None:
    with pytest.raises(InputError, match=f"^{key}="):
        Sampling(**{key: value})  # type: ignore[arg-type]


def test_samples_need_no_beam_to_be_many() -> None:
    assert SearchOptions(beam_size=1, n_best=9, sampling=Sampling()).n_best == 9
