"""fairseq's transformer, written down from its description: names, arithmetic, oddities.

As in published_systems.py: nothing comes from the package under test; no dropout, ids padded on the right
with 0 (fairseq's own padding is 1, which matters to nothing but the count of positions: they begin at 2).
"""

import math

import torch
import torch.nn.functional as F
from prenorm_systems import attend, masks
from torch import Tensor, nn

FIRST_POSITION = 2


def fairseq_table(length: int, d_model: int) -> Tensor:
    """One number at a time: sines, then cosines, of wavelengths from 2 pi to 10000 * 2 pi."""
    half = d_model // 2
    rows = []
    for position in range(FIRST_POSITION, FIRST_POSITION + length):
        angles = [position * math.exp(-i * math.log(10_000) / (half - 1)) for i in range(half)]
        rows.append([math.sin(a) for a in angles] + [math.cos(a) for a in angles])
    return torch.tensor(rows)


class FairseqAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.k_proj, self.v_proj, self.q_proj, self.out_proj = (nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.q_proj(x), self.k_proj(context), self.v_proj(context)
        return self.out_proj(attend(q, k, v, mask, self.num_heads, -math.inf))


class FairseqLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, *, pre_norm: bool, is_decoder: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.self_attn = FairseqAttention(d_model, num_heads)
        self.self_attn_layer_norm = nn.LayerNorm(d_model)
        if is_decoder:
            self.encoder_attn = FairseqAttention(d_model, num_heads)
            self.encoder_attn_layer_norm = nn.LayerNorm(d_model)
        self.fc1, self.fc2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.final_layer_norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor | None, memory_mask: Tensor) -> Tensor:
        for norm, name in (
            (self.self_attn_layer_norm, "self"),
            *([(self.encoder_attn_layer_norm, "cross")] if memory is not None else []),
            (self.final_layer_norm, "feed forward"),
        ):
            y = norm(x) if self.pre_norm else x
            if name == "self":
                y = self.self_attn(y, y, mask)
            elif name == "cross":
                y = self.encoder_attn(y, memory, memory_mask)
            else:
                y = self.fc2(F.gelu(self.fc1(y)) if self.pre_norm else self.fc1(y).relu())
            x = x + y if self.pre_norm else norm(x + y)
        return x


class FairseqStack(nn.Module):
    """The pre-norm kind has learned positions, a norm of the embedded input, and no scale."""

    def __init__(self, sizes: tuple[int, ...], *, pre_norm: bool, is_decoder: bool, max_length: int) -> None:
        super().__init__()
        vocab_size, d_model, num_heads, d_ff, num_layers = sizes
        self.pre_norm = pre_norm
        self.register_buffer("version", torch.tensor([3.0]))
        self.embed_tokens = nn.Embedding(vocab_size, d_model)
        self.embed_positions = nn.Module()
        if pre_norm:
            self.embed_positions = nn.Embedding(max_length + FIRST_POSITION, d_model)
            self.layernorm_embedding = nn.LayerNorm(d_model)
            self.layer_norm = nn.LayerNorm(d_model)
        else:
            self.embed_positions.register_buffer("_float_tensor", torch.tensor([3.0]))
        self.layers = nn.ModuleList(
            FairseqLayer(d_model, num_heads, d_ff, pre_norm=pre_norm, is_decoder=is_decoder)
            for _ in range(num_layers)
        )

    def forward(self, ids: Tensor, mask: Tensor, memory: Tensor | None, memory_mask: Tensor) -> Tensor:
        x, length = self.embed_tokens(ids), ids.shape[1]
        if self.pre_norm:
            x = x + self.embed_positions(torch.arange(FIRST_POSITION, FIRST_POSITION + length))
            x = self.layernorm_embedding(x)
        else:
            x = math.sqrt(x.shape[-1]) * x + fairseq_table(length, x.shape[-1]).to(x)
        for layer in self.layers:
            x = layer(x, mask, memory, memory_mask)
        return self.layer_norm(x) if self.pre_norm else x


class Fairseq(nn.Module):
    """Post-norm with the decoder's embedding as output matrix, or pre-norm with one of its own."""

    def __init__(
        self, src_vocab: int, tgt_vocab: int, d_model: int, num_heads: int, d_ff: int, num_layers: int,
        *, pre_norm: bool,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = (d_model, num_heads, d_ff, num_layers)
        self.encoder = FairseqStack((src_vocab, *sizes), pre_norm=pre_norm, is_decoder=False, max_length=11)
        self.decoder = FairseqStack((tgt_vocab, *sizes), pre_norm=pre_norm, is_decoder=True, max_length=9)
        self.decoder.output_projection = nn.Linear(d_model, tgt_vocab, bias=False)
        if not pre_norm:
            self.decoder.output_projection.weight = self.decoder.embed_tokens.weight

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_mask, tgt_mask = masks(src, tgt_in)
        memory = self.encoder(src, src_mask, None, src_mask)
        return self.decoder.output_projection(self.decoder(tgt_in, tgt_mask, memory, src_mask))
