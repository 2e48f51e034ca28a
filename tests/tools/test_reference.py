"""An option and a key of the same name are one definition."""

import pytest

from heedful.settings.options import (
    HeldOutText,
    Runtime,
    TrainingRequest,
    options_of,
)
from heedful.settings.run import DataConfig, DecodeConfig, TrainConfig
from heedful.settings.section import Section

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
