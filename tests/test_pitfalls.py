"""The tests that docs/pitfalls.md and docs/reliability.md name exist, and their table of settings is true."""

import ast
import re
from pathlib import Path

from heedful.settings.run import Config
from heedful.verbs.run_directory import FIXED

TESTS = Path(__file__).resolve().parent
TABLE = TESTS.parent / "docs" / "pitfalls.md"
ROW = re.compile(r"^\| (\d+) \| (.+) \| (.+) \|(.*)\|$", re.MULTILINE)
NUM_PITFALLS = 32


def rows() -> dict[int, tuple[str, list[str]]]:
    """By number: what must hold, and the tests that hold it."""
    text = TABLE.read_text(encoding="utf-8")
    return {
        int(number): (truth, re.findall(r"`(.+?)`", tests)) for number, _, truth, tests in ROW.findall(text)
    }


def functions(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_every_pitfall_has_a_row_and_every_row_a_test() -> None:
    found = rows()
    assert sorted(found) == list(range(1, NUM_PITFALLS + 1))
    assert [number for number, (_, tests) in found.items() if not tests] == []


def test_every_test_that_the_table_names_exists() -> None:
    named = [name for _, tests in rows().values() for name in tests]
    assert len(named) > 50
    missing = []
    for name in named:
        file, _, function = name.partition("::")
        if not (TESTS / file).is_file() or function not in functions(TESTS / file):
            missing.append(name)
    assert missing == []


TEXT = (TESTS.parent / "docs" / "reliability.md").read_text(encoding="utf-8")


def cells_below(heading: str) -> list[list[str]]:
    """The cells of each row of the table below a heading."""
    section = TEXT.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def test_every_promise_has_tests_that_exist() -> None:
    promises = cells_below("Promises")
    assert len(promises) > 10
    for promise, tests, _ in promises:
        named = re.findall(r"`(.+?)::(.+?)`", tests)
        assert named, promise
        for file, function in named:
            assert function in functions(TESTS / file), f"{file}::{function}"


def test_every_setting_stands_in_the_column_of_what_becomes_of_it() -> None:
    table = {
        section: [re.findall(r"`(\w+)`", cell) for cell in cells]
        for section, *cells in cells_below("What may change at `--resume`")
    }
    wanted = {}
    for section in Config.model_fields:
        names = list(getattr(Config(), section).model_dump())
        fixed = [name for name in names if {section, f"{section}.{name}"} & set(FIXED)]
        wanted[section] = [fixed, [name for name in names if name not in fixed]]
    assert table == wanted
