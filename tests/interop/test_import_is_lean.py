"""Importing a model copies no weight, and needs no library of another's."""

import subprocess
import sys
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_models import FAMILIES
from safetensors.torch import load_file
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from heedful.interop.conversion import DeferredTensor
from heedful.tasks.exchange import import_model

pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")
IMPORT = """
import sys
import weakref
from pathlib import Path
from heedful.tasks.exchange import import_model

import_model(Path(sys.argv[1]), layout="marian", output=Path(sys.argv[2]))
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


class LiveNumbers(NewNumbers):
    """Counts the bytes of new floating-point numbers that are in memory at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        noted = len(self.operations)
        outputs = super().__torch_dispatch__(func, types, args, kwargs)
        if len(self.operations) > noted and isinstance(outputs, torch.Tensor):
            self._add(outputs.nbytes)
            weakref.finalize(outputs, self._add, -outputs.nbytes)
        return outputs

    def _add(self, num_bytes: int) -> None:
        self.live += num_bytes
        self.peak = max(self.peak, self.live)


def place(tensor: torch.Tensor) -> int:
    has_numbers = tensor.device.type == "cpu" and not isinstance(tensor, DeferredTensor)
    return tensor.untyped_storage().data_ptr() if has_numbers else 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    FAMILIES["marian"].save(tmp_path / "model")
    return tmp_path / "model"


def test_marian_is_imported_without_a_copy_of_its_weights(model: Path, tmp_path: Path) -> None:
    with NewNumbers() as made:
        import_model(model, layout="marian", output=tmp_path / "bundle")
    assert made.operations == []
    with NewNumbers() as made:
        torch.zeros(3).float().clone()
    assert made.operations == ["aten.zeros.default", "aten.clone.default"]


@pytest.mark.parametrize("name", ["marian", "t5", "blenderbot small"])
def test_half_precision_becomes_float32_one_weight_at_a_time(name: str, tmp_path: Path) -> None:
    FAMILIES[name].save(tmp_path / "model").half().save_pretrained(tmp_path / "model")
    with LiveNumbers() as numbers:
        import_model(tmp_path / "model", layout=FAMILIES[name].layout, output=tmp_path / "bundle")
    weights = load_file(tmp_path / "bundle" / "model.safetensors").values()
    largest, every = (how(each.nbytes for each in weights) for how in (max, sum))
    assert len(numbers.operations) >= len(weights) - 1
    assert largest <= numbers.peak <= 2 * largest < every


@pytest.mark.slow
def test_marian_is_imported_without_the_library_that_wrote_it(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", IMPORT, str(model), str(tmp_path / "bundle")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert not {"transformers", "tokenizers", "huggingface_hub"} & set(done.stdout.split())


@pytest.mark.parametrize("name", ["post-separate", "student", "rms"])
def test_large_weights_are_written_a_few_rows_at_a_time(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = Path(__file__).parent.parent / "golden" / "marian" / name
    import_model(source, output=tmp_path / "whole")
    monkeypatch.setattr("heedful.storage.bundle._BLOCK", 100)
    with LiveNumbers() as numbers:
        import_model(source, output=tmp_path / "in-blocks")
    files = [tmp_path / each / "model.safetensors" for each in ("whole", "in-blocks")]
    assert files[0].read_bytes() == files[1].read_bytes()
    largest = max(each.nbytes for each in load_file(files[0]).values())
    assert 0 < numbers.peak <= (largest / 2 if name == "student" else largest)  # others have turned ones
