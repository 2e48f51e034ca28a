"""Measure the speed of training on this machine; print one JSON line.

    python benchmarks/training_speed.py --preset base --steps 30 --src train.en --tgt train.de

Times the steps of `heedful train`, on the given text or on random sentences with the lengths of image
captions: target tokens per second, the fraction of the machine's rate of matrix multiplications, and memory.
"""

import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from itertools import count, islice
from pathlib import Path

import numpy as np
from measuring import parser_of
from profiling import MatmulRate, count_flops, finish

from heedful.errors import ConfigError, TrainingError
from heedful.ops.kernels import kernels_apply_to
from heedful.runtime.memory import peak_memory
from heedful.runtime.native import native
from heedful.runtime.threads import restored_threads, using_threads
from heedful.runtime.workers import has_other_ranks
from heedful.settings.loading import load_config, parse_override
from heedful.settings.run import Config
from heedful.tasks.directory import RunDirectory
from heedful.tasks.notices import Notices
from heedful.tasks.setup import PreparedRun, set_up_training
from heedful.training.averaging import MovingAverage
from heedful.training.memory import memory_for_steps
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.choice import process_group_size, start_process_group
from heedful.training.parallel.process_group import ProcessGroup, Rank, StepPlan
from heedful.training.reporting import rate_advice
from heedful.training.schedule import learning_rate
from heedful.training.step import StepMetrics

_WARM_UP_STEPS = 5  # in which kernels are compiled and memory is allocated
_WATCHED_STEPS = 10  # steps to measure the memory of; at most the timed ones
_COUNTED_STEPS = 4  # steps to count the operations of
_MATMUL_SECONDS = 1.0  # of matrix multiplications, before the timed steps and after them
_SYNTHETIC_PAIRS = 20_000

# Tokens of a sentence in Multi30k's training set, English to German, with a joint BPE vocabulary of 8,000,
# eos included: 15.3 and 15.8 on average. Both lengths and their ratio are log-normal.
_LOG_LENGTH, _LOG_LENGTH_DEVIATION = 2.682, 0.295
_LOG_RATIO, _LOG_RATIO_DEVIATION = 0.021, 0.169


@dataclass(frozen=True, kw_only=True)
class TrainingBenchmark:
    """Measured speed and memory of training.

    Attributes:
        batches: the text of the batches.
        device: "cpu" or "cuda".
        precision: the number format of matrix multiplications, "float32" or "bf16".
        kernels: "native" for ours, "torch.compile" for torch's, or "torch" for its operations one by one.
        native: the level of the native library, and why it is not a higher one.
        processes: the number of processes that share a step.
        threads: the threads of each process.
        steps: the number of timed steps.
        num_parameters: the size of the model.
        batch_tokens: the budget of a step, rows x max(src_len, tgt_len), padding included.
        target_tokens_per_second: real target tokens, without padding, over the time of the steps.
        seconds_per_step: the average time of a step.
        model_flops_per_second: the rate of the matrix multiplications in a step, forward and backward,
            padding included; counted in some of the steps and scaled by target tokens.
        matmul_flops_per_second: the rate of large matrix multiplications in the same precision, by one
            process with a thread for each core in use, measured just before and just after the steps.
        share_of_matmul: the ratio of both.
        peak_memory_mib: the peak memory in MiB, over steps that were not timed.
        peak_memory_of: what this memory includes.
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


def main() -> None:
    """Measure, and print the JSON line."""
    parser = parser_of(__doc__)
    parser.add_argument("--preset", default="base")
    parser.add_argument("--steps", type=int, default=30, help="steps to time, after a warm-up")
    parser.add_argument("--src", type=Path, help="source side of the training text")
    parser.add_argument("--tgt", type=Path, help="target side, line by line parallel")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting")
    given = parser.parse_args()
    overrides = [parse_override(each) for each in given.set]
    overrides += [(f"data.{side}", str(file)) for side in ("src", "tgt") if (file := getattr(given, side))]
    config = load_config(preset=given.preset, overrides=overrides)
    print(json.dumps({"preset": given.preset} | asdict(bench_training(config, steps=given.steps))))


def bench_training(config: Config, *, steps: int) -> TrainingBenchmark:
    """Measure training steps with these settings, after a warm-up.

    Batches have their full size: `batch.ramp_from` is ignored. Without training text in the settings,
    sentences are random words of the whole vocabulary, with the lengths of image captions. Only the cache of
    ids is kept.
    """
    if has_other_ranks():
        raise ConfigError("the processes that are measured are started here; run it without torchrun")
    with (
        restored_threads(),
        memory_for_steps(),
        tempfile.TemporaryDirectory(prefix="heedful-bench-") as temporary,
    ):
        run, batches = prepared_for_steps(config, Path(temporary))
        return _measure(run, batches, steps)


def prepared_for_steps(config: Config, directory: Path) -> tuple[PreparedRun, str]:
    """Prepare a training in a temporary directory; return it with a description of its batches."""
    config = config.replace(batch=config.batch.model_dump() | {"ramp_from": None})
    batches = " and ".join(config.data.training_files)
    if not batches:
        config = _with_synthetic_text(config, directory)
        batches = "random sentences with the lengths of image captions"
    return set_up_training(config, RunDirectory(directory), Notices([]), resume=False), batches


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


def write_synthetic_text(src: Path, tgt: Path, *, num_pairs: int, num_words: int, seed: int) -> None:
    """Write two files of random words, parallel and with the sentence lengths of image captions.

    The words are about equally frequent, and the same in source and target.
    """
    rng = np.random.Generator(np.random.PCG64(seed))
    log_lengths = rng.normal(_LOG_LENGTH, _LOG_LENGTH_DEVIATION, num_pairs)
    log_ratios = rng.normal(_LOG_RATIO, _LOG_RATIO_DEVIATION, num_pairs)
    for path, logarithms in ((src, log_lengths), (tgt, log_lengths + log_ratios)):
        lengths = np.maximum(np.exp(logarithms).round().astype(int) - 1, 1)  # without eos
        words = rng.permutation(np.arange(lengths.sum()) % num_words)  # each word occurs
        lines = (" ".join(map(str, part)) for part in np.split(words, lengths.cumsum()[:-1]))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def step_plans(run: PreparedRun) -> Iterator[StepPlan]:
    """Yield the plans of a training's steps without end."""
    config, source = run.config, run.source
    positions = ((epoch, index) for epoch in count() for index in range(len(source.plan(epoch))))
    for number in count(1):
        rate = learning_rate(config.schedule, number, d_model=config.model.d_model, progress=0.0)
        yield StepPlan(number, tuple(islice(positions, config.batch.accumulation)), rate)


@contextmanager
def step_takers(run: PreparedRun) -> Iterator[ProcessGroup]:
    """Start the processes that take the steps of a prepared run, without a trainer."""
    decay = run.config.train.ema_decay
    optimizer = build_optimizer(run.model, run.config.optimizer, precision=run.execution.precision)
    average = MovingAverage(run.model, decay) if decay else None
    with closing(
        start_process_group(run.model, run.source, run.config, run.execution, optimizer, average)
    ) as group:
        yield group


def _measure(run: PreparedRun, batches: str, steps: int) -> TrainingBenchmark:
    """Measure in an order in which the parts disturb each other least."""
    plans = step_plans(run)
    warm_up, timed = list(islice(plans, _WARM_UP_STEPS)), list(islice(plans, steps))
    watched, counted = timed[:_WATCHED_STEPS], timed[:_COUNTED_STEPS]

    def take(group: ProcessGroup, plans: list[StepPlan]) -> list[StepMetrics]:
        taken = []
        for plan in plans:
            taken.append(group.step(plan))
            _check_finite(taken[-1], plan, run.config)
        return taken

    execution, (processes, threads) = run.execution, process_group_size(run.config, run.model)
    rate = MatmulRate(execution.precision, execution.device, threads=processes * threads)
    with step_takers(run) as group:
        take(group, warm_up)
        rate.measure(_MATMUL_SECONDS)
        start = time.perf_counter()
        num_tokens = [metrics.num_tgt_tokens for metrics in take(group, timed)]
        finish(execution.device)
        seconds = time.perf_counter() - start
        rate.measure(_MATMUL_SECONDS)
        with peak_memory(execution.device) as memory:
            take(group, watched)
    flops = sum(_count_flops(run, plan, processes) for plan in counted)
    tokens_per_second = sum(num_tokens) / seconds
    model_rate = flops / sum(num_tokens[: len(counted)]) * tokens_per_second
    return TrainingBenchmark(
        batches=batches,
        device=execution.device.type,
        precision=execution.precision,
        kernels=_kernels(run, threads),
        native=native().describe(),
        processes=processes,
        threads=threads,
        steps=len(timed),
        num_parameters=run.model.num_parameters,
        batch_tokens=run.config.batch.tokens * run.config.batch.accumulation,
        target_tokens_per_second=tokens_per_second,
        seconds_per_step=seconds / len(timed),
        model_flops_per_second=model_rate,
        matmul_flops_per_second=rate.flops_per_second,
        share_of_matmul=model_rate / rate.flops_per_second,
        peak_memory_mib=memory.mib,
        peak_memory_of=memory.counted,
    )


def _check_finite(metrics: StepMetrics, plan: StepPlan, config: Config) -> None:
    if not metrics.is_finite:
        advice = rate_advice(config)
        raise TrainingError(f"step {plan.step}: the loss or its gradient is not finite; {advice}")


def _count_flops(run: PreparedRun, plan: StepPlan, size: int) -> int:
    ranks = [
        Rank(run.model, run.source, run.config, run.execution, index=index, size=size)
        for index in range(size)
    ]
    flops = count_flops(ranks, plan)
    run.model.zero_grad()
    return flops


def _kernels(run: PreparedRun, threads: int) -> str:
    if run.execution.compiles:
        return "torch.compile"
    with using_threads(threads):
        there_are = kernels_apply_to(next(run.model.parameters()))
    return "native" if there_are and run.execution.kernels else "torch"


if __name__ == "__main__":
    main()
