"""The notebooks of docs/ run from their first to their last cell, and what they claim in asserts holds."""

from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))
TRAINING = {"reading-heads", "training-on-the-phrase-book"}  # about a minute each


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    [
        pytest.param(each, id=each.stem, marks=[pytest.mark.slow] * (each.stem in TRAINING))
        for each in NOTEBOOKS
    ],
)
def test_a_notebook_runs(path: Path, tmp_path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=280, kernel_name="python3", resources=resources).execute()
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs_and_checks_what_it_claims(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []
    assert sum(cell.source.count("assert ") for cell in code) >= 5


def test_there_are_three() -> None:
    assert len(NOTEBOOKS) == 3
