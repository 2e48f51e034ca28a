"""`heedful bench ...`: measure the speed of training and translation on this machine."""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Annotated

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import bar
from heedful.data.streams import Lines, open_input
from heedful.errors import ConfigError, InputError, TrainingError
from heedful.settings.options import (
    PRESET,
    AsJson,
    Languages,
    Option,
    Run,
    Runtime,
    ShortlistFile,
    TrainingText,
    settings_like,
)

if TYPE_CHECKING:
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.runs.setup import PreparedRun
    from heedful.runtime.memory import PeakMemory
    from heedful.settings.run import Config
    from heedful.training.parallel.process_group import ProcessGroup, StepPlan
    from heedful.training.profiling import MatmulRate
    from heedful.training.step import StepMetrics

ProgressCallback = Callable[[str, float], None]  # the current phase, and the progress: 0 to 1

_WARM_UP_STEPS = 5  # in which kernels are compiled and memory is allocated
_WATCHED_STEPS = 10  # whose memory is measured; at most as many as are timed
_COUNTED_STEPS = 4  # whose operations are counted
_MATMUL_SECONDS = 1.0  # of matrix multiplications, before the timed steps and after them
_SYNTHETIC_PAIRS = 20_000

_ROUNDS = 3  # over all sentences, after a warm-up; the median counts
_SINGLE = 100  # maximum number of sentences translated one at a time
_WARM_UP = 5  # of them before timing
_COMPARED = 200  # maximum number of sentences translated in each precision
_FASTER = 1.1  # times as fast, below which an option is not worth naming

# Tokens of a sentence in Multi30k's training set, English to German, with a joint BPE vocabulary of 8,000,
# eos included: 15.3 and 15.8 on average. Both lengths and their ratio are log-normal.
_LOG_LENGTH, _LOG_LENGTH_DEVIATION = 2.682, 0.295
_LOG_RATIO, _LOG_RATIO_DEVIATION = 0.021, 0.169


@dataclass(frozen=True, kw_only=True)
class BenchTrain:
    """Measure the speed of training on this machine.

    Times the steps of `heedful train`, on the given text or on random sentences with the lengths of image
    captions. Shows target tokens per second, the fraction of the machine's rate of matrix multiplications,
    and memory.
    """

    text: TrainingText = field(default_factory=TrainingText)
    preset: Annotated[str, PRESET] = "base"
    steps: Annotated[int, Option("Steps to time, after a warm-up.", minimum=1)] = 30
    settings: Annotated[list[str] | None, settings_like("For example batch.tokens=4096.")] = None
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class BenchDecode:
    """Measure the speed of translation on this machine.

    Translates all sentences in batches several times, and some of them one at a time, with the search of the
    bundle and the given beam. Shows output tokens and sentences per second, the latency of a single sentence,
    memory, and which precision would be faster.
    """

    run: Run
    src: Annotated[Path, Option("Sentences to translate; .gz too.")]
    languages: Languages = field(default_factory=Languages)
    search: SearchOverrides = field(default_factory=dict)
    shortlist: ShortlistFile = None
    runtime: Runtime = field(default_factory=Runtime)
    as_json: AsJson = False


@dataclass(frozen=True, kw_only=True)
class TrainingBenchmark:
    """Measured speed and memory of training.

    Attributes:
        batches: the text of the batches.
        device: "cpu" or "cuda".
        precision: of matrix multiplications, "float32" or "bf16".
        kernels: "native" for ours, "torch.compile" for torch's, or "torch" for its operations one by one.
        native: the level of the native library, and why it is not a higher one.
        processes: the number of processes of each step.
        threads: of each process.
        steps: the number of timed steps.
        num_parameters: of the model.
        batch_tokens: the budget of a step, rows x max(src_len, tgt_len), padding included.
        target_tokens_per_second: real target tokens, without padding, over the time of the steps.
        seconds_per_step: on average.
        model_flops_per_second: of the matrix multiplications in a step, forward and backward, with what
            padding they compute; counted in some of the steps and scaled by target tokens.
        matmul_flops_per_second: of large matrix multiplications in the same precision on as many cores, by
            one process with a thread for each, measured just before and just after the steps.
        share_of_matmul: the ratio of both.
        peak_memory_mib: in MiB, over steps that were not timed.
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


def bench_training(task: BenchTrain, on_progress: ProgressCallback) -> TrainingBenchmark:
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
    from heedful.runtime.threads import restored_threads
    from heedful.settings.loading import load_config, parse_override
    from heedful.training.memory import limited_onednn_cache

    overrides = [*task.text.overrides(), *(parse_override(setting) for setting in task.settings or [])]
    config = load_config(preset=task.preset, overrides=overrides)
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise ConfigError(
            "bench train measures the processes that it starts itself; run it without torchrun, "
            "with train.processes"
        )
    on_progress("preparing batches", 0.0)
    with (
        restored_threads(),
        limited_onednn_cache(),
        tempfile.TemporaryDirectory(prefix="heedful-bench-") as temporary,
    ):
        run, batches = prepared_for_steps(config, Path(temporary))
        return _TrainingBench(run, task.steps, on_progress).run(batches)


def prepared_for_steps(config: "Config", directory: Path) -> "tuple[PreparedRun, str]":
    """Prepare a training in a temporary directory; return it with what its batches are of.

    Raises:
        ConfigError: settings that need real text, which is not given.
    """
    from heedful.runs.directory import RunDirectory
    from heedful.runs.notices import Notices
    from heedful.runs.setup import set_up_training

    config = config.replace(batch=config.batch.model_dump() | {"ramp_from": None})
    batches = " and ".join(config.data.training_files)
    if not batches:
        config = _with_synthetic_text(config, directory)
        batches = "random sentences with the lengths of image captions"
    return set_up_training(config, RunDirectory(directory), Notices([]), resume=False), batches


def _with_synthetic_text(config: "Config", directory: Path) -> "Config":
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

    Args:
        src: the file for the source.
        tgt: the file for the target.
        num_pairs: the number of lines of each.
        num_words: the number of distinct words, about equally frequent and the same in source and target.
        seed: of words and lengths.
    """
    import numpy as np

    rng = np.random.Generator(np.random.PCG64(seed))
    log_lengths = rng.normal(_LOG_LENGTH, _LOG_LENGTH_DEVIATION, num_pairs)
    log_ratios = rng.normal(_LOG_RATIO, _LOG_RATIO_DEVIATION, num_pairs)
    for path, logarithms in ((src, log_lengths), (tgt, log_lengths + log_ratios)):
        lengths = np.maximum(np.exp(logarithms).round().astype(int) - 1, 1)  # without eos
        words = rng.permutation(np.arange(lengths.sum()) % num_words)  # each word occurs
        lines = (" ".join(map(str, part)) for part in np.split(words, lengths.cumsum()[:-1]))
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def step_plans(run: "PreparedRun") -> "Iterator[StepPlan]":
    """Yield the plans of a training's steps without end."""
    from heedful.training.parallel.process_group import StepPlan
    from heedful.training.schedule import learning_rate

    config, source = run.config, run.source
    positions = ((epoch, index) for epoch in count() for index in range(len(source.plan(epoch))))
    for number in count(1):
        rate = learning_rate(config.schedule, number, d_model=config.model.d_model, progress=0.0)
        yield StepPlan(number, tuple(islice(positions, config.batch.accumulation)), rate)


class _TrainingBench:
    """One measurement, in an order in which its parts disturb each other least."""

    def __init__(self, run: "PreparedRun", steps: int, on_progress: ProgressCallback) -> None:
        from heedful.training.parallel.choice import process_group_size

        self._run = run
        self._on_progress = on_progress
        self._processes, self._threads = process_group_size(run.config, run.model)
        plans = step_plans(run)
        self._warm_up = list(islice(plans, _WARM_UP_STEPS))
        self._timed = list(islice(plans, steps))
        self._watched = self._timed[:_WATCHED_STEPS]
        self._counted = self._timed[:_COUNTED_STEPS]
        self._to_do = sum(map(len, (self._warm_up, self._timed, self._watched, self._counted)))
        self._done = 0

    def run(self, batches: str) -> TrainingBenchmark:
        from heedful.runtime.native import native
        from heedful.training.profiling import MatmulRate

        run = self._run
        rate = MatmulRate(
            run.execution.precision, run.execution.device, threads=self._processes * self._threads
        )
        metrics, seconds, memory = self._take_steps(rate)
        num_tokens = [each.num_tgt_tokens for each in metrics]
        flops_per_token = self._count_flops() / sum(num_tokens[: len(self._counted)])
        tokens_per_second = sum(num_tokens) / seconds
        model_rate = flops_per_token * tokens_per_second
        return TrainingBenchmark(
            batches=batches,
            device=run.execution.device.type,
            precision=run.execution.precision,
            kernels=self._kernels(),
            native=native().describe(),
            processes=self._processes,
            threads=self._threads,
            steps=len(self._timed),
            num_parameters=run.model.num_parameters,
            batch_tokens=run.config.batch.tokens * run.config.batch.accumulation,
            target_tokens_per_second=tokens_per_second,
            seconds_per_step=seconds / len(self._timed),
            model_flops_per_second=model_rate,
            matmul_flops_per_second=rate.flops_per_second,
            share_of_matmul=model_rate / rate.flops_per_second,
            peak_memory_mib=memory.mib,
            peak_memory_of=memory.counted,
        )

    def _take_steps(self, rate: "MatmulRate") -> "tuple[list[StepMetrics], float, PeakMemory]":
        """Return the metrics and the seconds of the timed steps, and the peak memory of some."""
        from heedful.runtime.memory import peak_memory
        from heedful.training.averaging import MovingAverage
        from heedful.training.optimizer import build_optimizer
        from heedful.training.parallel.choice import start_process_group
        from heedful.training.profiling import finish

        run, decay = self._run, self._run.config.train.ema_decay
        optimizer = build_optimizer(run.model, run.config.optimizer, precision=run.execution.precision)
        average = MovingAverage(run.model, decay) if decay else None
        with closing(
            start_process_group(run.model, run.source, run.config, run.execution, optimizer, average)
        ) as group:
            self._take(group, self._warm_up, "warming up")
            rate.measure(_MATMUL_SECONDS)
            start = time.perf_counter()
            metrics = self._take(group, self._timed, "timing steps")
            finish(run.execution.device)
            seconds = time.perf_counter() - start
            rate.measure(_MATMUL_SECONDS)
            with peak_memory(run.execution.device) as memory:
                self._take(group, self._watched, "measuring memory")
        return metrics, seconds, memory

    def _take(self, group: "ProcessGroup", plans: "list[StepPlan]", what: str) -> "list[StepMetrics]":
        from heedful.training.reporting import rate_advice

        taken = []
        for plan in plans:
            metrics = group.step(plan)
            if not metrics.is_finite:
                raise TrainingError(
                    f"step {plan.step}: the loss or its gradient is not finite; "
                    f"{rate_advice(self._run.config)}"
                )
            taken.append(metrics)
            self._report(what)
        return taken

    def _count_flops(self) -> int:
        from heedful.training.parallel.process_group import Rank
        from heedful.training.profiling import count_flops

        run, size = self._run, self._processes
        ranks = [
            Rank(run.model, run.source, run.config, run.execution, index=index, size=size)
            for index in range(size)
        ]
        total = 0
        for plan in self._counted:
            total += count_flops(ranks, plan)
            run.model.zero_grad()
            self._report("counting operations")
        return total

    def _kernels(self) -> str:
        from heedful.ops.kernels import kernels_apply_to
        from heedful.runtime.threads import using_threads

        execution = self._run.execution
        if execution.compiles:
            return "torch.compile"
        with using_threads(self._threads):
            there_are = kernels_apply_to(next(self._run.model.parameters()))
        return "native" if there_are and execution.kernels else "torch"

    def _report(self, what: str) -> None:
        self._done += 1
        self._on_progress(what, self._done / self._to_do)


def command_train(task: BenchTrain) -> None:
    """Measure training, and print the figures."""
    with bar() as show:
        result = bench_training(task, show)
    if task.as_json:
        print(json.dumps({"preset": task.preset} | asdict(result)))
        return
    several = f"{result.processes} processes" if result.processes > 1 else "1 process"
    threads = f"{result.threads} threads" if result.threads > 1 else "1 thread"
    where = f"{several} of {threads}" if result.device == "cpu" else result.device
    print(f"training    {task.preset}: {result.num_parameters:,} parameters, {result.precision}, {where}")
    print(f"  kernels   {result.kernels}; {result.native}")
    print(f"  batches   {result.batches}, {result.batch_tokens:,} tokens a step with padding")
    print(f"  speed     {result.target_tokens_per_second:,.0f} target tokens/s over {result.steps} steps")
    print(f"            {result.seconds_per_step * 1e3:,.1f} ms a step")
    print(
        f"  matmul    {result.model_flops_per_second / 1e9:,.1f} GFLOP/s, {result.share_of_matmul:.1%} of "
        f"the {result.matmul_flops_per_second / 1e9:,.1f} of large matrix multiplications here"
    )
    if result.peak_memory_mib is not None:
        print(f"  memory    {result.peak_memory_mib:,.0f} MiB {result.peak_memory_of}")


@dataclass(frozen=True, kw_only=True)
class DecodingBenchmark:
    """Measured speed and memory of translation.

    Attributes:
        sentences: the number of translated sentences.
        beam_size: of the search.
        precision: of matrix multiplications; for "auto", the chosen one.
        engine: "native" or "torch".
        native: the level of the native library, and why it is not a higher one.
        shortlist: the file, or None.
        threads: of the CPU.
        batch_size: the maximum number of sentences in a batch; None: only `batch_tokens` limits it.
        batch_tokens: the maximum number of source tokens in a batch, padding included.
        output_tokens_per_second: tokens of the best outputs, end tokens included, in batches.
        sentences_per_second: in batches, tokenisation included, loading excluded.
        median_latency_ms: of sentences translated one at a time.
        p99_latency_ms: the 99th percentile of these.
        peak_memory_mib: in MiB, while all sentences are translated.
        peak_memory_of: what this memory includes.
        faster: options that are faster here, such as `--precision int8`, and how many times.
    """

    sentences: int
    beam_size: int
    precision: str
    engine: str
    native: str
    shortlist: str | None
    threads: int
    batch_size: int | None
    batch_tokens: int
    output_tokens_per_second: float
    sentences_per_second: float
    median_latency_ms: float
    p99_latency_ms: float
    peak_memory_mib: float | None
    peak_memory_of: str
    faster: dict[str, float]


def bench_decoding(
    task: BenchDecode, lines: Sequence[str], on_progress: ProgressCallback
) -> DecodingBenchmark:
    """Measure the translation of lines, as by `translate`.

    Raises:
        BundleError: no usable bundle.
        InputError: settings are invalid, a line is too long for learned positions, or there is no text.
    """
    from heedful.decoding.options import search_options
    from heedful.runs.loading import load_translator
    from heedful.runtime.memory import peak_memory
    from heedful.runtime.native import native
    from heedful.runtime.threads import num_threads

    texts = [line for line in lines if line.strip()]
    if not texts:
        raise InputError("bench decode: there is no text in the source; give a file of sentences")
    on_progress("loading", 0.0)
    translator = load_translator(task.run, task.languages, task.runtime, shortlist=task.shortlist)
    options = search_options(task.search, translator.bundle.config.decode)
    single = texts[:: max(1, len(texts) // _SINGLE)][:_SINGLE]
    to_do = _ROUNDS + 4
    outputs = translator.translations(texts, options=options)  # warm-up
    seconds = []
    for done in range(1, _ROUNDS + 1):
        on_progress("all sentences", done / to_do)
        seconds.append(_seconds(translator, texts, options))
    on_progress("memory", (_ROUNDS + 1) / to_do)
    with peak_memory(translator.device) as memory:
        translator.translations(texts, options=options)
    on_progress("one sentence at a time", (_ROUNDS + 2) / to_do)
    for text in single[:_WARM_UP]:
        translator.translations([text], options=options)
    latencies = [1e3 * _seconds(translator, [text], options) for text in single]
    on_progress("other precisions", (_ROUNDS + 3) / to_do)
    return DecodingBenchmark(
        sentences=len(texts),
        beam_size=options.strategy.width,
        precision=translator.precision_in_use,
        engine=translator.engine_in_use,
        native=native().describe(),
        shortlist=None if task.shortlist is None else str(task.shortlist),
        threads=num_threads(),
        batch_size=task.runtime.batch_size,
        batch_tokens=translator.batch_tokens,
        output_tokens_per_second=sum(map(_length, outputs)) / median(seconds),
        sentences_per_second=len(texts) / median(seconds),
        median_latency_ms=median(latencies),
        p99_latency_ms=quantiles(latencies, n=100)[-1] if len(latencies) > 1 else latencies[0],
        peak_memory_mib=memory.mib,
        peak_memory_of=memory.counted,
        faster=_faster(task, translator, texts[:_COMPARED], options),
    )


def _faster(
    task: BenchDecode, translator: "Translator", texts: Sequence[str], options: "SearchOptions"
) -> dict[str, float]:
    """Return how many times as fast other precisions of the native engine are, the fastest first."""
    from heedful.decoding.backends.engine import engine_precisions
    from heedful.runs.loading import load_translator

    if translator.engine_in_use != "native":
        return {}
    now = min(_seconds(translator, texts, options) for _ in range(2))
    ratios = {}
    for precision in engine_precisions():
        if precision != translator.precision_in_use:
            other = load_translator(
                task.run, task.languages, replace(task.runtime, precision=precision), shortlist=task.shortlist
            )
            other.translations(texts, options=options)  # warm-up
            ratios[f"--precision {precision}"] = now / min(_seconds(other, texts, options) for _ in range(2))
    faster = {option: round(times, 2) for option, times in ratios.items() if times > _FASTER}
    return dict(sorted(faster.items(), key=lambda each: -each[1]))


def _seconds(translator: "Translator", texts: Sequence[str], options: "SearchOptions") -> float:
    start = time.perf_counter()
    translator.translations(texts, options=options)
    return time.perf_counter() - start


def _length(translation: "Translation") -> int:
    return len(translation.hypotheses[0].token_log_probs) if translation.hypotheses else 0


def command_decode(task: BenchDecode) -> None:
    """Measure translation, and print the figures."""
    with open_input(task.src) as (stream, name):
        lines = Lines(stream, name)
        texts = list(lines)
        lines.raise_if_bad()
    with bar() as show:
        result = bench_decoding(task, texts, show)
    if task.as_json:
        print(json.dumps(asdict(result)))
        return
    print(f"decoding    {result.sentences:,} sentences, beam {result.beam_size}, {result.precision}")
    print(f"  engine    {result.engine}, {result.threads} threads; {result.native}")
    if result.shortlist is not None:
        print(f"  shortlist {result.shortlist}")
    print(f"  speed     {result.output_tokens_per_second:,.0f} output tokens/s")
    print(f"            {result.sentences_per_second:,.1f} sentences/s")
    print(f"  latency   {result.median_latency_ms:,.2f} ms (median), {result.p99_latency_ms:,.2f} ms (99 %)")
    if result.peak_memory_mib is not None:
        print(f"  memory    {result.peak_memory_mib:,.0f} MiB {result.peak_memory_of}")
    for option, times in result.faster.items():
        print(f"  faster    {option}: {times:.2f} times as fast; outputs may differ")


COMMANDS = {"train": command_train, "decode": command_decode}
