"""Data loaders: a rank's batches, made on demand or prefetched by worker processes.

A batch is a pure function of its epoch and its index in the epoch's plan, and the next index is known. So
workers can make it while a step runs, without changing any result.
"""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from multiprocessing.connection import Connection, wait
from typing import Any

import torch

from heedful.data.batches import Batch, BatchSource
from heedful.errors import TrainingError
from heedful.runtime.workers import Worker, start_worker
from heedful.training.parallel.messages import pack, unpack
from heedful.training.step import StepInterruptedError

_MAX_WORKERS = 8
_POLL = 0.1  # seconds between two looks for signals
_RETAINED = 32  # batches, for a step that memory was too small for, which reads its batches again
_GONE = "a process that makes batches ended unexpectedly (out of memory?); --resume from the last checkpoint"


class InlineLoader:
    """Makes batches on demand."""

    def __init__(self, source: BatchSource, *, rank: int = 0, size: int = 1) -> None:
        """Take the rows of a rank: every `size`-th of each batch, from row `rank` on."""
        self._source = source
        self._rank = rank
        self._size = size

    def batch(self, epoch: int, index: int) -> Batch:
        """Return this rank's rows of a batch; if it has none, a row without target tokens.

        The gradients of such a row are zero, and the rank takes part in every sum over ranks.
        """
        indices = self._source.plan(epoch)[index]
        if self._size == 1:
            return self._source.batch(indices, epoch)
        own = indices[self._rank :: self._size]
        batch = self._source.batch(own if len(own) else indices[:1], epoch)
        if len(own):
            return batch
        no_targets = torch.full_like(batch.tgt_out, self._source.tokenizers.tgt.pad_id)
        return replace(batch, tgt_out=no_targets, num_tgt_tokens=0)

    def positions(self, epoch: int, index: int) -> Iterator[tuple[int, int]]:
        """Yield this epoch and index and those that follow, epoch after epoch, without end."""
        while True:
            for following in range(index, len(self._source.plan(epoch))):
                yield epoch, following
            epoch, index = epoch + 1, 0

    def close(self) -> None:
        """Stop making batches."""


class PrefetchingLoader:
    """Worker processes make the batches in turn, each until its pipe is full."""

    def __init__(
        self, loader: InlineLoader, *, workers: int, is_interrupted: Callable[[], bool] = lambda: False
    ) -> None:
        """Start them at the first batch; `is_interrupted` says whether to end the wait for one."""
        self._loader = loader
        self._workers = workers
        self._is_interrupted = is_interrupted
        self._makers: list[Worker] = []
        self._turn = 0
        self._latest: dict[tuple[int, int], Batch] = {}

    def batch(self, epoch: int, index: int) -> Batch:
        """Return a batch; one that is neither among the latest nor the next restarts the workers.

        An interruption, while the batch is not there yet, is a StepInterruptedError.
        """
        requested = epoch, index
        if requested not in self._latest:
            self._latest[requested] = self._made(requested)
            if len(self._latest) > _RETAINED:
                del self._latest[next(iter(self._latest))]
        return self._latest[requested]

    def _made(self, requested: tuple[int, int]) -> Batch:
        if self._makers:
            at, batch = self._receive()
            if at == requested:
                return batch
        self.close()
        self._start(*requested)
        at, batch = self._receive()
        assert at == requested
        return batch

    def close(self) -> None:
        """Stop making batches."""
        for process, pipe in self._makers:
            process.kill()  # it has no state to save, and SIGTERM may be blocked
            process.join()
            pipe.close()
        self._makers = []

    def _start(self, epoch: int, index: int) -> None:
        self._turn = 0
        packed = pack(self._loader)
        for first in range(self._workers):
            self._makers.append(start_worker(_make, packed, (epoch, index), first, self._workers))

    def _receive(self) -> tuple[tuple[int, int], Batch]:
        process, pipe = self._makers[self._turn]
        while not wait([pipe, process.sentinel], timeout=_POLL):
            if self._is_interrupted():
                raise StepInterruptedError
        self._turn = (self._turn + 1) % self._workers
        try:
            message = pipe.recv()
        except (EOFError, OSError) as error:
            raise TrainingError(_GONE) from error
        if isinstance(message, Exception):
            raise message
        at, arrays, num_tgt_tokens = message
        src, tgt_in, tgt_out = map(torch.from_numpy, arrays)
        return at, Batch(src, tgt_in, tgt_out, num_tgt_tokens)


def _make(
    pipe: "Connection[Any, Any]", packed: bytes, start: tuple[int, int], first: int, stride: int
) -> None:
    """Send every `stride`-th batch until the reader is gone; sending blocks while the pipe is full."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C goes to all; the trainer decides
    try:
        loader: InlineLoader = unpack(packed, torch.device("cpu"))
        for at in islice(loader.positions(*start), first, None, stride):
            batch = loader.batch(*at)  # sent as arrays: tensors would need shared memory, which may be small
            arrays = [each.numpy() for each in (batch.src, batch.tgt_in, batch.tgt_out)]
            pipe.send((at, arrays, batch.num_tgt_tokens))
    except ConnectionError:
        return
    except Exception as error:  # the trainer raises it
        pipe.send(error)


def num_workers(source: BatchSource, device: torch.device) -> int:
    """Return how many processes should make the batches of one rank.

    None on a CPU, where training leaves no core idle (docs/log.md). One for a GPU; if segmentations are
    sampled, which needs several cores to keep up with a GPU, this rank's share of the machine's cores.
    """
    if device.type == "cpu":
        return 0
    if source.sampling == 0.0:
        return 1
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(1, min(_MAX_WORKERS, cores // ranks_here - 1))
