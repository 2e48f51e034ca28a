"""The rules of the source that a machine can check: layers, cycles, frozen values, and what importing may do.

Each is a function from the source of a file to its violations; tests/test_architecture.py applies them.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import heedful

ROOT = Path(__file__).resolve().parent.parent.parent
PACKAGE = ROOT / "src" / "heedful"

# errors is below everything, the package's own front (heedful/__init__.py, __main__.py) above everything.
LAYERS: dict[str, int] = {
    "errors": -1,
    "front": -1,
    **dict.fromkeys(("settings", "runtime", "notebook_html"), 0),
    **dict.fromkeys(("model", "text"), 1),
    **dict.fromkeys(("ops", "data"), 2),
    "storage": 3,
    **dict.fromkeys(("training", "decoding"), 4),
    **dict.fromkeys(("evaluation", "analysis", "interop", "spans"), 5),
    "documents": 6,
    "bulk": 7,
    "tasks": 8,
    "serving": 9,
    "cli": 10,
    "verbs": 11,
    "__init__": 13,
    "__main__": 13,
}
# It is built on the library as a user's service would be: public names come from heedful itself.
BUILT_ON_THE_LIBRARY = {"serving"}
PUBLIC = {f"heedful.{name}" for name in heedful.__all__}
# What model/ may import: no kernel, no native library, nothing of the operating system.
PAPER_IMPORTS = re.compile(
    r"(collections\.abc|dataclasses|functools|math|typing|typing_extensions)(\..*)?"
    r"|torch(\.Tensor|\.nn(\..*)?)?"
    r"|heedful\.(model|settings|errors)(\..*)?"
)
MACHINERY = re.compile(
    r"torch\.(compiler|cuda|cpu|backends|mps|ops|library|overrides|utils|autograd|get_num_threads)\b"
    r"|.*\.(is_cuda|data_ptr)$"
)
CODE_LOADERS = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}
MESSAGES = "training/parallel/messages.py"  # which processes of a training exchange: they are no files
HEAVY = {"torch", "numpy", "pyarrow", "sentencepiece", "sacrebleu", "safetensors", "matplotlib", "pydantic"}
# Parts of cli/ and verbs/ that no verb imports before it runs (tests/e2e/test_console_script.py sees to it).
LAZY_PARTS = {"cli/progress.py"}
LIGHT = re.compile(
    r"heedful\.(cli|data\.streams|decoding\.strategies\.options|errors|front|model\.search|settings\.options"
    r"|tasks\.(adapt_)?options|serving\.(limits|options))\b.*"
)
NOT_TO_BE_TYPE_TESTED = re.compile(r"Strategy|Greedy|\w*BeamSearch|Sampling|MinimumBayesRisk|\w*Backend")
# Dataclasses that remember something while work goes on, and so change; all others are values.
MUTABLE_DATACLASSES = {"LayerCache", "PeakMemory", "Progress", "Turn", "_Bucket", "_Node", "Finding"}
# Optional packages, and the one folder that may import each; torch is what half of heedful is about.
FOLDER_OF_PACKAGE = {
    **dict.fromkeys(("cachetools", "fastapi", "starlette", "uvicorn", "h11", "prometheus_client"), "serving"),
    "markdown_it": "documents",
    "langcodes": "text",
    **dict.fromkeys(("ctranslate2", "onnx", "onnxscript", "onnxruntime", "huggingface_hub"), "interop"),
    "transformers": "interop",
    "matplotlib": "analysis",
    "sklearn": "evaluation",
    "tokenizers": "text",
    **dict.fromkeys(("ftfy", "py3langid"), "data"),
}
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

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))


Rule = Callable[[Source], Iterator[str]]


def imported_modules(source: Source, nodes: Iterable[ast.AST]) -> Iterator[tuple[int, str]]:
    """Every module that these nodes of a file import, as an absolute name."""
    parent = ["heedful", *source.path.split("/")[:-1]]
    for node in nodes:
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
    for line, name in imported_modules(source, source.nodes):
        parts = name.split(".")
        if parts[0] != "heedful" or (source.package in BUILT_ON_THE_LIBRARY and name in PUBLIC):
            continue
        target = parts[1] if len(parts) > 1 else "__init__"
        target = target if target in LAYERS else "__init__"
        if target != source.package and LAYERS[target] >= LAYERS[source.package]:
            yield f"{source.path}:{line}: {source.package} imports {name}, which is not below it"


def public_names_come_from_the_front(source: Source) -> Iterator[str]:
    if source.package not in BUILT_ON_THE_LIBRARY:
        return
    for line, name in imported_modules(source, source.nodes):
        front = f"heedful.{name.rpartition('.')[2]}"
        if name.startswith("heedful.") and name != front and front in PUBLIC:
            yield f"{source.path}:{line}: {name} is public: import it from heedful"


def no_module_cycles(sources: list[Source]) -> Iterator[str]:
    """No module imports itself through others, by any import: at the top, for types, or inside functions."""
    known = {module_name(each.path): each for each in sources}
    imports: dict[str, set[str]] = {name: set() for name in known}
    for name, source in known.items():
        for _, imported in imported_modules(source, source.nodes):
            target = imported if imported in known else imported.rpartition(".")[0]
            if target in known and target != name:
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
    for line, module in imported_modules(source, source.nodes):
        if name and (module == name or module.startswith(name + ".")):
            yield f"{source.path}:{line}: {source.package} imports {module}"


def the_paper_is_plain(source: Source) -> Iterator[str]:
    """model/ holds formulas: what makes them fast, or loads them, is applied from outside (ops/)."""
    if source.package != "model":
        return
    for line, module in imported_modules(source, source.nodes):
        if not PAPER_IMPORTS.fullmatch(module):
            yield f"{source.path}:{line}: {source.package} imports {module}"
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and MACHINERY.match(ast.unparse(node)):
            yield f"{source.path}:{node.lineno}: {ast.unparse(node)} is no formula"


def only_the_command_line_prints(source: Source) -> Iterator[str]:
    is_verb = source.package == "verbs" and source.path not in LAZY_PARTS
    if is_verb or source.package in {"cli", "__main__"} or source.path == "data/streams.py":
        return
    for node in source.nodes:
        match node:
            case ast.Call() if ast.unparse(node.func) in {"print", "rich.print", "typer.echo"}:
                yield f"{source.path}:{node.lineno}: only cli/ and verbs print"
            case ast.Attribute() if ast.unparse(node) in {"sys.stdout", "sys.stderr"}:
                yield f"{source.path}:{node.lineno}: only cli/ and verbs touch {ast.unparse(node)}"


def no_code_is_loaded(source: Source) -> Iterator[str]:
    for line, module in imported_modules(source, source.nodes):
        if module.split(".")[0] in CODE_LOADERS and source.path != MESSAGES:
            yield f"{source.path}:{line}: {module} runs code that it finds in files"
    for node in source.nodes:
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
    for line, module in imported_modules(source, statements_at_import(source.tree)):
        root = module.split(".")[0]
        if root in HEAVY or (root == "heedful" and not LIGHT.fullmatch(module)):
            yield f"{source.path}:{line}: {module} must be imported inside the function that needs it"


def strategies_and_backends_are_not_told_apart(source: Source) -> Iterator[str]:
    """Whoever holds a strategy or a backend asks it; only its own folder knows of which class it is."""
    if source.path.startswith(("decoding/strategies/", "decoding/backends/")):
        return
    for node in source.nodes:
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"isinstance", "issubclass", "type"}:
            for name in ast.walk(node):
                if isinstance(name, ast.Name) and NOT_TO_BE_TYPE_TESTED.fullmatch(name.id):
                    yield f"{source.path}:{node.lineno}: asks whether something is a {name.id}"


def backends_know_no_strategy(source: Source) -> Iterator[str]:
    """A strategy works on any backend, and a backend for any strategy: neither names the other."""
    for mine, other in (("strategies", "backends"), ("backends", "strategies")):
        if source.path.startswith(f"decoding/{mine}/"):
            for line, module in imported_modules(source, source.nodes):
                if module.startswith(f"heedful.decoding.{other}"):
                    yield f"{source.path}:{line}: {mine} import {module}"


def one_file_makes_masks(source: Source) -> Iterator[str]:
    """Later positions are hidden by `causal` in model/attention.py, and by nobody else."""
    for node in source.nodes:
        is_mask = isinstance(node, ast.Attribute) and node.attr in {"tril", "triu", "tril_", "triu_"}
        if is_mask and source.path != "model/attention.py":
            yield f"{source.path}:{node.lineno}: {ast.unparse(node)[:60]} makes a mask of its own"


def values_are_frozen(source: Source) -> Iterator[str]:
    """What crosses a boundary is a frozen dataclass."""
    for node in source.nodes:
        for decorator in node.decorator_list if isinstance(node, ast.ClassDef) else ():
            text = ast.unparse(decorator)
            if (
                text.startswith("dataclass")
                and "frozen=True" not in text
                and node.name not in MUTABLE_DATACLASSES
            ):
                yield f"{source.path}:{node.lineno}: {node.name} is not frozen"


def optional_packages_have_one_home(source: Source) -> Iterator[str]:
    """Only one folder imports an optional package; verbs may inside a function."""
    for line, module in imported_modules(source, statements_at_import(source.tree)):
        home = FOLDER_OF_PACKAGE.get(module.split(".")[0], source.package)
        if home != source.package:
            yield f"{source.path}:{line}: {module} belongs in {home}/"


RULES: list[Rule] = [
    imports_point_down,
    public_names_come_from_the_front,
    layers_are_pure,
    the_paper_is_plain,
    only_the_command_line_prints,
    no_code_is_loaded,
    importing_does_nothing,
    the_command_line_is_light,
    strategies_and_backends_are_not_told_apart,
    backends_know_no_strategy,
    one_file_makes_masks,
    values_are_frozen,
    optional_packages_have_one_home,
]
