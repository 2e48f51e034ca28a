"""Operations that are applied to a model from outside, independent of `model/`.

`use_fused_ops` replaces modules by faster ones, `record_attention` (attention.py) records attention maps,
and `add_adapters` (lora.py) adds low-rank adapters. They change heedful's own classes only (changes.py).
"""

from heedful.ops.attention import record_attention
from heedful.ops.fused import use_fused_ops
from heedful.ops.lora import add_adapters

__all__ = ["add_adapters", "record_attention", "use_fused_ops"]
