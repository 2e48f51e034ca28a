"""The reference has every public name; options and keys of the same thing are one definition."""

import re
from typing import get_args

import pytest

import heedful
from heedful.settings.options import (
    EarlyStopping,
    HeldOutText,
    LengthNormalization,
    Runtime,
    TrainingRequest,
    kinds_of,
    options_of,
)
from heedful.settings.run import DataConfig, DecodeConfig, TrainConfig
from heedful.settings.section import Section
from python_reference import at_commas
from reference import PAGES


@pytest.mark.slow
def test_every_public_name_is_described_and_every_name_can_be_imported() -> None:
    page = PAGES["python.md"]()
    shown = set(re.findall(r"^#+ (\w+)$|^- `(\w+Error)`: \w", page, re.MULTILINE))
    assert set(heedful.__all__) - {"__version__"} <= {name for names in shown for name in names}
    imports = re.findall(r"^from [\w.]+ import \w+$", page, re.MULTILINE)
    assert len(imports) > 15
    for line in imports:
        exec(line, {})


@pytest.mark.parametrize(
    ("parameters", "parts"),
    [
        ("a: int", ["a: int"]),
        ("*, a: Map[str, int] = f(1, 2), b: B", ["*", "a: Map[str, int] = f(1, 2)", "b: B"]),
    ],
)
def test_a_signature_is_split_between_its_parameters(parameters: str, parts: list[str]) -> None:
    assert at_commas(parameters) == parts


SHARED: list[tuple[type, type[Section]]] = [(Runtime, DecodeConfig), (Runtime, TrainConfig)]
SHARED += [(TrainingRequest, DataConfig), (TrainingRequest, TrainConfig), (HeldOutText, DataConfig)]
# Of the same name, and other settings: a key that counts threads from 0, a precision of training.
OTHERS = {(Runtime, TrainConfig): {"threads", "precision"}}
# None where it is not given: as the bundle, or the recipe, has it.
OWN_DEFAULTS = {(Runtime, "batch_tokens"), (TrainingRequest, "src_key"), (TrainingRequest, "tgt_key")}


@pytest.mark.parametrize(("group", "section"), SHARED)
def test_a_key_that_an_option_sets_too_has_the_options_own_default_help_and_range(
    group: type, section: type[Section]
) -> None:
    names = options_of(group).keys() & section.model_fields.keys() - OTHERS.get((group, section), set())
    assert names
    for name in names:
        option, field = options_of(group)[name], section.model_fields[name]
        assert field.description is option.help, name
        if (group, name) not in OWN_DEFAULTS:
            assert field.default == getattr(group, name)
        most = option.outer_maximum or option.maximum
        for limit, attribute in ((option.minimum, "ge"), (option.above, "gt"), (most, "le")):
            limits = [getattr(each, attribute) for each in field.metadata if hasattr(each, attribute)]
            assert limits == ([limit] if limit is not None else []), (name, attribute)


@pytest.mark.parametrize(
    ("name", "choices"), [("length_normalization", LengthNormalization), ("early_stopping", EarlyStopping)]
)
def test_the_choices_of_a_setting_are_one_type(name: str, choices: object) -> None:
    assert DecodeConfig.model_fields[name].annotation is choices
    assert kinds_of(DecodeConfig)[name] == get_args(choices)
