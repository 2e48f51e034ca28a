import pytest

from heedful.config import DecodeConfig
from heedful.decoding.options import SearchOptions
from heedful.errors import InputError


def test_the_defaults_are_the_papers() -> None:
    options = SearchOptions()
    assert (options.beam_size, options.length_penalty, options.max_length_offset) == (4, 0.6, 50)
    assert SearchOptions.from_config(DecodeConfig()) == options


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("beam_size", 0),
        ("n_best", 0),
        ("n_best", 5),
        ("length_penalty", -0.1),
        ("length_penalty", float("nan")),
        ("max_length_offset", -1),
        ("min_length", -1),
        ("early_stopping", "never"),
    ],
)
def test_a_bad_value_is_an_input_error_that_names_its_key(key: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{key}="):
        SearchOptions(**{key: value})  # type: ignore[arg-type]
