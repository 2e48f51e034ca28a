from collections.abc import Callable
from dataclasses import fields
from inspect import signature
from typing import Any

import pytest

from heedful import api
from heedful.analysis.head_importance import importance_on_text
from heedful.interop.huggingface.hub import push
from heedful.tasks.average import average
from heedful.tasks.demo import demo
from heedful.tasks.exchange import export_model, import_model
from heedful.verbs.average import Average
from heedful.verbs.demo import Demo
from heedful.verbs.draw import Heads
from heedful.verbs.evaluate import Evaluate
from heedful.verbs.export import Export
from heedful.verbs.import_ import Import
from heedful.verbs.push import Push


@pytest.mark.parametrize(
    ("task", "function", "names"),
    [
        (Evaluate, api.evaluate, {"metric", "tokenize", "lowercase", "resamples"}),
        (Heads, importance_on_text, {"pairs"}),
        (Average, average, {"last"}),
        (Demo, demo, {"overwrite", "max_minutes", "seed"}),
        (Export, export_model, {"quantization"}),
        (Import, import_model, {"layout", "src_lang", "tgt_lang"}),
        (Push, push, {"private", "revision", "message"}),
    ],
)
def test_a_function_has_the_defaults_of_its_command(
    task: type, function: Callable[..., Any], names: set[str]
) -> None:
    of_command = {each.name: each.default for each in fields(task) if each.name in names}
    assert of_command == {name: signature(function).parameters[name].default for name in names}
