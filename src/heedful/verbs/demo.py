"""`heedful demo`: train, score and translate the embedded phrase book in one command."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from heedful.cli.streams import print_json
from heedful.settings.options import OUTPUT, AsJson, Option, Overwrite


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Train and try a small model on the embedded phrase book.

    It is trained, scored, translates some sentences and draws an attention map, in under four minutes.

    Examples:
        heedful demo
    """

    output: Annotated[Path, Option("The run directory.", flags=OUTPUT)] = Path("runs/demo")
    overwrite: Overwrite = False
    max_minutes: Annotated[
        float | None, Option("Maximum minutes of training, which has 900 steps.", minimum=0.01, default="3")
    ] = None
    seed: Annotated[int, Option("Random seed of the training; the text is always the same.", minimum=0)] = 1
    as_json: AsJson = False


def command(task: Demo) -> None:
    """Run the demonstration, and print examples and scores."""
    from heedful.tasks.demo import demo
    from heedful.tasks.display import training_display

    with training_display() as display:
        report = demo(
            task.output,
            overwrite=task.overwrite,
            max_minutes=task.max_minutes,
            seed=task.seed,
            listeners=[display],
        )
    if task.as_json:
        print_json(report.as_dict())
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
