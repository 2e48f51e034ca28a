"""Benchmarks are run by hand; what they import from heedful is there."""

import ast
import importlib
from importlib.util import find_spec
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.mark.parametrize("script", sorted(BENCHMARKS.rglob("*.py")), ids=lambda path: path.name)
def test_imports_of_a_benchmark_exist(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "heedful":
            imported = importlib.import_module(node.module)
            for alias in node.names:
                assert hasattr(imported, alias.name) or find_spec(f"{node.module}.{alias.name}")
