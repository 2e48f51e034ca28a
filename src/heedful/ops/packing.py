"""Training without padding: the real tokens of a batch in one row; attention stays within each sentence.

Linear layers, residual connections and norms treat each position by itself, so padding can be left out there.
`packed_states` does this from outside: forward hooks pack the embeddings, and the attention modules are
replaced for the duration of one batch.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.util import find_spec
from inspect import signature
from itertools import accumulate
from typing import Self, cast

import torch
from torch import Tensor

from heedful.model.attention import MultiHeadAttention, ScaledDotProductAttention
from heedful.model.layers import DecoderLayer, EncoderLayer
from heedful.model.transformer import Transformer


@dataclass(frozen=True)
class Packing:
    """Where the N tokens of a packed row stand in a batch of B sentences, padded to length L.

    Attributes:
        index: (N,) positions of the tokens in the flattened batch.
        shape: B and L.
        lengths: the number of tokens of each sentence.
    """

    index: Tensor
    shape: tuple[int, int]
    lengths: list[int]

    @classmethod
    def of(cls, is_real: Tensor) -> Self:
        """Return the packing of the real tokens of a batch, given which are, (B, L); without any, of all."""
        if not is_real.any():  # kernels need a token
            is_real = torch.ones_like(is_real)
        lengths = is_real.sum(dim=1).tolist()
        index = is_real.flatten().nonzero()[:, 0]
        return cls(index, (is_real.shape[0], is_real.shape[1]), lengths)

    @cached_property
    def cu_seqlens(self) -> Tensor:
        """Cumulative lengths, int32 (B + 1,): sentence i has the tokens from the i-th to the next."""
        return torch.tensor([0, *accumulate(self.lengths)], dtype=torch.int32, device=self.index.device)

    def pack(self, x: Tensor) -> Tensor:
        """Return the states of a batch, (B, L, D), as a row, (1, N, D)."""
        return x.flatten(0, 1).index_select(0, self.index)[None]

    def pack_heads(self, heads: Tensor) -> Tensor:
        """Pack the heads of a batch, (B, H, L, K), into a row, (1, H, N, K)."""
        row = self.pack(heads.transpose(1, 2).flatten(2))
        return row.view(1, -1, heads.shape[1], heads.shape[3]).transpose(1, 2)

    def unpack_heads(self, heads: Tensor) -> Tensor:
        """Unpack the heads of a row, (1, H, N, K), into a batch, (B, H, L, K), zero at padding."""
        row = heads[0].transpose(0, 1)
        num_sentences, length = self.shape
        batch = row.new_zeros(num_sentences * length, *row.shape[1:]).index_copy(0, self.index, row)
        return batch.view(num_sentences, length, *row.shape[1:]).transpose(1, 2)


class _PackedAttention(ScaledDotProductAttention):
    """Attention between packed rows: each sentence attends to itself, or to its source."""

    def __init__(self, attention: ScaledDotProductAttention, queries: Packing, keys: Packing) -> None:
        super().__init__()
        self.attention = attention
        self.dropout = attention.dropout
        self.queries, self.keys = queries, keys

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None,
        *,
        causal: bool = False,
        bias: Tensor | None = None,
    ) -> Tensor:
        """Return the weighted sums of the values, (1, H, N, d_v), of rows; the mask is of the batch."""
        heads = queries, keys, values
        dropout = self.dropout.p if self.attention.training else 0.0
        if bias is None and dropout == 0.0 and _has_varlen_attn(*heads):
            return self._varlen_attn(*heads, causal=causal)
        packings = self.queries, self.keys, self.keys
        padded = (packing.unpack_heads(each) for packing, each in zip(packings, heads, strict=True))
        return self.queries.pack_heads(self.attention(*padded, mask, causal=causal, bias=bias))

    def _varlen_attn(self, queries: Tensor, keys: Tensor, values: Tensor, *, causal: bool) -> Tensor:
        from torch.nn.attention.varlen import varlen_attn

        heads = varlen_attn(
            queries[0].transpose(0, 1),
            keys[0].transpose(0, 1),
            values[0].transpose(0, 1),
            self.queries.cu_seqlens,
            self.keys.cu_seqlens,
            max(self.queries.lengths),
            max(self.keys.lengths),
            window_size=(-1, 0) if causal else (-1, -1),
        )
        return cast("Tensor", heads).transpose(0, 1)[None]


def _has_varlen_attn(queries: Tensor, keys: Tensor, values: Tensor) -> bool:
    """Return whether torch has FlashAttention for sentences of different lengths, and for these heads."""
    return (
        queries.is_cuda
        and queries.dtype in (torch.bfloat16, torch.float16)
        and queries.shape[-1] == values.shape[-1] <= 256
        and queries.shape[-1] % 8 == 0
        and torch.cuda.get_device_capability(queries.device) >= (8, 0)
        and _has_window_size()
    )


@cache
def _has_window_size() -> bool:
    """Return whether torch's `varlen_attn` is there, with the argument that makes it causal."""
    if find_spec("torch.nn.attention.varlen") is None:  # before torch 2.10
        return False
    from torch.nn.attention.varlen import varlen_attn

    return "window_size" in signature(varlen_attn).parameters


def packed_states(model: Transformer, src: Tensor, tgt_in: Tensor, is_real: Tensor) -> Tensor:
    """Return the decoder's states (N, D) at the N positions where `is_real`, (B, T), is True.

    The model has `has_plain_self_attention`; src is (B, S), and tgt_in, the target shifted to the right, (B,
    T).
    """
    source, target = Packing.of(src != model.config.src_pad_id), Packing.of(is_real)
    with _packed(model, source, target):
        return model.decode(tgt_in, model.encode(src))[0, : int(is_real.sum())]


@contextmanager
def _packed(model: Transformer, source: Packing, target: Packing) -> Iterator[None]:
    """Let `encode` and `decode` return rows of real tokens inside the block."""
    packings: list[tuple[MultiHeadAttention, Packing, Packing]] = []
    for layer in model.modules():
        if isinstance(layer, EncoderLayer):
            packings.append((layer.self_attention, source, source))
        elif isinstance(layer, DecoderLayer):
            packings.append((cast("MultiHeadAttention", layer.self_attention), target, target))
            packings.append((layer.cross_attention, target, source))
    original = [part.attention for part, _, _ in packings]
    with ExitStack() as hooks:
        for stack, packing in ((model.encoder, source), (model.decoder, target)):
            hook = stack.embedding.register_forward_hook(lambda _, __, x, packing=packing: packing.pack(x))
            hooks.callback(hook.remove)
        try:
            for part, queries, keys in packings:
                part.attention = _PackedAttention(part.attention, queries, keys)
            yield
        finally:
            for (part, _, _), attention in zip(packings, original, strict=True):
                part.attention = attention
