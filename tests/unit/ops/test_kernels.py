"""When kernels are in use, and what happens where there are none."""

from dataclasses import replace

import pytest
import torch
from command_line import heedful

from heedful.ops import kernels
from heedful.runtime import native as native_library
from heedful.runtime.threads import using_threads


def applied() -> bool:
    with using_threads(1):
        return kernels.kernels_apply_to(torch.zeros(2, 3))


@pytest.fixture
def without_library(monkeypatch: pytest.MonkeyPatch) -> None:
    none = replace(native_library.native(), level=None, functions=None, why_not="it was left out")
    monkeypatch.setattr(kernels, "native", lambda: none)
    monkeypatch.setattr("heedful.training.parallel.choice.native", lambda: none)


def test_the_library_computes_where_it_is_there() -> None:
    assert applied() == (native_library.native().level is not None)


@pytest.mark.usefixtures("without_library")
def test_without_the_library_torch_computes() -> None:
    assert not applied()


@pytest.mark.usefixtures("without_library")
def test_kernels_that_must_be_native_need_the_library() -> None:
    result = heedful("bench", "train", "--preset", "tiny", "--steps", 1, "--set", "train.kernels=compiled")
    assert result.code == 2
    assert "needs the native library: no native library: it was left out" in result.err
