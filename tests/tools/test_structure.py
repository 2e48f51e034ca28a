"""The structure only gets simpler: no figure goes up, and the median of lines does not go down."""

import subprocess
import sys
from pathlib import Path

import pytest
from machine_class import need_native

from structure import ROOT, figures

# Where a change makes a figure better, it is written here anew.
MOST = {
    "modules": 211,
    "lines of src": 52_673,
    "lines of tests": 52_763,
    "lines of tools": 2_145,
    "share of modules with one importer and below 150 lines": 0.027,
    "modules at the root": 4,
}
MEDIAN = 255  # lines of a module, at least
# Of what a task runs through, with the native engine and one process.
MOST_OF_A_TASK = {
    "a line": {"functions": 227, "files": 38, "modules": 69},
    "a step": {"functions": 78, "files": 17},
    "a request": {"functions": 165, "files": 32},
}


def test_no_figure_gets_worse() -> None:
    found = figures()
    assert {name: found[name] for name in MOST if found[name] > MOST[name]} == {}
    assert found["median lines of a module"] >= MEDIAN


@pytest.mark.slow
def test_a_task_runs_through_no_more_than_before() -> None:
    need_native()
    bundle = ROOT / "tests" / "golden" / "run-of-format-1" / "best"
    command = [sys.executable, str(ROOT / "tools" / "trace_tasks.py"), str(bundle)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        task, _, figures_of_it = line.partition(": ")
        found[task] = {
            kind: int(number) for number, kind in (each.split() for each in figures_of_it.split(", "))
        }
    assert found.keys() == MOST_OF_A_TASK.keys()
    for task, most in MOST_OF_A_TASK.items():
        assert {kind: n for kind, n in found[task].items() if n > most[kind]} == {}, task


def test_modules_lines_and_importers_are_counted(tmp_path: Path) -> None:
    package = tmp_path / "src" / "heedful"
    for name, text in {
        "__init__.py": "",
        "a/__init__.py": "",
        "a/short.py": "x = 1\n",
        "a/user.py": "from heedful.a.short import x\n" + "y = x\n" * 149,
    }.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for folder in ("tests", "tools"):
        (tmp_path / folder).mkdir()
    assert figures(tmp_path) == {
        "modules": 4,
        "median lines of a module": 75.5,
        "lines of src": 151,
        "lines of tests": 0,
        "lines of tools": 0,
        "share of modules with one importer and below 150 lines": 0.5,
        "modules at the root": 1,
    }
