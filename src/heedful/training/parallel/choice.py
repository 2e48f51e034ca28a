"""Choose the process group: torchrun's, several processes of this machine, or one."""

import gc
import math
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist

from heedful.data.batches import BatchSource
from heedful.errors import ConfigError
from heedful.model.transformer import Transformer
from heedful.ops.changes import only_in_this_process
from heedful.runtime.native import native
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.execution import Execution
from heedful.training.parallel.distributed import DistributedGroup
from heedful.training.parallel.messages import pack
from heedful.training.parallel.process_group import ProcessGroup, Rank, SingleProcess
from heedful.training.parallel.shared_memory import (
    NoSharedMemoryError,
    SharedMemoryGroup,
    shared_memory_left,
    shared_memory_needed,
)
from heedful.training.parallel.torchrun import is_under_torchrun
from heedful.training.step import LossFunction

_ENOUGH_TOKENS = 512  # of a micro-batch per process: with fewer, matrix multiplications become inefficient
_MUCH_WORK = 500_000  # tokens, padding included; starting two processes pays off after some 50,000


def start_process_group(
    model: Transformer,
    source: BatchSource,
    config: Config,
    execution: Execution,
    optimizer: torch.optim.Optimizer,
    average: MovingAverage | None,
    *,
    loss: LossFunction | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> ProcessGroup:
    """Start the process group of a training, as for `Trainer`; the caller closes it.

    torchrun's processes do not ask `is_interrupted`, which ends a step before its update.

    Python's garbage collector leaves out all objects that exist now, until `gc.unfreeze()`: a full collection
    of some 360,000 (most of them torch's) takes 0.2 s and frees nothing.
    """
    if config.train.kernels == "native" and native().level is None:
        raise ConfigError(
            f'train.kernels="native" needs the native library: {native().describe()}; '
            'or set train.kernels="auto"'
        )
    gc.freeze()
    new_rank = partial(Rank, model, source, config, execution, loss=loss)
    if is_under_torchrun():
        return DistributedGroup(new_rank(size=dist.get_world_size()), optimizer, average)
    new_rank = partial(new_rank, is_interrupted=is_interrupted)
    size, threads = process_group_size(config, model)
    if size > 1:
        try:
            return SharedMemoryGroup(new_rank(size=size), optimizer, average, threads=threads)
        except NoSharedMemoryError as error:
            if config.train.processes:
                raise ConfigError(
                    f"train.processes={size} needs shared memory, and there is none ({error}); "
                    "set train.processes=1"
                ) from None
    return SingleProcess(new_rank(), optimizer, average)


def check_processes(model: Transformer, config: Config, loss: LossFunction | None) -> None:
    """Check that the other processes of a training, if it has any, can get its model and its loss."""
    if is_under_torchrun() or process_group_size(config, model)[0] > 1:
        pack((model, loss), model)


def describe(group: ProcessGroup, execution: Execution) -> str:
    """Describe processes, threads and kernels: besides data and settings, the last bits depend on them."""
    processes = f"{group.size} process{'es' if group.size > 1 else ''}{', sharded,' * group.is_sharded}"
    layers = ", with compiled layers" if execution.compiles else ""
    if execution.device.type != "cpu":
        return f"{processes} on {execution.device.type}{layers}"
    threads = f"{group.threads} thread{'s' if group.threads > 1 else ''}"
    uses_native = group.threads == 1 and execution.kernels and native().level is not None
    kernels = f", with native kernels ({native().level})" if uses_native else ""
    return f"{processes} of {threads}{kernels}{layers}"


def process_group_size(config: Config, model: Transformer) -> tuple[int, int]:
    """Return the number of processes, and the threads of each.

    By default, on a CPU, one process for each core, if each gets a few hundred tokens of every batch, the run
    is long enough to pay for starting them, and the shared memory (often small in containers) is large
    enough; otherwise one.

    A model with a change that other processes cannot make (`only_in_this_process`) has one.
    """
    threads, train = torch.get_num_threads(), config.train
    on_cpu = next(model.parameters()).device.type == "cpu"
    size = train.processes
    if size > 1 and (problem := _why_alone(model, size, on_cpu=on_cpu)):
        raise ConfigError(f"train.processes={size}: {problem}")
    if size == 0:
        step_tokens = config.batch.tokens * config.batch.accumulation
        steps, minutes = train.max_steps or math.inf, train.max_minutes or math.inf
        if steps * step_tokens >= _MUCH_WORK and minutes >= 1:
            size = min(threads, config.batch.tokens // _ENOUGH_TOKENS)
        if size <= 1 or _why_alone(model, size, on_cpu=on_cpu):
            size = 1
    return size, max(1, threads // size)


def _why_alone(model: Transformer, size: int, *, on_cpu: bool) -> str | None:
    """Return why several processes of this machine cannot train a model, and what to do; None: they can."""
    if not on_cpu:
        return (
            "these share a CPU, and the model is on a GPU; set train.processes=0, or start one for each GPU: "
            "torchrun --nproc-per-node N -m heedful train"
        )
    if change := only_in_this_process(model):
        return (
            f"{change}: other processes do not have it; put a class of your own into a module that they can "
            "import, and into the model, or set train.processes=1"
        )
    left, needed = shared_memory_left(), shared_memory_needed(model, size)
    if left is not None and needed > left:
        return (
            f"they need {needed >> 20:,} MiB of shared memory, and {left >> 20:,} are left; give the "
            "container more (--shm-size), or set train.processes=1"
        )
    return None
