"""`heedful inspect`: describe a run or a bundle, check parallel text, or describe the machine."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.text_options import Filtering
from heedful.cli.text_report import report_lines
from heedful.settings.options import HeldOutText

if TYPE_CHECKING:
    from heedful.workflows.inspect import BundleSummary, Inspection, MachineSummary, RunSummary
    from heedful.workflows.inspect_text import TextTask


def inspect(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="RUN | SRC TGT",
            help="A run, a bundle, or the id of one on the hub; or parallel text: two files, or one .tsv or "
            ".jsonl; .gz too.",
        ),
    ] = None,
    machine: Annotated[
        bool, typer.Option("--machine", help="Describe this machine instead of a run.")
    ] = False,
    held_out: HeldOutText = HeldOutText(),
    filtering: Filtering = Filtering(),
    as_json: opt.AsJson = False,
) -> None:
    """Describe a run or a bundle, check parallel text, or describe this machine.

    Of a run: sizes, parameters, scores and every setting; the checksums of a bundle are verified. Of text:
    faulty pairs, duplicates, overlap with validation and test, and coverage; docs/corpus.md lists the
    filters.
    Of the machine: the level of the native library in use, and why it is not a faster one.
    """
    names = paths or []
    if machine == bool(names):
        raise typer.BadParameter("give either a run or bundle, or --machine")
    if len(names) > 2:
        raise typer.BadParameter(f"give a run, or the two files of a text; these are {len(names)} paths")
    from heedful.data.files import holds_pairs

    is_text = bool(names) and (len(names) == 2 or holds_pairs(names[0]))
    if not is_text and (held_out, filtering) != (HeldOutText(), Filtering()):
        raise typer.BadParameter("the options of parallel text, such as --fix, need a text to inspect")
    if machine:
        _show_machine(as_json=as_json)
        return
    if not is_text:
        if names[0].is_file():
            raise typer.BadParameter(
                f"{names[0]}: is one file: for parallel text give SRC and TGT, or one .tsv or .jsonl; "
                "for a model give its directory"
            )
        _show_run(names[0], as_json=as_json)
        return
    _show_text(_text_task(names, held_out, filtering), as_json=as_json)


def _text_task(train: list[Path], held_out: HeldOutText, filtering: Filtering) -> "TextTask":
    """Return the text to inspect, and options.

    Raises:
        BadParameter: incompatible options.
    """
    from heedful.data.files import PairFiles
    from heedful.workflows.inspect_text import TextTask

    def files(name: str, *paths: Path | None) -> PairFiles | None:
        src, tgt, pairs = paths
        if (src is None) != (tgt is None) or (src is not None and pairs is not None):
            raise typer.BadParameter(f"give both --{name}-src and --{name}-tgt, or --{name}-pairs")
        chosen = tuple(path for path in paths if path is not None)
        return PairFiles(chosen, held_out.src_key, held_out.tgt_key) if chosen else None

    keep, remove = filtering.keep or (), filtering.remove or ()
    if both := sorted({*keep} & {*remove}):
        raise typer.BadParameter(f"--keep {both[0]} and --remove {both[0]} contradict: give one of them")
    return TextTask(
        train=PairFiles(tuple(train), held_out.src_key, held_out.tgt_key),
        valid=files("valid", held_out.valid_src, held_out.valid_tgt, held_out.valid_pairs),
        test=files("test", held_out.test_src, held_out.test_tgt, held_out.test_pairs),
        fix=filtering.fix,
        keep=keep,
        remove=remove,
        examples=filtering.examples,
        languages=(filtering.src_lang, filtering.tgt_lang),
    )


def _show_machine(*, as_json: bool) -> None:
    from heedful.workflows.inspect import inspect_machine

    summary = inspect_machine()
    print(json.dumps(asdict(summary)) if as_json else "\n".join(_machine_text(summary)))


def _show_run(path: Path, *, as_json: bool) -> None:
    from heedful.workflows.inspect import inspect as look_at

    result = look_at(path)
    print(json.dumps(asdict(result), ensure_ascii=False) if as_json else "\n".join(_text(result)))


def _show_text(task: "TextTask", *, as_json: bool) -> None:
    from heedful.cli.bar import bar
    from heedful.workflows.inspect_text import inspect_text

    with bar() as show:
        result = inspect_text(task, show)
    print(json.dumps(asdict(result), ensure_ascii=False) if as_json else "\n".join(report_lines(result)))


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
    kind = bundle.no_tokenizer or ("joint" if bundle.joint else "separate")
    parts = ", ".join(f"{part} {count:,}" for part, count in bundle.parameters.items())
    yield f"bundle      {bundle.path}"
    yield f"  size      {bundle.num_bytes / 1e6:,.1f} MB, checksums correct"
    yield f"  model     {bundle.num_parameters:,} parameters ({parts})"
    yield f"  tokens    {bundle.src_vocab_size:,} source, {bundle.tgt_vocab_size:,} target ({kind})"
    if bundle.scores:
        yield f"  scores    {_numbers(bundle.scores)}"


def _numbers(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
