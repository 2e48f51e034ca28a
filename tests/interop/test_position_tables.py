from pathlib import Path

import pytest
import torch
from torch import Tensor

from heedful.interop.conversion import Conversion, move_positions


@pytest.mark.parametrize("stack", ["encoder", "decoder"])
def test_a_stack_without_a_table_has_the_others(monkeypatch: pytest.MonkeyPatch, stack: str) -> None:
    table = torch.arange(35.0).reshape(7, 5)
    conversion = Conversion({"table": table}, layout="x", origin=Path("x"), settings={}, beside=None)
    moved: dict[str, Tensor] = {}
    monkeypatch.setattr(conversion, "put", lambda ours, tensor, **_: moved.update({ours: tensor}))
    move_positions(conversion, {stack: "table"})
    assert sorted(moved) == [f"{each}.embedding.positions.weight" for each in ("decoder", "encoder")]
    assert all(torch.equal(each, table) for each in moved.values())
