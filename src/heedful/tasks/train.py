"""`heedful.train`: what the command does, as a function with the same names."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from heedful.data.given import with_files
from heedful.errors import ConfigError, refuse_if, suggestion
from heedful.settings.arguments import checked
from heedful.settings.keywords import TrainingSettings
from heedful.settings.loading import load_config, plain
from heedful.settings.options import Settings, TrainingRequest, options_of
from heedful.settings.run import Config
from heedful.settings.section import whole_keys
from heedful.settings.words import WORDS
from heedful.tasks.card import shell_command, without_directories, words_of_settings
from heedful.tasks.directory import CONFIG, check_preset
from heedful.tasks.display import training_display
from heedful.tasks.notices import Listener
from heedful.tasks.seeds import SeedsResult
from heedful.tasks.sweep import SweepResult, train_seeds, train_sweep
from heedful.tasks.training import Training, TrainResult
from heedful.training.parallel.torchrun import was_started_by_this_job
from heedful.training.schedule import LearningRate
from heedful.training.step import LossFunction


class TrainingOptions(TrainingSettings, total=False):
    """What `train` takes besides the recipe, the directory and the seeds."""

    preset: str | None
    settings: Settings
    resume: bool
    overwrite: bool
    callbacks: Sequence[Listener]
    progress: bool | None
    track: Literal["tensorboard"] | None
    loss: LossFunction | None
    schedule: LearningRate | None


@overload
def train(
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    seeds: Sequence[int],
    sweep: None = None,
    **options: Unpack[TrainingOptions],
) -> SeedsResult: ...
@overload
def train(
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    sweep: Mapping[str, Sequence[object]],
    seeds: Sequence[int] | None = None,
    **options: Unpack[TrainingOptions],
) -> SweepResult: ...
@overload
def train(
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    seeds: None = None,
    sweep: None = None,
    **options: Unpack[TrainingOptions],
) -> TrainResult: ...
@checked
def train(  # noqa: PLR0913
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    preset: str | None = None,
    settings: Settings = (),
    seeds: Sequence[int] | None = None,
    sweep: Mapping[str, Sequence[object]] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Listener] = (),
    progress: bool | None = None,
    track: Literal["tensorboard"] | None = None,
    loss: LossFunction | None = None,
    schedule: LearningRate | None = None,
    **keys: Unpack[TrainingSettings],
) -> TrainResult | SeedsResult | SweepResult:
    """Train a model on parallel text, or fine-tune one: `heedful train`.

    >>> run = heedful.train(src="train.en", tgt="train.de", preset="tiny", output="runs/en-de",
    ...     max_steps=2, vocab_size=200, processes=1)
    >>> translator = heedful.Translator.load(run.best)

    A setting of the configuration may be given by its own name if only one section has it, as `max_steps`;
    others, such as "model.dropout", go into `settings`. `src` and `tgt` are files or lists of texts, and
    `pairs` is a file or a list of (source, target). Texts of lists are kept in the folder OUTPUT.text.

    Args:
        config: all settings, or a recipe; None: the preset's.
        output: the run directory; None: runs/NAME, as for the command.
        preset: the preset to start from.
        settings: values by their whole keys, such as {"model.dropout": 0.2}.
        seeds: train once with each of these, in OUTPUT/seed-N; the result then has the scores of all, with
            their mean and standard deviation.
        sweep: train once with each of these values, such as {"schedule.peak": [1e-3, 2e-3]}; of several
            settings, with each combination, and each with all `seeds`.
        resume: continue an existing run; without a `config`, with its settings. Of several seeds, finished
            runs stay as they are.
        overwrite: rename an existing run to NAME.old-N, and start anew.
        callbacks: called with every event of the training; `callbacks=[print]` shows them.
        progress: show on stderr what is done, as the command does; None: in a terminal or a notebook.
        track: also write the curves for this program.
        loss: the loss of a micro-batch, `loss(model, batch) -> Loss`, in place of cross-entropy.
        schedule: the learning rate, `schedule(step, fraction_done) -> rate`, in place of the configuration's.
        keys: `src`, `tgt`, `valid_src`, `valid_tgt`, `pairs`, `valid_pairs`, `src_key`, `tgt_key`, `init`,
            and other settings: see `TrainingSettings`.

    Raises:
        ConfigError: an unknown setting, a value that cannot be, or no training text.
        HeedfulError: what cannot be trained: see `heedful.errors`.
    """
    values = {_key(name): value for name, value in keys.items()} | dict(settings)
    axes = {key if "." in key else _key(key): axis for key, axis in (sweep or {}).items()}
    if not isinstance(config, Config):
        file = None if config is None else Path(config)
        run = Path(output) if output else run_directory(file, values, preset)
        values = {key: plain(value, key) for key, value in with_files(values, run).items()}
        training = plan(
            file,
            run,
            values,
            preset=preset,
            resume=resume,
            overwrite=overwrite,
        )
        command = _command(file, preset, values, training.config)
        command += f" --seeds {','.join(map(str, seeds))}" if seeds else ""
        command += "".join(f" --sweep {key}={','.join(map(str, axis))}" for key, axis in axes.items())
    elif preset is not None or values:
        raise ConfigError("give a Config or other settings, not both; load_config makes one of them")
    else:
        output, command = Path(output or "runs/base"), "heedful train config.toml"
        training = Training(config=config, output=output, resume=resume, overwrite=overwrite)
    training = replace(training, command=command, track=track, loss=loss, schedule=schedule)
    display = nullcontext() if progress is False else training_display(is_plain=progress is True)
    with display as show:
        training = replace(training, callbacks=[*callbacks, *([show] if show else [])])
        if axes:
            return train_sweep(training, axes, seeds)
        return training.run() if seeds is None else train_seeds(training, seeds)


def plan(
    file: Path | None,
    output: Path | None,
    values: Mapping[str, Any],
    *,
    preset: str | None,
    resume: bool,
    overwrite: bool,
) -> Training:
    """Return the training that a command line or a program describes.

    Args:
        file: a recipe; None: the run's own settings at a resumption, else the preset.
        output: the run directory; None: `run_directory`.
        values: whole keys and values of settings, which override the file.
        preset: the preset to start from.
        resume: continue an existing run; a run that this job of torchrun has started is resumed, too.
        overwrite: rename an existing run, and start anew.
    """
    output = output or run_directory(file, values, preset)
    if (output / CONFIG).exists() and was_started_by_this_job(output):
        resume, overwrite = True, False
    if resume and file is None:
        file = next(iter([*output.glob(CONFIG), *sorted(output.rglob(CONFIG))]), None)
        if file is not None and preset is not None:
            check_preset(file.parent, preset, values)
    config = load_config(file, preset=preset, overrides=values)
    return Training(config=config, output=output, resume=resume, overwrite=overwrite)


def run_directory(file: Path | None, values: Mapping[str, Any], preset: str | None) -> Path:
    """Return runs/NAME, for the recipe, the preset, or "base"; "adapted" for fine-tuning."""
    new = "adapted" if "train.init" in values else "base"
    return Path("runs") / (file.stem if file else preset or new)


def _key(name: str) -> str:
    """Return section.name for a bare setting name.

    The section is data or train for the options of the text, otherwise the only one that has the setting.

    Raises:
        ConfigError: no section has it, or several have.
    """
    if name in options_of(TrainingRequest):
        return f"{'train' if name == 'init' else 'data'}.{name}"
    whole = [key for key in whole_keys(Config) if key.endswith(f".{name}")]
    several = " or ".join(f"settings={{'{key}': ...}}" for key in whole)
    known = suggestion(name, [*whole_keys(Config), *signature(train).parameters], WORDS)
    refuse_if(
        (not whole, f"unknown setting {name!r}{known}"),
        (len(whole) > 1, f"{name!r} is the name of {len(whole)} settings; give {several}"),
        error=ConfigError,
    )
    return whole[0]


def _command(file: Path | None, preset: str | None, values: Mapping[str, Any], config: Config) -> str:
    """Return the command that does the same, for the model card, with file names instead of paths."""
    words = ["heedful", "train", *([file.name] if file else []), *(["--preset", preset] if preset else [])]
    words += map(without_directories, words_of_settings(config, values))
    return shell_command(words)
