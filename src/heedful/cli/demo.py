"""`heedful demo`: train, score and translate in one command."""

from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt


def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The run directory.")] = Path("runs/demo"),
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    max_minutes: Annotated[
        float | None,
        typer.Option(min=0.01, help="Minutes of training. [default: as many as the phrase book needs]"),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the training; the text is always the same.")] = 1,
    as_json: opt.AsJson = False,
) -> None:
    """Train on the embedded phrase book, score, translate, and draw an attention map: under four minutes."""
    import json

    from heedful.cli.progress import training_display
    from heedful.workflows.demo import demo as run_demo

    with training_display() as display:
        report = run_demo(
            output, overwrite=overwrite, max_minutes=max_minutes, seed=seed, listeners=[display]
        )
    if as_json:
        print(json.dumps(report.as_dict(), ensure_ascii=False))
        return
    for example in report.examples:
        print(f"\n  {example.source}\n  {example.output}")
        if example.output != example.reference:
            print(f"  (reference: {example.reference})")
    print()
    for title, scores in (("seen combinations", report.scores), ("unseen combinations", report.unseen)):
        print(f"{title}: BLEU {scores['bleu']:.1f}, chrF {scores['chrf']:.1f}, exact {scores['exact']:.1f} %")
    print(f"BLEU signature: {report.signatures['bleu']}")
    picture = "" if report.picture is None else f"attention: {report.picture}\n"
    print(f"model: {report.bundle}\n{picture}{report.seconds:.0f} seconds in all")
