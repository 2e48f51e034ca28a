"""The notebooks of docs/ run, their asserts hold, and their outputs are stored."""

from pathlib import Path

import nbformat
import pytest

from notebooks import NOTEBOOKS, executed

PATHS = sorted(NOTEBOOKS.glob("*.ipynb"))
# Their models are trained as they run, in two minutes at most; what training rounds depends on the CPU.
TRAINING = {"copy-task", "reading-heads", "training-on-the-phrase-book"}


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
