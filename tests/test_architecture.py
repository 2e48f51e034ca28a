"""The house rules that a machine can check: layers, sizes, names, and what importing may do.

Each rule is a function from the source of a file to its violations; each is shown to fail on a bad example.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "heedful"
NATIVE = ROOT / "native"

# errors is below everything, the package's own front (heedful/__init__.py, __main__.py) above everything.
LAYERS: dict[str, int] = {
    "errors": -1,
    **dict.fromkeys(("settings", "runtime", "notebook_html"), 0),
    **dict.fromkeys(("model", "text"), 1),
    **dict.fromkeys(("ops", "data"), 2),
    "storage": 3,
    **dict.fromkeys(("training", "decoding"), 4),
    **dict.fromkeys(("evaluation", "analysis", "interop"), 5),
    "serving": 6,
    "cli": 7,
    "verbs": 8,
    "__init__": 9,
    "__main__": 9,
}
MAX_FILE_LINES = 600
MAX_PAPER_LINES = 800  # of model/ without what is not in the paper (variants.py)
# What model/ may import: no kernel, no native library, nothing of the operating system.
PAPER_IMPORTS = re.compile(
    r"(collections\.abc|dataclasses|functools|math|typing)(\..*)?"
    r"|torch(\.Tensor|\.nn(\..*)?)?"
    r"|heedful\.(model|settings|errors)(\..*)?"
)
MACHINERY = re.compile(
    r"torch\.(compiler|cuda|cpu|backends|mps|ops|library|overrides|utils|autograd|get_num_threads)\b"
    r"|.*\.(is_cuda|data_ptr)$"
)
MAX_FUNCTION_LINES = 80
MAX_PARAMETERS = 8
MAX_SUPPRESSIONS = 30
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc"}
CODE_LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
HEAVY = {"torch", "numpy", "pyarrow", "sentencepiece", "sacrebleu", "safetensors", "matplotlib", "pydantic"}
# Parts of cli/ and verbs/ that no verb imports before it runs (tests/e2e/test_console_script.py sees to it).
LAZY_PARTS = {"cli/progress.py"} | {
    f"verbs/{name}.py"
    for name in ("card", "inspect_text", "loading", "output_checks", "prepare", "profiling", "run_directory")
}
LIGHT = re.compile(r"heedful\.(cli|errors|settings\.options|serving\.limits)\b.*")
# Imports inside a function that close a cycle: a stored model is built by what also writes models.
LATE_IMPORTS = {("heedful.storage.stored_model", "heedful.storage.model_files")}
TOLD_APART = re.compile(r"Strategy|Greedy|\w*BeamSearch|Sampling|MinimumBayesRisk|\w*Backend")
SIDE_EFFECTS = re.compile(
    r"(os\.(environ|getenv|putenv)|getenv|environ)\b"
    r"|(torch|random|np\.random|numpy\.random)\.(manual_)?seed\b"
    r"|torch\.(cuda|backends|mps|xpu)\.|torch\.set_|logging\.basicConfig\b|warnings\.(filter|simplefilter)"
)


@dataclass(frozen=True)
class Source:
    """A file: its path inside src/heedful (as `model/attention.py`) and its text."""

    path: str
    text: str

    @property
    def package(self) -> str:
        return self.path.split("/")[0].removesuffix(".py")

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)


Rule = Callable[[Source], Iterator[str]]


def imported_modules(source: Source, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every module that is imported anywhere in `tree`, inside functions too, as an absolute name."""
    parent = ["heedful", *source.path.split("/")[:-1]]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            base = parent[: len(parent) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield node.lineno, f"{module}.{alias.name}"


def statements_at_import(tree: ast.Module) -> Iterator[ast.AST]:
    """Every node that runs when the module is imported: function bodies and type-checking blocks do not."""
    waiting: list[ast.AST] = list(tree.body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) in {"TYPE_CHECKING", "__name__ == '__main__'"}:
            continue
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            waiting += [*node.decorator_list, *node.args.defaults, *[d for d in node.args.kw_defaults if d]]
        elif not isinstance(node, ast.Lambda):
            waiting += ast.iter_child_nodes(node)


def imports_point_down(source: Source) -> Iterator[str]:
    if source.package not in LAYERS:
        yield f"{source.path}: {source.package} has no layer"
        return
    for line, name in imported_modules(source, source.tree):
        parts = name.split(".")
        if parts[0] != "heedful":
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        target = target if target in LAYERS else "__init__"
        if target != source.package and LAYERS[target] >= LAYERS[source.package]:
            yield f"{source.path}:{line}: {source.package} imports {name}, which is not below it"


def no_module_cycles(sources: list[Source]) -> Iterator[str]:
    """No module imports itself through others, by any import: at the top, for types, or inside functions."""
    known = {module_name(each.path): each for each in sources}
    imports: dict[str, set[str]] = {name: set() for name in known}
    for name, source in known.items():
        for _, imported in imported_modules(source, source.tree):
            target = imported if imported in known else imported.rpartition(".")[0]
            if target in known and target != name and (name, target) not in LATE_IMPORTS:
                imports[name].add(target)
    reached = {name: reachable(name, imports) for name in known}
    for name, source in known.items():
        if name in reached[name]:
            others = sorted(each for each in reached[name] if name in reached[each])
            yield f"{source.path}: a cycle of {', '.join(others)}"


def module_name(path: str) -> str:
    return ".".join(["heedful", *path.removesuffix(".py").split("/")]).removesuffix(".__init__")


def reachable(name: str, imports: dict[str, set[str]]) -> set[str]:
    reached: set[str] = set()
    waiting = [name]
    while waiting:
        new = imports[waiting.pop()] - reached
        reached |= new
        waiting += new
    return reached


def layers_are_pure(source: Source) -> Iterator[str]:
    """The layers of model/ take numbers, not settings; settings/ and text/ know nothing of torch."""
    forbidden = {"model": "heedful.settings", "settings": "torch", "text": "torch", "errors": "torch"}
    name = None if source.path == "model/transformer.py" else forbidden.get(source.package)
    for line, module in imported_modules(source, source.tree):
        if name and (module == name or module.startswith(name + ".")):
            yield f"{source.path}:{line}: {source.package} imports {module}"


def the_paper_is_plain(source: Source) -> Iterator[str]:
    """model/ holds formulas: what makes them fast, or loads them, is applied from outside (ops/)."""
    if source.package != "model":
        return
    for line, module in imported_modules(source, source.tree):
        if not PAPER_IMPORTS.fullmatch(module):
            yield f"{source.path}:{line}: {source.package} imports {module}"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute) and MACHINERY.match(ast.unparse(node)):
            yield f"{source.path}:{node.lineno}: {ast.unparse(node)} is no formula"


def the_paper_is_short(sources: list[Source]) -> Iterator[str]:
    """A reader gets through model/ in one sitting."""
    paper = [each for each in sources if each.package == "model" and each.path != "model/variants.py"]
    lines = sum(len(each.text.splitlines()) for each in paper)
    if lines >= MAX_PAPER_LINES:
        yield f"model/ has {lines} lines, not below {MAX_PAPER_LINES}"


def names_say_something(source: Source) -> Iterator[str]:
    for part in source.path.removesuffix(".py").split("/"):
        if part in VAGUE_NAMES:
            yield f"{source.path}: a module called {part} says nothing about what is in it"


def sizes_are_small(source: Source) -> Iterator[str]:
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"{source.path}: {lines} lines, more than {MAX_FILE_LINES}"
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        where = f"{source.path}:{node.lineno}: {node.name}"
        length = (node.end_lineno or node.lineno) - node.lineno + 1
        if length > MAX_FUNCTION_LINES:
            yield f"{where} has {length} lines, more than {MAX_FUNCTION_LINES}"
        args = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
        count = sum(arg.arg not in {"self", "cls"} for arg in args)
        if count > MAX_PARAMETERS:
            yield f"{where} has {count} parameters, more than {MAX_PARAMETERS}"


def native_files_are_small(source: Source) -> Iterator[str]:
    """C and C++ have the limit of Python's files."""
    lines = len(source.text.splitlines())
    if lines > MAX_FILE_LINES:
        yield f"native/{source.path}: {lines} lines, more than {MAX_FILE_LINES}"


def only_the_command_line_prints(source: Source) -> Iterator[str]:
    is_verb = source.package == "verbs" and source.path not in LAZY_PARTS
    if is_verb or source.package in {"cli", "__main__"}:
        return
    for node in ast.walk(source.tree):
        match node:
            case ast.Call() if ast.unparse(node.func) in {"print", "rich.print", "typer.echo"}:
                yield f"{source.path}:{node.lineno}: only cli/ and verbs print"
            case ast.Attribute() if ast.unparse(node) in {"sys.stdout", "sys.stderr"}:
                yield f"{source.path}:{node.lineno}: only cli/ and verbs touch {ast.unparse(node)}"


def no_code_is_loaded(source: Source) -> Iterator[str]:
    for line, module in imported_modules(source, source.tree):
        if module.split(".")[0] in CODE_LOADERS:
            yield f"{source.path}:{line}: {module} runs code that it finds in files"
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        if ast.unparse(node.func) == "torch.load" and keywords.get("weights_only") != "True":
            yield f"{source.path}:{node.lineno}: torch.load without weights_only=True"
        if keywords.get("allow_pickle") == "True":
            yield f"{source.path}:{node.lineno}: allow_pickle=True"


def importing_does_nothing(source: Source) -> Iterator[str]:
    for node in statements_at_import(source.tree):
        if isinstance(node, ast.Attribute | ast.Call) and SIDE_EFFECTS.match(ast.unparse(node)):
            yield f"{source.path}:{node.lineno}: {ast.unparse(node)} runs at import"


def the_command_line_is_light(source: Source) -> Iterator[str]:
    """A verb's module imports only the light parts at its top, so that `heedful --help` is quick."""
    if source.package not in {"cli", "verbs", "__init__", "__main__"} or source.path in LAZY_PARTS:
        return
    for top in statements_at_import(source.tree):
        for line, module in imported_modules(source, top) if isinstance(top, ast.stmt) else ():
            root = module.split(".")[0]
            is_heavy = root in HEAVY or (root == "heedful" and not LIGHT.fullmatch(module))
            if isinstance(top, ast.Import | ast.ImportFrom) and is_heavy:
                yield f"{source.path}:{line}: {module} must be imported inside the function that needs it"


def docstrings_say_what_is_done(source: Source) -> Iterator[str]:
    """A first sentence that opens with "What" is a riddle; a noun phrase or a verb says it plainly."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").split("\n", 1)[0]
            if re.match(r"what\b", first, re.IGNORECASE):
                line = 1 if isinstance(node, ast.Module) else node.lineno
                yield f"{source.path}:{line}: a docstring says what is returned or done, not {first!r}"


def strategies_and_backends_are_not_told_apart(source: Source) -> Iterator[str]:
    """Whoever holds a strategy or a backend asks it; only its own folder knows of which class it is."""
    if source.path.startswith(("decoding/strategies/", "decoding/backends/")):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass", "type"}:
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and TOLD_APART.fullmatch(name.id):
                    yield f"{source.path}:{node.lineno}: asks whether something is a {name.id}"


RULES: list[Rule] = [
    imports_point_down,
    layers_are_pure,
    the_paper_is_plain,
    names_say_something,
    sizes_are_small,
    only_the_command_line_prints,
    no_code_is_loaded,
    importing_does_nothing,
    the_command_line_is_light,
    docstrings_say_what_is_done,
    strategies_and_backends_are_not_told_apart,
]

OF_NATIVE_FILES: list[Rule] = [native_files_are_small]
NATIVE_SUFFIXES = {".c", ".h", ".cc", ".cpp", ".cxx", ".hpp", ".hh", ".inc", ".S"}

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
    assert [violation for source in sources for rule in OF_NATIVE_FILES for violation in rule(source)] == []


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
    classes = {"Bundle", "Config", "SearchOptions", "Translation", "Translator"}
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
