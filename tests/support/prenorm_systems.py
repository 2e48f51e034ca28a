"""Pre-norm systems, and a module around torch's own Transformer, written down from their descriptions.

As in published_systems.py: names, arithmetic and oddities, no dropout, ids padded on the right with 0.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

PAD = 0
Sublayer = Callable[[Tensor], Tensor]


def log_space_table(length: int, d_model: int) -> Tensor:
    """Sinusoids through logarithms in float32, as many write them; they are off in the last digits."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    factors = torch.exp(torch.arange(0, d_model, 2).float() * -(math.log(10_000.0) / d_model))
    table = torch.zeros(length, d_model)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * factors), torch.cos(position * factors)
    return table


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, num_heads: int, fill: float) -> Tensor:
    """Scaled dot products of projected queries, keys and values (rows, length, width)."""

    def split(x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], num_heads, -1).permute(0, 2, 1, 3)

    q, k, v = split(q), split(k), split(v)
    scores = (q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])).masked_fill(mask == 0, fill)
    return (scores.softmax(-1) @ v).permute(0, 2, 1, 3).flatten(2)


def masks(src: Tensor, tgt_in: Tensor) -> tuple[Tensor, Tensor]:
    length = tgt_in.shape[1]
    triangle = torch.tril(torch.ones(length, length, dtype=torch.bool))
    return (src != PAD)[:, None, None, :], (tgt_in != PAD)[:, None, None, :] & triangle


# --- 4. adeveloperdiary ---


class DiaryNorm(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.alpha, self.beta = nn.Parameter(torch.ones(1)), nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        mean, deviation = x.mean(-1, keepdim=True), x.std(-1, keepdim=True)  # over n - 1
        return self.alpha * (x - mean) / (deviation + 1e-8) + self.beta


class DiaryAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.Wq, self.Wk, self.Wv, self.Wo = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.Wq(x), self.Wk(context), self.Wv(context)
        return self.Wo(attend(q, k, v, mask, self.num_heads, -1e8))


class DiaryFeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.linear1, self.linear2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear2(self.linear1(x).relu())


class DiarySkip(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer_norm_block = DiaryNorm()

    def forward(self, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + sublayer(self.layer_norm_block(x))


class DiaryBlock(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, decoder: bool) -> None:
        super().__init__()
        self.attention_block = DiaryAttention(d_model, num_heads)
        if decoder:
            self.cross_attention_block = DiaryAttention(d_model, num_heads)
        self.ff_block = DiaryFeedForward(d_model, d_ff)
        self.skip_connections = nn.ModuleList(DiarySkip() for _ in range(3 if decoder else 2))


class Named(nn.Module):
    """A module with one child, or one buffer, of a given name."""

    def __init__(self, **children: nn.Module | Tensor) -> None:
        super().__init__()
        for name, child in children.items():
            if isinstance(child, nn.Module):
                self.add_module(name, child)
            else:
                self.register_buffer(name, child)


class Diary(nn.Module):
    def __init__(
        self, src_vocab: int, tgt_vocab: int, d_model: int, num_heads: int, d_ff: int, num_layers: int,
        table: Tensor,
    ) -> None:  # fmt: skip
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.input_embed_block = Named(embedding=nn.Embedding(src_vocab, d_model))
        self.output_embed_block = Named(embedding=nn.Embedding(tgt_vocab, d_model))
        self.input_pos_block = Named(positional_encoding=table[None])
        self.output_pos_block = Named(positional_encoding=table[None])

        def blocks(decoder: bool) -> nn.ModuleList:
            return nn.ModuleList(DiaryBlock(d_model, num_heads, d_ff, decoder) for _ in range(num_layers))

        self.encoder_seq_block = Named(encoder_blocks=blocks(decoder=False), norm=DiaryNorm())
        self.decoder_seq_block = Named(decoder_blocks=blocks(decoder=True), norm=DiaryNorm())
        self.linear_softmax_block = Named(linear=nn.Linear(d_model, tgt_vocab))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_mask, tgt_mask = masks(src, tgt_in)
        x = self.input_embed_block.embedding(src) * self.scale
        x = x + self.input_pos_block.positional_encoding[:, : src.shape[1]]
        for block in self.encoder_seq_block.encoder_blocks:
            first, second = block.skip_connections
            x = first(x, lambda x, block=block: block.attention_block(x, x, src_mask))
            x = second(x, block.ff_block)
        memory = self.encoder_seq_block.norm(x)
        y = self.output_embed_block.embedding(tgt_in) * self.scale
        y = y + self.output_pos_block.positional_encoding[:, : tgt_in.shape[1]]
        for block in self.decoder_seq_block.decoder_blocks:
            first, second, third = block.skip_connections
            y = first(y, lambda y, block=block: block.attention_block(y, y, tgt_mask))
            y = second(y, lambda y, block=block: block.cross_attention_block(y, memory, src_mask))
            y = third(y, block.ff_block)
        return self.linear_softmax_block.linear(self.decoder_seq_block.norm(y))


# --- the Annotated Transformer ---


class AnnotatedNorm(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.a_2, self.b_2 = nn.Parameter(torch.ones(d_model)), nn.Parameter(torch.zeros(d_model))

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-6) + self.b_2


class AnnotatedAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.linears = nn.ModuleList(nn.Linear(d_model, d_model) for _ in range(4))

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (linear(y) for linear, y in zip(self.linears, (x, context, context), strict=False))
        return self.linears[3](attend(q, k, v, mask, self.num_heads, -1e9))


class AnnotatedFeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.w_1(x).relu())


class AnnotatedLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, decoder: bool) -> None:
        super().__init__()
        self.self_attn = AnnotatedAttention(d_model, num_heads)
        if decoder:
            self.src_attn = AnnotatedAttention(d_model, num_heads)
        self.feed_forward = AnnotatedFeedForward(d_model, d_ff)
        self.sublayer = nn.ModuleList(Named(norm=AnnotatedNorm(d_model)) for _ in range(3 if decoder else 2))

    def wrap(self, number: int, x: Tensor, sublayer: Sublayer) -> Tensor:
        return x + sublayer(self.sublayer[number].norm(x))


class Annotated(nn.Module):
    def __init__(
        self, src_vocab: int, tgt_vocab: int, d_model: int, num_heads: int, d_ff: int, num_layers: int,
        table: Tensor,
    ) -> None:  # fmt: skip
        super().__init__()
        self.scale = math.sqrt(d_model)

        def stack(decoder: bool) -> nn.Module:
            layers = (AnnotatedLayer(d_model, num_heads, d_ff, decoder) for _ in range(num_layers))
            return Named(layers=nn.ModuleList(layers), norm=AnnotatedNorm(d_model))

        def embedding(vocab: int) -> nn.Module:
            return nn.Sequential(Named(lut=nn.Embedding(vocab, d_model)), Named(pe=table[None]))

        self.encoder, self.decoder = stack(decoder=False), stack(decoder=True)
        self.src_embed, self.tgt_embed = embedding(src_vocab), embedding(tgt_vocab)
        self.generator = Named(proj=nn.Linear(d_model, tgt_vocab))

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_mask, tgt_mask = masks(src, tgt_in)
        x = self.src_embed[0].lut(src) * self.scale + self.src_embed[1].pe[:, : src.shape[1]]
        for layer in self.encoder.layers:
            x = layer.wrap(0, x, lambda x, layer=layer: layer.self_attn(x, x, src_mask))
            x = layer.wrap(1, x, layer.feed_forward)
        memory = self.encoder.norm(x)
        y = self.tgt_embed[0].lut(tgt_in) * self.scale + self.tgt_embed[1].pe[:, : tgt_in.shape[1]]
        for layer in self.decoder.layers:
            y = layer.wrap(0, y, lambda y, layer=layer: layer.self_attn(y, y, tgt_mask))
            y = layer.wrap(1, y, lambda y, layer=layer: layer.src_attn(y, memory, src_mask))
            y = layer.wrap(2, y, layer.feed_forward)
        return self.generator.proj(self.decoder.norm(y))


# --- a module around nn.Transformer ---


class TorchTranslator(nn.Module):
    """Names as in torch's translation tutorial."""

    def __init__(
        self, src_vocab: int, tgt_vocab: int, d_model: int, num_heads: int, d_ff: int, num_layers: int,
        table: Tensor, norm_first: bool = False, bias: bool = True,
    ) -> None:  # fmt: skip
        super().__init__()
        self.scale = math.sqrt(d_model)
        kind = {"dropout": 0.0, "batch_first": True, "norm_first": norm_first, "bias": bias}
        encoder = nn.TransformerEncoder(
            nn.TransformerEncoderLayer(d_model, num_heads, d_ff, **kind),
            num_layers,
            nn.LayerNorm(d_model, bias=bias),
            enable_nested_tensor=False,
        )
        self.transformer = nn.Transformer(
            d_model, num_heads, num_layers, num_layers, d_ff, custom_encoder=encoder, **kind
        )
        self.generator = nn.Linear(d_model, tgt_vocab)
        self.src_tok_emb = Named(embedding=nn.Embedding(src_vocab, d_model))
        self.tgt_tok_emb = Named(embedding=nn.Embedding(tgt_vocab, d_model))
        self.positional_encoding = Named(pos_embedding=table[:, None])

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        table = self.positional_encoding.pos_embedding[:, 0]
        x = self.src_tok_emb.embedding(src) * self.scale + table[: src.shape[1]]
        y = self.tgt_tok_emb.embedding(tgt_in) * self.scale + table[: tgt_in.shape[1]]
        states = self.transformer(
            x, y,
            tgt_mask=torch.ones(tgt_in.shape[1], tgt_in.shape[1], dtype=torch.bool).triu(1),
            src_key_padding_mask=src == PAD,
            tgt_key_padding_mask=tgt_in == PAD,
            memory_key_padding_mask=src == PAD,
        )  # fmt: skip
        return self.generator(states)
