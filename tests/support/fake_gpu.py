# ruff: noqa: ANN401  what torch hands over is of any type
"""A GPU that is not there: tensors that say they are on `cuda:0`, and whose numbers are on the CPU.

Inside `fake_gpu()` a tensor that is moved to "cuda", or made there, is a `FakeGpuTensor`. It has true
values, so searches, `.item()` and whole runs go the way that they go on a GPU, and can be compared with a
CPU's. What a GPU refuses is refused:

- an operation on tensors of both devices, but for numbers (tensors without dimensions), as in torch,
- `.numpy()`, `np.asarray` and `data_ptr` of what is on the GPU,
- a generator of one device that fills a tensor of the other,
- a copy from the GPU that the CPU does not wait for (`non_blocking`): it may read before the numbers are
  there.

In one respect this is stricter than torch: an index on the CPU into a tensor on the GPU is refused. torch
would copy it silently, in every step of a search.

torch's FakeTensorMode shows less. It holds no numbers, so nothing runs in it that depends on one. And where
torch is built for CPUs, all that asks for a device guard fails on its "cuda" ("not linked with support for
cuda devices"): products of batches, SDPA, copies, and the first node of autograd, which even ends the
process. It would for a wrapper, too, that C++ takes for a tensor on a GPU. Here C++ sees a tensor on the
CPU, so the backward pass runs.

Kernels are not shown. They are the CPU's, those of SDPA and of Adam's fused step too, and they round as on
a CPU. There are no streams and no NCCL, and memory never runs out. Pinned memory is a copy that knows it.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import cache
from typing import Any, ClassVar

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

OnGpu = Callable[[], AbstractContextManager[str]]  # a context inside which there is a GPU, by that name

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")
GIB = 1 << 30

_aten = torch.ops.aten
_MOVES = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda)
_COPIES = (_aten._to_copy.default, _aten.copy_.default)  # which may have both devices
_TAKE_NUMBERS = (_aten.fill_.Tensor, _aten.index_put_.default)  # of the CPU, and all pointwise operations
# What a GPU computes in float32 under autocast, and a CPU does not; everything else is the same on both.
_IN_FLOAT32 = {
    "softmax", "log_softmax", "layer_norm", "rms_norm", "sum", "prod", "cumsum", "norm", "logsumexp", "exp",
    "log", "log1p", "pow", "__pow__", "rsqrt", "reciprocal", "softplus",
}  # fmt: skip
_REAL_AUTOCAST = torch.autocast


class DeviceError(RuntimeError):
    """Something that a GPU refuses."""


class FakeGpuTensor(torch.Tensor):
    """A tensor on `cuda:0`, as far as Python can see."""

    on_cpu: torch.Tensor

    @staticmethod
    def __new__(cls: type["FakeGpuTensor"], on_cpu: torch.Tensor) -> "FakeGpuTensor":
        """Wrap a tensor of the CPU, whose numbers are shared."""
        self = torch.Tensor._make_wrapper_subclass(
            cls,
            on_cpu.shape,
            strides=on_cpu.stride(),
            storage_offset=on_cpu.storage_offset(),
            dtype=on_cpu.dtype,
        )
        self.on_cpu = on_cpu
        return self

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {}, is_internal=True)

    device = property(lambda self: GPU)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]

    def get_device(self) -> int:
        return 0

    def numpy(self, *, force: bool = False) -> Any:
        if force:
            return self.detach().on_cpu.numpy(force=True)
        raise TypeError("can't convert cuda:0 device type tensor to numpy; use Tensor.cpu() first")

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.numpy()

    def tolist(self) -> Any:
        return self.on_cpu.tolist()

    def data_ptr(self) -> int:
        raise DeviceError("the address of a tensor on the GPU was asked for")

    def untyped_storage(self) -> torch.UntypedStorage:
        return self.on_cpu.untyped_storage()

    def __deepcopy__(self, memo: dict[int, Any]) -> torch.Tensor:
        if id(self) not in memo:
            copied: torch.Tensor = self.detach().clone()
            is_parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if is_parameter else copied
        return memo[id(self)]

    def __repr__(self, **_: Any) -> str:
        return f"FakeGpuTensor({self.on_cpu!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Be saved as torch saves what is on a GPU: as being there."""
        _Saved.storages.append(self.on_cpu.untyped_storage())
        if isinstance(self, torch.nn.Parameter):
            return torch.nn.Parameter(self.on_cpu, self.requires_grad).__reduce_ex__(protocol)
        return self.on_cpu.__reduce_ex__(protocol)


class _Saved:
    """The storages of the GPU that were saved; they are kept, so that no other gets the place of one."""

    storages: ClassVar[list[torch.UntypedStorage]] = []


def _location(storage: torch.UntypedStorage) -> str | None:
    """Where torch.save says that a storage is; None: another function knows."""
    return "cuda:0" if storage.data_ptr() in {each.data_ptr() for each in _Saved.storages} else None


@contextmanager
def fake_gpu() -> Iterator[None]:
    """Have one GPU inside the block, of which 4 GiB are free."""
    _register_location()
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        _patch_torch(patch)
        before = torch.__future__.get_swap_module_params_on_conversion()
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, before)
        # Real tensors of both devices can share a Parameter; so shared matrices stay shared here too.
        torch.__future__.set_swap_module_params_on_conversion(True)
        lifts = torch._C._only_lift_cpu_tensors()
        stack.callback(torch._C._set_only_lift_cpu_tensors, lifts)
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor(..., device="cuda") as a copy from the CPU
        stack.callback(_Saved.storages.clear)
        calls = stack.enter_context(_Calls())
        stack.enter_context(_Operations(calls))
        yield


@cache
def _register_location() -> None:
    torch.serialization.register_package(1, _location, lambda storage, location: None)


class _Calls(TorchFunctionMode):
    """Sees what Python calls: moves between devices, and tensors whose device a caller has chosen."""

    is_explicit = False

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func.__name__ == "__get__":  # an attribute
            return func(*args)
        kwargs = kwargs or {}
        if func in (torch.Tensor.pin_memory, torch.Tensor.is_pinned):
            return _pinned(args[0]) if func is torch.Tensor.pin_memory else hasattr(args[0], "pinned_by")
        if func is torch.Tensor.new_tensor:  # in C++ it would ask the CPU's copy for its device
            like, *args = args
            func, kwargs = torch.tensor, {"dtype": like.dtype, "device": like.device} | kwargs
        if func.__name__ in _IN_FLOAT32 and torch.is_autocast_enabled("cuda"):
            args = tuple(map(_in_float32, args))
        has_device = kwargs.get("device") is not None or func in _MOVES
        if has_device and func not in _MOVES:  # C++ would ask a GPU that is there for "the present one"
            kwargs = kwargs | {"device": _as_indexed(kwargs["device"])}
        if func is torch.asarray and has_device:  # which asks the CPU's copy, too
            device = kwargs.pop("device")
            return self.__torch_function__(torch.Tensor.to, types, (func(*args, **kwargs), device))
        before, self.is_explicit = (
            self.is_explicit,
            has_device or not _is_any_on_gpu(_tensors((args, *kwargs.values()))),
        )
        try:
            return _move(func, *args, **kwargs) if func in _MOVES else func(*args, **kwargs)
        finally:
            self.is_explicit = before


class _Operations(TorchDispatchMode):
    """Sees every operation on tensors."""

    def __init__(self, calls: _Calls) -> None:
        super().__init__()
        self._calls = calls

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(func, args, kwargs or {}, is_internal=not self._calls.is_explicit)


def _move(func: Any, tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Do what `Tensor.to`, `.cpu` and `.cuda` do, by the devices that Python sees."""
    copy = kwargs.pop("copy", False)
    if func is torch.Tensor.cpu:
        args = (CPU, *args)
    elif func is torch.Tensor.cuda:
        args = (*(args or (GPU,)),)
    others = [each for each in args if isinstance(each, torch.Tensor)]
    if others:
        args = (others[0].device, others[0].dtype, *args[1:])
    device, dtype, non_blocking, memory_format = torch._C._nn._parse_to(*args, **kwargs)
    device, dtype = _as_indexed(device or tensor.device), dtype or tensor.dtype
    if not copy and (device, dtype) == (tensor.device, tensor.dtype):
        return tensor
    options = {} if memory_format is None else {"memory_format": memory_format}
    return _aten._to_copy.default(tensor, dtype=dtype, device=device, non_blocking=non_blocking, **options)


def _pinned(tensor: torch.Tensor) -> torch.Tensor:
    if isinstance(tensor, FakeGpuTensor):
        raise DeviceError("only memory of the CPU can be pinned")
    copy = tensor.clone()
    copy.pinned_by = GPU  # type: ignore[attr-defined]
    return copy


def _in_float32(value: Any) -> Any:
    is_lower = isinstance(value, FakeGpuTensor) and value.dtype in (torch.bfloat16, torch.float16)
    return value.float() if is_lower else value


def _as_indexed(device: torch.device | str) -> torch.device:
    return GPU if torch.device(device).type == "cuda" else torch.device(device)


def _tensors(values: Iterable[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found += _tensors(value)
    return found


def _is_any_on_gpu(tensors: list[torch.Tensor]) -> bool:
    return any([isinstance(each, FakeGpuTensor) for each in tensors])


@cache
def _traits(func: Any) -> tuple[bool, bool, bool]:
    """Whether an operation writes to its arguments, changes the shape of one, and goes element by element."""
    return func._schema.is_mutable, torch.Tag.inplace_view in func.tags, torch.Tag.pointwise in func.tags


def _run(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, is_internal: bool) -> Any:
    """Run an operation on the CPU; its results are where those of the real one would be."""
    tensors = _tensors((args, *kwargs.values()))
    device = kwargs.get("device")
    on_gpu = _is_any_on_gpu(tensors)
    if is_internal and (on_gpu or not tensors) and (device is None or device.type == "cpu"):
        device = GPU  # of torch's own making, for operands on the GPU, on the device that C++ sees
    elif device is None:
        device = GPU if on_gpu else CPU
    _check(func, args, kwargs, tensors, device)
    if kwargs.get("device") is not None and device.type == "cuda":
        kwargs = kwargs | {"device": CPU}
    results = func(*_on_cpu(args), **{name: _on_cpu(value) for name, value in kwargs.items()})
    is_mutable, is_inplace_view, _ = _traits(func)
    if is_inplace_view:
        with no_dispatch():  # which changes the shape that C++ sees
            func(*args, **kwargs)
    if is_mutable:
        return _as_written(func, args, kwargs, results)
    return _on_gpu(results) if device.type == "cuda" else results


def _check(
    func: Any, args: Any, kwargs: dict[str, Any], tensors: list[torch.Tensor], device: torch.device
) -> None:
    """Refuse what a GPU refuses; the device is that of the results."""
    generator = kwargs.get("generator")
    if generator is not None and generator.device.type != device.type:
        raise DeviceError(f"{func}: a generator of {generator.device} for a tensor on {device}")
    if func in _COPIES:
        source = args[1] if func is _aten.copy_.default else args[0]
        to_cpu = device.type == "cpu" or not isinstance(args[0], FakeGpuTensor)
        non_blocking = kwargs.get("non_blocking") or (func is _aten.copy_.default and any(args[2:]))
        if isinstance(source, FakeGpuTensor) and non_blocking and to_cpu:
            raise DeviceError(f"{func}: a copy from the GPU that the CPU does not wait for")
        return
    if len({isinstance(each, FakeGpuTensor) for each in tensors}) <= 1:
        return
    has_dimensions = {each.device.type for each in tensors if each.dim()}
    takes_numbers = _traits(func)[2] or func in _TAKE_NUMBERS
    if takes_numbers and has_dimensions <= {"cuda"}:
        return
    shown = ", ".join(f"{tuple(each.shape)} on {each.device}" for each in tensors)
    raise DeviceError(f"{func}: expected all tensors to be on the same device: {shown}")


def _on_cpu(value: Any) -> Any:
    if isinstance(value, FakeGpuTensor):
        return value.on_cpu
    return type(value)(map(_on_cpu, value)) if isinstance(value, tuple | list) else value


def _on_gpu(value: Any) -> Any:
    if isinstance(value, tuple | list):
        return type(value)(map(_on_gpu, value))
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_inference() == torch.is_inference_mode_enabled():
        return FakeGpuTensor(value)
    with torch.inference_mode(value.is_inference()):  # a view of a tensor is what that is
        return FakeGpuTensor(value)


def _as_written(func: Any, args: Any, kwargs: dict[str, Any], results: Any) -> Any:
    """Return the arguments themselves where an operation returns what it has written to."""
    returns = func._schema.returns
    if not returns:
        return None
    written = {}
    for number, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[number] if number < len(args) else kwargs.get(argument.name)
            written[frozenset(argument.alias_info.before_set)] = value
    several = len(returns) > 1
    answers = [
        written[frozenset(each.alias_info.before_set)]
        if each.alias_info is not None and each.alias_info.is_write
        else _on_gpu(result)
        for each, result in zip(returns, results if several else [results], strict=True)
    ]
    return tuple(answers) if several else answers[0]


def _patch_torch(patch: pytest.MonkeyPatch) -> None:
    """Answer what is asked of CUDA itself, as a machine with one GPU would."""
    answers: dict[str, Callable[..., Any]] = {
        "_lazy_init": lambda: None,
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "get_device_name": lambda device=None: "a GPU that is not there",
        "get_device_capability": lambda device=None: (8, 0),
        "is_bf16_supported": lambda including_emulation=True: True,
        "manual_seed_all": lambda seed: None,
        "get_rng_state": lambda device=None: torch.get_rng_state(),
        "set_rng_state": lambda state, device=None: None,
        "empty_cache": lambda: None,
        "synchronize": lambda device=None: None,
        "mem_get_info": lambda device=None: (4 * GIB, 8 * GIB),
        "memory_reserved": lambda device=None: 0,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
        "reset_peak_memory_stats": lambda device=None: None,
        "is_current_stream_capturing": lambda: False,
    }
    for name, answer in answers.items():
        patch.setattr(torch.cuda, name, answer)
    # Optimisers ask the present stream whether it captures a graph; a torch built for CUDA would ask a GPU.
    patch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    patch.setattr(torch, "autocast", _autocast)


@contextmanager
def _autocast(device_type: str, *args: Any, **options: Any) -> Iterator[None]:
    """Set what says that autocast is on for a GPU, and lower what C++ sees, which is on the CPU."""
    with ExitStack() as stack:
        for each in (device_type, "cpu") if device_type == "cuda" else (device_type,):
            stack.enter_context(_REAL_AUTOCAST(each, *args, **options))
        yield
