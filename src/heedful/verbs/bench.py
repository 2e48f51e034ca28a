"""`heedful bench ...`: measure the speed of training and translation on this machine."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

from heedful.cli.options import SearchOverrides
from heedful.cli.streams import bar
from heedful.data.streams import Lines, open_input
from heedful.settings.options import (
    PRESET,
    AsJson,
    Languages,
    Option,
    Run,
    Runtime,
    Settings,
    ShortlistFile,
    TrainingText,
    settings_like,
)


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
    settings: Annotated[Settings, settings_like("A setting, for example batch.tokens=4096; repeatable.")] = ()
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


def command_train(task: BenchTrain) -> None:
    """Measure training, and print the figures."""
    from heedful.settings.loading import load_config
    from heedful.tasks.training_speed import bench_training

    overrides = [*task.text.overrides(), *task.settings]
    config = load_config(preset=task.preset, overrides=overrides)
    with bar() as show:
        result = bench_training(config, steps=task.steps, on_progress=show)
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


def command_decode(task: BenchDecode) -> None:
    """Measure translation, and print the figures."""
    from heedful.tasks.decoding_speed import bench_decoding

    with open_input(task.src) as (stream, name):
        lines = Lines(stream, name)
        texts = list(lines)
        lines.raise_if_bad()
    with bar() as show:
        result = bench_decoding(
            task.run,
            texts,
            languages=task.languages,
            search=task.search,
            shortlist=task.shortlist,
            runtime=task.runtime,
            on_progress=show,
        )
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
