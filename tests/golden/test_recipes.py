"""A recipe's settings are those that docs/results.md was measured with, wherever it takes them from."""

import json
from pathlib import Path
from typing import Any

import pytest

from heedful.settings.loading import load_config
from heedful.settings.run import Config

ROOT = Path(__file__).parent.parent.parent
EXPECTED: dict[str, dict[str, Any]] = json.loads((ROOT / "tests/golden/recipes.json").read_text("utf-8"))


def test_each_recipe_has_its_settings_written_down() -> None:
    assert {path.stem for path in (ROOT / "recipes").glob("*.toml")} == set(EXPECTED)


@pytest.mark.parametrize("recipe", EXPECTED)
def test_a_recipe_is_resolved_to_these_settings(recipe: str) -> None:
    """All that differ from the defaults, which are the paper's."""
    base = {"train": {"init": "bundle"}}  # which the recipe of adaptation needs
    found = load_config(ROOT / "recipes" / f"{recipe}.toml", overrides=[("train.init", "bundle")])
    config, defaults = found.model_dump(), Config.model_validate(base).model_dump()
    changed = {
        f"{section}.{key}": value
        for section, values in config.items()
        for key, value in values.items()
        if value != defaults[section][key]
    }
    assert changed == EXPECTED[recipe]
