"""How good the model is on text it does not train on."""

import math
from collections.abc import Callable, Iterable

import torch

from heedful.data.batches import Batch
from heedful.model import Transformer
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.memory.out_of_memory import OutOfMemoryError, halve_batches, out_of_memory_noted
from heedful.training.precision import Precision, autocast, settled_float32

_TOKENS_AT_ONCE = 512

Validator = Callable[[Transformer], dict[str, float]]


def measure_nll(model: Transformer, batches: Iterable[Batch], *, precision: Precision) -> dict[str, float]:
    """Return the negative log-likelihood per target token, in nats, and its exponential, the perplexity.

    Neither is smoothed (the loss is), and every token counts the same, whichever batch it is in.
    """
    device = next(model.parameters()).device
    total, num_tokens = 0.0, 0
    model.eval()
    with torch.no_grad(), autocast(precision, device), settled_float32(precision, device):
        for batch in batches:
            total += _nll_of(model, batch.to(device))
            num_tokens += batch.num_tgt_tokens
    nll = total / num_tokens
    return {"nll": nll, "perplexity": math.exp(min(nll, 700.0))}


def _nll_of(model: Transformer, batch: Batch) -> float:
    """The sum over a batch, in halves where memory is too small for all of it."""
    try:
        with out_of_memory_noted(batch):
            return _nll_at_once(model, batch)
    except OutOfMemoryError:
        pass  # here what was computed is freed
    return sum(
        _nll_of(model, half) for half in halve_batches([batch], like=batch, pad_id=model.config.tgt_pad_id)
    )


def _nll_at_once(model: Transformer, batch: Batch) -> float:
    pad_id, total = model.config.tgt_pad_id, 0.0
    states = model.decode(batch.tgt_in, model.encode(batch.src))
    real = batch.tgt_out != pad_id
    pieces = (torch.split(each[real], _TOKENS_AT_ONCE) for each in (states, batch.tgt_out))
    for some, wanted in zip(*pieces, strict=True):  # all logits at once can outgrow a training step
        logits = model.project(some)
        total += float(smoothed_cross_entropy(logits, wanted, smoothing=0.0, pad_id=pad_id).nll)
    return total
