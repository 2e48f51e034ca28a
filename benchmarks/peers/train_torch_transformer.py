"""torch.nn.Transformer in the loop that one writes by hand."""

import math

import torch
import torch.nn.functional as F
from batches import Ids, read_ids, token_batches
from measuring import Stopwatch, Task, parse_task
from sizes import BETAS, DROPOUT, LABEL_SMOOTHING, LEARNING_RATE, Size
from torch import nn


class Seq2Seq(nn.Module):
    """torch.nn.Transformer between one shared matrix of embeddings and itself, as in the paper (3.4)."""

    def __init__(self, size: Size, ids: Ids) -> None:
        super().__init__()
        self.pad_id = ids.pad_id
        self.scale = math.sqrt(size.d_model)
        self.embedding = nn.Embedding(ids.vocab_size, size.d_model, padding_idx=ids.pad_id)
        nn.init.normal_(self.embedding.weight, std=size.d_model**-0.5)
        self.dropout = nn.Dropout(DROPOUT)
        self.transformer = nn.Transformer(
            size.d_model,
            size.num_heads,
            size.num_layers,
            size.num_layers,
            size.d_ff,
            DROPOUT,
            batch_first=True,
        )
        self.register_buffer("positions", _sinusoids(512, size.d_model), persistent=False)

    def forward(self, src: torch.Tensor, tgt_in: torch.Tensor) -> torch.Tensor:
        """Return the logits (B, T, V)."""
        src_pad = src == self.pad_id
        causal = torch.ones(tgt_in.shape[1], tgt_in.shape[1], dtype=torch.bool, device=src.device).triu(1)
        hidden = self.transformer(
            self._embed(src),
            self._embed(tgt_in),
            tgt_mask=causal,
            tgt_is_causal=True,
            src_key_padding_mask=src_pad,
            memory_key_padding_mask=src_pad,
        )
        return F.linear(hidden, self.embedding.weight)

    def _embed(self, tokens: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding(tokens) * self.scale
        return self.dropout(embedded + self.positions[: tokens.shape[1]])


def _sinusoids(length: int, d_model: int) -> torch.Tensor:
    rates = torch.exp(torch.arange(0, d_model, 2) * (-math.log(10_000.0) / d_model))
    angles = torch.arange(length)[:, None] * rates
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)


def main(task: Task) -> None:
    """Train until the time is over, and report."""
    torch.manual_seed(1)
    ids = read_ids(task.material)
    model = Seq2Seq(task.size, ids).train()
    forward = torch.compile(model, dynamic=True) if task.is_compiled else model
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=BETAS, eps=1e-9, fused=True)
    watch = Stopwatch(task)
    for batch in token_batches(ids, task.size.budget):
        with torch.autocast("cpu", torch.bfloat16, enabled=task.precision == "bfloat16"):
            logits = forward(batch.src, batch.tgt_in)
        loss = F.cross_entropy(
            logits.flatten(0, 1).float(),
            batch.tgt_out.flatten(),
            ignore_index=ids.pad_id,
            label_smoothing=LABEL_SMOOTHING,
        )
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if watch.step(batch.num_tgt_tokens, loss.item()):
            break
    watch.report("torch", "nn.Transformer, bare loop, fused Adam, token batches")


if __name__ == "__main__":
    main(parse_task(__doc__))
