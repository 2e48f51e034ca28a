"""Operations that are applied to a model from outside: no file of `nn/` knows of them.

`use_fused_ops` puts faster modules in the place of the model's own, `record_attention` (recorder.py) records
the attention maps, and `adapt_layers` (lora.py) adds low-rank adapters.
"""

from heedful.ops.fused import use_fused_ops

__all__ = ["use_fused_ops"]
