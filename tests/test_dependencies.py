"""What the package imports is what it declares, with floors and without ceilings."""

import ast
import re
import sys
import tomllib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
REQUIRED: list[str] = PROJECT["dependencies"]
OPTIONAL: list[str] = [each for extra in PROJECT["optional-dependencies"].values() for each in extra]


def name_of(requirement: str) -> str:
    return re.split(r"[^A-Za-z0-9_-]", requirement)[0].lower().replace("-", "_")


@cache
def imported() -> set[str]:
    names: set[str] = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names.add(node.module.split(".")[0])
    part_of = {
        "annotated_types": "pydantic",
        "pydantic_core": "pydantic",
        "markdown_it": "markdown_it_py",
        "sklearn": "scikit_learn",
        "yaml": "pyyaml",
    }  # documented there
    names = {part_of.get(name, name) for name in names}
    return names - set(sys.stdlib_module_names) - {"heedful"}


def test_every_import_is_declared() -> None:
    declared = {name_of(requirement) for requirement in REQUIRED + OPTIONAL}
    assert len(imported()) > 5
    assert imported() <= declared


def test_every_requirement_is_imported() -> None:
    assert {name_of(requirement) for requirement in REQUIRED} <= imported()


def test_dependencies_have_a_floor_and_no_ceiling() -> None:
    for requirement in REQUIRED + OPTIONAL:
        if not requirement.startswith("heedful["):
            assert re.fullmatch(r"[A-Za-z0-9_-]+(\[[a-z]+\])?>=[0-9.]+", requirement), requirement
    assert re.fullmatch(r">=[0-9.]+", PROJECT["requires-python"])


def test_what_is_installed_for_development_is_pinned() -> None:
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = {name_of(line) for line in pins if re.fullmatch(r"[A-Za-z0-9_-]+==[0-9.]+", line)}
    assert {name_of(requirement) for requirement in REQUIRED + OPTIONAL} <= pinned | {"heedful"}
