"""How fast training is on this machine, and where its time goes."""

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path
from statistics import fmean

from heedful.config import Config
from heedful.errors import ConfigError, TrainingError
from heedful.native import native
from heedful.ops.kernels import kernels_apply_to
from heedful.threads import using_threads
from heedful.training.averaging import MovingAverage
from heedful.training.compilation import compiles
from heedful.training.memory.peak import PeakMemory, peak_memory
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.choice import process_group_size, start_process_group
from heedful.training.parallel.process_group import ProcessGroup, Rank, StepPlan
from heedful.training.schedule import learning_rate
from heedful.training.step import StepMetrics
from heedful.workflows.made_up_text import write_made_up_text
from heedful.workflows.material import Material, Notes, prepare
from heedful.workflows.run_directory import RunDirectory
from heedful.workflows.step_cost import ProductRate, StepParts, count_flops, finish, time_parts

ProgressListener = Callable[[str, float], None]  # what is being done, and how much of all is: 0 to 1

_WARM_UP_STEPS = 5  # in which kernels are prepared and memory is taken
_WATCHED_STEPS = 10  # whose memory is looked at; at most as many as are timed
_SAMPLED_STEPS = 4  # whose operations are counted and whose parts are timed, alike
_PRODUCT_SECONDS = 1.0  # of matrix multiplications, before the timed steps and after them
_MADE_UP_PAIRS = 20_000


@dataclass(frozen=True, kw_only=True)
class TrainingBenchmark:
    """Measured speed and memory of training.

    Attributes:
        batches: what they were made of.
        device: "cpu" or "cuda".
        precision: of matrix multiplications, "float32" or "bf16".
        kernels: "compiled" for ours, "torch.compile" for torch's, or "torch" for its operations one by one.
        native: what there is of the native library here, and why not more.
        processes: that shared each step.
        threads: of each process.
        steps: that were timed.
        num_parameters: of the model.
        batch_tokens: the budget of a step, rows x max(src_len, tgt_len), padding included.
        target_tokens_per_second: real target tokens, without padding, over the time of the steps.
        seconds_per_step: on average.
        model_flops_per_second: of the matrix multiplications that run in a step, forward and backward, those
            with padding included; counted in some of the steps and scaled by target tokens.
        matmul_flops_per_second: of large matrix multiplications in the same precision on as many cores, by
            one process with a thread for each, measured just before and just after the steps.
        share_of_matmul: the former by the latter.
        peak_memory_mib: in MiB, over steps that were not timed.
        peak_memory_of: what is counted in it.
        seconds_in_data: per step, in one process with its own rows and nobody else busy, as the next three.
        seconds_in_forward: the loss included, which takes its own gradient on the way.
        seconds_in_backward: from the decoder's states back.
        seconds_in_optimizer: norm, update and moving average of the process's share of the weights.
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
    config: Config, *, steps: int, listener: ProgressListener = lambda what, done: None
) -> TrainingBenchmark:
    """Take steps as training with these settings would, and measure them.

    Batches have their full size: a ramp (`batch.ramp_from`) is left out. Without training text in the
    settings the sentences are made up: random words, as many as the vocabulary has, in sentences of the
    lengths that image captions have. Nothing is kept but the cache of the ids.

    Raises:
        ConfigError: settings that cannot be, or that need text and have none; torchrun started this.
        CorpusError: text that cannot be used.
        TokenizerError: a vocabulary that the text cannot fill.
        BundleError: the bundle to continue from cannot be used.
        TrainingError: the loss is not finite, or a process that helps has died.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "bench train measures the processes that it starts itself; run it without torchrun, "
            "with train.processes"
        )
    listener("preparing batches", 0.0)
    config = config.replace(batch=config.batch.model_dump() | {"ramp_from": None})
    with tempfile.TemporaryDirectory(prefix="heedful-bench-") as temporary:
        directory = Path(temporary)
        batches = " and ".join(filter(None, (config.data.src, config.data.tgt))) or config.data.pairs
        if not batches:
            config = _with_made_up_text(config, directory)
            batches = "made-up sentences with the lengths of image captions"
        material = prepare(config, RunDirectory(directory), Notes([]), resume=False)
        return _Bench(material, steps, listener).run(batches)


def _with_made_up_text(config: Config, directory: Path) -> Config:
    for key, is_set in (
        ("train.init", config.train.init is not None),
        ("tokenizer.sampling", config.tokenizer.sampling > 0.0),
    ):
        if is_set:
            raise ConfigError(f"{key} needs real text: give --src and --tgt")
    src, tgt = directory / "made-up.src", directory / "made-up.tgt"
    num_words = config.tokenizer.vocab_size
    write_made_up_text(src, tgt, num_pairs=_MADE_UP_PAIRS, num_words=num_words, seed=config.train.seed)
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
        """Real target tokens in the first steps that were timed, or in all."""
        return sum(metrics.num_tgt_tokens for metrics in self.metrics[:steps])


class _Bench:
    """One measurement, in the order in which its parts disturb each other least."""

    def __init__(self, material: Material, steps: int, listener: ProgressListener) -> None:
        self._material = material
        self._config = config = material.config
        self._listener = listener
        self._processes, self._threads = process_group_size(config, material.model)
        self._optimizer = build_optimizer(material.model, config.optimizer)
        decay = config.train.ema_decay
        self._average = MovingAverage(material.model, decay) if decay else None
        cores = self._processes * self._threads
        self._products = ProductRate(material.precision, material.device, threads=cores)
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
        model_rate, product_rate = flops_per_token * tokens_per_second, self._products.flops_per_second
        return TrainingBenchmark(
            batches=batches,
            device=self._material.device.type,
            precision=self._material.precision,
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
            matmul_flops_per_second=product_rate,
            share_of_matmul=model_rate / product_rate,
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
            start_process_group(material.model, material.source, self._config, self._optimizer, self._average)
        ) as group:
            self._take(group, self._warm_up, "warming up")
            self._products.measure(_PRODUCT_SECONDS)
            begun = time.perf_counter()
            metrics = self._take(group, self._timed, "timing steps")
            finish(material.device)
            seconds = time.perf_counter() - begun
            self._products.measure(_PRODUCT_SECONDS)
            with peak_memory(material.device) as memory:
                self._take(group, self._watched, "looking at memory")
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
            Rank(material.model, material.source, self._config, number=number, size=size)
            for number in range(size)
        ]
        total = 0
        for plan in self._sample:
            total += count_flops(ranks, plan)
            material.model.zero_grad()
            self._report("counting operations")
        return total

    def _time_parts(self) -> list[StepParts]:
        rank = Rank(self._material.model, self._material.source, self._config, size=self._processes)
        timed = []
        for parts in time_parts(rank, self._sample, self._optimizer, self._average, threads=self._threads):
            timed.append(parts)
            self._report("timing the parts of a step")
        return timed

    def _kernels(self) -> str:
        if compiles(self._config.train, self._material.device):
            return "torch.compile"
        with using_threads(self._threads):
            there_are = kernels_apply_to(next(self._material.model.parameters()))
        return "compiled" if there_are and self._config.train.kernels != "torch" else "torch"

    def _plans(self) -> Iterator[StepPlan]:
        """The plans of a training from its start on, epoch after epoch, without end."""
        config, source = self._config, self._material.source
        places = ((epoch, place) for epoch in count() for place in range(len(source.plan(epoch))))
        for number in count(1):
            rate = learning_rate(config.schedule, number, d_model=config.model.d_model, progress=0.0)
            yield StepPlan(number, tuple(islice(places, config.batch.accumulation)), rate)

    def _report(self, what: str) -> None:
        self._done += 1
        self._listener(what, self._done / self._to_do)
