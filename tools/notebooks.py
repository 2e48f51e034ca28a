"""Execute the notebooks of docs/ and store their outputs in them: `python tools/notebooks.py [NAME...]`.

The stored outputs are what the site and a code host show. They hold no time, path or version.
"""

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "docs" / "notebooks"
MINUTES = 20  # of a cell, on a machine that has other work


def executed(path: Path) -> nbformat.NotebookNode:
    """Return the notebook of a file, with the outputs of its cells; see `execute`."""
    return execute(nbformat.read(path, as_version=4))  # type: ignore[no-untyped-call]


def execute(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """Run the cells of a notebook in an empty folder, in order; return it with their outputs.

    Raises:
        CellExecutionError: a cell fails, such as an assert.
    """
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    with tempfile.TemporaryDirectory() as folder:
        NotebookClient(
            notebook,
            timeout=60 * MINUTES,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            record_timing=False,
            coalesce_streams=True,
        ).execute()
    notebook.metadata.language_info = {"name": "python", "pygments_lexer": "ipython3"}
    return notebook


def main() -> None:
    """Write the notebooks with these names, by default all."""
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if path.stem in sys.argv[1:] or not sys.argv[1:]:
            nbformat.write(executed(path), path)  # type: ignore[no-untyped-call]
            print(path)


if __name__ == "__main__":
    main()
