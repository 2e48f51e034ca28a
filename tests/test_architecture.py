"""The source keeps every rule of tests/support/source_rules.py, and each rule can be seen to fail."""

import subprocess
import sys

import pytest
from source_rules import (
    PACKAGE,
    RULES,
    Rule,
    Source,
    backends_know_no_strategy,
    importing_does_nothing,
    imports_point_down,
    layers_are_pure,
    no_code_is_loaded,
    no_module_cycles,
    one_file_makes_masks,
    only_the_command_line_prints,
    optional_packages_have_one_home,
    public_names_come_from_the_front,
    strategies_and_backends_are_not_told_apart,
    the_command_line_is_light,
    the_paper_is_plain,
    values_are_frozen,
)

BAD_EXAMPLES: list[tuple[Rule, str, str]] = [
    (imports_point_down, "model/a.py", "from heedful.ops.kernels import FusedResidual"),
    (imports_point_down, "model/a.py", "from heedful import text"),
    (imports_point_down, "model/a.py", "from heedful import Config"),
    (imports_point_down, "model/transformer.py", "import heedful.data.batches"),
    (imports_point_down, "training/a.py", "def f():\n    from heedful.decoding import beam"),
    (imports_point_down, "training/deep/a.py", "from ...decoding import beam"),
    (imports_point_down, "text/a.py", "from .. import model"),
    (imports_point_down, "storage/bundle.py", "if TYPE_CHECKING:\n    from ..verbs.train import train"),
    (imports_point_down, "novelty/a.py", ""),
    (imports_point_down, "serving/a.py", "from heedful import cli"),
    (public_names_come_from_the_front, "serving/a.py", "from heedful.errors import InputError"),
    (layers_are_pure, "model/a.py", "from heedful.settings import ModelConfig"),
    (layers_are_pure, "text/a.py", "def f():\n    import torch.nn"),
    (the_paper_is_plain, "model/a.py", "import ctypes"),
    (the_paper_is_plain, "model/a.py", "def f():\n    import os"),
    (the_paper_is_plain, "model/a.py", "from contextvars import ContextVar"),
    (the_paper_is_plain, "model/a.py", "from heedful.runtime.native import native"),
    (the_paper_is_plain, "model/a.py", "def f():\n    from heedful.ops.kernels import softmax"),
    (the_paper_is_plain, "model/transformer.py", "from heedful.ops import use_fused_ops"),
    (the_paper_is_plain, "model/transformer.py", "from torch.overrides import TorchFunctionMode"),
    (the_paper_is_plain, "model/a.py", "class A(torch.autograd.Function): ..."),
    (the_paper_is_plain, "model/a.py", "def f(x):\n    return x.is_cuda or torch.get_num_threads() == 1"),
    (only_the_command_line_prints, "training/a.py", "def f():\n    print('x')"),
    (only_the_command_line_prints, "training/a.py", "import sys\nsys.stderr.write('x')"),
    (no_code_is_loaded, "training/a.py", "def f():\n    import pickle"),
    (no_code_is_loaded, "training/a.py", "from dill import loads"),
    (no_code_is_loaded, "training/a.py", "torch.load(p)"),
    (no_code_is_loaded, "training/a.py", "torch.load(p, weights_only=False)"),
    (no_code_is_loaded, "data/a.py", "np.load(p, allow_pickle=True)"),
    (importing_does_nothing, "model/a.py", "X = os.environ['X']"),
    (importing_does_nothing, "model/a.py", "def f(x=os.getenv('X')): ..."),
    (importing_does_nothing, "model/a.py", "class A:\n    device = torch.cuda.is_available()"),
    (importing_does_nothing, "model/a.py", "torch.manual_seed(1)"),
    (the_command_line_is_light, "cli/a.py", "import torch"),
    (the_command_line_is_light, "cli/a.py", "from heedful.verbs.train import train"),
    (the_command_line_is_light, "verbs/a.py", "from heedful.settings.run import Config"),
    (only_the_command_line_prints, "tasks/loading.py", "def f():\n    print('x')"),
    (strategies_and_backends_are_not_told_apart, "cli/a.py", "x = isinstance(s, BeamSearch | Greedy)"),
    (strategies_and_backends_are_not_told_apart, "verbs/a.py", "isinstance(b, NativeBackend)"),
    (backends_know_no_strategy, "decoding/strategies/a.py", "from heedful.decoding.backends import native"),
    (backends_know_no_strategy, "decoding/backends/a.py", "def f():\n    from ..strategies.beam import Beam"),
    (one_file_makes_masks, "decoding/a.py", "mask = torch.ones(3, 3).tril()"),
    (one_file_makes_masks, "model/layers.py", "mask = torch.triu(x)"),
    (values_are_frozen, "data/a.py", "@dataclass\nclass A:\n    x: int"),
    (values_are_frozen, "data/a.py", "@dataclass(slots=True)\nclass A:\n    x: int"),
    (optional_packages_have_one_home, "verbs/a.py", "import matplotlib.pyplot"),
    (optional_packages_have_one_home, "training/a.py", "from huggingface_hub import login"),
]


@pytest.mark.slow
def test_the_source_keeps_every_rule() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    sources = [Source(str(p.relative_to(PACKAGE).as_posix()), p.read_text(encoding="utf-8")) for p in files]
    assert len(sources) > 5
    assert [violation for source in sources for rule in RULES for violation in rule(source)] == []
    assert list(no_module_cycles(sources)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from heedful.text.b import f",
        "from heedful.text import b",
        "import heedful.text.b",
        "from . import b",
        "if TYPE_CHECKING:\n    from .b import B",
        "def f():\n    from heedful.text.b import g",
    ],
)
def test_a_cycle_of_modules_is_noticed_by_any_import(text: str) -> None:
    a, c = Source("text/a.py", text), Source("text/c/__init__.py", "import heedful.text.a")
    b = Source("text/b.py", "from heedful.text.c import value")
    assert len(list(no_module_cycles([a, b, c]))) == 3
    assert list(no_module_cycles([a, b])) == []


@pytest.mark.parametrize(("rule", "path", "text"), BAD_EXAMPLES)
def test_each_rule_can_fail(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (
            "model/transformer.py",
            "from heedful.model.attention import causal\nfrom heedful.errors import InputError",
        ),
        ("model/layers.py", "from torch import Tensor, nn\nfrom .masks import causal\nx = torch.empty(0)"),
        ("cli/a.py", "from heedful.cli.main import app\ndef f():\n    import torch\n    print(os.environ)"),
        ("verbs/a.py", "from heedful.cli.streams import bar\ndef f():\n    import torch\n    print(1)"),
        ("training/a.py", "torch.load(p, weights_only=True)"),
        ("serving/a.py", "from heedful import InputError\nfrom heedful.errors import install_hint"),
    ],
)
def test_good_code_breaks_no_rule(path: str, text: str) -> None:
    assert [violation for rule in RULES for violation in rule(Source(path, text))] == []


def test_the_public_surface_is_pinned() -> None:
    import heedful

    errors = {"BundleError", "ConfigError", "CorpusError", "HeedfulError", "InputError"}
    classes = {
        "Bundle", "Config", "EvaluationReport", "Glossary", "ModelConfig", "Pair", "SearchOptions",
        "TrainResult", "Transformer", "Translation",
        "Translator",
    }  # fmt: skip
    functions = {
        "adapt", "align_documents", "attention_of", "back_translate", "causal_mask", "distill",
        "download_bundle", "evaluate",
        "export_model", "import_model", "load_bundle", "load_config", "load_model", "load_plugin",
        "padding_mask", "read_log", "record_attention", "save_bundle", "save_model", "sinusoids", "train",
        "translate_file", "translate_text", "verify",
    }  # fmt: skip
    assert set(dir(heedful)) == set(heedful.__all__) == errors | classes | functions | {"__version__"}
    assert all(getattr(heedful, name) is not None for name in heedful.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = heedful.Translater


def test_translating_lines_loads_no_markup() -> None:
    code = "import sys, heedful.tasks.translate; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "heedful.bulk.lines" in loaded.split()
    assert "heedful.spans" not in loaded.split()


def test_importing_heedful_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import heedful; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    roots = {name.split(".")[0] for name in loaded}
    assert roots <= {"heedful"} | set(sys.stdlib_module_names)
    light = ["heedful.errors", "heedful.front", "heedful.model", "heedful.model.search"]
    assert [name for name in loaded if name.startswith("heedful.")] == light
