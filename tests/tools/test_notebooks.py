"""The notebooks of docs/ run, what they claim in asserts holds, and their outputs are stored."""

import re
from pathlib import Path

import nbformat
import pytest

from notebooks import NOTEBOOKS, executed

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
# Their models are trained as they run, in a minute or two each; what training rounds depends on the CPU.
TRAINING = {"reading-heads", "training-on-the-phrase-book"}
MOST_BYTES = 300_000
OF_A_MACHINE = re.compile(
    r"(?<![\w.])/(home|tmp|work|root|Users|private|usr)/|\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|0x[0-9a-f]{6}"
)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def kinds(cell: nbformat.NotebookNode) -> list[tuple[str, ...]]:
    """Return of each output what it is, such as text or a picture."""
    return [(each.output_type, *sorted(each.get("data", {}))) for each in cell.outputs]


def text(notebook: nbformat.NotebookNode) -> list[str]:
    outputs = [each for cell in code_cells(notebook) for each in cell.outputs]
    return [each.get("text") or each.get("data", {}).get("text/plain", "") for each in outputs]


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_has_its_outputs_stored(path: Path) -> None:
    stored, now = nbformat.read(path, as_version=4), executed(path)
    assert [kinds(cell) for cell in code_cells(now)] == [kinds(cell) for cell in code_cells(stored)]
    if path.stem not in TRAINING:
        assert text(now) == text(stored), "run `make notebooks`"


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)
def test_a_notebook_stores_small_outputs_of_no_machine_and_checks_what_it_claims(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = code_cells(notebook)
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    assert sum(cell.source.count("assert ") for cell in code) >= 5
    assert path.stat().st_size < MOST_BYTES
    assert [each.name for cell in code for each in cell.outputs if each.get("name") == "stderr"] == []
    assert [each for each in text(notebook) if OF_A_MACHINE.search(each)] == []
    assert not any("execution" in cell.metadata for cell in notebook.cells)
    assert notebook.metadata.language_info == {"name": "python", "pygments_lexer": "ipython3"}


def test_there_are_three() -> None:
    assert len(PATHS) == 3
