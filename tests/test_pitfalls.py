"""docs/pitfalls.md names a test for each known mistake; here it is held to that."""

import ast
import re
from pathlib import Path

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


def test_every_pitfall_has_a_row_and_every_row_a_test_or_a_later() -> None:
    found = rows()
    assert sorted(found) == list(range(1, NUM_PITFALLS + 1))
    without = {number for number, (truth, tests) in found.items() if not tests}
    assert without == {number for number, (truth, _) in found.items() if truth.startswith("*later: ")}
    assert len(without) <= 1


def test_every_test_that_the_table_names_exists() -> None:
    named = [name for _, tests in rows().values() for name in tests]
    assert len(named) > 50
    missing = []
    for name in named:
        file, _, function = name.partition("::")
        if not (TESTS / file).is_file() or function not in functions(TESTS / file):
            missing.append(name)
    assert missing == []
