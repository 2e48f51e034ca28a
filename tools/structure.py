"""Print figures of the structure: `python tools/structure.py [CHECKOUT]`, or make report.

Lines of Python by package, `raise` for 1,000 lines, imports inside functions, longest module and function;
then how many functions and files of heedful a translated line, a training step and a request to the service
use (`trace_tasks.py`).
"""

import ast
import statistics
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUNDLE = "tests/golden/ten-pairs"
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def lines_by_folder(folder: Path) -> Counter[str]:
    """Return the lines of the Python files in each folder of a folder; its own files are in "."."""
    lines: Counter[str] = Counter()
    for path in folder.rglob("*.py"):
        first, *rest = path.relative_to(folder).parts
        lines[first if rest else "."] += len(path.read_text(encoding="utf-8").splitlines())
    return lines


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
        "raise for 1,000 lines": f"{1000 * raises / sum(lengths.values()):.1f} ({raises})",
        "imports inside functions": len(inside),
    }


def report(checkout: Path) -> None:
    """Print all figures of a checkout."""
    for name in ("src/heedful", "tests", "tools"):
        lines = lines_by_folder(checkout / name)
        print(f"{lines.total():10,}  lines of {name}")
        for folder, number in lines.most_common():
            print(f"{number:10,}      {folder}")
    for what, figure in figures(checkout / "src" / "heedful").items():
        print(f"{what}: {figure}")
    command = [sys.executable, "tools/trace_tasks.py", BUNDLE]
    try:
        done = subprocess.run(
            command, cwd=checkout, capture_output=True, encoding="utf-8", timeout=300, check=True
        )
        print(done.stdout, end="")
    except (OSError, subprocess.SubprocessError) as error:
        print(f"not traced: {error}")


if __name__ == "__main__":
    report(Path(sys.argv[1]).resolve() if sys.argv[1:] else ROOT)
