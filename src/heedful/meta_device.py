"""Models without weights, on torch's meta device, and loading weights into them without a copy."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from heedful.config import ModelConfig
from heedful.model import Transformer


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


def weight_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Return the shape of each weight by its name, a shared one once, without building all layers.

    It takes the same time however many there are: those after the second are like the second.
    """
    depths = {"encoder": config.num_encoder_layers, "decoder": config.num_decoder_layers}
    few = config.replace(**{f"num_{stack}_layers": min(2, depth) for stack, depth in depths.items()})
    shapes = {name: tuple(each.shape) for name, each in meta_model(few).named_parameters()}
    for stack, depth in depths.items():
        second = f"{stack}.layers.1."
        like_second = {name.removeprefix(second): shapes[name] for name in shapes if name.startswith(second)}
        for i in range(2, depth):
            shapes |= {f"{stack}.layers.{i}.{name}": shape for name, shape in like_second.items()}
    return shapes


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
