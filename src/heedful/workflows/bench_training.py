"""Measure the speed of training on this machine, and the time of each part of a step."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from statistics import fmean

from heedful.errors import ConfigError, TrainingError
from heedful.ops.kernels import kernels_apply_to
from heedful.runtime.native import native
from heedful.runtime.threads import using_threads
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.memory import PeakMemory, peak_memory
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.choice import process_group_size, start_process_group
from heedful.training.parallel.process_group import ProcessGroup, Rank, StepPlan
from heedful.training.schedule import learning_rate
from heedful.training.step import StepMetrics
from heedful.workflows.material import Material, Notes, prepare
from heedful.workflows.run_directory import RunDirectory
from heedful.workflows.step_cost import MatmulRate, StepParts, count_flops, finish, time_parts
from heedful.workflows.synthetic_text import write_synthetic_text

ProgressCallback = Callable[[str, float], None]  # the current phase, and the progress: 0 to 1

_WARM_UP_STEPS = 5  # in which kernels are compiled and memory is allocated
_WATCHED_STEPS = 10  # whose memory is measured; at most as many as are timed
_SAMPLED_STEPS = 4  # whose operations are counted and whose parts are timed
_MATMUL_SECONDS = 1.0  # of matrix multiplications, before the timed steps and after them
_SYNTHETIC_PAIRS = 20_000


@dataclass(frozen=True, kw_only=True)
class TrainingBenchmark:
    """Measured speed and memory of training.

    Attributes:
        batches: the text of the batches.
        device: "cpu" or "cuda".
        precision: of matrix multiplications, "float32" or "bf16".
        kernels: "compiled" for ours, "torch.compile" for torch's, or "torch" for its operations one by one.
        native: the level of the native library, and why it is not a higher one.
        processes: the number of processes of each step.
        threads: of each process.
        steps: the number of timed steps.
        num_parameters: of the model.
        batch_tokens: the budget of a step, rows x max(src_len, tgt_len), padding included.
        target_tokens_per_second: real target tokens, without padding, over the time of the steps.
        seconds_per_step: on average.
        model_flops_per_second: of the matrix multiplications in a step, forward and backward, padding
            included; counted in some of the steps and scaled by target tokens.
        matmul_flops_per_second: of large matrix multiplications in the same precision on as many cores, by
            one process with a thread for each, measured just before and just after the steps.
        share_of_matmul: the ratio of both.
        peak_memory_mib: in MiB, over steps that were not timed.
        peak_memory_of: what this memory includes.
        seconds_in_data: per step, in one process with its own rows and the others idle, as the next three.
        seconds_in_forward: including the loss, which also computes its gradient.
        seconds_in_backward: from the decoder's states on.
        seconds_in_optimizer: norm, update and moving average of the process's shard of the weights.
    """

    batches: str
    device: str
    precision: str
    kernels: str
    native: str
    processes: int
    threads: int
    steps: int
    num_parameters: int
    batch_tokens: int
    target_tokens_per_second: float
    seconds_per_step: float
    model_flops_per_second: float
    matmul_flops_per_second: float
    share_of_matmul: float
    peak_memory_mib: float | None
    peak_memory_of: str
    seconds_in_data: float
    seconds_in_forward: float
    seconds_in_backward: float
    seconds_in_optimizer: float


def bench_training(
    config: Config, *, steps: int, on_progress: ProgressCallback = lambda what, done: None
) -> TrainingBenchmark:
    """Measure training steps with these settings.

    Batches have their full size: `batch.ramp_from` is ignored. Without training text in the settings,
    sentences are random words, as many as the vocabulary has, with the lengths of image captions. Only the
    cache of ids is kept.

    Raises:
        ConfigError: the settings are invalid, need text, or torchrun started this process.
        CorpusError: the text is not usable.
        TokenizerError: the text is too small for the vocabulary.
        BundleError: the base model is not usable.
        TrainingError: the loss is not finite, or a worker has died.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "bench train measures the processes that it starts itself; run it without torchrun, "
            "with train.processes"
        )
    on_progress("preparing batches", 0.0)
    config = config.replace(batch=config.batch.model_dump() | {"ramp_from": None})
    with tempfile.TemporaryDirectory(prefix="heedful-bench-") as temporary:
        directory = Path(temporary)
        batches = " and ".join(filter(None, (config.data.src, config.data.tgt))) or config.data.pairs
        if not batches:
            config = _with_synthetic_text(config, directory)
            batches = "random sentences with the lengths of image captions"
        material = prepare(config, RunDirectory(directory), Notes([]), resume=False)
        return _Bench(material, steps, on_progress).run(batches)


def _with_synthetic_text(config: Config, directory: Path) -> Config:
    for key, is_set in (
        ("train.init", config.train.init is not None),
        ("tokenizer.sampling", config.tokenizer.sampling > 0.0),
    ):
        if is_set:
            raise ConfigError(f"{key} needs real text: give --src and --tgt")
    src, tgt = directory / "synthetic.src", directory / "synthetic.tgt"
    num_words = config.tokenizer.vocab_size
    write_synthetic_text(src, tgt, num_pairs=_SYNTHETIC_PAIRS, num_words=num_words, seed=config.train.seed)
    files = {"src": str(src), "tgt": str(tgt), "cache_dir": str(directory)}
    return config.replace(
        data={"max_length": config.data.max_length} | files,
        tokenizer={"kind": "word", "vocab_size": num_words, "joint": config.tokenizer.joint},
    )


@dataclass(frozen=True)
class _Measured:
    """Measurements of the group's steps."""

    metrics: list[StepMetrics]
    seconds: float
    memory: PeakMemory

    def num_tgt_tokens(self, steps: int | None = None) -> int:
        """Return the real target tokens of the first timed steps, or of all."""
        return sum(metrics.num_tgt_tokens for metrics in self.metrics[:steps])


class _Bench:
    """One measurement, in an order in which its parts disturb each other least."""

    def __init__(self, material: Material, steps: int, on_progress: ProgressCallback) -> None:
        self._material = material
        self._config = config = material.config
        self._on_progress = on_progress
        self._processes, self._threads = process_group_size(config, material.model)
        self._optimizer = build_optimizer(
            material.model, config.optimizer, precision=material.execution.precision
        )
        decay = config.train.ema_decay
        self._average = MovingAverage(material.model, decay) if decay else None
        cores = self._processes * self._threads
        self._matmul_rate = MatmulRate(material.execution.precision, material.execution.device, threads=cores)
        plans = self._plans()
        self._warm_up = list(islice(plans, _WARM_UP_STEPS))
        self._timed = list(islice(plans, steps))
        self._watched = self._timed[:_WATCHED_STEPS]
        self._sample = self._timed[:_SAMPLED_STEPS]
        self._to_do = sum(map(len, (self._warm_up, self._timed, self._watched, self._sample, self._sample)))
        self._done = 0

    def run(self, batches: str) -> TrainingBenchmark:
        measured = self._take_steps()
        flops_per_token = self._count_flops() / measured.num_tgt_tokens(len(self._sample))
        parts = self._time_parts()
        tokens_per_second = measured.num_tgt_tokens() / measured.seconds
        model_rate, matmul_rate = flops_per_token * tokens_per_second, self._matmul_rate.flops_per_second
        return TrainingBenchmark(
            batches=batches,
            device=self._material.execution.device.type,
            precision=self._material.execution.precision,
            kernels=self._kernels(),
            native=native().describe(),
            processes=self._processes,
            threads=self._threads,
            steps=len(self._timed),
            num_parameters=self._material.model.num_parameters,
            batch_tokens=self._config.batch.tokens * self._config.batch.accumulation,
            target_tokens_per_second=tokens_per_second,
            seconds_per_step=measured.seconds / len(self._timed),
            model_flops_per_second=model_rate,
            matmul_flops_per_second=matmul_rate,
            share_of_matmul=model_rate / matmul_rate,
            peak_memory_mib=measured.memory.mib,
            peak_memory_of=measured.memory.counted,
            seconds_in_data=fmean(part.data for part in parts),
            seconds_in_forward=fmean(part.forward for part in parts),
            seconds_in_backward=fmean(part.backward for part in parts),
            seconds_in_optimizer=fmean(part.optimizer for part in parts),
        )

    def _take_steps(self) -> _Measured:
        material = self._material
        with closing(
            start_process_group(
                material.model,
                material.source,
                self._config,
                material.execution,
                self._optimizer,
                self._average,
            )
        ) as group:
            self._take(group, self._warm_up, "warming up")
            self._matmul_rate.measure(_MATMUL_SECONDS)
            start = time.perf_counter()
            metrics = self._take(group, self._timed, "timing steps")
            finish(material.execution.device)
            seconds = time.perf_counter() - start
            self._matmul_rate.measure(_MATMUL_SECONDS)
            with peak_memory(material.execution.device) as memory:
                self._take(group, self._watched, "measuring memory")
        return _Measured(metrics, seconds, memory)

    def _take(self, group: ProcessGroup, plans: list[StepPlan], what: str) -> list[StepMetrics]:
        taken = []
        for plan in plans:
            metrics = group.step(plan)
            if not metrics.is_finite:
                raise TrainingError(
                    f"step {plan.number}: the loss is not finite; lower schedule.peak (schedule.scale) "
                    "or set optimizer.clip_norm=1"
                )
            taken.append(metrics)
            self._report(what)
        return taken

    def _count_flops(self) -> int:
        material, size = self._material, self._processes
        ranks = [
            Rank(
                material.model,
                material.source,
                self._config,
                material.execution,
                number=number,
                size=size,
            )
            for number in range(size)
        ]
        total = 0
        for plan in self._sample:
            total += count_flops(ranks, plan)
            material.model.zero_grad()
            self._report("counting operations")
        return total

    def _time_parts(self) -> list[StepParts]:
        material = self._material
        rank = Rank(material.model, material.source, self._config, material.execution, size=self._processes)
        timed = []
        for parts in time_parts(rank, self._sample, self._optimizer, self._average, threads=self._threads):
            timed.append(parts)
            self._report("timing the parts of a step")
        return timed

    def _kernels(self) -> str:
        if self._material.execution.compiles:
            return "torch.compile"
        with using_threads(self._threads):
            there_are = kernels_apply_to(next(self._material.model.parameters()))
        return "compiled" if there_are and self._material.execution.kernels else "torch"

    def _plans(self) -> Iterator[StepPlan]:
        """Yield the plans of a training's steps without end."""
        config, source = self._config, self._material.source
        positions = ((epoch, index) for epoch in count() for index in range(len(source.plan(epoch))))
        for number in count(1):
            rate = learning_rate(config.schedule, number, d_model=config.model.d_model, progress=0.0)
            yield StepPlan(number, tuple(islice(positions, config.batch.accumulation)), rate)

    def _report(self, what: str) -> None:
        self._done += 1
        self._on_progress(what, self._done / self._to_do)
