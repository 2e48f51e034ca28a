"""Replace modules of a model by faster ones."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heedful.model.attention import ScaledDotProductAttention
from heedful.model.layers import Residual
from heedful.ops.attention import FusedAttention
from heedful.ops.changes import is_exactly, patched_functions
from heedful.ops.kernels import FusedResidual

_RANGE = 1 << 16


class FastDropout(nn.Dropout):
    """Set each element to zero with probability p, and scale the others so that the mean stays.

    On a CPU torch generates a number for each element, which can take longer than the layer before. Here 64
    random bits serve four elements, so p is rounded to 1/65,536 and at most 65,535/65,536, and the scale
    compensates exactly. Layers compiled by torch.compile use torch's dropout.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p)
        self._threshold = min(round(p * _RANGE), _RANGE - 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return x in evaluation, and x times a fresh random mask in training."""
        if not self.training or self.p == 0.0:
            return x
        if x.device.type != "cpu" or torch.compiler.is_compiling():
            return F.dropout(x, self.p)
        words = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(1 << 63), None)
        bits = words.view(torch.int16)[: x.numel()].view(x.shape)  # uniform over -32,768..32,767
        retained = bits >= self._threshold - _RANGE // 2
        return x * (retained.to(x.dtype) * (_RANGE / (_RANGE - self._threshold)))


def use_fused_ops(model: nn.Module, *, kernels: bool) -> None:
    """Replace attention, residual connections and dropout of a model by faster modules, in place.

    They compute the same up to rounding, with other random bits for dropout. Weights and their names do not
    change. Layers inside wrappers are replaced too. Modules of other classes, subclasses too, are left as
    they are. If a function that the modules call has been replaced, all modules are left (see `changes.py`).
    Another call only changes `kernels`: whether native kernels are used in training if they support the
    tensors (see `kernels.py`). Without them, on a CPU, only dropout differs from the model's own.
    """
    if patched_functions():
        return
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if type(child) is nn.Dropout and is_exactly(child, nn.Dropout):
                setattr(module, name, FastDropout(child.p).train(child.training))
    for module in list(model.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, ScaledDotProductAttention) and is_exactly(child, ScaledDotProductAttention):
                setattr(module, name, FusedAttention.like(child, kernels=kernels))
            elif isinstance(child, Residual) and is_exactly(child, Residual) and _has_plain_norms(module):
                setattr(module, name, FusedResidual.like(child, kernels=kernels))


def _has_plain_norms(layer: nn.Module) -> bool:
    """Return whether the layer norms in a layer, to which its residual connections apply, are torch's."""
    return all(is_exactly(each, nn.LayerNorm) for each in layer.modules() if isinstance(each, nn.LayerNorm))
