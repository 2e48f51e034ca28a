"""docs/reliability.md: the tests that it names exist, and its table of settings is what the program does."""

import ast
import re
from pathlib import Path

from heedful.settings.run import Config
from heedful.verbs.run_directory import FIXED

TESTS = Path(__file__).resolve().parent
TEXT = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")


def rows(heading: str) -> list[list[str]]:
    """The cells of each row of the table below a heading."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_promise_has_tests_that_exist() -> None:
    promises = rows("Promises")
    assert len(promises) > 10
    for promise, tests, _ in promises:
        named = re.findall(r"`(.+?)::(.+?)`", tests)
        assert named, promise
        for file, function in named:
            assert function in functions(TESTS / file), f"{file}::{function}"


def test_every_setting_stands_in_the_column_of_what_becomes_of_it() -> None:
    table = {
        section: [re.findall(r"`(\w+)`", cell) for cell in cells]
        for section, *cells in rows("What may change at `--resume`")
    }
    wanted = {}
    for section in Config.model_fields:
        names = list(getattr(Config(), section).model_dump())
        fixed = [name for name in names if {section, f"{section}.{name}"} & set(FIXED)]
        wanted[section] = [fixed, [name for name in names if name not in fixed]]
    assert table == wanted
