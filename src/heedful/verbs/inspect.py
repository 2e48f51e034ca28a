"""`heedful inspect`: describe a run or a bundle, check parallel text, or describe the machine."""

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli.streams import bar, print_json
from heedful.errors import refuse_if
from heedful.settings.options import AsJson, Filtering, HeldOutText, Option

if TYPE_CHECKING:
    from heedful.tasks.inspection import BundleSummary, Inspection, MachineSummary, RunSummary


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Describe a run, bundle or machine; check parallel text.

    For a run: sizes, parameters, scores and every setting; the checksums of a bundle are verified. For text:
    faulty pairs, duplicates, overlap with validation and test, and coverage; docs/corpus.md lists the
    filters. For the machine: the level of the native library that is in use, and why no faster one is.

    Examples:
        heedful inspect runs/en-de
        heedful inspect train.en train.de
    """

    paths: Annotated[
        list[Path] | None,
        Option(
            "A run, a bundle, or the id of one on the hub; or parallel text, as two files or one .tsv, "
            ".tmx, .xlf, .po or .jsonl; .gz too.",
            metavar="RUN | SRC TGT",
            is_argument=True,
        ),
    ] = None
    machine: Annotated[bool, Option("Describe this machine instead of a run.")] = False
    held_out: HeldOutText = field(default_factory=HeldOutText)
    filtering: Filtering = field(default_factory=Filtering)
    as_json: AsJson = False


def command(task: Inspect) -> None:
    """Inspect what the paths name, or the machine, and print it."""
    from heedful.data.files import holds_pairs
    from heedful.data.inspection import inspect_text, report_lines
    from heedful.tasks.inspection import inspect_machine, inspect_run

    paths = task.paths or []
    is_text = bool(paths) and (len(paths) == 2 or holds_pairs(paths[0]))
    has_options_of_text = (task.held_out, task.filtering) != (HeldOutText(), Filtering())
    refuse_if(
        (task.machine == bool(paths), "give either a run or bundle, or --machine"),
        (len(paths) > 2, f"give a run, or the two files of a text; these are {len(paths)} paths"),
        (
            paths and not is_text and paths[0].is_file(),
            f"{' '.join(map(str, paths))}: is one file: for parallel text give SRC and TGT, or one .tsv, "
            ".tmx, .xlf, .po or .jsonl; for a model give its directory",
        ),
        (
            not is_text and has_options_of_text,
            "the options of parallel text need a text to inspect: two files, or one file of pairs",
        ),
        error=typer.BadParameter,
    )
    result: object
    if task.machine:
        result = machine = inspect_machine()
        lines = _machine_text(machine)
    elif is_text:
        with bar() as show:
            result = text = inspect_text(
                paths, held_out=task.held_out, filtering=task.filtering, on_progress=show
            )
        lines = report_lines(text)
    else:
        result = run = inspect_run(paths[0])
        lines = _text(run)
    if task.as_json:
        print_json(asdict(result))
    else:
        print("\n".join(lines))


def _text(result: "Inspection") -> Iterator[str]:
    if result.run:
        yield from _run_text(result.run)
    if result.bundle:
        yield from _bundle_text(result.bundle)
    for section, values in result.config.items():
        yield f"[{section}]"
        yield from (f"  {key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def _machine_text(machine: "MachineSummary") -> Iterator[str]:
    yield f"CPU         {machine.cpu}, {machine.cores} cores in use"
    yield from (f"GPU         {name}" for name in machine.gpus)
    yield f"torch       {machine.torch or 'not installed'}"
    if machine.level is None:
        yield f"native      none: {machine.why_not}"
        yield f"  decoding  {'by torch, several times slower' if machine.torch else 'none'}"
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
    from heedful.settings.parsing import is_whole, shown

    kind = bundle.no_tokenizer or ("joint" if bundle.joint else "separate")
    parts = ", ".join(f"{part} {count:,}" for part, count in bundle.parameters.items())
    yield f"bundle      {bundle.path}"
    yield f"  size      {bundle.num_bytes / 1e6:,.1f} MB, checksums correct"
    yield f"  model     {bundle.num_parameters:,} parameters ({parts})"
    yield f"  tokens    {bundle.src_vocab_size:,} source, {bundle.tgt_vocab_size:,} target ({kind})"
    if bundle.scores:
        yield f"  scores    {_numbers(bundle.scores)}"
    if bundle.calibration is None:
        yield "  confidence: not calibrated"
    else:
        lines, ece = bundle.calibration["lines"], bundle.calibration["ece"]
        yield f"  confidence: calibrated on {lines:,} lines, ECE {_numbers(ece)}"
    if bundle.aligner is not None:
        pairs, texts = bundle.aligner.get("pairs"), bundle.aligner.get("text")
        learned = f"learned from {pairs:,} pairs" if is_whole(pairs) else "its pairs are not recorded"
        if isinstance(texts, list) and texts:
            learned += f" of {' and '.join(map(shown, texts[:2]))}"
        yield f"  aligner   {learned}, {bundle.aligner['num_bytes'] / 1e6:,.1f} MB"


def _numbers(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
