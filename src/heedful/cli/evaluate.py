"""`heedful evaluate`: translate a test set and score the outputs."""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import open_output, tell_of_auto, tell_precision, warnings_on_stderr, write_line
from heedful.settings.options import Runtime, SearchRequest


def evaluate(
    run: opt.Run,
    src: Annotated[Path, typer.Option(help="Source lines; .gz too.")],
    ref: Annotated[
        list[Path], typer.Option(metavar="<path>", help="Reference lines; give it again for more references.")
    ],
    metric: Annotated[
        str, typer.Option(metavar="NAMES", help="Of bleu, chrf, ter, wer, per, exact; with commas.")
    ] = "bleu,chrf",
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare without case.")] = False,
    as_json: opt.AsJson = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write the outputs there.")] = None,
    search: SearchRequest = SearchRequest(),
    runtime: Runtime = Runtime(),
) -> None:
    """Translate a test set and score the outputs.

    Each score comes with its signature. bleu, chrf and ter are sacreBLEU's. wer is the percentage of sources
    whose output is no listed reference, per the edit distance to the closest one; for both, a source that
    occurs several times is one item with several references. exact is the percentage of lines that equal one
    of their references.
    """
    started = time.monotonic()
    from heedful.workflows.evaluate import EvaluationTask
    from heedful.workflows.evaluate import evaluate as run_evaluation
    from heedful.workflows.outputs import check_output

    if output is not None:
        check_output(output, [src, *ref, search.shortlist], models=[run])
    names = [name.strip() for name in metric.split(",") if name.strip()]
    with warnings_on_stderr():
        result = run_evaluation(
            run,
            EvaluationTask(src=src, refs=ref, metrics=list(dict.fromkeys(names)), lowercase=lowercase),
            request=search,
            runtime=runtime,
            translated=partial(_write_outputs, output),
        )
    if runtime.precision == "auto":
        tell_precision(result.precision)
    seconds = round(time.monotonic() - started, 3)
    report = result.report
    if as_json:
        print(json.dumps(report.as_dict(seconds=seconds), ensure_ascii=False))
        return
    for name, score in report.scores.items():
        print(f"{name} {score:.2f}  {report.signatures[name]}")
    print(f"{report.num_sentences:,} sentences in {seconds:.1f} s, in {result.precision}")
    if runtime.precision != "auto":
        tell_of_auto(result.precision, seconds)


def _write_outputs(path: Path | None, texts: Sequence[str]) -> None:
    if path is not None:
        with open_output(path) as file:
            for text in texts:
                write_line(file, text)
