"""docs/reference/ says what the code says."""

import re
from collections.abc import Callable
from dataclasses import fields
from typing import get_args, get_type_hints

import pytest

import heedful
from heedful.cli.text_options import TrainingText
from heedful.config import Config, DataConfig, DecodeConfig
from heedful.config.section import Section
from heedful.requests import Option, Runtime, SearchRequest
from python_reference import at_commas
from reference import PAGES, REFERENCE


@pytest.mark.parametrize(("name", "page"), PAGES.items())
def test_a_page_is_that_of_the_code(name: str, page: Callable[[], str]) -> None:
    written = (REFERENCE / name).read_text(encoding="utf-8")
    assert written == page(), f"docs/reference/{name} is not up to date: run make docs"


def test_every_public_name_is_described_and_every_name_can_be_imported() -> None:
    page = (REFERENCE / "python.md").read_text(encoding="utf-8")
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


def test_every_key_says_what_it_is_in_one_sentence() -> None:
    for name, field in Config.model_fields.items():
        for key, entry in type(field.default).model_fields.items():
            text = entry.description or ""
            assert re.fullmatch(r"[A-Z].*\.", text), f"{name}.{key}: {text!r}"
            # One period, at the end; "(3.1)", ".jsonl" and a weight's name are no ends of sentences.
            assert not re.search(r"\. [A-Z]", text), f"{name}.{key}: {text!r}"


def options(group: type) -> dict[str, Option]:
    """Return the option of each field of a group that has one."""
    hints = get_type_hints(group, include_extras=True)
    found = {
        field.name: [each for each in get_args(hints[field.name]) if isinstance(each, Option)]
        for field in fields(group)
    }
    return {name: each[0] for name, each in found.items() if each}


@pytest.mark.parametrize(
    ("group", "section"), [(SearchRequest, DecodeConfig), (Runtime, DecodeConfig), (TrainingText, DataConfig)]
)
def test_an_option_that_overrides_a_key_has_its_description_and_minimum(
    group: type, section: type[Section]
) -> None:
    schema = section.model_json_schema()["properties"]
    shared = {name: option for name, option in options(group).items() if name in schema}
    assert shared
    for name, option in shared.items():
        entry = schema[name]
        numbers = [entry, *entry.get("anyOf", [])]
        lowest = next((each["minimum"] for each in numbers if "minimum" in each), None)
        above = next((each["exclusiveMinimum"] for each in numbers if "exclusiveMinimum" in each), None)
        if above is not None and any(each.get("type") == "integer" for each in numbers):
            lowest = above + 1
        assert option.minimum == lowest, name
        assert re.sub(r" \[default: .*\]$", "", option.help) == entry["description"], name
