"""Models without weights, on torch's meta device, and loading weights into them without a copy."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heedful.config import ModelConfig
from heedful.model import Transformer
from heedful.ops import use_fused_ops
from heedful.threads import apply_threads
from heedful.weight_format import weight_shapes


def meta_model(config: ModelConfig) -> Transformer:
    """Build a model on the meta device: its weights have names and shapes, but no values and no memory."""
    with torch.device("meta"), _NoInitialisation():
        model = Transformer.from_config(config)
    for module in model.modules():
        for name, buffer in module.named_buffers(recurse=False):  # tables that grow, empty at first
            setattr(module, name, torch.empty_like(buffer, device="cpu"))
    return model


def assign_weights(model: Transformer, weights: Mapping[str, Tensor]) -> None:
    """Make these tensors a model's weights, by name and without a copy; a shared matrix stays shared.

    Args:
        model: usually from `meta_model`.
        weights: as `model.named_parameters()` names them, a shared one under its first name.
    """
    first_names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = {name: nn.Parameter(weights[name]) for name in first_names.values()}
    every = model.named_parameters(remove_duplicate=False)
    model.load_state_dict({name: parameters[first_names[id(each)]] for name, each in every}, assign=True)


def model_from_arrays(config: ModelConfig, weight: Callable[[str], NDArray[np.float32]]) -> Transformer:
    """Build a model in evaluation mode, with arrays of its own for weights.

    Args:
        config: of the model.
        weight: gives the array of each of its weights by name.
    """
    apply_threads()
    model = meta_model(config)
    assign_weights(model, {name: torch.from_numpy(weight(name)) for name in weight_shapes(config)})
    use_fused_ops(model, kernels=False)  # training asks for them
    return model.eval()


class _NoInitialisation(TorchFunctionMode):
    """Leaves out what draws random numbers: on the meta device it would change nothing, and take seconds."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:  # noqa: ANN401
        """Call the function, or return the tensor that it would fill."""
        kwargs = kwargs or {}
        if func.__name__ in {"normal_", "uniform_", "kaiming_uniform_"}:
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
