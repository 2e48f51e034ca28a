"""`heedful evaluate`: translate a test set and score the outputs."""

import json
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.cli.streams import open_output, tell_of_auto, tell_precision, write_line


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
    beam_size: opt.BeamSize = None,
    length_penalty: opt.LengthPenalty = None,
    length_normalization: opt.LengthNormalization = None,
    coverage_penalty: opt.CoveragePenalty = None,
    early_stopping: opt.EarlyStopping = None,
    max_length_offset: opt.MaxLengthOffset = None,
    src_lang: opt.SrcLang = None,
    tgt_lang: opt.TgtLang = None,
    batch_tokens: opt.BatchTokens = None,
    threads: opt.Threads = None,
    precision: opt.Precision = "float32",
    engine: opt.Engine = "auto",
    shortlist: opt.Shortlist = None,
    device: opt.Device = "auto",
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
    from heedful.workflows.loading import Runtime, SearchWishes
    from heedful.workflows.outputs import check_output

    if output is not None:
        check_output(output, [src, *ref, shortlist])
    names = [name.strip() for name in metric.split(",") if name.strip()]
    result = run_evaluation(
        run,
        EvaluationTask(src=src, refs=ref, metrics=list(dict.fromkeys(names)), lowercase=lowercase),
        wishes=SearchWishes(
            beam_size=beam_size,
            length_penalty=length_penalty,
            length_normalization=length_normalization,
            coverage_penalty=coverage_penalty,
            early_stopping=early_stopping,
            max_length_offset=max_length_offset,
            src_lang=src_lang,
            tgt_lang=tgt_lang,
            shortlist=shortlist,
        ),
        runtime=Runtime(
            precision=precision, engine=engine, device=device, threads=threads, batch_tokens=batch_tokens
        ),
        translated=partial(_write_outputs, output),
    )
    if precision == "auto":
        tell_precision(result.precision)
    seconds = round(time.monotonic() - started, 3)
    report = result.report
    if as_json:
        print(json.dumps(report.as_dict(seconds=seconds), ensure_ascii=False))
        return
    for name, score in report.scores.items():
        print(f"{name} {score:.2f}  {report.signatures[name]}")
    print(f"{report.num_sentences:,} sentences in {seconds:.1f} s, in {result.precision}")
    if precision != "auto":
        tell_of_auto(result.precision, seconds)


def _write_outputs(path: Path | None, texts: Sequence[str]) -> None:
    if path is not None:
        with open_output(path) as file:
            for text in texts:
                write_line(file, text)
