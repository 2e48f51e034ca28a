"""`heedful train`: train a model on parallel text."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from heedful.settings.options import (
    OUTPUT,
    PRESET,
    AsJson,
    Option,
    Overwrite,
    Settings,
    TrainingRequest,
    settings_like,
)


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model on parallel text, or fine-tune one (--init).

    Settings come from the preset, then the file, then the command line; all are saved in `config.toml` in the
    run directory. Ctrl-C writes a checkpoint first; --resume continues from it.

    With --seeds, the runs differ in their first weights, in the order of the batches and in what dropout
    leaves out. The text is the same, and so is its vocabulary, unless the text has more than 2,000,000 lines.

    With --sweep, the runs differ in one setting, or in several; with --seeds too, there is a run for each
    combination and each seed, and the table has means and deviations.

    Examples:
        heedful train --src train.en --tgt train.de --preset small -o runs/en-de
        heedful train recipe.toml --sweep schedule.peak=1e-3,2e-3 --seeds 1,2,3 -o runs/rates
        heedful train --init runs/en-de --src new.en --tgt new.de -o runs/adapted
    """

    config: Annotated[
        Path | None, Option("A recipe, or a run's config.toml.", metavar="CONFIG.toml", is_argument=True)
    ] = None
    text: TrainingRequest = field(default_factory=TrainingRequest)
    preset: Annotated[str | None, PRESET] = None
    settings: Annotated[
        Settings, settings_like("A setting, for example train.max_minutes=20; repeatable.")
    ] = ()
    output: Annotated[Path | None, Option("The run directory.", default="runs/NAME", flags=OUTPUT)] = None
    seeds: Annotated[
        str | None,
        Option(
            "Train a run for each of these seeds, in OUTPUT/seed-N, and print the mean and the standard "
            "deviation of their validation scores.",
            metavar="N,N,...",
        ),
    ] = None
    sweep: Annotated[
        list[str] | None,
        Option(
            "Train a run for each of these values of a setting, in OUTPUT/NAME-VALUE, and print a table of "
            "their validation scores; repeatable, for each combination.",
            metavar="KEY=V,V,...",
        ),
    ] = None
    resume: Annotated[
        bool,
        Option("Continue the run in the output directory; with --seeds or --sweep, the unfinished runs."),
    ] = False
    overwrite: Overwrite = False
    find_lr: Annotated[
        bool,
        Option(
            "Train nothing, but find a learning rate (LR range test): print the loss after some steps at "
            "several rates."
        ),
    ] = False
    track: Annotated[
        Literal["tensorboard"] | None, Option("Also write the curves, into RUN/tensorboard.")
    ] = None
    as_json: AsJson = False


def command(task: Train) -> None:
    """Train, and print the best bundle."""
    from heedful.cli.progress import (
        command_line,
        print_found_rate,
        print_result,
        print_seeds,
        print_sweep,
    )
    from heedful.settings.loading import parse_sweep
    from heedful.tasks.display import training_display
    from heedful.tasks.learning_rate import find_learning_rate
    from heedful.tasks.sweep import train_seeds, train_sweep
    from heedful.tasks.train import plan
    from heedful.training.parallel.distributed import run_as_worker

    if task.find_lr and any((task.seeds, task.sweep, task.resume, task.overwrite, task.track)):
        raise typer.BadParameter(
            "--find-lr trains nothing: leave out --seeds, --sweep, --resume, --overwrite and --track"
        )
    seeds = None if task.seeds is None else _numbers(task.seeds)
    sweep = dict(map(parse_sweep, task.sweep or ()))
    if sweep:
        _refuse_torchrun("--sweep")
    training = plan(
        task.config,
        task.output,
        task.text.overrides() | dict(task.settings),
        preset=task.preset,
        resume=task.resume,
        overwrite=task.overwrite,
    )
    if run_as_worker(training.config.train.device):
        return
    with training_display() as display:
        training = replace(training, command=command_line(), track=task.track, callbacks=[display])
        if task.find_lr:
            print_found_rate(find_learning_rate(training), as_json=task.as_json)
        elif sweep:
            print_sweep(train_sweep(training, sweep, seeds), as_json=task.as_json)
        elif seeds is None:
            print_result(training.run(), as_json=task.as_json)
        else:
            print_seeds(train_seeds(training, seeds), as_json=task.as_json)


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 1,2,3."""
    _refuse_torchrun(f"--seeds {text}")
    with suppress(ValueError):
        return [int(number) for number in text.split(",")]
    raise typer.BadParameter(f"--seeds {text}: give whole numbers, such as 1,2,3")


def _refuse_torchrun(option: str) -> None:
    from heedful.runtime.workers import has_other_ranks

    if has_other_ranks():
        raise typer.BadParameter(f"{option}: torchrun trains one model; run it once for each --set KEY=VALUE")
