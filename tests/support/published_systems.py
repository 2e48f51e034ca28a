"""Published post-norm Transformers, written down from their descriptions: names, arithmetic, oddities.

Nothing here comes from the package under test, and nothing is faster than it must be. Dropout is left out:
what is compared is what a trained model computes. Each model takes ids, padded on the right with 0.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn

PAD = 0


def lower_triangle(length: int) -> Tensor:
    return torch.tril(torch.ones(length, length))


def sinusoid_table(length: int, d_model: int) -> Tensor:
    """One number at a time."""
    rows = []
    for position in range(length):
        angles = [position / 10_000 ** (2 * (i // 2) / d_model) for i in range(d_model)]
        rows.append([math.sin(a) if i % 2 == 0 else math.cos(a) for i, a in enumerate(angles)])
    return torch.tensor(rows)


# --- 1. abhishek-thread ---


class ThreadHead(nn.Module):
    def __init__(self, d_model: int, size: int) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d_model, size) for _ in range(3))

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        query, key, value = self.query(x), self.key(context), self.value(context)
        scores = torch.bmm(query, key.transpose(1, 2)) / query.shape[-1] ** 0.5
        return scores.masked_fill(mask == 0, -float("inf")).softmax(-1) @ value


class ThreadAttention(nn.Module):
    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.attentions = nn.ModuleList(ThreadHead(d_model, d_model // num_heads) for _ in range(num_heads))
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        return self.output(torch.cat([head(x, context, mask) for head in self.attentions], dim=-1))


class ThreadEncoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int) -> None:
        super().__init__()
        self.attn = ThreadAttention(d_model, num_heads)
        self.ffn = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.ReLU(), nn.Linear(d_ff, d_model), nn.Dropout(0.3)
        )
        self.attn_norm, self.ffn_norm = nn.LayerNorm(d_model), nn.LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.attn_norm(self.attn(x, x, mask) + x)
        return self.ffn_norm(self.ffn(x) + x)


class ThreadDecoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int) -> None:
        super().__init__()
        self.masked_attn, self.attn = (ThreadAttention(d_model, num_heads) for _ in range(2))
        self.ffn = nn.Sequential(
            nn.Linear(d_model, d_ff), nn.ReLU(), nn.Dropout(0.3), nn.Linear(d_ff, d_model), nn.Dropout(0.3)
        )
        self.masked_attn_norm, self.attn_norm, self.ffn_norm = (nn.LayerNorm(d_model) for _ in range(3))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor, memory_mask: Tensor) -> Tensor:
        x = self.masked_attn_norm(self.masked_attn(x, x, mask) + x)
        x = self.attn_norm(self.attn(x, memory, memory_mask) + x)
        return self.ffn_norm(self.ffn(x) + x)


class ThreadStack(nn.Module):
    def __init__(self, layers: list[nn.Module]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(layers)


class AbhishekThread(nn.Module):
    def __init__(
        self, src_vocab: int, tgt_vocab: int, d_model: int, num_heads: int, d_ff: int, num_layers: int,
        src_length: int, tgt_length: int,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = (d_model, num_heads, d_ff)
        self.src_embedding, self.tgt_embedding = (
            nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        )  # fmt: skip
        self.src_positions, self.tgt_positions = (
            nn.Embedding(src_length, d_model), nn.Embedding(tgt_length, d_model)
        )  # fmt: skip
        self.encoder = ThreadStack([ThreadEncoderLayer(*sizes) for _ in range(num_layers)])
        self.decoder = ThreadStack([ThreadDecoderLayer(*sizes) for _ in range(num_layers)])
        self.linear = nn.Linear(d_model, tgt_vocab)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_mask, tgt_mask = (src != PAD).long(), (tgt_in != PAD).long()
        x = self.src_embedding(src) + self.src_positions.weight[: src.shape[1]]
        for layer in self.encoder.blocks:
            x = layer(x, src_mask[:, None, :])
        y = self.tgt_embedding(tgt_in) + self.tgt_positions.weight[: tgt_in.shape[1]]
        both = tgt_mask[:, None, :] * lower_triangle(tgt_in.shape[1]).long()
        for layer in self.decoder.blocks:
            y = layer(y, x, both, src_mask[:, None, :])
        return self.linear(y)


# --- 2. nptel-lecture and 3. kaggle-notebook ---


class LectureAttention(nn.Module):
    """With `shared`, the notebook's: one small matrix for all heads, and the scale of the whole width."""

    def __init__(self, embed: int, heads: int, shared: bool) -> None:
        super().__init__()
        self.heads, self.head_dim, self.shared = heads, embed // heads, shared
        width = self.head_dim if shared else embed
        self.values, self.keys, self.queries = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.fc_out = nn.Linear(embed, embed, bias=shared)

    def forward(self, values: Tensor, keys: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        rows, length, embed = query.shape

        def split(x: Tensor) -> Tensor:
            return x.reshape(rows, x.shape[1], self.heads, self.head_dim)

        if self.shared:
            v, k, q = self.values(split(values)), self.keys(split(keys)), self.queries(split(query))
        else:
            v, k, q = split(self.values(values)), split(self.keys(keys)), split(self.queries(query))
        energy = torch.einsum("nqhd,nkhd->nhqk", q, k).masked_fill(mask == 0, -1e20)
        scale = math.sqrt(embed) if self.shared else math.sqrt(self.head_dim)
        weights = torch.softmax(energy / scale, dim=3)
        return self.fc_out(torch.einsum("nhql,nlhd->nqhd", weights, v).reshape(rows, length, embed))


class LectureBlock(nn.Module):
    def __init__(self, embed: int, heads: int, expansion: int, shared: bool) -> None:
        super().__init__()
        self.attention = LectureAttention(embed, heads, shared)
        self.norm1, self.norm2 = nn.LayerNorm(embed), nn.LayerNorm(embed)
        self.feed_forward = nn.Sequential(
            nn.Linear(embed, expansion * embed), nn.ReLU(), nn.Linear(expansion * embed, embed)
        )

    def forward(self, value: Tensor, key: Tensor, query: Tensor, mask: Tensor) -> Tensor:
        x = self.norm1(self.attention(value, key, query, mask) + query)
        return self.norm2(self.feed_forward(x) + x)


class LectureDecoderBlock(nn.Module):
    def __init__(self, embed: int, heads: int, expansion: int, shared: bool) -> None:
        super().__init__()
        self.attention = LectureAttention(embed, heads, shared)
        self.norm = nn.LayerNorm(embed)
        self.transformer_block = LectureBlock(embed, heads, expansion, shared)

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        query = self.norm(self.attention(x, x, x, tgt_mask) + x)
        return self.transformer_block(memory, memory, query, src_mask)


class LectureSide(nn.Module):
    def __init__(self, vocab: int, embed: int, max_length: int, layers: list[nn.Module]) -> None:
        super().__init__()
        self.word_embedding = nn.Embedding(vocab, embed)
        self.position_embedding = nn.Embedding(max_length, embed)
        self.layers = nn.ModuleList(layers)

    def embed(self, ids: Tensor) -> Tensor:
        positions = torch.arange(ids.shape[1]).expand(ids.shape)
        return self.word_embedding(ids) + self.position_embedding(positions)


class Lecture(nn.Module):
    def __init__(
        self, src_vocab: int, tgt_vocab: int, embed: int = 512, heads: int = 8, num_layers: int = 6,
        expansion: int = 4, max_length: int = 100, shared: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        sizes = (embed, heads, expansion, shared)
        encoder_layers = [LectureBlock(*sizes) for _ in range(num_layers)]
        decoder_layers = [LectureDecoderBlock(*sizes) for _ in range(num_layers)]
        self.encoder = LectureSide(src_vocab, embed, max_length, encoder_layers)
        self.decoder = LectureSide(tgt_vocab, embed, max_length, decoder_layers)
        self.decoder.fc_out = nn.Linear(embed, tgt_vocab)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_mask = (src != PAD)[:, None, None, :]
        tgt_mask = lower_triangle(tgt_in.shape[1]).expand(len(src), 1, -1, -1)
        x = self.encoder.embed(src)
        for layer in self.encoder.layers:
            x = layer(x, x, x, src_mask)
        y = self.decoder.embed(tgt_in)
        for layer in self.decoder.layers:
            y = layer(y, x, src_mask, tgt_mask)
        return self.decoder.fc_out(y)


# --- 5. jadore ---


class JadoreAttention(nn.Module):
    def __init__(self, d_model: int, n_head: int, d_k: int, d_v: int) -> None:
        super().__init__()
        self.n_head, self.d_k, self.d_v = n_head, d_k, d_v
        self.w_qs = nn.Linear(d_model, n_head * d_k, bias=False)
        self.w_ks = nn.Linear(d_model, n_head * d_k, bias=False)
        self.w_vs = nn.Linear(d_model, n_head * d_v, bias=False)
        self.fc = nn.Linear(n_head * d_v, d_model, bias=False)
        self.layer_norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
        residual, rows = q, q.shape[0]
        q = self.w_qs(q).view(rows, -1, self.n_head, self.d_k).transpose(1, 2)
        k = self.w_ks(k).view(rows, -1, self.n_head, self.d_k).transpose(1, 2)
        v = self.w_vs(v).view(rows, -1, self.n_head, self.d_v).transpose(1, 2)
        scores = torch.matmul(q / self.d_k**0.5, k.transpose(2, 3)).masked_fill(mask.unsqueeze(1) == 0, -1e9)
        weights = scores.softmax(-1)
        out = torch.matmul(weights, v).transpose(1, 2).reshape(rows, -1, self.n_head * self.d_v)
        return self.layer_norm(self.fc(out) + residual), weights


class JadoreFeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        self.layer_norm = nn.LayerNorm(d_model, eps=1e-6)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer_norm(self.w_2(self.w_1(x).relu()) + x)


class JadoreLayer(nn.Module):
    def __init__(self, attention: Callable[[], nn.Module], feed_forward: nn.Module, decoder: bool) -> None:
        super().__init__()
        self.slf_attn = attention()
        if decoder:
            self.enc_attn = attention()
        self.pos_ffn = feed_forward


class JadoreTable(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.register_buffer("pos_table", sinusoid_table(200, d_model)[None])


class JadoreSide(nn.Module):
    def __init__(self, name: str, words: nn.Embedding, layers: list[nn.Module]) -> None:
        super().__init__()
        self.add_module(name, words)
        self.position_enc = JadoreTable(words.embedding_dim)
        self.layer_stack = nn.ModuleList(layers)
        self.layer_norm = nn.LayerNorm(words.embedding_dim, eps=1e-6)

    def embed(self, words: Tensor) -> Tensor:
        return self.layer_norm(words + self.position_enc.pos_table[:, : words.shape[1]])


class Jadore(nn.Module):
    """`scaled` is "emb", "prj" or "neither"; `weights` holds the attention weights of the last call."""

    def __init__(
        self, src_vocab: int, tgt_vocab: int, d_model: int, d_ff: int, num_layers: int, n_head: int,
        d_k: int, d_v: int, scaled: str = "neither", share_source: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.scaled, self.d_model = scaled, d_model

        def attention() -> nn.Module:
            return JadoreAttention(d_model, n_head, d_k, d_v)

        def layers(decoder: bool) -> list[nn.Module]:
            return [
                JadoreLayer(attention, JadoreFeedForward(d_model, d_ff), decoder) for _ in range(num_layers)
            ]

        src_words, trg_words = nn.Embedding(src_vocab, d_model), nn.Embedding(tgt_vocab, d_model)
        if share_source:
            src_words.weight = trg_words.weight
        self.encoder = JadoreSide("src_word_emb", src_words, layers(decoder=False))
        self.decoder = JadoreSide("trg_word_emb", trg_words, layers(decoder=True))
        self.trg_word_prj = nn.Linear(d_model, tgt_vocab, bias=False)
        self.trg_word_prj.weight = trg_words.weight
        self.weights: list[Tensor] = []

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        src_mask = (src != PAD)[:, None, :]
        trg_mask = (tgt_in != PAD)[:, None, :] & lower_triangle(tgt_in.shape[1]).bool()
        scale = self.d_model**0.5 if self.scaled == "emb" else 1.0
        self.weights = []
        x = self.encoder.embed(self.encoder.src_word_emb(src) * scale)
        for layer in self.encoder.layer_stack:
            x, weights = layer.slf_attn(x, x, x, src_mask)
            self.weights.append(weights)
            x = layer.pos_ffn(x)
        y = self.decoder.embed(self.decoder.trg_word_emb(tgt_in) * scale)
        for layer in self.decoder.layer_stack:
            y, own = layer.slf_attn(y, y, y, trg_mask)
            y, crossed = layer.enc_attn(y, x, x, src_mask)
            self.weights += [own, crossed]
            y = layer.pos_ffn(y)
        logits = self.trg_word_prj(y)
        return logits * self.d_model**-0.5 if self.scaled == "prj" else logits
