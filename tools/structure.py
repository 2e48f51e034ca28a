"""Print figures of the structure: `python tools/structure.py [CHECKOUT]`, or make report.

Lines of Python by package; nodes, branches and code lines of src by package; `raise` for 1,000 lines,
imports inside functions, longest module and function, long functions and large classes; how often
docstrings, comments and pages use roundabout words and say if, when or because; then how many functions and
files of heedful a translated line, a training step, a request to the service and a document use
(`trace_tasks.py`).
"""

import argparse
import ast
import io
import re
import statistics
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import TypeIs

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = "tests/golden/ten-pairs"
STATEMENTS = ast.If | ast.For | ast.AsyncFor | ast.While | ast.ExceptHandler | ast.match_case | ast.IfExp
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef
LONG, LARGE = 50, 10  # lines of a function, methods of a class
FENCED = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
PHRASES = {
    "roundabout words": "of which|those of|that of|whose|each of|so many|whatever|nobody|somebody",
    "if, when, because, for example": "if|when|because|for example",
}


def lines_by_folder(folder: Path) -> Counter[str]:
    """Return the lines of the Python files in each folder of a folder; its own files are in "."."""
    lines: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        first, *rest = path.relative_to(folder).parts
        lines[first if rest else "."] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


@dataclass(frozen=True)
class Weight:
    """How much there is to read in some modules.

    Attributes:
        nodes: the statements and expressions of the syntax trees.
        branches: McCabe's, with comprehensions and boolean operators: one for each `if`, `for`, `while`,
            `except` and `case`, and for each further operand of `and` and `or`.
        lines: the lines of code: without blank lines, comments, docstrings and imports.
    """

    nodes: int = 0
    branches: int = 0
    lines: int = 0

    @classmethod
    def of(cls, text: str) -> "Weight":
        """Return the weight of a module."""
        nodes, branches = 0, 0
        code = {
            number
            for number, line in enumerate(text.splitlines(), start=1)
            if line.strip() and not line.strip().startswith("#")
        }
        for node in ast.walk(ast.parse(text)):
            nodes += isinstance(node, ast.stmt | ast.expr)
            branches += isinstance(node, STATEMENTS)
            if isinstance(node, ast.comprehension):
                branches += 1 + len(node.ifs)
            elif isinstance(node, ast.BoolOp):
                branches += len(node.values) - 1
            elif isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node):
                code.difference_update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        return cls(nodes, branches, len(code))

    def __add__(self, other: "Weight") -> "Weight":
        return Weight(self.nodes + other.nodes, self.branches + other.branches, self.lines + other.lines)

    def __str__(self) -> str:
        rate, share = self.nodes / max(1, self.lines), 1000 * self.branches / max(1, self.lines)
        return (
            f"{self.nodes:9,} nodes, {self.branches:6,} branches, {self.lines:6,} lines of code:"
            f" {rate:.2f} nodes a line, {share:3.0f} branches for 1,000 lines"
        )


def is_docstring(node: ast.AST) -> TypeIs[ast.Expr]:
    """Return whether a statement is a string alone."""
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def weights_by_folder(source: Path) -> dict[str, Weight]:
    """Return the weight of each folder of a package; its own files are in "."."""
    weights: dict[str, Weight] = defaultdict(Weight)
    for path in source.rglob("*.py"):
        first, *rest = path.relative_to(source).parts
        weights[first if rest else "."] += Weight.of(path.read_text(encoding="utf-8"))
    return dict(weights)


def names_from_inside(source: Path, package: str) -> tuple[int, int]:
    """Return how many names, from how many modules, a package imports from other packages of heedful."""
    names: set[tuple[str, str]] = set()
    for path in (source / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            module = getattr(node, "module", None) or ""
            own = f"heedful.{package}"
            if (
                isinstance(node, ast.ImportFrom)
                and module.startswith("heedful.")
                and not module.startswith(own)
            ):
                names.update((module, alias.name) for alias in node.names)
    return len(names), len({module for module, _ in names})


def figures(source: Path) -> dict[str, object]:
    """Return figures of the modules in a folder, by what they count."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(source.rglob("*.py"))}
    lengths = {path.relative_to(source).as_posix(): len(text.splitlines()) for path, text in texts.items()}
    nodes = [(path, node) for path, text in texts.items() for node in ast.walk(ast.parse(text))]
    raises = sum(isinstance(node, ast.Raise) for _, node in nodes)
    inside = {  # once, if functions are nested
        (path, node.lineno)
        for path, function in nodes
        if isinstance(function, FUNCTION)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    functions = [
        (
            (node.end_lineno or node.lineno) - node.lineno + 1,
            f"{path.relative_to(source).as_posix()}: {node.name}",
        )
        for path, node in nodes
        if isinstance(node, FUNCTION)
    ]
    longest = max(lengths, key=lambda name: lengths[name])
    return {
        "modules": len(lengths),
        "median lines of a module": statistics.median(lengths.values()),
        "longest module": f"{lengths[longest]} lines, {longest}",
        "longest function": "{} lines, {}".format(*max(functions)),
        f"functions over {LONG} lines": sum(length > LONG for length, _ in functions),
        f"classes with more than {LARGE} methods": sum(
            sum(isinstance(part, FUNCTION) for part in node.body) > LARGE
            for _, node in nodes
            if isinstance(node, ast.ClassDef)
        ),
        "raise for 1,000 lines": f"{1000 * raises / sum(lengths.values()):.1f} ({raises})",
        "imports inside functions": len(inside),
    }


def prose_of_code(text: str) -> str:
    """Return the docstrings and comments of a module."""
    strings = [ast.literal_eval(node.value) for node in ast.walk(ast.parse(text)) if is_docstring(node)]
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return "\n".join([*strings, *(token.string for token in tokens if token.type == tokenize.COMMENT)])


def prose_of_checkout(checkout: Path) -> dict[str, list[str]]:
    """Return the prose of the package and of the pages; generated pages and code in pages are left out."""
    modules = (checkout / "src").rglob("*.py")
    pages = [*checkout.glob("*.md"), *(checkout / "docs").rglob("*.md")]
    return {
        "docstrings and comments": [prose_of_code(path.read_text(encoding="utf-8")) for path in modules],
        "pages": [
            FENCED.sub("", path.read_text(encoding="utf-8"))
            for path in pages
            if checkout / "docs" / "reference" not in path.parents
        ],
    }


def rates(texts: Iterable[str]) -> dict[str, float]:
    """Return how often each kind of phrase occurs in 1,000 words of texts."""
    plain = " ".join(word for text in texts for word in text.replace("#", " ").split())
    number = max(1, len(WORD.findall(plain)))
    return {
        kind: 1000 * len(re.findall(rf"\b(?:{phrases})\b", plain, re.IGNORECASE)) / number
        for kind, phrases in PHRASES.items()
    }


def report(checkout: Path) -> None:
    """Print all figures of a checkout."""
    for name in ("src/heedful", "tests", "tools"):
        lines = lines_by_folder(checkout / name)
        print(f"{lines.total():10,}  lines of {name}")
        for folder, number in lines.most_common():
            print(f"{number:10,}      {folder}")
    weights = weights_by_folder(checkout / "src" / "heedful")
    print(f"{sum(weights.values(), Weight())}, of src/heedful")
    for folder, weight in sorted(weights.items(), key=lambda item: -item[1].nodes):
        print(f"{weight}, of {folder}")
    for package in ("serving", "documents", "interop"):
        names, modules = names_from_inside(checkout / "src" / "heedful", package)
        print(f"{package} imports {names} names from {modules} modules inside heedful")
    for what, figure in figures(checkout / "src" / "heedful").items():
        print(f"{what}: {figure}")
    for where, texts in prose_of_checkout(checkout).items():
        print(
            *(f"{kind} in {where}: {rate:.1f} for 1,000 words" for kind, rate in rates(texts).items()),
            sep="\n",
        )
    command = [sys.executable, "tools/trace_tasks.py", BUNDLE]
    try:
        done = subprocess.run(
            command, cwd=checkout, capture_output=True, encoding="utf-8", timeout=300, check=True
        )
        print(done.stdout, end="")
    except (OSError, subprocess.SubprocessError) as error:
        print(f"not traced: {error}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("checkout", nargs="?", type=Path, default=ROOT)
    report(parser.parse_args().checkout.resolve())
