"""Benchmarks are run by hand; what they import from heedful is there."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").rglob("*.py"))


def names_of_heedful(script: Path) -> set[tuple[str, str]]:
    tree = ast.parse(script.read_text(encoding="utf-8"))
    return {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "heedful"
        for alias in node.names
    }


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_benchmark_imports_exists(script: Path) -> None:
    for module, name in names_of_heedful(script):
        imported = importlib.import_module(module)
        assert hasattr(imported, name) or find_spec(f"{module}.{name}"), f"{module}.{name}"


def test_the_benchmarks_use_heedful() -> None:
    assert len({pair for script in SCRIPTS for pair in names_of_heedful(script)}) > 10
