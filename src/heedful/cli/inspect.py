"""`heedful inspect`: what a run or a bundle holds."""

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

from heedful.cli import options as opt

if TYPE_CHECKING:
    from heedful.workflows.inspect import BundleSummary, Inspection, RunSummary


def inspect(run: opt.Run, as_json: opt.AsJson = False) -> None:
    """Show what a run or a bundle holds.

    Sizes, parameters, scores and every setting; the files of a bundle are checked against their checksums.
    """
    from heedful.workflows.inspect import inspect as look_at

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
