"""The keyword arguments of heedful.train are the settings that one section has."""

from collections import Counter
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from heedful.settings.arguments import fits
from heedful.settings.keywords import ModelSettings, TrainingSettings
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config

SECTIONS = {name: type(field.default) for name, field in Config.model_fields.items()}
COUNTS = Counter(key for section in SECTIONS.values() for key in section.model_fields)
FILES = {"src", "tgt"}  # of the data; `languages` has the same names
OTHERS = {"loss"}  # another argument of `train`
HINTS = get_type_hints(TrainingSettings)


def choices(hint: Any) -> set[Any]:  # noqa: ANN401
    """Return the values that a type lists; none if it takes any text besides."""
    if get_origin(hint) is Literal:
        return {*get_args(hint)}
    return set() if str in get_args(hint) else set().union(*map(choices, get_args(hint)))


def test_every_setting_of_one_section_is_a_keyword() -> None:
    assert HINTS.keys() == {key for key, count in COUNTS.items() if count == 1} - OTHERS | FILES


def test_every_setting_of_a_model_is_a_keyword() -> None:
    assert get_type_hints(ModelSettings).keys() == ModelConfig.model_fields.keys()


@pytest.mark.parametrize("key", sorted(HINTS))
def test_a_keyword_takes_the_values_of_its_setting(key: str) -> None:
    section = next(section for section in SECTIONS.values() if key in section.model_fields)
    hint, default = get_type_hints(section)[key], section.model_fields[key].default
    assert key == "tokens" or choices(HINTS[key]) - {True, False} == choices(hint) - {True, False}
    assert fits(default, HINTS[key])
    assert (type(None) in get_args(HINTS[key])) == (type(None) in get_args(hint))
