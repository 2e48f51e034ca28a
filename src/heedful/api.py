"""`heedful.train` and `heedful.evaluate`: the commands as functions, with the same names and defaults."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields
from inspect import signature
from pathlib import Path
from typing import Any, Literal, overload

from heedful.data.files import check_parallel, read_lines
from heedful.decoding.translator import Translator
from heedful.errors import ConfigError, InputError, suggestion
from heedful.evaluation.metrics import EvaluationReport, Metric
from heedful.evaluation.systems import System
from heedful.settings.arguments import checked
from heedful.settings.loading import plain
from heedful.settings.options import TrainingRequest
from heedful.settings.plugins import plugin_options
from heedful.settings.run import Config
from heedful.settings.section import whole_keys
from heedful.settings.words import WORDS
from heedful.tasks.card import shell_command, without_directories
from heedful.tasks.evaluate import score, translator_for
from heedful.tasks.loading import options_from, refuse_options_of_models
from heedful.tasks.notices import Listener
from heedful.tasks.options import EvaluationOptions
from heedful.tasks.request import RunRequest
from heedful.tasks.seeds import SeedsResult
from heedful.tasks.train import TrainingExtras, TrainResult
from heedful.training.schedule import LearningRate
from heedful.training.step import LossFunction

Lines = str | Path | Sequence[str]


@overload
def train(
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    seeds: Sequence[int],
    **others: Any,  # noqa: ANN401
) -> SeedsResult: ...
@overload
def train(
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seeds: None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Listener] = (),
    track: Literal["tensorboard"] | None = None,
    loss: LossFunction | None = None,
    schedule: LearningRate | None = None,
    **keys: Any,  # noqa: ANN401
) -> TrainResult: ...
@checked
def train(  # noqa: PLR0913
    config: Config | str | Path | None = None,
    output: str | Path | None = None,
    *,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    seeds: Sequence[int] | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Listener] = (),
    track: Literal["tensorboard"] | None = None,
    loss: LossFunction | None = None,
    schedule: LearningRate | None = None,
    **keys: Any,
) -> TrainResult | SeedsResult:
    """Train a model on parallel text, or fine-tune one: `heedful train`.

    >>> run = heedful.train(src="train.en", tgt="train.de", preset="tiny", output="runs/en-de",
    ...     max_steps=2, vocab_size=200, processes=1)
    >>> translator = heedful.Translator.load(run.best)

    A setting of the configuration may be given by its own name if only one section has it, as `max_steps`;
    others, such as "model.dropout", go into `settings`. `src` and `tgt` are files.

    Args:
        config: all settings, or a recipe; None: the preset's.
        output: the run directory; None: runs/NAME, as for the command.
        preset: the preset to start from.
        settings: values by their whole keys, such as {"model.dropout": 0.2}.
        seeds: train once with each of these, in OUTPUT/seed-N; the result then has the scores of all, with
            their mean and standard deviation.
        resume: continue an existing run; without a `config`, with its settings. Of several seeds, finished
            runs stay as they are.
        overwrite: rename an existing run to NAME.old-N, and start anew.
        callbacks: called with every event of the training; `callbacks=[print]` shows them.
        track: also write the curves for this program.
        loss: the loss of a micro-batch, `loss(model, batch) -> Loss`, in place of cross-entropy.
        schedule: the learning rate, `schedule(step, fraction_done) -> rate`, in place of the configuration's.
        keys: `src`, `tgt`, `valid_src`, `valid_tgt`, `pairs`, `valid_pairs`, `src_key`, `tgt_key`, `init`,
            and other settings.

    Raises:
        ConfigError: an unknown setting, a value that cannot be, or no training text.
        HeedfulError: what cannot be trained: see `heedful.errors`.
    """
    if isinstance(config, Config):
        if preset is not None or settings or keys:
            raise ConfigError("give a Config or other settings, not both; load_config makes one of them")
        command, output = "heedful train config.toml", Path(output or "runs/base")
        request = RunRequest(config=config, output=output, seeds=seeds, resume=resume, overwrite=overwrite)
    else:
        values = {_key(name): value for name, value in keys.items()} | dict(settings or {})
        values = {key: plain(value, key) for key, value in values.items()}
        file = None if config is None else Path(config)
        request = RunRequest.of(
            file,
            Path(output) if output else None,
            [*values.items()],
            preset=preset,
            seeds=seeds,
            resume=resume,
            overwrite=overwrite,
        )
        command = _command(file, preset, values, request.config)
        command += f" --seeds {','.join(map(str, seeds))}" if seeds else ""
    extras = TrainingExtras(command=command, track=track, loss=loss, schedule=schedule)
    return request.train(extras, callbacks)


@checked
def evaluate(
    system: Translator | Lines,
    *,
    src: Lines | None = None,
    ref: Lines,
    metric: str | Metric = "bleu,chrf",
    tokenize: str = "auto",
    lowercase: bool = False,
    resamples: int = 1000,
    **search: Any,  # noqa: ANN401
) -> EvaluationReport:
    """Score a model's translations, or given outputs, against references: `heedful evaluate`.

    >>> translator = heedful.Translator.load("runs/demo")
    >>> heedful.evaluate(translator, src="test.en", ref="test.de", metric="exact", resamples=0)
    EvaluationReport(exact=100.00, 3 sentences)
    >>> heedful.evaluate(["Das Haus."], ref=["Das Haus."], metric="chrf").scores
    {'chrf': 100.0}

    Args:
        system: a translator, the path of a run or bundle, or a list of outputs.
        src: the sources, as a file or a list of lines; outputs need none.
        ref: the references, the same.
        metric: names, comma-separated: see `compare_systems`; or your own metric, a function of a module.
        tokenize: sacreBLEU's tokenizer for BLEU; auto: by the language.
        lowercase: ignore case.
        resamples: bootstrap resamples for the confidence intervals; 0: none.
        search: for a model, options as for `Translator.translations`, such as beam_size=1; for a path also
            precision, src_lang, shortlist and others that a `Translator` has already; for outputs only
            tgt_lang, which chooses the tokenizer.

    Raises:
        BundleError: no usable bundle.
        ConfigError: a metric that does not exist.
        CorpusError: files that cannot be read or are not parallel.
        InputError: no sources, or an option that does not exist.
    """
    own: dict[str, Any] = dict.fromkeys(("src", "hyp", "compare", "output"))
    own |= {"run": Path(), "ref": [], "calibrate": False, "tokenize": tokenize}
    own["metric"] = plain(metric, "metric")
    options = options_from(
        EvaluationOptions, search, evaluate, lowercase=lowercase, resamples=resamples, **own
    )
    references, sources = _lines(ref), None if src is None else _lines(src)
    if isinstance(system, Translator):
        refuse_options_of_models(search)
    elif isinstance(system, str | Path):
        system = translator_for(Path(system), options)
    elif others := [name for name in search if name != "tgt_lang"]:
        raise InputError(f"{others[0]}: is for a model, and these are outputs")
    if not isinstance(system, Translator):
        scored = System("outputs", list(system))
    elif sources is None:
        raise InputError("src: the sources are needed, to translate them")
    else:
        check_parallel("src", sources, "ref", references)
        scored = System.translating("model", system, sources, options.search)
    files = [ref] if isinstance(ref, str | Path) else []
    return score([scored], [references], options, sources=sources, files=files)[0]


def _key(name: str) -> str:
    """Return section.name for a bare setting name.

    The section is data or train for the options of the text, otherwise the only one that has the setting.

    Raises:
        ConfigError: no section has it, or several have.
    """
    if name in {each.name for each in fields(TrainingRequest)}:
        return f"{'train' if name == 'init' else 'data'}.{name}"
    sections = defaultdict[str, list[str]](list)
    for section, field in Config.model_fields.items():
        for key in type(field.default).model_fields:
            sections[key].append(section)
    whole = [f"{section}.{name}" for section in sections[name]]
    if len(whole) != 1:
        known = [*whole_keys(Config), *signature(train).parameters]
        several = "; give " + " or ".join(f"settings={{'{each}': ...}}" for each in whole)
        what = f"{name!r} is the name of {len(whole)} settings{several}"
        raise ConfigError(what if whole else f"unknown setting {name!r}{suggestion(name, known, WORDS)}")
    return whole[0]


def _command(file: Path | None, preset: str | None, values: Mapping[str, Any], config: Config) -> str:
    """Return the command that does the same, for the model card, with file names instead of paths."""
    words = ["heedful", "train", *([file.name] if file else []), *(["--preset", preset] if preset else [])]
    words += plugin_options(name for _, name in config.plugged)
    for key, value in values.items():
        text = value if isinstance(value, str) else json.dumps(False if value is None else value)
        words += ["--set", without_directories(f"{key}={text}")]
    return shell_command(words)


def _lines(text: Lines) -> list[str]:
    return read_lines(text) if isinstance(text, str | Path) else list(text)
