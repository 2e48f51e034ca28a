"""Train: set up a run, take its steps, validate by decoding, and keep its bundles."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import torch

from heedful.data.batches import BatchSource
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import without_warnings
from heedful.decoding.translator import Translator
from heedful.errors import CheckpointError, ConfigError
from heedful.evaluation.metrics import evaluate_texts
from heedful.evaluation.tokenization import language_of_files, tokenization_of
from heedful.model.transformer import Transformer
from heedful.ops.changes import changed_parts
from heedful.ops.lora import without_adapters
from heedful.runs.card import model_card, shared_config
from heedful.runs.directory import (
    DirectoryGuard,
    RunDirectory,
    SkippedReport,
    check_files_are_there,
    check_resumable,
    check_texts_are_outside,
)
from heedful.runs.notices import Listener, Notices
from heedful.runs.setup import PreparedRun, parts_of_plugins, set_up_training
from heedful.runtime.threads import restored_threads
from heedful.settings.loading import load_config
from heedful.settings.options import TrainingPrecision
from heedful.settings.plugins import changed_plugins, function_part
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle, save_bundle
from heedful.training import (
    EndEvent,
    Event,
    EventLog,
    Scores,
    SkippedEvent,
    TensorBoardLog,
    Trainer,
    TrainerCallbacks,
    latest_checkpoint,
    measure_nll,
    summary_writer,
)
from heedful.training.checkpoint import set_damaged_aside
from heedful.training.events import CUT_OUTPUTS
from heedful.training.memory import memory_for_steps
from heedful.training.parallel.distributed import leave_process_group, note_start
from heedful.training.schedule import LearningRate
from heedful.training.step import LossFunction

DECODED_METRICS = ("bleu", "chrf", "exact")


@dataclass(frozen=True)
class TrainResult:
    """Results of training: the best and last bundles, and how it ended.

    >>> run.best.name  # a bundle, for `Translator.load`
    'best'
    """

    best: Path
    last: Path
    end: EndEvent

    def __repr__(self) -> str:
        how = f"{self.end.step:,} steps in {self.end.seconds / 60:.1f} minutes, {self.end.reason}"
        return f"TrainResult(best={str(self.best)!r}, last={str(self.last)!r}, {how})"


def train(  # noqa: PLR0913
    config: Config,
    output: Path,
    *,
    resume: bool = False,
    overwrite: bool = False,
    command: str = "heedful train",
    beside: tuple[str, ...] = (),
    callbacks: Sequence[Listener] = (),
    track: Literal["tensorboard"] | None = None,
    loss: LossFunction | None = None,
    schedule: LearningRate | None = None,
) -> TrainResult:
    """Train a model; everything is checked before an existing run is renamed.

    Processes of a training do not run the script that calls this: it needs no `if __name__ == "__main__":`.

    Args:
        config: all settings.
        output: the run directory.
        resume: continue an existing run.
        overwrite: rename what is in the directory to NAME.old-N, and start anew.
        command: the command line, for the model card and config.toml.
        beside: names of files that the caller has put into a new run directory.
        callbacks: called with every event; one that raises `heedful.errors.StopTraining` ends training, as a
            limit does.
        track: the program that the curves are written for, too.
        loss: a function of a model and a batch, instead of the smoothed cross-entropy
            (`heedful.training.LossFunction`). With several processes it comes from a module (a file) of its
            own, not from the script or the notebook.
        schedule: a function of a step, counted from 1, and of the fraction of the run that is done, which
            returns the learning rate. It replaces the settings of `[schedule]`.

    Raises:
        MissingExtraError: that program is not installed.
        RunError: the output directory has a run and neither `resume` nor `overwrite` is set, is moved, or
            another process is training there.
        CorpusError, TokenizerError: the text is not usable, or too small for the vocabulary.
        ConfigError: no training text, settings differ from those of the base model or the run to resume, or
            other processes cannot import the loss.
        BundleError: the base model is not usable.
        CheckpointError: a checkpoint does not belong to this data and model.
        TrainingError: the loss is not finite, or a worker has died.
        Terminated, KeyboardInterrupt: stopped by SIGTERM or Ctrl-C, with a checkpoint written.
    """
    if track is not None:
        summary_writer()
    if resume and overwrite:
        raise ConfigError("give resume to continue the run, or overwrite to start anew, not both")
    loss, schedule = parts_of_plugins(config, loss, schedule)
    run = RunDirectory(output, beside)
    run.check(resume=resume, overwrite=overwrite)
    if resume:
        check_files_are_there(run.path, config)
    elif overwrite:
        check_texts_are_outside(run.path, config)
    notices = Notices(callbacks)
    before = load_config(run.config_file) if resume else config
    if change := changed_plugins((name for _, name in config.plugged), before.train.plugin_versions):
        notices.add(change, warning=True)
    config = config.with_plugin_versions()
    with restored_threads(), memory_for_steps():
        prepared = set_up_training(
            config, run, notices, resume=resume, loss=loss, tests_rates=schedule is None
        )
        if resume:
            check_resumable(before, prepared.config)
        log, guard = EventLog(run.log_file), DirectoryGuard(run.path)
        report = SkippedReport(run.skipped_file, prepared.source.store, prepared.tokenizers)
        reporting: list[Listener] = [lambda _: guard.check(), _naming_the_report(report, [log, *callbacks])]
        earlier = run.commands() if resume else []
        commands = earlier if command in earlier[-1:] else [*earlier, command]
        trainer = _trainer_of(
            prepared, run, guard, "\n".join(commands), reporting, loss=loss, schedule=schedule
        )
        if overwrite and (old := run.set_aside()) is not None:
            notices.add(f"the old run is in {old} now; remove it when you do not need it any more")
        with run.locked(resume=resume), guard.watched():
            if resume:
                _resume(trainer, run, notices)
                run.write_config(prepared.config, commands)
                log.drop_after(trainer.progress.step, validated_step=trainer.progress.validated_step)
                report.drop_after(trainer.progress.step)
            else:
                note_start(run.path)
                run.start(prepared.config, prepared.tokenizers, commands)
            for event in notices.events:
                log(event)
            end = _fit(trainer, run, reporting, track)
        leave_process_group()
    return TrainResult(run.path / "best", run.path / "last", end)


def _trainer_of(
    prepared: PreparedRun,
    run: RunDirectory,
    guard: DirectoryGuard,
    command: str,
    listeners: Sequence[Listener],
    *,
    loss: LossFunction | None,
    schedule: LearningRate | None,
) -> Trainer:
    """Return the trainer with what it does besides steps: validation, checkpoints, bundles, events."""
    decoding = DecodingValidator(prepared)
    return Trainer(
        prepared.model,
        prepared.config,
        prepared.source,
        TrainerCallbacks(
            validators=[
                NllValidator(prepared.valid_source, prepared.execution.precision),
                *([decoding] if prepared.config.valid.decode_sentences else []),
                *(_validator(each) for each in prepared.config.valid.validators),
            ],
            listeners=listeners,
            keep_model=_bundle_writer(prepared, guard, command, decoding.signatures),
            checkpoints=run.checkpoints,
            fingerprint=fingerprint_of(prepared, loss),
            validation_set=_validation_set(prepared, decoding.tokenizer),
            before_writing=guard.check,
        ),
        prepared.execution,
        loss=loss,
        schedule=schedule,
    )


def _validator(name: str) -> Callable[[Transformer], Scores]:
    """Return the validator of a plugin; the name of its score is its own."""
    measure = function_part(name, "valid.validators", "model", returns="a number", is_right=_is_number)

    def validate(model: Transformer) -> Scores:
        with torch.no_grad():
            return {name: float(measure(model.eval()))}

    return validate


def _is_number(value: object, _: object) -> bool:
    return isinstance(value, float | int)


def _validation_set(prepared: PreparedRun, tokenizer: str) -> str:
    """Return an identifier of the validation data and the tokenizer: only scores of the same are compared."""
    number = prepared.config.valid.decode_sentences
    return f"{prepared.valid_source.store.fingerprint}, {number} decoded, {tokenizer}"


def fingerprint_of(prepared: PreparedRun, loss: LossFunction | None) -> str:
    """Return a hash of what may not change when a run is resumed; limits and reporting may."""
    changes = changed_parts(prepared.model)
    fixed = [
        *([changes] if changes else []),
        prepared.config.model.model_dump(),
        prepared.config.batch.model_dump(),
        prepared.config.optimizer.name,
        prepared.config.train.seed,
        prepared.config.tokenizer.sampling,
        prepared.tokenizers.fingerprint(),
        prepared.source.store.fingerprint,
        prepared.origin.sha256 if prepared.origin else None,
        prepared.config.lora.model_dump(),
        prepared.config.train.freeze,
        prepared.source.mixture.counts() if prepared.source.mixture else None,
        getattr(loss, "__qualname__", type(loss).__qualname__),
    ]
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def _resume(trainer: Trainer, run: RunDirectory, notices: Notices) -> None:
    """Resume from the newest intact checkpoint; a run that was killed before its first one starts again.

    Raises:
        CheckpointError: all are damaged, or missing.
    """
    run.bring_back_bundles()
    damaged = set_damaged_aside(run.checkpoints)
    checkpoint = latest_checkpoint(run.checkpoints)
    names = ", ".join(str(path) for path in damaged)
    if damaged and checkpoint is None:
        raise CheckpointError(
            f"{names}: all checkpoints are damaged (a checksum differs), so the run cannot continue; "
            f"continue from its weights with --init {run.path} and another --output"
        )
    if damaged and checkpoint:
        notices.add(
            f"damaged (a checksum differs), set aside: {names}; {checkpoint.name} is resumed", warning=True
        )
    if checkpoint:
        trainer.resume(checkpoint)
    elif run.has_had_checkpoints():
        raise CheckpointError(
            f"{run.checkpoints}: no intact checkpoint is left, and a new start would replace the "
            f"results; continue from the weights with --init {run.path} and another --output, or give "
            "--overwrite instead of --resume"
        )


def _fit(
    trainer: Trainer, run: RunDirectory, listeners: "list[Listener]", track: Literal["tensorboard"] | None
) -> EndEvent:
    """Train to the end; one of the trainer's listeners writes curves for a program."""
    if track is None:
        return trainer.fit()
    with closing(TensorBoardLog(run.path / track, run.log_file, trainer.progress.seconds)) as curves:
        listeners.append(curves)
        return trainer.fit()


def _naming_the_report(report: SkippedReport, listeners: Sequence[Listener]) -> Listener:
    """Return a listener that calls all others, after writing the sentences of skipped steps."""

    def notify(event: Event) -> None:
        if isinstance(event, SkippedEvent):
            report.add(event)
            event = replace(event, sentences=str(report.path))
        for listener in listeners:
            listener(event)

    return notify


def _bundle_writer(
    prepared: PreparedRun, guard: DirectoryGuard, command: str, signatures: Mapping[str, str]
) -> Callable[[str, Transformer, Scores, int], None]:
    """Return a function that writes a bundle with its card; the first validation sets the signatures."""
    config = shared_config(prepared.config)

    def write(name: str, model: Transformer, scores: Scores, step: int) -> None:
        card = model_card(
            prepared.config,
            prepared.source.store,
            command=command,
            step=step,
            scores=scores,
            signatures=signatures,
            origin=prepared.origin,
        )
        bundle = Bundle(config, prepared.tokenizers, without_adapters(model), scores=scores)
        guard.check()
        save_bundle(bundle, guard.path / name, card=card)

    return write


class NllValidator:
    """Measures nll and perplexity on a fixed set of batches."""

    def __init__(self, source: BatchSource, precision: TrainingPrecision) -> None:
        self._batches = list(source.batches(epoch=0))
        self._precision: TrainingPrecision = precision

    def __call__(self, model: Transformer) -> dict[str, float]:
        """Return nll and perplexity."""
        return measure_nll(model, self._batches, precision=self._precision)


class DecodingValidator:
    """Translates validation sentences greedily and scores them.

    Attributes:
        tokenizer: sacreBLEU's, for BLEU.
        signatures: of the scores, once they were computed.
    """

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
        number, metric = prepared.config.valid.decode_sentences, prepared.config.valid.metric
        own = [metric] if ":" in metric and metric not in prepared.config.valid.validators else []
        self._metrics = [*DECODED_METRICS, *own]
        self._sources, self._references = prepared.valid.src[:number], prepared.valid.tgt[:number]
        self.tokenizer = tokenizer_of(prepared.config, self._references)
        self.signatures: dict[str, str] = {}

    def __call__(self, model: Transformer) -> dict[str, float]:
        """Return BLEU, chrF, the percentage of exact matches, and how many outputs their limit has cut."""
        config = self._prepared.config
        translator = Translator(
            Bundle(config, self._prepared.tokenizers, model),
            precision=self._prepared.execution.precision,
            engine="torch" if changed_parts(model) else "auto",  # the set-up has said why
        )
        greedy = config.decode.model_copy(update={"beam_size": 1, "n_best": 1})
        with without_warnings():  # of the same lines each time; the set-up has said how many there are
            translations = translator.translations(self._sources, options=SearchOptions.from_config(greedy))
        outputs = [each.text for each in translations]
        report = evaluate_texts(
            self._sources, outputs, [self._references], self._metrics, tokenize=self.tokenizer
        )
        self.signatures.update(report.signatures)
        return report.scores | {CUT_OUTPUTS: sum(not each.finished for each in translations)}


def tokenizer_of(config: Config, references: Sequence[str]) -> str:
    """Return sacreBLEU's tokenizer for the validation text: as set, or that of its language.

    Raises:
        ConfigError: the one that is set needs a model that is not there.
        MissingExtraError: it needs packages that are not installed.
    """
    data = config.data
    names = (data.valid_tgt, data.tgt_key, data.valid_pairs, data.first_text[1], data.pairs)
    language = config.languages.target or language_of_files(names, [references])
    return tokenization_of([references], language=language, tokenize=config.valid.tokenize).bleu
