"""The GPU that is not there refuses what a real one refuses, and answers as one."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from fake_gpu import DeviceError, FakeGpuTensor, OnGpu, fake_gpu
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode


@pytest.mark.parametrize(
    "mix",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: gpu @ cpu,
        lambda gpu, cpu: torch.cat([gpu, cpu]),
        lambda gpu, cpu: torch.where(gpu > 0, gpu, cpu),
        lambda gpu, cpu: gpu.add_(cpu),
        lambda gpu, cpu: cpu.add_(gpu),
        lambda gpu, cpu: torch._foreach_lerp_([gpu], [cpu], 0.5),
        lambda gpu, cpu: nn.functional.linear(gpu, cpu),
        lambda gpu, cpu: nn.functional.embedding(torch.tensor([1]), gpu),
        lambda gpu, cpu: gpu.index_select(0, torch.tensor([1])),
        lambda gpu, cpu: gpu.numpy(),
        lambda gpu, cpu: gpu.detach().requires_grad_().numpy(),
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
def test_what_torch_would_do_silently_is_refused(use: Callable[[Tensor], object]) -> None:
    with fake_gpu():
        gpu = torch.ones(2, 2).to("cuda")
        with pytest.raises(DeviceError):
            use(gpu)


def test_what_is_made_is_where_it_should_be(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        gpu = torch.arange(6.0).to(device).view(2, 3)
        for made in (
            torch.zeros(2, device=device), torch.tensor([1, 2], device=device), gpu.new_tensor([1.0]),
            torch.asarray(np.ones(2), device=device), torch.arange(3, device=gpu.device),
            torch.zeros_like(gpu), gpu.new_zeros(3),
            gpu + 1, gpu[0], gpu.sum(), gpu * torch.tensor(2.0), torch.tensor(2.0) * gpu,
            nn.functional.pad(gpu, (0, 1)), gpu.softmax(-1), gpu.cpu().to(gpu), gpu.clone(), gpu.t()[1],
            nn.functional.scaled_dot_product_attention(*[gpu[None, None]] * 3, is_causal=True),
        ):  # fmt: skip
            assert (made.device.type, made.is_cuda) == ("cuda", True)
        for made in (
            torch.zeros(2), gpu.cpu(), gpu.to("cpu"), torch.zeros_like(gpu, device="cpu"), torch.tensor([1]),
            torch.ones(2) * torch.tensor(2.0), gpu.new_zeros(3, device="cpu"),
        ):  # fmt: skip
            assert (made.device.type, made.is_cuda) == ("cpu", False)
        assert gpu.to(device) is gpu
        assert gpu.tolist() == gpu.cpu().numpy().tolist() == [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]


def test_views_are_of_the_same_numbers(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        gpu = torch.zeros(2, 3, device=device)
        gpu[:, 1:].fill_(7.0)
        gpu[0].add_(1.0)
        gpu.unsqueeze_(0).squeeze_(0)
        gpu[gpu > 7.5] = 9.0
        assert gpu.tolist() == [[1.0, 9.0, 9.0], [0.0, 7.0, 7.0]]


def test_gradients_flow_and_are_there_too(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        layer = nn.Linear(2, 2).to(device)
        loss = layer(torch.ones(3, 2, device=device))[:, 1].square().sum()
        loss.backward()
        assert layer.weight.grad is not None
        assert layer.weight.grad.device == layer.weight.device == loss.device
        assert layer.weight.grad[0].tolist() == [0.0, 0.0]
        assert float(layer.weight.grad[1].abs().sum()) > 0.0


def test_shared_weights_stay_shared_and_parameters_stay_parameters(on_gpu: OnGpu) -> None:
    one, other = nn.Linear(2, 2), nn.Linear(2, 2)
    other.weight = one.weight
    both = nn.ModuleList([one, other])
    with on_gpu() as device:
        both.to(device)
        assert one.weight is other.weight
        assert isinstance(one.weight, nn.Parameter)
        assert len(list(both.parameters())) == 3
        both.to("cpu")
        assert one.weight is other.weight
        assert one.weight.device.type == "cpu"


def test_what_is_saved_says_that_it_was_on_a_gpu(on_gpu: OnGpu, tmp_path: Path) -> None:
    with on_gpu() as device:
        torch.save({"x": torch.arange(3.0).to(device)}, tmp_path / "x.pt")
        on_cpu = torch.load(tmp_path / "x.pt", map_location="cpu", weights_only=True)
        assert on_cpu["x"].device.type == "cpu"
        assert on_cpu["x"].tolist() == [0.0, 1.0, 2.0]
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match=r"torch\.cuda\.is_available\(\) is False"):
            torch.load(tmp_path / "x.pt", weights_only=True)


def test_autocast_is_a_gpus(on_gpu: OnGpu) -> None:
    with on_gpu() as device:
        x = torch.ones(2, 2, device=device)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            assert torch.is_autocast_enabled("cuda")
            assert torch.get_autocast_dtype("cuda") == (x @ x).dtype == torch.bfloat16
            with torch.autocast("cuda", enabled=False):
                assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.float32


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.softmax(-1), lambda x: nn.functional.softmax(x, -1), lambda x: x.log_softmax(-1),
        lambda x: nn.functional.layer_norm(x, (2,)),
        lambda x: x.sum(), lambda x: x.sum(dtype=torch.float64), lambda x: x.prod(), lambda x: x.cumsum(0),
        lambda x: x.exp(), lambda x: x.log(), lambda x: x.log1p(), lambda x: x.pow(2), lambda x: x**2,
        lambda x: x.norm(), lambda x: x.logsumexp(-1), lambda x: x.rsqrt(), lambda x: x.reciprocal(),
        lambda x: x.mean(), lambda x: x.relu(), lambda x: nn.functional.gelu(x), lambda x: x * 2.0,
        lambda x: x + x.float(), lambda x: nn.functional.silu(x), lambda x: nn.functional.softplus(x),
        lambda x: x.float() @ x.float(), lambda x: nn.functional.linear(x.float(), x.float()),
        lambda x: torch.addmm(x, x, x), lambda x: nn.functional.dropout(x),
    ],
)  # fmt: skip
def test_autocast_gives_the_types_that_a_gpu_gives(
    operation: Callable[[Tensor], Tensor], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the list that torch itself has for CUDA: its fake tensors show it (torch 2.11's lacks rms_norm)."""
    with fake_gpu(), torch.autocast("cuda", dtype=dtype):
        result = operation(torch.ones(2, 2, dtype=dtype, device="cuda")).dtype
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: True)
    # A torch that is built for CUDA would start a GPU first.
    monkeypatch.setattr("torch._subclasses.fake_tensor.init_gpu_context", lambda device: None)
    with FakeTensorMode(), torch.inference_mode(), torch.autocast("cuda", dtype=dtype):
        assert operation(torch.ones(2, 2, dtype=dtype, device="cuda")).dtype == result


def test_nothing_is_left_behind() -> None:
    before = (
        torch.cuda.is_available(),
        torch.autocast,
        torch.__future__.get_swap_module_params_on_conversion(),
    )
    with fake_gpu():
        kept = torch.ones(2, device="cuda")
    after = torch.cuda.is_available(), torch.autocast, torch.__future__.get_swap_module_params_on_conversion()
    assert after == before
    assert isinstance(kept + 1, FakeGpuTensor)
    with pytest.raises(DeviceError):
        kept + torch.ones(2)
