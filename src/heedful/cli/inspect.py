"""`heedful inspect`: what a run or a bundle holds."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt

if TYPE_CHECKING:
    from heedful.workflows.inspect import BundleSummary, Inspection, MachineSummary, RunSummary


def inspect(
    run: Annotated[
        Path | None, typer.Argument(metavar="RUN", help="A run, a bundle, or the id of one on the hub.")
    ] = None,
    machine: Annotated[
        bool, typer.Option("--machine", help="Show what this machine computes with, in place of a run.")
    ] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Show what a run or a bundle holds, or what this machine computes with.

    Of a run: sizes, parameters, scores and every setting; the files of a bundle are checked against their
    checksums. Of the machine: the level of the native library that is in use, and why no faster one is.
    """
    from heedful.workflows.inspect import inspect as look_at
    from heedful.workflows.inspect import inspect_machine

    if machine == (run is not None):
        raise typer.BadParameter("give either a run or bundle, or --machine")
    if run is None:
        summary = inspect_machine()
        print(json.dumps(asdict(summary)) if as_json else "\n".join(_machine_text(summary)))
        return
    found = look_at(run)
    print(json.dumps(asdict(found), ensure_ascii=False) if as_json else "\n".join(_text(found)))


def _text(found: "Inspection") -> Iterator[str]:
    if found.run:
        yield from _run_text(found.run)
    if found.bundle:
        yield from _bundle_text(found.bundle)
    for section, values in found.config.items():
        yield f"[{section}]"
        yield from (f"  {key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def _machine_text(machine: "MachineSummary") -> Iterator[str]:
    yield f"CPU         {machine.cpu}, {machine.cores} cores in use"
    yield from (f"GPU         {name}" for name in machine.gpus)
    yield f"torch       {machine.torch}"
    if machine.level is None:
        yield f"native      none: {machine.why_not}"
        yield "  decoding  by torch, several times slower"
    else:
        yield f"native      level {machine.level}" + (f" ({machine.why_not})" if machine.why_not else "")
        yield f"  decoding  {', '.join(machine.decoding)}"
    yield f"  training  {machine.training}"
    for name, why_not in machine.levels.items():
        in_use = "in use" if name == machine.level else "possible"
        yield f"  {name:<11} {why_not or in_use}"


def _run_text(run: "RunSummary") -> Iterator[str]:
    yield f"run         {run.path}"
    yield f"  steps     {run.steps:,} in {run.seconds / 60:,.1f} minutes"
    if run.validation:
        yield f"  last      {_numbers(run.validation)}"
    yield f"  saved     {', '.join([*run.bundles, *run.checkpoints]) or 'nothing yet'}"


def _bundle_text(bundle: "BundleSummary") -> Iterator[str]:
    kind = "joint" if bundle.joint else "separate"
    parts = ", ".join(f"{part} {count:,}" for part, count in bundle.parameters.items())
    yield f"bundle      {bundle.path}"
    yield f"  size      {bundle.num_bytes / 1e6:,.1f} MB, checksums right"
    yield f"  model     {bundle.num_parameters:,} parameters ({parts})"
    yield f"  pieces    {bundle.src_vocab_size:,} source, {bundle.tgt_vocab_size:,} target ({kind})"
    if bundle.scores:
        yield f"  scores    {_numbers(bundle.scores)}"


def _numbers(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
