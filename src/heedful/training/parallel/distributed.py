"""Data parallelism over torchrun's processes: GPUs, or several machines.

PyTorch's own wrappers are applied to the plain model: DistributedDataParallel, where each rank has a copy of
the weights, or FSDP2, where each has a shard of every weight, of its optimiser state and of its average. Both
communicate while the backward pass runs, by gloo on CPUs and NCCL on GPUs. Rank 0 sends weights and state at
the start, and has all of them when it validates or saves, so checkpoints know nothing of ranks.
"""

import uuid
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from heedful.data.batches import Batch
from heedful.errors import TrainingError
from heedful.model.transformer import Transformer
from heedful.training.averaging import MovingAverage
from heedful.training.execution import Execution, training_device
from heedful.training.interrupt import Heartbeat, Phase, ignore_signals
from heedful.training.loss import Loss
from heedful.training.optimizer import build_optimizer, optimized_weights
from heedful.training.parallel.messages import pack, unpack
from heedful.training.parallel.process_group import GROUP_IS_BROKEN, Rank, RankSetup, StepPlan
from heedful.training.parallel.torchrun import job_store, join_process_group, leave_process_group
from heedful.training.step import (
    LossSums,
    StepMetrics,
    apply_gradients,
    gradient_scale,
    squared_norm,
    step_metrics,
)

_TOO_LARGE = (
    "memory is too small for this rank's part of a batch; --resume with more ranks, or start anew with a "
    "lower batch.tokens"
)


@dataclass(frozen=True)
class _State:
    """The trainer's model, optimiser and average, which rank 0 alone has."""

    model: Transformer
    optimizer: torch.optim.Optimizer
    average: MovingAverage | None


class DistributedGroup:
    """A process group as rank 0 sees it."""

    def __init__(self, rank: Rank, optimizer: torch.optim.Optimizer, average: MovingAverage | None) -> None:
        """Send the configuration and the weights to the workers, which wait in `run_worker`."""
        self.size = rank.size
        self.threads = torch.get_num_threads()
        self.is_sharded = rank.config.train.parallel == "fsdp"
        self._is_between_steps = True
        setup, name = RankSetup.of(rank, average), uuid.uuid4().hex  # which no other group has
        _broadcast(packed := pack((setup, name), rank.model))
        if self.is_sharded:  # rank 0 has a second model for its shards
            setup, _ = unpack(packed, rank.execution.device)
        self._stepper = _Stepper(setup, name, rank, _State(rank.model, optimizer, average))

    def step(self, plan: StepPlan) -> StepMetrics:
        """Update the weights of all ranks once; nothing interrupts that, since none can leave the others."""
        self._is_between_steps = False
        metrics = self._stepper.step(plan)
        self._is_between_steps = True
        return metrics

    def gather(self) -> None:
        """Bring the trainer's weights, optimiser state and average up to date."""
        self._is_between_steps = False
        self._stepper.gather()
        self._is_between_steps = True

    def close(self) -> None:
        """Shut the workers down, with all state gathered; after a failed step they end with this process."""
        with closing(self._stepper):
            if self._is_between_steps:
                self.gather()
                self._stepper.shut_down()


def run_as_worker(device: str) -> bool:
    """Run as a worker if torchrun started this process as one; return whether it did.

    Rank 0 of torchrun, and a process that torchrun did not start, train and return to their caller.
    """
    if not join_process_group(device):
        return False
    try:
        run_worker(training_device(device))
    finally:
        leave_process_group()
    return True


def run_worker(device: torch.device) -> None:
    """Take the steps that rank 0 plans until it sends no more.

    Raises:
        TrainingError: this rank has failed, or rank 0 is lost and this rank reports it.
        SystemExit: another rank has failed, which another process reports.
    """
    try:
        packed = _broadcast(None)
    except RuntimeError:  # rank 0 has failed before the first step, and says why
        raise SystemExit(1) from None
    setup, name = unpack(packed, device)
    with ignore_signals(), closing(_Stepper(setup, name, _new_rank(setup, device), None)) as stepper:
        while stepper.follow():
            pass


def _new_rank(setup: RankSetup, device: torch.device) -> Rank:
    """Return this process's rank with the model of rank 0; the weights are still to come."""
    return setup.rank(Execution.of(setup.config.train, device), dist.get_rank(), dist.get_world_size())


class _Stepper:
    """Takes steps with a wrapped model: on rank 0 for the trainer, on the others as rank 0 says."""

    def __init__(self, setup: RankSetup, name: str, rank: Rank, state: _State | None) -> None:
        """Wrap the model of a rank; only rank 0 has a `state`. Several ranks watch each other."""
        self._heartbeat = None if rank.size == 1 else Heartbeat(job_store(name), rank.index, rank.size)
        self._rank, self._state = rank, state
        self._has_failed = False
        self._gathered_step = self._step = 0
        with self._connected():
            kind = _Sharded if setup.config.train.parallel == "fsdp" else _Replicated
            self._wrapped: _Replicated | _Sharded = kind(rank, setup, state)
        self._rank = self._wrapped.rank
        self._rank.prefetch()

    def step(self, plan: StepPlan) -> StepMetrics:
        """Take a step on rank 0."""
        with self._connected():
            self._step = plan.step
            self._enter(Phase.FORWARD)
            _broadcast(plan)
            return self._take(plan)

    def gather(self) -> None:
        """Gather on rank 0 what is sharded, unless it has been since the last step."""
        if self._gathered_step != self._step:
            with self._connected():
                _broadcast("gather")
                self._wrapped.gather(self._state)
            self._gathered_step = self._step

    def shut_down(self) -> None:
        """Let the workers end."""
        with self._connected():
            _broadcast(None)

    def follow(self) -> bool:
        """Do on another rank what rank 0 says; return whether there is more to do."""
        with self._connected():
            match message := _broadcast(None):
                case StepPlan():
                    self._take(message)
                case "gather":
                    self._wrapped.gather(None)
        return message is not None

    def close(self) -> None:
        """Stop making batches, and the heartbeat, and let go of the group."""
        self._rank.close()
        if isinstance(self._wrapped, _Sharded):  # PyTorch's caches keep the mesh, and it the group
            vars(self._wrapped.mesh).get("_pg_registry", {}).clear()  # older versions have none
        if self._heartbeat is not None:
            self._heartbeat.end(failed=self._has_failed)

    def _take(self, plan: StepPlan) -> StepMetrics:
        """Take a step; all ranks get the same sums, so they decide the same."""
        rank, wrapped = self._rank, self._wrapped
        self._step = plan.step
        self._enter(Phase.FORWARD)
        sums = rank.accumulate(plan, forward=self._forward, discard=wrapped.discard)
        self._enter(Phase.UPDATE)
        numbers: Tensor = torch.tensor(
            [sums.smoothed, sums.nll, sums.num_tgt_tokens, sums.num_halvings, wrapped.squared_norm()],
            dtype=torch.float64,
            device=rank.execution.device,
        )
        dist.all_reduce(numbers)
        smoothed, nll, num_tokens, num_halvings, squared = numbers.tolist()
        # Both wrappers leave the mean over ranks; each rank has sums over tokens.
        sums = LossSums(smoothed, nll, round(num_tokens), round(num_halvings))
        metrics = step_metrics(sums, rank.size**2 * squared)
        if metrics.is_finite:
            scale = rank.size * gradient_scale(metrics, rank.config.optimizer.clip_norm)
            apply_gradients(wrapped.optimizer, scale=scale, learning_rate=plan.learning_rate)
            if wrapped.average is not None:
                wrapped.average.update(dict(rank.model.named_parameters()), plan.step)
        wrapped.optimizer.zero_grad(set_to_none=True)
        self._enter(Phase.DONE)
        return metrics

    def _forward(self, batch: Batch, *, is_last: bool) -> Loss:
        loss = self._wrapped.forward(batch, is_last=is_last)
        if is_last:
            self._enter(Phase.BACKWARD)
        return loss

    def _enter(self, phase: Phase) -> None:
        if self._heartbeat is not None:
            self._heartbeat.enter(phase, step=self._step if phase == Phase.FORWARD else None)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        """Raise one line about the rank that was lost, if that is why the block fails.

        If another process reports it, this one just ends (SystemExit).
        """
        heartbeat = self._heartbeat
        if heartbeat is not None and heartbeat.lost is not None:
            _give_up(heartbeat, None)
        try:
            if heartbeat is not None:
                heartbeat.is_waiting = True
            yield
        except RuntimeError as error:
            is_of_network = isinstance(error, dist.DistError) or "gloo" in str(error)
            if not is_of_network:
                self._has_failed = True
                raise
            if heartbeat is not None and (heartbeat.explain() is not None or self._rank.index > 0):
                _give_up(heartbeat, error)
            raise TrainingError(f"{GROUP_IS_BROKEN} ({str(error).splitlines()[0]})") from error
        except BaseException:
            self._has_failed = True
            raise
        finally:
            if heartbeat is not None:
                heartbeat.is_waiting = False


def _give_up(heartbeat: Heartbeat, error: RuntimeError | None) -> NoReturn:
    if heartbeat.lost is not None and heartbeat.is_reporter:
        raise TrainingError(heartbeat.lost) from error
    raise SystemExit(1)


class _BatchLoss(nn.Module):
    """The loss of a model as a module: PyTorch's wrappers act when a module is called."""

    def __init__(self, rank: Rank) -> None:
        super().__init__()
        self.model = rank.model
        self.rank = rank

    def forward(self, batch: Batch) -> Loss:
        """Return the loss of a batch, summed over its real target tokens."""
        return self.rank.forward(batch)


class _Replicated:
    """A copy of the model, in DistributedDataParallel."""

    def __init__(self, rank: Rank, setup: RankSetup, state: _State | None) -> None:
        """Wrap the model of a rank; only rank 0 has a `state`."""
        self.rank = rank
        self.average = None if state is None else state.average
        self.optimizer = _new_optimizer(rank) if state is None else state.optimizer
        saved = _broadcast(None if state is None else _on_cpu(self.optimizer.state_dict()))
        if state is None:
            self.optimizer.load_state_dict(saved)
        module = _BatchLoss(rank)
        with warnings.catch_warnings():  # the new name of broadcast_buffers is not in torch 2.6
            warnings.simplefilter("ignore", FutureWarning)
            # It sends the weights of rank 0 to all; buffers are tables that grow on each rank.
            self._module = DistributedDataParallel(
                module, broadcast_buffers=False, gradient_as_bucket_view=True
            )
        self._are_exchanged = False

    def forward(self, batch: Batch, *, is_last: bool) -> Loss:
        """Return the loss of a micro-batch; only the last one of a step exchanges gradients."""
        self._are_exchanged = False
        with nullcontext() if is_last else self._module.no_sync():
            loss: Loss = self._module(batch)
        self._are_exchanged = is_last
        return loss

    def discard(self) -> None:
        """Discard this rank's gradients, if the backward pass has not exchanged any."""
        if self._are_exchanged:
            raise TrainingError(_TOO_LARGE)
        self._module.zero_grad(set_to_none=True)

    def squared_norm(self) -> float:
        """Return this rank's share of the sum of squares, an equal one: all ranks have the same gradients."""
        return squared_norm(self.rank.model.parameters()) / self.rank.size

    def gather(self, state: _State | None) -> None:
        """Rank 0 has all of it."""


class _Sharded:
    """A shard of each weight, its optimiser state and its average, in FSDP2.

    Rank 0's trainer has the plain model too: its weights on the device, where they are validated, the rest in
    main memory.
    """

    def __init__(self, rank: Rank, setup: RankSetup, state: _State | None) -> None:
        """Wrap the model of a rank, or for rank 0 a second model."""
        from torch.distributed.device_mesh import init_device_mesh  # half a second, which DDP does not need
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        device = rank.execution.device
        self.rank = rank if state is None else _new_rank(setup, device)
        model = self.rank.model
        self._module: Any = _BatchLoss(self.rank)
        policy = MixedPrecisionPolicy()
        if rank.execution.precision == "bf16" and device.type == "cuda":  # a CPU's norms want float32
            policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32, cast_forward_inputs=False)
        self.mesh = init_device_mesh(device.type, (rank.size,))
        for unit in (*_units(model), self._module):
            fully_shard(unit, mesh=self.mesh, mp_policy=policy)
        self.optimizer = _new_optimizer(self.rank)
        self.average = None if setup.average_decay is None else MovingAverage(model, setup.average_decay)
        with torch.no_grad():
            self._scatter(state)

    def _scatter(self, state: _State | None) -> None:
        """Take the shards of what rank 0 has."""
        weights, averages, moments = _tensors_of(state)
        for name, weight in self.rank.model.named_parameters():
            weight.copy_(_shard(weights.get(name), weight))
            if self.average is not None:
                self.average.weights[name] = _shard(averages.get(name), weight)
        scalars = []  # and None for each tensor
        for of_weight in moments:
            of_weight.update({name: value.cpu() for name, value in of_weight.items()})  # to main memory
            scalars.append({name: None if value.dim() else value for name, value in of_weight.items()})
        received = _broadcast(scalars)
        for number, own in enumerate(optimized_weights(self.optimizer)):
            for name, scalar in received[number].items():
                moment = moments[number][name] if moments else None
                value = _shard(moment, own) if scalar is None else scalar.to(own.device)
                self.optimizer.state[own][name] = value

    def gather(self, state: _State | None) -> None:
        """Collect the shards of all ranks, one tensor after the other; rank 0 stores them."""
        weights, averages, moments = _tensors_of(state)
        with torch.no_grad():
            for name, weight in self.rank.model.named_parameters():
                _collect(weight, weights.get(name))
                if self.average is not None:
                    _collect(self.average.weights[name], averages.get(name))
            for number, own in enumerate(optimized_weights(self.optimizer)):
                for name, value in self.optimizer.state[own].items():
                    full = _full(value)
                    if moments:
                        moments[number][name] = full.cpu()
        if state is not None:
            groups = zip(state.optimizer.param_groups, self.optimizer.param_groups, strict=True)
            for group, sharded in groups:
                group["lr"] = sharded["lr"]

    def forward(self, batch: Batch, *, is_last: bool) -> Loss:
        """Return the loss of a micro-batch; only the last one of a step exchanges gradients."""
        self._module.set_requires_gradient_sync(is_last)
        loss: Loss = self._module(batch)
        return loss

    def discard(self) -> None:
        """Refuse: a forward pass needs all ranks."""
        raise TrainingError(_TOO_LARGE)

    def squared_norm(self) -> float:
        """Return this rank's share of the sum of squares: of its own shards."""
        gradients: list[Any] = [weight.grad for weight in self.rank.model.parameters()]
        shards = [each.to_local() for each in gradients if each is not None]
        return float(torch.nn.utils.get_total_norm(shards)) ** 2


def _tensors_of(state: _State | None) -> tuple[dict[str, Tensor], dict[str, Tensor], list[dict[str, Tensor]]]:
    """Return the weights and averages by name, and the optimiser's state; nothing for workers."""
    if state is None:
        return {}, {}, []
    averages = {} if state.average is None else state.average.weights
    moments = [state.optimizer.state[weight] for weight in optimized_weights(state.optimizer)]
    return dict(state.model.named_parameters()), averages, moments


def _units(model: Transformer) -> Iterator[nn.Module | list[nn.Module]]:
    """Yield what is gathered at once: each layer, or a stack if its layers share weights."""
    for stack in (model.encoder, model.decoder):
        layers = [*stack.layers]
        users = Counter(weight for layer in layers for weight in layer.parameters())
        if max(users.values(), default=0) > 1:
            yield layers
        else:
            yield from layers


def _new_optimizer(rank: Rank) -> torch.optim.Optimizer:
    return build_optimizer(rank.model, rank.config.optimizer, precision=rank.execution.precision)


def _shard(full: Tensor | None, like: Tensor) -> Tensor:
    """Return rank 0's tensor, sharded like another one; the argument of workers is None."""
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(like, DTensor)
    if full is None:
        full = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    full = full.detach().to(like.device, like.dtype)
    return distribute_tensor(full, like.device_mesh, like.placements)


def _full(tensor: Tensor) -> Tensor:
    """Return a tensor with the shards of all ranks, which all call this; scalars are not sharded."""
    gather = getattr(tensor, "full_tensor", lambda: tensor)
    full: Tensor = gather()
    return full


def _collect(shard: Tensor, target: Tensor | None) -> None:
    """Copy a tensor with the shards of all ranks into the target, which only rank 0 has."""
    full = _full(shard)
    if target is not None:
        target.copy_(full)


def _on_cpu(state: dict[str, Any]) -> dict[str, Any]:
    """Return an optimiser's state on the CPU: from a GPU, every rank would first load it onto rank 0's."""
    of_weights = {
        number: {name: tensor.cpu() for name, tensor in of_weight.items()}
        for number, of_weight in state["state"].items()
    }
    return state | {"state": of_weights}


def _broadcast(message: object) -> Any:  # noqa: ANN401
    """Return the message of rank 0 on every rank; the argument of workers is ignored."""
    box = [message]
    dist.broadcast_object_list(box, src=0, device=torch.device("cpu"))
    return box[0]
