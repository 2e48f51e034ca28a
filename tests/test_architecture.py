"""The source keeps every rule of tests/support/source_rules.py, and each rule can be seen to fail."""

import ast
import re
import subprocess
import sys

import pytest
from source_rules import (
    MAX_FILE_LINES,
    MAX_FUNCTION_LINES,
    MAX_PAPER_LINES,
    MAX_SUPPRESSIONS,
    NATIVE,
    NATIVE_RULES,
    NATIVE_SUFFIXES,
    PACKAGE,
    ROOT,
    RULES,
    Rule,
    Source,
    a_function_returns_one_type,
    backends_know_no_strategy,
    docstrings_say_what_is_done,
    errors_say_what_went_wrong,
    importing_does_nothing,
    imports_point_down,
    layers_are_pure,
    names_say_something,
    native_files_are_small,
    no_code_is_loaded,
    no_module_cycles,
    nothing_is_unfinished,
    nothing_only_forwards,
    one_file_makes_masks,
    only_the_command_line_prints,
    optional_arguments_are_named,
    optional_packages_have_one_home,
    reachable,
    shapes_stand_where_layouts_meet,
    sizes_are_small,
    strategies_and_backends_are_not_told_apart,
    the_command_line_is_light,
    the_paper_is_plain,
    the_paper_is_short,
    values_are_frozen,
)

LONG_BODY = "\n".join(["    x = 1"] * MAX_FUNCTION_LINES)
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
    (names_say_something, "training/utils.py", ""),
    (names_say_something, "common/a.py", ""),
    (sizes_are_small, "model/a.py", "x = 1\n" * (MAX_FILE_LINES + 1)),
    (sizes_are_small, "model/a.py", f"async def f():\n{LONG_BODY}"),
    (sizes_are_small, "model/a.py", "class A:\n    def f(self, a, b, c, d, e, *, f, g, h, i): ..."),
    (sizes_are_small, "cli/a.py", "def a(a, b, c, d, e, f, g, h, i): ..."),
    (native_files_are_small, "checks/a.c", "int x;\n" * (MAX_FILE_LINES + 1)),
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
    (only_the_command_line_prints, "verbs/loading.py", "def f():\n    print('x')"),
    (strategies_and_backends_are_not_told_apart, "cli/a.py", "x = isinstance(s, BeamSearch | Greedy)"),
    (strategies_and_backends_are_not_told_apart, "verbs/a.py", "isinstance(b, NativeBackend)"),
    (backends_know_no_strategy, "decoding/strategies/a.py", "from heedful.decoding.backends import native"),
    (backends_know_no_strategy, "decoding/backends/a.py", "def f():\n    from ..strategies.beam import Beam"),
    (one_file_makes_masks, "decoding/a.py", "mask = torch.ones(3, 3).tril()"),
    (one_file_makes_masks, "model/layers.py", "mask = torch.triu(x)"),
    (shapes_stand_where_layouts_meet, "data/a.py", "ids_BT = 1"),
    (shapes_stand_where_layouts_meet, "training/a.py", "def f(scores_BHTS): ..."),
    (values_are_frozen, "data/a.py", "@dataclass\nclass A:\n    x: int"),
    (values_are_frozen, "data/a.py", "@dataclass(slots=True)\nclass A:\n    x: int"),
    (optional_arguments_are_named, "data/a.py", "def f(a, b=1): ..."),
    (optional_arguments_are_named, "data/a.py", "class A:\n    def __init__(self, a, b=None, *, c=2): ..."),
    (a_function_returns_one_type, "data/a.py", "def f() -> int | str: ..."),
    (a_function_returns_one_type, "data/a.py", "def f() -> A | B | None: ..."),
    (nothing_only_forwards, "data/a.py", "def f(a, b):\n    return g(b, a)"),
    (nothing_only_forwards, "data/a.py", "class A:\n    def f(self, a):\n        return self.g.f(a=a)"),
    (errors_say_what_went_wrong, "data/a.py", "raise Exception('x')"),
    (errors_say_what_went_wrong, "data/a.py", "def f():\n    raise RuntimeError"),
    (nothing_is_unfinished, "data/a.py", "x = 1  # TODO: more"),
    (optional_packages_have_one_home, "verbs/a.py", "import matplotlib.pyplot"),
    (optional_packages_have_one_home, "training/a.py", "from huggingface_hub import login"),
    (docstrings_say_what_is_done, "model/a.py", '"""What a layer is made of."""'),
    (docstrings_say_what_is_done, "data/a.py", 'class A:\n    def f(self):\n        """What it holds."""'),
]


def test_the_source_keeps_every_rule() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    sources = [Source(str(p.relative_to(PACKAGE).as_posix()), p.read_text(encoding="utf-8")) for p in files]
    assert len(sources) > 5
    assert [violation for source in sources for rule in RULES for violation in rule(source)] == []
    assert list(the_paper_is_short(sources)) == []
    assert list(no_module_cycles(sources)) == []


def test_the_native_library_keeps_its_rules() -> None:
    files = sorted(path for path in NATIVE.rglob("*") if path.suffix in NATIVE_SUFFIXES)
    sources = [
        Source(path.relative_to(NATIVE).as_posix(), path.read_text(encoding="utf-8")) for path in files
    ]
    assert len(sources) > 5
    assert [violation for source in sources for rule in NATIVE_RULES for violation in rule(source)] == []


def test_a_paper_that_grows_is_noticed() -> None:
    half = "x = 1\n" * (MAX_PAPER_LINES // 2)
    nn, model = Source("model/deep/a.py", half), Source("model/transformer.py", half)
    assert list(the_paper_is_short([nn, model])) == ["model/ has 800 lines, not below 800"]
    assert list(the_paper_is_short([nn, Source("ops/a.py", half)])) == []


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


def test_native_headers_include_each_other_one_way() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in NATIVE.glob("*.h")}
    includes = {name: set(re.findall(r'#include "([\w.]+)"', text)) for name, text in texts.items()}
    assert [name for name in includes if name in reachable(name, includes)] == []


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
        ("data/a.py", 'def f():\n    """Return what is left."""\n    return "What"'),
    ],
)
def test_good_code_breaks_no_rule(path: str, text: str) -> None:
    assert [violation for rule in RULES for violation in rule(Source(path, text))] == []


def test_each_walk_of_the_guide_has_three_files_that_define_what_it_names() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Four walks")[2]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    walks = re.split(r"\n\d\. ", text)[1:]
    assert len(walks) == 4
    for walk in walks:
        files = re.findall(r"`(\w+/[\w/]+\.py)`", walk)
        assert len(files) <= 3
        assert f"src/heedful/{files[0]}" in readme
        nodes = [node for file in files for node in ast.walk(ast.parse((PACKAGE / file).read_text("utf-8")))]
        defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        named = set(re.findall(r"`([A-Za-z]\w+)`", walk))
        assert named
        assert named - defined == set()


def test_test_files_are_small_too() -> None:
    lengths = {
        p.name: len(p.read_text(encoding="utf-8").splitlines()) for p in (ROOT / "tests").rglob("*.py")
    }
    assert {name: lines for name, lines in lengths.items() if lines > MAX_FILE_LINES} == {}


def test_suppressions_are_few_and_say_what_they_suppress() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
    suppressions = re.findall(r"# (?:type: ignore|noqa).*", text)
    assert len(suppressions) <= MAX_SUPPRESSIONS
    assert [s for s in suppressions if not re.match(r"# (type: ignore\[[a-z-]+|noqa: [A-Z]+\d+)", s)] == []


def test_the_public_surface_is_pinned() -> None:
    import heedful

    errors = {
        "BundleError", "CheckpointError", "ConfigError", "CorpusError", "HeedfulError", "HubError",
        "InputError", "InteropError", "MissingExtraError", "RunError", "TokenizerError", "TrainingError",
    }  # fmt: skip
    classes = {
        "Bundle",
        "Config",
        "Glossary",
        "SearchOptions",
        "TableTranslator",
        "Translation",
        "Translator",
    }
    functions = {"download_bundle", "load_bundle", "load_model"}
    assert set(heedful.__all__) == errors | classes | functions | {"__version__"}
    assert all(getattr(heedful, name) is not None for name in heedful.__all__)
    with pytest.raises(AttributeError, match="no attribute 'Translater'"):
        _ = heedful.Translater


def test_importing_heedful_loads_nothing_else() -> None:
    code = "import sys; before = set(sys.modules); import heedful; print(*sorted(set(sys.modules) - before))"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    roots = {name.split(".")[0] for name in loaded}
    assert roots <= {"heedful"} | set(sys.stdlib_module_names)
    assert [name for name in loaded if name.startswith("heedful.")] == ["heedful.errors"]
