"""Print the figures of the structure: `python tools/structure.py [CHECKOUT]`; tests/tools hold them."""

import ast
import statistics
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SHORT = 150  # lines below which a module should have two importers


def figures(checkout: Path = ROOT) -> dict[str, float]:
    """Return the figures by what they count; each is better when it is lower, but the median."""
    source = checkout / "src" / "heedful"
    lines = {path: len(path.read_text(encoding="utf-8").splitlines()) for path in source.rglob("*.py")}
    modules = {_name(path, source): path for path in lines}
    importers = defaultdict(set)
    for name, path in modules.items():
        for imported in _imports(path):
            importers[imported if imported in modules else imported.rpartition(".")[0]].add(name)
    # A folder's own file says what the folder is; it is no module of its own while it is short.
    stories = {
        name: path for name, path in modules.items() if path.name not in ("__init__.py", "__main__.py")
    }
    lonely = [name for name, path in stories.items() if lines[path] < SHORT and len(importers[name]) == 1]
    return {
        "modules": len(modules),
        "median lines of a module": statistics.median(lines[path] for path in stories.values()),
        "lines of src": sum(lines.values()),
        "lines of tests": _lines(checkout / "tests"),
        "lines of tools": _lines(checkout / "tools"),
        "share of modules with one importer and below 150 lines": round(len(lonely) / len(stories), 3),
        "modules at the root": sum(path.parent == source for path in lines),
    }


def _name(path: Path, source: Path) -> str:
    parts = path.relative_to(source.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _lines(folder: Path) -> int:
    return sum(len(path.read_text(encoding="utf-8").splitlines()) for path in folder.rglob("*.py"))


if __name__ == "__main__":
    for what, figure in figures(Path(sys.argv[1]) if sys.argv[1:] else ROOT).items():
        print(f"{figure:10,g}  {what}")
