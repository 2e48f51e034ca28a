"""Put faster modules in the place of a model's own."""

from torch import nn

from heedful.nn.attention import MultiHeadAttention
from heedful.nn.layers import DecoderLayer, EncoderLayer
from heedful.ops.attention import FusedAttention
from heedful.ops.dropout import FastDropout
from heedful.ops.residual import FusedResidual


def use_fused_ops(model: nn.Module, *, kernels: bool) -> None:
    """Have a model compute attention, residual connections and dropout by faster operations, in place.

    They compute the same up to rounding, and the random bits of dropout are others. No weight changes, and
    none gets another name. Layers are found wherever they are, inside of wrappers too.

    Args:
        model: on any device; it may be moved afterwards. Calling this again changes `kernels` alone.
        kernels: compute with the native kernels in training, where there are any for the tensors at hand
            (see `kernels.py`); without them, on a CPU only dropout is another than the model's own.
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
