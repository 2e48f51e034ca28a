"""Validation: the negative log-likelihood of held-out text."""

import math
from collections.abc import Callable, Iterable

import torch

from heedful.data.batches import Batch
from heedful.model.transformer import Transformer
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.memory import OutOfMemoryError, halve_batches, reraise_out_of_memory
from heedful.training.precision import Precision, autocast, float32_matmul_precision

_CHUNK_TOKENS = 512

Validator = Callable[[Transformer], dict[str, float]]


def measure_nll(model: Transformer, batches: Iterable[Batch], *, precision: Precision) -> dict[str, float]:
    """Return the negative log-likelihood per target token, in nats, and its exponential, the perplexity.

    Neither is smoothed, and every token counts the same, whichever batch it is in.
    """
    device = next(model.parameters()).device
    total, num_tokens = 0.0, 0
    model.eval()
    with torch.no_grad(), autocast(precision, device), float32_matmul_precision(precision, device):
        for batch in batches:
            total += _nll_of(model, batch.to(device))
            num_tokens += batch.num_tgt_tokens
    nll = total / num_tokens
    return {"nll": nll, "perplexity": math.exp(min(nll, 700.0))}


def _nll_of(model: Transformer, batch: Batch) -> float:
    """Return the sum over a batch, which is split in two if it does not fit into memory."""
    try:
        with reraise_out_of_memory(batch):
            return _nll_in_one_pass(model, batch)
    except OutOfMemoryError:
        pass  # outside the except block, where the activations are freed
    return sum(
        _nll_of(model, half) for half in halve_batches([batch], like=batch, pad_id=model.config.tgt_pad_id)
    )


def _nll_in_one_pass(model: Transformer, batch: Batch) -> float:
    pad_id, total = model.config.tgt_pad_id, 0.0
    states = model.decode(batch.tgt_in, model.encode(batch.src))
    real = batch.tgt_out != pad_id
    chunks = (torch.split(each[real], _CHUNK_TOKENS) for each in (states, batch.tgt_out))
    for chunk, targets in zip(
        *chunks, strict=True
    ):  # all logits in one pass may need more than a training step
        logits = model.project(chunk)
        total += float(smoothed_cross_entropy(logits, targets, smoothing=0.0, pad_id=pad_id).nll)
    return total
