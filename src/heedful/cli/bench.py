"""`heedful bench ...`: how fast this machine does what heedful does, and where the time goes."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.requests import Runtime, SearchRequest

if TYPE_CHECKING:
    from heedful.workflows.bench_training import TrainingBenchmark


def train(
    src: Annotated[Path | None, typer.Option(help="Source side of a training text; .gz too.")] = None,
    tgt: Annotated[Path | None, typer.Option(help="Target side, line by line parallel.")] = None,
    preset: Annotated[
        str, typer.Option(help="tiny, small, base, big, a row of Table 3, or a published system.")
    ] = "base",
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed, after a few that are not.")] = 30,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For example batch.tokens=4096.")
    ] = None,
    as_json: opt.AsJson = False,
) -> None:
    """Measure the speed of training on this machine.

    Steps are taken as `heedful train` takes them, on the text that is given or on made-up sentences of the
    lengths of image captions. Shown are the target tokens a second, the share that training has of the
    machine's rate of matrix products, measured in between, memory, and the parts of a step.
    """
    from heedful.cli.bar import bar
    from heedful.config import load_config, parse_override
    from heedful.workflows.bench_training import bench_training

    files = {"data.src": src, "data.tgt": tgt}
    overrides = [(key, str(path)) for key, path in files.items() if path is not None]
    overrides += [parse_override(setting) for setting in settings or []]
    config = load_config(preset=preset, overrides=overrides)
    with bar() as show:
        found = bench_training(config, steps=steps, listener=show)
    print(json.dumps({"preset": preset} | asdict(found)) if as_json else "\n".join(_text(preset, found)))


def decode(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Sentences to translate; .gz too.")],
    search: SearchRequest = SearchRequest(),
    runtime: Runtime = Runtime(),
    as_json: opt.AsJson = False,
) -> None:
    """Measure the speed of translation on this machine.

    All sentences are translated together several times, and some of them one at a time, with the search of
    the bundle and the given beam. Shown are output tokens and sentences a second, the latency of a single
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
        found = bench_decoding(run, texts, request=search, runtime=runtime, listener=show)
    if as_json:
        print(json.dumps(asdict(found)))
        return
    print(f"decoding    {found.sentences:,} sentences, beam {found.beam_size}, {found.precision}")
    print(f"  engine    {found.engine}, {found.threads} threads; {found.native}")
    if found.shortlist is not None:
        print(f"  shortlist {found.shortlist}")
    print(f"  speed     {found.output_tokens_per_second:,.0f} output tokens/s")
    print(f"            {found.sentences_per_second:,.1f} sentences/s")
    print(f"  latency   {found.median_latency_ms:,.2f} ms (median), {found.p99_latency_ms:,.2f} ms (99 %)")
    if found.peak_memory_mib is not None:
        print(f"  memory    {found.peak_memory_mib:,.0f} MiB {found.peak_memory_of}")


BENCHES = (train, decode)


def _text(preset: str, found: "TrainingBenchmark") -> Iterator[str]:
    several = f"{found.processes} processes" if found.processes > 1 else "1 process"
    threads = f"{found.threads} threads" if found.threads > 1 else "1 thread"
    where = f"{several} of {threads}" if found.device == "cpu" else found.device
    yield f"training    {preset}: {found.num_parameters:,} parameters, {found.precision}, {where}"
    yield f"  kernels   {found.kernels}; {found.native}"
    yield f"  batches   {found.batches}, {found.batch_tokens:,} tokens a step with padding"
    yield f"  speed     {found.target_tokens_per_second:,.0f} target tokens/s over {found.steps} steps"
    yield (
        f"  products  {found.model_flops_per_second / 1e9:,.1f} GFLOP/s, {found.share_of_matmul:.1%} of the "
        f"{found.matmul_flops_per_second / 1e9:,.1f} of large products of matrices here"
    )
    if found.peak_memory_mib is not None:
        yield f"  memory    {found.peak_memory_mib:,.0f} MiB {found.peak_memory_of}"
    parts = {
        "data": found.seconds_in_data,
        "forward": found.seconds_in_forward,
        "backward": found.seconds_in_backward,
        "optimiser": found.seconds_in_optimizer,
    }
    alone = ", in one process alone with its rows" if found.processes > 1 else ""
    yield f"a step      {found.seconds_per_step * 1e3:,.1f} ms; its parts{alone}:"
    for name, seconds in parts.items():
        yield f"  {name:<9} {seconds * 1e3:9,.1f} ms {seconds / sum(parts.values()):6.1%}"
