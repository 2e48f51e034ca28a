"""How many tokens of a batch fit into memory: `batch.tokens = "auto"`.

A step is tried with a few small batches of the longest sentences. What a batch takes grows linearly with its
tokens, so it is known what more would take, and nothing is tried that does not fit.
"""

import os
from dataclasses import dataclass

import torch
import torch.distributed as dist

from heedful.config import Config
from heedful.data.batches import Batch
from heedful.errors import ConfigError
from heedful.free_memory import return_free_memory
from heedful.model import Transformer
from heedful.training.memory.free import free_memory
from heedful.training.memory.peak import peak_memory
from heedful.training.parallel.choice import process_group_size
from heedful.training.parallel.distributed import in_process_group
from heedful.training.precision import Precision, resolve_precision
from heedful.training.step import accumulate_gradients
from heedful.training.validation import measure_nll

MOST_TOKENS = 25_000  # 5.1: more is not better because there is memory for it
_FIRST, _ENOUGH = 512, 4096  # tokens of the smallest and the largest batch that is tried
_MIB = 1 << 20

# What a long run takes beyond a first step, measured (tiny and small, 1,000 to 17,000 tokens, glibc): batches
# of ever other shapes leave gaps between them, 1.5 to 2.1 times a batch in all, and prepared kernels for each
# shape. The allocator for GPUs leaves less.
_GAPS = {"cpu": 2.0, "cuda": 1.2}
_KERNELS = 300 * _MIB  # of each process
_PROCESS = 250 * _MIB  # that has no model yet
_SHARE = 0.9  # of the free memory that is planned with


@dataclass(frozen=True)
class Fit:
    """A size of batches, and why.

    Attributes:
        tokens: rows x max(src_len, tgt_len), padding included.
        needed: bytes that training will take with it, beyond what is taken already.
        free: bytes that were free.
    """

    tokens: int
    needed: int
    free: int

    def __str__(self) -> str:
        return (
            f"{self.tokens:,} tokens in a batch, with which training takes about {self.needed // _MIB:,} MiB "
            f"of the {self.free // _MIB:,} MiB that are free"
        )


def fitting_batch(
    model: Transformer, config: Config, longest: tuple[int, int], *, free: int | None = None
) -> Fit:
    """Find the most tokens of a micro-batch that fit into memory, at most the paper's.

    Args:
        model: on its device. It is the same after it, and so are the random generators.
        config: its `batch.tokens` is not looked at.
        longest: S and T of a batch, in tokens.
        free: bytes of memory, on this machine or this process's GPU; by default what is free now.

    Raises:
        ConfigError: not even the longest pair fits.
    """
    device = next(model.parameters()).device
    free = free_memory(device) if free is None else free
    ranks, sharing = _ranks(device)
    room = int(_SHARE * free) // sharing
    fixed = _held(model, config)
    points = _try(model, config, longest, room=room - fixed)
    (few, taken), (many, taken_then) = points[0], points[-1]
    each = (taken_then - taken) / (many - few) if many > few else taken / few
    fixed += max(0, round(taken - each * few))
    each = max(1.0, _GAPS[device.type] * each)
    tokens = min(MOST_TOKENS, ranks * int((room - fixed) / each))
    if tokens < max(longest):
        raise ConfigError(
            f'batch.tokens="auto": training with a pair of {max(longest)} tokens takes about '
            f"{round(fixed + each * max(longest)) // _MIB:,} MiB, of {room // _MIB:,} MiB to plan with; "
            "take a smaller model, or set data.max_length lower"
        )
    return Fit(tokens, round(sharing * (fixed + each * tokens / ranks)), free)


def _ranks(device: torch.device) -> tuple[int, int]:
    """How many processes of torchrun deal a batch among them, and how many of these share one memory."""
    if not in_process_group():
        return 1, 1
    return dist.get_world_size(), int(os.environ["LOCAL_WORLD_SIZE"]) if device.type == "cpu" else 1


def _held(model: Transformer, config: Config) -> int:
    """Bytes that training holds whatever the batch, beyond the weights and one set of gradients."""
    sizes = [(weight.numel() * weight.element_size(), weight.requires_grad) for weight in model.parameters()]
    trained = sum(size for size, is_trained in sizes if is_trained)
    average = sum(size for size, _ in sizes) if config.train.ema_decay else 0
    others = 0
    if not in_process_group():
        batch = config.batch.replace(tokens=MOST_TOKENS)
        others = process_group_size(config.replace(batch=batch.model_dump()), model)[0] - 1
    return 2 * trained + average + _KERNELS + others * (trained + _PROCESS + _KERNELS)


def _try(model: Transformer, config: Config, longest: tuple[int, int], *, room: int) -> list[tuple[int, int]]:
    """Return tokens and what they take, for batches twice as large each, as long as the next surely fits."""
    precision = resolve_precision(config.train.precision, next(model.parameters()).device)
    rows = max(1, _FIRST // max(longest))
    points: list[tuple[int, int]] = []
    with torch.random.fork_rng():
        _taken(model, config, _longest_batch(model, longest, rows), precision)  # kernels are prepared
        while not points or (points[-1][0] < _ENOUGH and 2 * points[-1][1] < room):
            batch = _longest_batch(model, longest, rows)
            points.append((rows * max(longest), _taken(model, config, batch, precision)))
            rows *= 2
    return points


def _taken(model: Transformer, config: Config, batch: Batch, precision: Precision) -> int:
    """Bytes that are taken at most while a batch is trained on and judged."""
    device = next(model.parameters()).device
    return_free_memory()  # or else a batch seems to fit into it for nothing
    with peak_memory(device) as before:
        pass
    with peak_memory(device) as during:
        accumulate_gradients(model, [batch], config.train, precision=precision)
        measure_nll(model, [batch], precision=precision)
    model.zero_grad(set_to_none=True)
    model.train()
    return max(0, int(_MIB * ((during.mib or 0.0) - (before.mib or 0.0))))


def _longest_batch(model: Transformer, longest: tuple[int, int], rows: int) -> Batch:
    """Rows without padding, of ids that are not padding's."""
    src, tgt = (
        torch.full((rows, length), 1 if pad_id == 0 else 0)
        for length, pad_id in zip(longest, (model.config.src_pad_id, model.config.tgt_pad_id), strict=True)
    )
    return Batch(src, tgt, tgt, num_tgt_tokens=tgt.numel())
