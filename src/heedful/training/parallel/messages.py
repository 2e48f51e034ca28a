"""What a training sends to its other processes: objects by value, functions and classes by name.

Other processes load the plugins of the first one before they read a message.

A model is sent as it is, with the classes of its modules, but without its weights, which processes share or
exchange. Only processes of one training exchange these messages; they are never stored.
"""

import io
from pickle import Pickler, PicklingError, Unpickler
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn

from heedful.errors import ConfigError
from heedful.settings.plugins import load_again, loaded_plugins

_REMEDY = "move it into a module (a file) of its own and import it, or set train.processes=1"


def pack(message: object, model: nn.Module | None = None) -> bytes:
    """Return a message as bytes, with the weights of the model, which may be in it, without their values.

    A ConfigError names a function or class that another process cannot import.
    """
    packed = io.BytesIO()
    Pickler(packed).dump(loaded_plugins())
    try:
        _Packer(packed, model).dump(message)
    except (PicklingError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"the model or the loss cannot be sent to other processes of this training ({error}); {_REMEDY}"
        ) from error
    return packed.getvalue()


def unpack(packed: bytes, device: torch.device) -> Any:  # noqa: ANN401
    """Return a message, with its tensors on a device; the values of the model's weights are arbitrary."""
    message = io.BytesIO(packed)
    load_again(Unpickler(message).load())
    return _Unpacker(message, device).load()


class _Packer(Pickler):
    def __init__(self, file: io.BytesIO, model: nn.Module | None) -> None:
        super().__init__(file)
        weights = () if model is None else model.parameters()
        self._numbers = {weight: number for number, weight in enumerate(weights)}

    def persistent_id(self, value: object) -> object:
        if not isinstance(value, Tensor):
            return None
        if value in self._numbers:
            assert isinstance(value, nn.Parameter)
            return self._numbers[value], value.shape, value.dtype, value.requires_grad
        return None if value.device.type == "cpu" else value.detach().cpu()

    def reducer_override(self, value: Any) -> Any:  # noqa: ANN401
        if isinstance(value, type | FunctionType) and (
            value.__module__ == "__main__" or "<" in value.__qualname__  # <lambda>, or inside a function
        ):
            name = f"{value.__module__}.{value.__qualname__}"
            raise ConfigError(f"{name}: other processes of this training cannot import it; {_REMEDY}")
        return NotImplemented


class _Unpacker(Unpickler):
    def __init__(self, file: io.BytesIO, device: torch.device) -> None:
        super().__init__(file)
        self._device = device
        self._weights: dict[int, nn.Parameter] = {}

    def persistent_load(self, sent: Any) -> Tensor:  # noqa: ANN401
        if isinstance(sent, Tensor):
            return sent.to(self._device)
        number, shape, dtype, requires_grad = sent
        if number not in self._weights:
            empty = torch.empty(shape, dtype=dtype, device=self._device)
            self._weights[number] = nn.Parameter(empty, requires_grad=requires_grad)
        return self._weights[number]
