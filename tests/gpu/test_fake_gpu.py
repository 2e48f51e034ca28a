"""The GPU that is not there refuses what a real one refuses, and answers as one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_gpu import DeviceError, FakeGpuTensor, OnGpu, fake_gpu
from torch import Tensor, nn


@pytest.mark.parametrize(
    "mix",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: gpu @ cpu,
        lambda gpu, cpu: cpu.add_(gpu),
        lambda gpu, cpu: torch._foreach_lerp_([gpu], [cpu], 0.5),
        lambda gpu, cpu: nn.functional.embedding(torch.tensor([1]), gpu),
        lambda gpu, cpu: gpu.numpy(),
        lambda gpu, cpu: np.asarray(gpu),
        lambda gpu, cpu: gpu.normal_(generator=torch.Generator().manual_seed(1)),
        lambda gpu, cpu: torch.randn(3, device="cuda", generator=torch.Generator()),
    ],
)
def test_mixing_devices_is_refused(mix: Callable[[Tensor, Tensor], object], on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        gpu, cpu = torch.ones(2, 2).to(device), torch.ones(2, 2)
        with pytest.raises((RuntimeError, TypeError)):
            mix(gpu, cpu)


@pytest.mark.parametrize(
    "use",
    [
        lambda gpu: gpu[torch.tensor([1, 0])],
        lambda gpu: gpu.__setitem__(torch.tensor([1, 0]), 1.0),
        lambda gpu: gpu.to("cpu", non_blocking=True),
        lambda gpu: torch.empty(2, 2).copy_(gpu, non_blocking=True),
        lambda gpu: gpu.data_ptr(),
    ],
)
def test_silent_copies_are_refused(use: Callable[[Tensor], object]) -> None:
    with fake_gpu():
        gpu = torch.ones(2, 2).to("cuda")
        with pytest.raises(DeviceError):
            use(gpu)


def test_results_are_on_the_device_of_their_operands(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        gpu = torch.arange(6.0).to(device).view(2, 3)
        for made in (
            torch.zeros(2, device=device), torch.tensor([1, 2], device=device), gpu.new_tensor([1.0]),
            torch.zeros_like(gpu), gpu + 1, gpu[0], gpu * torch.tensor(2.0), gpu.cpu().to(gpu),
            nn.functional.scaled_dot_product_attention(*[gpu[None, None]] * 3, is_causal=True),
        ):  # fmt: skip
            assert (made.device.type, made.is_cuda) == ("cuda", True)
        for made in (torch.zeros(2), gpu.cpu(), torch.zeros_like(gpu, device="cpu"), torch.tensor([1])):
            assert (made.device.type, made.is_cuda) == ("cpu", False)
        assert gpu.tolist() == gpu.cpu().numpy().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_saved_tensors_remember_their_device(on_gpu: OnGpu, tmp_path: Path) -> None:
    with on_gpu() as device:
        torch.save({"x": torch.arange(3.0).to(device)}, tmp_path / "x.pt")
        on_cpu = torch.load(tmp_path / "x.pt", map_location="cpu", weights_only=True)
        assert on_cpu["x"].device.type == "cpu"
        assert on_cpu["x"].tolist() == [0.0, 1.0, 2.0]
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available\(\) is False"):
            torch.load(tmp_path / "x.pt", weights_only=True)


def test_autocast_lowers_products_on_a_gpu(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        x = torch.ones(2, 2, device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") == (x @ x).dtype == torch.bfloat16
            with torch.autocast("cuda", enabled=False):
                assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float32


def test_torch_is_unchanged_after_the_block() -> None:
    def settings() -> tuple[object, ...]:
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        return torch.cuda.is_available(), torch.autocast, swaps

    before = settings()
    with fake_gpu():
        kept = torch.ones(2, device="cuda")
    assert settings() == before
    assert isinstance(kept + 1, FakeGpuTensor)
    with pytest.raises(DeviceError):
        kept + torch.ones(2)
