"""Two checkouts are equal where everything but times is, and unequal where one byte is not."""

import json
import sys
from pathlib import Path

import pytest
import torch

from compare_checkouts import (
    Case,
    Result,
    are_equal_values,
    cases,
    compare,
    difference_of_results,
    differences_of_directories,
)


def result(out: bytes, code: int = 0, err: str = "", seconds: float = 1.0) -> Result:
    return Result(code, out, err, seconds)


@pytest.mark.parametrize(
    ("old", "new", "difference"),
    [
        (result(b"a\nb\n"), result(b"a\nb\n", seconds=2.0, err="warning"), None),
        (result(b"a\nb\n"), result(b"a\nc\n"), "output differs from line 2"),
        (result(b"a\nb\n"), result(b"a\n"), "output differs from line 2"),
        (result(b"a\nb\n"), result(b"a\nb"), "output differs from line 3"),  # the last line's end
        (result(b"", 1, "note\nerror: no"), result(b"", 0), "old failed: error: no"),
        (result(b"", 1, "error: no"), result(b"", 1, "error: no"), "old and new failed: error: no"),
    ],
)
def test_results_differ_by_output_and_by_failing(old: Result, new: Result, difference: str | None) -> None:
    assert difference_of_results(old, new) == difference


def test_values_are_equal_bit_for_bit_but_for_times() -> None:
    state = {"progress": {"step": 3, "seconds": 1.0}, "sums": [torch.tensor([0.0, 1.0])]}
    later = {"progress": {"step": 3, "seconds": 2.0}, "sums": [torch.tensor([0.0, 1.0])]}
    assert are_equal_values(state, later)
    assert not are_equal_values(state, later | {"sums": [torch.tensor([-0.0, 1.0])]})
    assert not are_equal_values(state, later | {"sums": [torch.tensor([0.0, 1.0], dtype=torch.float64)]})
    assert not are_equal_values(state, later | {"progress": {"step": 4, "seconds": 1.0}})
    assert not are_equal_values(state, later | {"more": 1})


def write_run(root: Path, *, step: int = 3, seconds: float = 1.0, weights: bytes = b"w") -> Path:
    (root / "best").mkdir(parents=True)
    (root / "best" / "model.safetensors").write_bytes(weights)
    torch.save({"step": step, "seconds": seconds}, root / "state.pt")
    (root / "checksums.json").write_text(str(seconds))
    (root / "log.jsonl").write_text(json.dumps({"step": step, "seconds": seconds}) + "\n")
    return root


def test_directories_differ_by_what_their_files_hold(tmp_path: Path) -> None:
    old = write_run(tmp_path / "old")
    assert list(differences_of_directories(old, write_run(tmp_path / "later", seconds=2.0))) == []
    new = write_run(tmp_path / "new", step=4, weights=b"v")
    (new / "more").touch()
    assert list(differences_of_directories(old, new)) == [
        "best/model.safetensors differs",
        "log.jsonl differs",
        "more: only in the new one",
        "state.pt differs",
    ]


def test_a_command_is_run_in_both_checkouts(tmp_path: Path) -> None:
    checkouts, workspaces = [], []
    for name in ("old", "new"):
        checkout, workspace = tmp_path / name, tmp_path / f"{name}-work"
        (checkout / ".venv" / "bin").mkdir(parents=True)
        (checkout / ".venv" / "bin" / "python").symlink_to(sys.executable)
        workspace.mkdir()
        checkouts.append(checkout)
        workspaces.append(workspace)
        # A package of this name in the directory of the command stands in for the checkout's own.
        (workspace / "heedful.py").write_text(f"import sys; print(sys.argv[1] == 'same' or '{name}')")
    assert compare(Case("equal", ["same"]), checkouts, workspaces)[0] == []
    assert compare(Case("other", ["other"]), checkouts, workspaces)[0] == ["output differs from line 1"]


def test_commands_have_names_of_their_own() -> None:
    names = [case.name for case in cases(steps=4)]
    assert len(set(names)) == len(names)
    assert {name.split(",")[0] for name in names} == {"export", "import", "translate", "score", "train"}
