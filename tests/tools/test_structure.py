"""The figures of the structure count what they name, on a tree of two modules and two pages."""

from pathlib import Path

import pytest
from tolerances import FLOAT64, close

from structure import LARGE, LONG, figures, prose_of_checkout, rates


def test_long_functions_and_large_classes_are_counted(tmp_path: Path) -> None:
    def function(lines: int) -> str:
        return "def f():\n" + "    x = 1\n" * (lines - 1)

    def class_of(methods: int) -> str:
        return "class C:\n" + "".join(f"    def m{i}(self): ...\n" for i in range(methods))

    (tmp_path / "first.py").write_text(function(LONG) + function(LONG + 1))
    (tmp_path / "second.py").write_text(class_of(LARGE) + class_of(LARGE + 1))
    found = figures(tmp_path)
    assert found[f"functions over {LONG} lines"] == 1
    assert found[f"classes with more than {LARGE} methods"] == 1


def test_prose_is_docstrings_comments_and_pages_without_code(tmp_path: Path) -> None:
    files = {
        "src/heedful/one.py": '"""Of a module."""\nx = "no"  # of a comment\ndef f():\n    """Of f."""\n',
        "README.md": "A page.\n\n```sh\nno prose\n```\n",
        "docs/deep/page.md": "Another page.\n",
        "docs/reference/generated.md": "No prose.\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    prose = prose_of_checkout(tmp_path)
    [code] = prose["docstrings and comments"]
    assert sorted(code.splitlines()) == ["# of a comment", "Of a module.", "Of f."]
    assert sorted(text.strip() for text in prose["pages"]) == ["A page.", "Another page."]


@pytest.mark.parametrize(
    ("texts", "roundabout", "conditions"),
    [
        (["Files, most\nof   which are small."], 1000 / 6, 0.0),
        (["# That\n# of a comment", "so many notified"], 2 * 1000 / 7, 0.0),
        (["If it rains, for\nexample now, wait."], 0.0, 2 * 1000 / 7),
        ([], 0.0, 0.0),
    ],
)
def test_phrases_are_counted_for_1000_words(texts: list[str], roundabout: float, conditions: float) -> None:
    assert [*rates(texts).values()] == [close(rate, FLOAT64.ROW) for rate in (roundabout, conditions)]
