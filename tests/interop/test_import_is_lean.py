"""Importing a model copies no weight, and needs no library of another's."""

import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_models import FAMILIES
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heedful.verbs.import_ import Import, import_

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
IMPORT = """
import sys
from pathlib import Path
from heedful.verbs.import_ import Import, import_

import_(Import(source=Path(sys.argv[1]), layout="marian", output=Path(sys.argv[2])))
print(*sorted({name.split(".")[0] for name in sys.modules}))
"""


class NewNumbers(TorchDispatchMode):
    """Notes the operations that take memory for floating-point numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.operations: list[str] = []

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        outputs = func(*args, **(kwargs or {}))
        had = {place(each) for each in tree_leaves((args, kwargs)) if isinstance(each, torch.Tensor)}
        self.operations += [
            str(func)
            for each in tree_leaves(outputs)
            if isinstance(each, torch.Tensor) and each.is_floating_point()
            if each.device.type == "cpu" and each.numel() and place(each) not in had
        ]
        return outputs


def place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.device.type == "cpu" else 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    FAMILIES["marian"].save(tmp_path / "model")
    return tmp_path / "model"


def test_marian_is_imported_without_a_copy_of_its_weights(model: Path, tmp_path: Path) -> None:
    with NewNumbers() as made:
        import_(Import(source=model, layout="marian", output=tmp_path / "bundle"))
    assert made.operations == []
    with NewNumbers() as made:
        torch.zeros(3).float().clone()
    assert made.operations == ["aten.zeros.default", "aten.clone.default"]


def test_marian_is_imported_without_the_library_that_wrote_it(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT, str(model), str(tmp_path / "bundle")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"transformers", "tokenizers", "huggingface_hub"} & set(done.stdout.split())
