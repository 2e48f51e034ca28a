"""The GPU of these tests: one that is not there, in every run, and a real one, with -m gpu."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
from fake_gpu import OnGpu, fake_gpu

from heedful.training.execution import float32_matmul_precision


@contextmanager
def _on_fake_gpu() -> Iterator[str]:
    with fake_gpu():
        yield "cuda"


@contextmanager
def _on_real_gpu() -> Iterator[str]:
    """Multiply float32 as such, not as TensorFloat-32, and leave no memory behind."""
    try:
        with float32_matmul_precision("float32", torch.device("cuda")):
            yield "cuda"
    finally:
        torch.cuda.empty_cache()


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.gpu)])
def on_gpu(request: pytest.FixtureRequest) -> OnGpu:
    """Return a context inside which there is a GPU; it gives the name of the device."""
    if request.param == "fake":
        return _on_fake_gpu
    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    return _on_real_gpu


@pytest.fixture
def is_real(request: pytest.FixtureRequest) -> bool:
    """Return whether the GPU is a real one."""
    return "real" in request.node.callspec.id.split("-")
