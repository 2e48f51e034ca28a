"""`heedful bench ...`: measure the speed of training and translation."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.settings.options import Runtime, SearchRequest, TrainingText

if TYPE_CHECKING:
    from heedful.workflows.bench_training import TrainingBenchmark


def train(
    text: TrainingText = TrainingText(),
    preset: Annotated[
        str, typer.Option(help="tiny, small, base, big, a row of Table 3, or a published system.")
    ] = "base",
    steps: Annotated[int, typer.Option(min=1, help="Steps to time, after a warm-up.")] = 30,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For example batch.tokens=4096.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Measure the speed of training on this machine.

    Steps are those of `heedful train`, on the given text or on random sentences with the lengths of image
    captions. Shows target tokens per second, the fraction of the machine's rate of matrix multiplications,
    memory, and the parts of a step.
    """
    from heedful.cli.bar import bar
    from heedful.settings.loading import load_config, parse_override
    from heedful.workflows.bench_training import bench_training

    overrides = [*text.overrides(), *(parse_override(setting) for setting in settings or [])]
    config = load_config(preset=preset, overrides=overrides)
    with bar() as show:
        result = bench_training(config, steps=steps, on_progress=show)
    print(json.dumps({"preset": preset} | asdict(result)) if as_json else "\n".join(_text(preset, result)))


def decode(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Sentences to translate; .gz too.")],
    search: SearchRequest = SearchRequest(),
    runtime: Runtime = Runtime(),
    as_json: opt.AsJson = False,
) -> None:
    """Measure the speed of translation on this machine.

    All sentences are translated in batches several times, and some of them one at a time, with the search of
    the bundle and the given beam. Shows output tokens and sentences per second, the latency of a single
    sentence, and memory.
    """
    from heedful.cli.bar import bar
    from heedful.cli.streams import Lines, open_input
    from heedful.workflows.bench_decoding import bench_decoding

    with open_input(src) as (stream, name):
        lines = Lines(stream, name)
        texts = list(lines)
        lines.raise_if_bad()
    with bar() as show:
        result = bench_decoding(run, texts, request=search, runtime=runtime, on_progress=show)
    if as_json:
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


BENCHES = (train, decode)


def _text(preset: str, result: "TrainingBenchmark") -> Iterator[str]:
    several = f"{result.processes} processes" if result.processes > 1 else "1 process"
    threads = f"{result.threads} threads" if result.threads > 1 else "1 thread"
    where = f"{several} of {threads}" if result.device == "cpu" else result.device
    yield f"training    {preset}: {result.num_parameters:,} parameters, {result.precision}, {where}"
    yield f"  kernels   {result.kernels}; {result.native}"
    yield f"  batches   {result.batches}, {result.batch_tokens:,} tokens a step with padding"
    yield f"  speed     {result.target_tokens_per_second:,.0f} target tokens/s over {result.steps} steps"
    yield (
        f"  matmul    {result.model_flops_per_second / 1e9:,.1f} GFLOP/s, {result.share_of_matmul:.1%} of "
        f"the {result.matmul_flops_per_second / 1e9:,.1f} of large matrix multiplications here"
    )
    if result.peak_memory_mib is not None:
        yield f"  memory    {result.peak_memory_mib:,.0f} MiB {result.peak_memory_of}"
    parts = {
        "data": result.seconds_in_data,
        "forward": result.seconds_in_forward,
        "backward": result.seconds_in_backward,
        "optimiser": result.seconds_in_optimizer,
    }
    alone = ", in one process with its rows" if result.processes > 1 else ""
    yield f"a step      {result.seconds_per_step * 1e3:,.1f} ms; its parts{alone}:"
    for name, seconds in parts.items():
        yield f"  {name:<9} {seconds * 1e3:9,.1f} ms {seconds / sum(parts.values()):6.1%}"
