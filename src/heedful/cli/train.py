"""`heedful train`: train a model on parallel text."""

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from heedful.cli import options as opt
from heedful.settings.options import TrainingRequest


def train(
    config: Annotated[
        Path | None, typer.Argument(metavar="[CONFIG.toml]", help="A recipe, or a run's config.toml.")
    ] = None,
    request: TrainingRequest = TrainingRequest(),
    preset: Annotated[
        str | None, typer.Option(help="tiny, small, base, big, a row of Table 3, or a published system.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="For example train.max_minutes=20.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The run directory. [default: runs/NAME]")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the run in the output directory.")
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an existing run.")] = False,
    as_json: opt.AsJson = False,
) -> None:
    """Train a model on parallel text, or fine-tune a trained one with --init.

    Settings come from the preset, then the file, then the command line; all are saved in `config.toml` in the
    run directory. Ctrl-C writes a checkpoint first; --resume continues from it.
    """
    import json

    from heedful.cli.progress import training_display
    from heedful.settings.loading import load_config, parse_override
    from heedful.workflows.card import without_directories
    from heedful.workflows.run_directory import check_preset
    from heedful.workflows.train import TrainTask, run_as_worker
    from heedful.workflows.train import train as run_training

    output = output or Path("runs") / (
        config.stem if config else preset or ("adapted" if request.init else "base")
    )
    if resume and overwrite:
        raise typer.BadParameter("give --resume to continue the run, or --overwrite to replace it, not both")
    overrides = request.overrides()
    overrides += [parse_override(setting) for setting in settings or []]
    if resume and config is None and (config := _config_of(output)) and preset is not None:
        check_preset(output, preset, [key for key, _ in overrides])
    task = TrainTask(
        config=load_config(config, preset=preset, overrides=overrides),
        output=output,
        resume=resume,
        overwrite=overwrite,
        command=" ".join(_quoted(without_directories(argument)) for argument in ("heedful", *sys.argv[1:])),
    )
    if run_as_worker(task.config):
        return
    with training_display() as display:
        result = run_training(task, listeners=[display])
    if as_json:
        summary = {"best": str(result.best), "last": str(result.last), **result.end.to_json()}
        print(json.dumps(summary))
    else:
        print(result.best)


def _quoted(argument: str) -> str:
    r"""Quote an argument for a shell; bytes that are not UTF-8 are written as $'\\xff'."""
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:
        plain = {byte: chr(byte) for byte in range(32, 127) if byte not in b"'\\"}
        letters = (plain.get(byte, f"\\x{byte:02x}") for byte in os.fsencode(argument))
        return f"$'{''.join(letters)}'"
    return shlex.quote(argument)


def _config_of(run: Path) -> Path | None:
    file = run / "config.toml"
    return file if file.exists() else None
