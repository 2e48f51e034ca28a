"""The Transformer of "Attention Is All You Need" (Vaswani et al., 2017) in one file, to read and to copy.

It needs torch alone. Run it, and a small model learns to reverse its input. Numbers in parentheses are
sections of the paper. Shapes: B sentences, S source tokens, T target tokens, L tokens of either, D numbers
for a token, F in the feed-forward network, H heads of K = D / H numbers, V tokens in the vocabulary.

The weights have the names that they have in heedful: `model.load_state_dict(heedful_model.state_dict())`.
"""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

PAD, BEGIN, END = 0, 2, 3  # ids of special tokens; 1 is the unknown word


class Attention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W_O (3.2.2)."""

    def __init__(self, d_model, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.query = nn.Linear(d_model, d_model)  # W_Q of all heads, one below the other
        self.key = nn.Linear(d_model, d_model)
        self.value = nn.Linear(d_model, d_model)
        self.output = nn.Linear(d_model, d_model)

    def forward(self, x: Tensor, context: Tensor, mask: Tensor) -> Tensor:
        """Let x (B, T, D) attend to the context (B, S, D) where the mask is true: (B, T, D)."""
        queries = self.split(self.query(x))  # (B, H, T, K)
        keys, values = self.split(self.key(context)), self.split(self.value(context))  # (B, H, S, K)
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])  # (B, H, T, S) (3.2.1)
        scores = scores.masked_fill(~mask, -torch.inf)
        heads = scores.softmax(dim=-1) @ values  # (B, H, T, K)
        return self.output(heads.transpose(1, 2).flatten(2))  # (B, T, H, K) -> (B, T, D)

    def split(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, H, K) -> (B, H, L, K)."""
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)


class FeedForward(nn.Module):
    """FFN(x) = max(0, x W_1 + b_1) W_2 + b_2, at each position by itself (3.3)."""

    def __init__(self, d_model, d_ff):
        super().__init__()
        self.inner = nn.Linear(d_model, d_ff)
        self.outer = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, F) -> (B, L, D)."""
        return self.outer(torch.relu(self.inner(x)))


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward: LayerNorm(x + Dropout(Sublayer(x))) twice (3.1, 5.4)."""

    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__()
        self.self_attention = Attention(d_model, num_heads)
        self.self_attention_norm = nn.LayerNorm(d_model)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.feed_forward_norm = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """(B, S, D) -> (B, S, D)."""
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, mask)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class DecoderLayer(EncoderLayer):
    """The same, with attention to the encoder's output between the two (3.1)."""

    def __init__(self, d_model, num_heads, d_ff, dropout):
        super().__init__(d_model, num_heads, d_ff, dropout)
        self.cross_attention = Attention(d_model, num_heads)
        self.cross_attention_norm = nn.LayerNorm(d_model)

    def forward(self, x: Tensor, mask: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """(B, T, D) -> (B, T, D), given the memory (B, S, D)."""
        x = self.self_attention_norm(x + self.dropout(self.self_attention(x, x, mask)))
        x = self.cross_attention_norm(x + self.dropout(self.cross_attention(x, memory, memory_mask)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))


class Embedding(nn.Module):
    """Token embeddings times √d_model (3.4), plus sinusoids for the positions (3.5), with dropout (5.4)."""

    def __init__(self, tokens: nn.Embedding, dropout):
        super().__init__()
        self.tokens = tokens
        self.dropout = nn.Dropout(dropout)

    def forward(self, ids: Tensor) -> Tensor:
        """(B, L) -> (B, L, D)."""
        d_model = self.tokens.embedding_dim
        positions = sinusoids(ids.shape[1], d_model).to(self.tokens.weight)  # (L, D), for all sentences
        return self.dropout(self.tokens(ids) * math.sqrt(d_model) + positions)


def sinusoids(length: int, d_model: int) -> Tensor:
    """PE(pos, 2i) = sin(pos / 10000^(2i / d_model)), and PE(pos, 2i + 1) = cos of the same: (L, D) (3.5)."""
    positions = torch.arange(length, dtype=torch.float64)[:, None]  # (L, 1)
    angles = positions / 10_000 ** (torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)  # (L, D / 2)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)  # (L, D / 2, 2) -> (L, D)


class Stack(nn.Module):
    """The embedding and N layers: the encoder or the decoder (3.1)."""

    def __init__(self, embedding: Embedding, layers: list[EncoderLayer]):
        super().__init__()
        self.embedding = embedding
        self.layers = nn.ModuleList(layers)

    def forward(self, ids: Tensor, *masks_and_memory: Tensor) -> Tensor:
        """(B, L) -> (B, L, D)."""
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, *masks_and_memory)
        return x


class Transformer(nn.Module):
    """Figure 1. The defaults are the base model's; source and target have one vocabulary (3.4)."""

    def __init__(self, vocab_size, *, d_model=512, num_heads=8, d_ff=2048, num_layers=6, dropout=0.1):
        super().__init__()
        tokens, sizes = nn.Embedding(vocab_size, d_model), (d_model, num_heads, d_ff, dropout)
        self.encoder = Stack(Embedding(tokens, dropout), [EncoderLayer(*sizes) for _ in range(num_layers)])
        self.decoder = Stack(Embedding(tokens, dropout), [DecoderLayer(*sizes) for _ in range(num_layers)])
        self.output = nn.Linear(d_model, vocab_size, bias=False)
        self.output.weight = tokens.weight  # one matrix for both embeddings and the output (3.4)
        for name, weight in self.named_parameters():  # the paper does not say how; this is BERT's way
            if weight.dim() == 2:
                nn.init.normal_(weight, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        """Source ids (B, S) and target ids (B, T), which begin with BEGIN -> logits (B, T, V)."""
        return self.decode(tgt_in, *self.encode(src))

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor]:
        """(B, S) -> the memory (B, S, D), and the mask (B, 1, 1, S) that hides its padding (3.2.3)."""
        mask = (src != PAD)[:, None, None, :]
        return self.encoder(src, mask), mask

    def decode(self, tgt_in: Tensor, memory: Tensor, memory_mask: Tensor) -> Tensor:
        """(B, T) -> (B, T, V): the scores of the token after each position."""
        length = tgt_in.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool, device=tgt_in.device).tril()
        # (T, T): no position sees a later one (3.2.3), so none sees padding, which stands on the right.
        return self.output(self.decoder(tgt_in, causal, memory, memory_mask))

    @torch.no_grad()
    def generate(self, src: Tensor, max_length: int) -> Tensor:
        """Append the most probable token until each sentence has its END: (B, S) -> (B, L)."""
        encoded = self.encode(src)
        ids = torch.full((len(src), 1), BEGIN)  # (B, 1)
        while ids.shape[1] <= max_length and not (ids == END).any(dim=1).all():
            logits = self.decode(ids, *encoded)[:, -1]  # (B, V)
            ids = torch.cat([ids, logits.argmax(dim=-1, keepdim=True)], dim=1)
        return ids[:, 1:]


def main():
    """Train a small model to reverse digits, with Adam and the schedule of the paper (5.3)."""
    torch.manual_seed(1)
    d_model, warmup = 64, 200
    model = Transformer(14, d_model=d_model, num_heads=4, d_ff=128, num_layers=2)
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step in range(1, 1001):
        src = torch.randint(4, 14, (64, 6))  # ids 4 to 13 are the digits
        tgt = src.flip(1)
        logits = model(src, F.pad(tgt, (1, 0), value=BEGIN))  # the input is the output, one position later
        wanted = F.pad(tgt, (0, 1), value=END)
        loss = F.cross_entropy(logits.flatten(0, 1), wanted.flatten(), label_smoothing=0.1, ignore_index=PAD)
        optimizer.param_groups[0]["lr"] = d_model**-0.5 * min(step**-0.5, step * warmup**-1.5)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    src = torch.tensor([[4, 5, 6, 7, 8, 9], [13, 6, 13, 4, 8, 8]])
    for before, after in zip(src - 4, model.eval().generate(src, 7)[:, :6] - 4, strict=True):
        print(before.tolist(), "->", after.tolist())


if __name__ == "__main__":
    main()
