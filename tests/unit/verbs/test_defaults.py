from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from heedful import api
from heedful.analysis.head_importance import importance_on_text
from heedful.runs.evaluate import evaluate
from heedful.runs.shortlist import learn_shortlist
from heedful.verbs.draw import Heads
from heedful.verbs.evaluate import Evaluate
from heedful.verbs.shortlist import LearnShortlist


@pytest.mark.parametrize(
    ("task", "function", "names"),
    [
        (Evaluate, evaluate, {"metric", "tokenize", "lowercase", "resamples", "calibrate"}),
        (Evaluate, api.evaluate, {"metric", "tokenize", "lowercase", "resamples"}),
        (LearnShortlist, learn_shortlist, {"candidates", "frequent", "pairs"}),
        (Heads, importance_on_text, {"pairs"}),
    ],
)
def test_a_function_has_the_defaults_of_its_command(
    task: type, function: Callable[..., Any], names: set[str]
) -> None:
    of_command = {each.name: each.default for each in fields(task) if each.name in names}
    assert of_command == {name: signature(function).parameters[name].default for name in names}
