"""The processes that torchrun starts: how they find each other, and what they remember over a restart."""

import gc
import importlib
import os
import socket
import time
import uuid
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from heedful.errors import ConfigError
from heedful.runtime.workers import has_other_ranks

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_TORCHRUN_VARIABLES = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # besides WORLD_SIZE
_TIMEOUT = timedelta(hours=12)  # of workers, while rank 0 reads a corpus or validates; see `Heartbeat`
_HAS_STORE = "TORCHELASTIC_USE_AGENT_STORE"  # "True" in the processes of torchrun
_STORE_TIMEOUT = timedelta(seconds=20)
_ATTEMPT, _PAUSE = 5.0, 0.1  # seconds to connect to a port of rank 0, and before another attempt


def join_process_group(device: str) -> int | None:
    """Join the process group that torchrun describes in the environment; return this process's rank.

    Returns None if torchrun did not start this process, or started it alone.
    """
    if not has_other_ranks():
        return None
    if not dist.is_initialized():
        _check_environment()
    on_gpu = device == "cuda" or (device == "auto" and torch.cuda.is_available())
    if on_gpu:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    if not dist.is_initialized():
        # Optimisers and FSDP import these; if there were a group by then, it would live on as a default
        # argument of their functions.
        for name in ("torch.distributed.fsdp", "torch.distributed.nn.functional"):
            importlib.import_module(name)

        backend = "cpu:gloo,cuda:nccl" if on_gpu else "gloo"
        dist.init_process_group(backend, timeout=_TIMEOUT, **_store_of_this_start())
    return dist.get_rank()


def _store_of_this_start() -> dict[str, Any]:
    """Return a store for this start of the processes, as options of `init_process_group`.

    torchrun's store lives as long as the job. After a restart it still has the addresses of the processes
    before, and some ranks would try to connect to these. So rank 0 has a store of its own, and only its port
    is in torchrun's; the port of a process before is refused.
    """
    if os.environ.get(_HAS_STORE) != "True":
        return {}
    from torch._C._distributed_c10d import TCPStore

    host, rank, shared = os.environ["MASTER_ADDR"], int(os.environ["RANK"]), job_store("start")
    options = {"rank": rank, "world_size": int(os.environ["WORLD_SIZE"])}
    if rank == 0:
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_TIMEOUT)
        name = uuid.uuid4().hex
        store.set(name, "")
        shared.set("address", f"{store.port} {name}")
        return options | {"store": store}
    while True:
        if shared.check(["address"]):
            port, name = shared.get("address").decode().split()
            with suppress(OSError):  # refused
                socket.create_connection((host, int(port)), timeout=_ATTEMPT).close()
                store = TCPStore(host, int(port), is_master=False, timeout=_TIMEOUT)
                if store.check([name]):
                    return options | {"store": store}
        time.sleep(_PAUSE)


def _check_environment() -> None:
    """Refuse an incomplete environment: templates of clusters set only WORLD_SIZE and RANK."""
    values = {name: os.environ.get(name, "") for name in ("WORLD_SIZE", *_TORCHRUN_VARIABLES)}
    numbers = {"LOCAL_RANK": os.environ.get("LOCAL_RANK", "0")} | values
    del numbers["MASTER_ADDR"]
    if missing := [name for name, value in values.items() if not value]:
        sets = f"torchrun sets {', '.join(_TORCHRUN_VARIABLES)} and WORLD_SIZE"
        problem = f"WORLD_SIZE={values['WORLD_SIZE']}, but {', '.join(missing)} not set: {sets}"
    elif wrong := [name for name, value in numbers.items() if not value.isdecimal()]:
        problem = f"{wrong[0]}={numbers[wrong[0]]!r} is not a number"
    elif int(values["RANK"]) >= int(values["WORLD_SIZE"]):
        problem = f"RANK={values['RANK']} is not below WORLD_SIZE={values['WORLD_SIZE']}"
    else:
        return
    raise ConfigError(
        f"{problem}; start with torchrun -m heedful, or unset WORLD_SIZE to train in one process"
    )


def is_under_torchrun() -> bool:
    """Return whether this process has joined a group of torch.distributed."""
    return dist.is_available() and dist.is_initialized()


def leave_process_group() -> None:
    """Leave the group of torch.distributed, before the program ends.

    This joins the group's threads if nothing else refers to the group. They free tensors, which needs Python,
    and would abort the process if Python ended first.
    """
    if is_under_torchrun():
        dist.destroy_process_group()
        gc.collect()  # FSDP's modules refer to the group, and to each other


def job_store(prefix: str) -> "Store":
    """Connect to the store that the processes of a job share."""
    from torch._C._distributed_c10d import PrefixStore, TCPStore

    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    return PrefixStore(prefix, TCPStore(address, port, is_master=False, timeout=_STORE_TIMEOUT))


def note_start(run: Path) -> None:
    """Note that this job starts a run, in torchrun's own store, which lives as long as the job."""
    if os.environ.get(_HAS_STORE) == "True":
        job_store("runs").set(str(run.resolve()), "")


def was_started_by_this_job(run: Path) -> bool:
    """Return whether this job started a run before torchrun restarted its processes."""
    return os.environ.get(_HAS_STORE) == "True" and bool(job_store("runs").check([str(run.resolve())]))
