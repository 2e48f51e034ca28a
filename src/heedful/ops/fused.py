"""Replace modules of a model by faster ones."""

from torch import nn

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.ops.attention import FusedAttention
from heedful.ops.dropout import FastDropout
from heedful.ops.residual import FusedResidual


def use_fused_ops(model: nn.Module, *, kernels: bool) -> None:
    """Replace attention, residual connections and dropout of a model by faster modules, in place.

    They compute the same up to rounding, with other random bits for dropout. Weights and their names do not
    change. Layers inside wrappers are replaced too.

    Args:
        model: on any device; it may be moved afterwards. Another call only changes `kernels`.
        kernels: use native kernels in training where they support the tensors (see `kernels.py`); without
            them, on a CPU, only dropout differs from the model's own.
    """
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout:
                setattr(module, name, FastDropout(child.p).train(child.training))
    for module in list(model.modules()):
        if isinstance(module, MultiHeadAttention):
            module.attention = FusedAttention.like(module.attention, kernels=kernels)
        elif isinstance(module, EncoderLayer | DecoderLayer):
            module.residual = FusedResidual.like(module.residual, kernels=kernels)
