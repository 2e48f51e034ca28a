"""The keyword arguments of public functions are the options of their tasks."""

from collections.abc import Callable
from dataclasses import fields
from inspect import isfunction, signature, unwrap
from itertools import chain
from typing import Any, get_args

import pytest

import heedful
from heedful.decoding.options import SEARCH_NAMES
from heedful.evaluation import metrics
from heedful.interop import layouts
from heedful.settings.options import Languages, Runtime, options_of
from heedful.tasks.options import (
    LAYOUTS,
    METRICS,
    BackTranslationOptions,
    DistillOptions,
    ScoringOptions,
    TranslationOptions,
)

GROUPS = {"languages", "runtime", "search"}
SHARED = {*options_of(Languages), *options_of(Runtime), *SEARCH_NAMES}


@pytest.mark.parametrize(
    ("function", "kind", "of_task"),
    [
        (heedful.evaluate, ScoringOptions, set[str]()),
        (heedful.translate_file, TranslationOptions, {"source"}),
        (heedful.distill, DistillOptions, set[str]()),
        (heedful.back_translate, BackTranslationOptions, set[str]()),
    ],
)
def test_a_function_takes_the_options_of_its_task(
    function: Callable[..., Any], kind: type, of_task: set[str]
) -> None:
    parameters = signature(function).parameters
    [keywords] = [each for each in parameters.values() if each.kind is each.VAR_KEYWORD]
    names = parameters.keys() - {keywords.name} | get_args(keywords.annotation)[0].__annotations__.keys()
    options = {field.name for field in fields(kind)} - GROUPS | SHARED
    assert options - of_task <= names


def test_no_public_function_takes_any_keyword() -> None:
    public = [getattr(heedful, name) for name in heedful.__all__]
    members = [vars(thing).values() for thing in public if isinstance(thing, type)]
    functions = [unwrap(getattr(each, "__func__", each)) for each in [*public, *chain(*members)]]
    for function in filter(isfunction, functions):
        parameters = signature(function).parameters.values()
        assert not [each for each in parameters if each.kind is each.VAR_KEYWORD and each.annotation is Any]


def test_help_names_every_metric_and_layout() -> None:
    assert {name.partition("=")[0] for name in METRICS.split(", ")} == {*metrics.METRICS, "comet"}
    assert sorted(LAYOUTS.split(", ")) == sorted({*layouts.LAYOUTS, *layouts.DIRECTORY_LAYOUTS})
