"""`heedful train`: train a model on parallel text."""

import os
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

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

if TYPE_CHECKING:
    from heedful.settings.run import Config


@dataclass(frozen=True, kw_only=True)
class Train:
    """Train a model on parallel text, or fine-tune one (--init).

    Settings come from the preset, then the file, then the command line; all are saved in `config.toml` in the
    run directory. Ctrl-C writes a checkpoint first; --resume continues from it.

    With --seeds, the runs differ in their first weights, in the order of the batches and in what dropout
    leaves out. The text is the same, and so is its vocabulary, unless the text has more than 2,000,000 lines.

    Examples:
        heedful train --src train.en --tgt train.de --preset small -o runs/en-de
        heedful train --init runs/en-de --src new.en --tgt new.de -o runs/adapted
    """

    config: Annotated[
        Path | None,
        Option("A recipe, or a run's config.toml.", metavar="CONFIG.toml", is_argument=True),
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
    resume: Annotated[
        bool, Option("Continue the run in the output directory; with --seeds, the unfinished runs.")
    ] = False
    overwrite: Overwrite = False
    find_lr: Annotated[
        bool,
        Option(
            "Train nothing, but find a learning rate (LR range test): print the loss after some steps at "
            "several rates.",
        ),
    ] = False
    track: Annotated[
        Literal["tensorboard"] | None,
        Option("Also write the curves, into RUN/tensorboard."),
    ] = None
    as_json: AsJson = False


def run_as_worker(config: "Config") -> bool:
    """Run as a worker if torchrun started this process as one; return whether it did.

    Rank 0 of torchrun, and a process that it did not start, continue with `train`.
    """
    from heedful.runs.setup import training_device
    from heedful.training.parallel.distributed import join_process_group, leave_process_group, run_worker

    if not join_process_group(config.train.device):
        return False
    try:
        run_worker(training_device(config.train.device))
    finally:
        leave_process_group()
    return True


def _continues(output: Path) -> bool:
    """Return whether torchrun has restarted this process, and the run was started before."""
    if "TORCHELASTIC_RUN_ID" not in os.environ or not (output / "config.toml").exists():
        return False
    from heedful.training.parallel.distributed import was_started_by_this_job

    return was_started_by_this_job(output)


def command(task: Train) -> None:
    """Train, and print the best bundle."""
    from heedful.cli.progress import (
        command_line,
        print_found_rate,
        print_result,
        print_seeds,
        training_display,
    )
    from heedful.runs.directory import check_preset
    from heedful.runs.learning_rate import find_learning_rate
    from heedful.runs.seeds import config_to_resume, train_seeds
    from heedful.runs.train import train
    from heedful.settings.loading import load_config

    file, preset = task.config, task.preset
    output = task.output or Path("runs") / (
        file.stem if file else preset or ("adapted" if task.text.init else "base")
    )
    if task.resume and task.overwrite:
        raise typer.BadParameter("give --resume to continue the run, or --overwrite to start anew, not both")
    if task.find_lr and (task.seeds or task.resume or task.overwrite or task.track):
        raise typer.BadParameter(
            "--find-lr trains nothing: leave out --seeds, --resume, --overwrite and --track"
        )
    if _continues(output):
        task = replace(task, resume=True, overwrite=False)
    overrides = [*task.text.overrides(), *task.settings]
    seeds = [] if task.seeds is None else _numbers(task.seeds)
    before = config_to_resume(output, seeds)
    if task.resume and file is None and before is not None:
        file = before
        if preset is not None:
            check_preset(file.parent, preset, [key for key, _ in overrides])
    config = load_config(file, preset=preset, overrides=overrides)
    if run_as_worker(config):
        return
    with training_display() as display:
        if task.find_lr:
            print_found_rate(find_learning_rate(config, callbacks=[display]), as_json=task.as_json)
            return
        one = partial(train, command=command_line(), track=task.track)
        if seeds:
            table = train_seeds(
                config,
                output,
                seeds,
                one,
                resume=task.resume,
                overwrite=task.overwrite,
                callbacks=[display],
            )
            print_seeds(table, as_json=task.as_json)
        else:
            result = one(config, output, resume=task.resume, overwrite=task.overwrite, callbacks=[display])
            print_result(result, as_json=task.as_json)


def _numbers(text: str) -> list[int]:
    """Return the numbers of a list such as 1,2,3.

    Raises:
        BadParameter: it is none, or torchrun started this process, which shares the work of one training.
    """
    from heedful.runtime.workers import has_other_ranks

    if has_other_ranks():
        raise typer.BadParameter(
            "--seeds: torchrun trains one model; run it once for each --set train.seed=N"
        )
    try:
        return [int(each) for each in text.split(",")]
    except ValueError:
        raise typer.BadParameter(f"--seeds {text}: give whole numbers, such as 1,2,3") from None
