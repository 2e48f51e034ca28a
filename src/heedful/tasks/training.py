"""Train: set up a run, take its steps, validate by decoding, and keep its bundles."""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Literal, Self, TypeVar

import torch

from heedful.decoding.backends.protocol import Backend
from heedful.decoding.options import SearchOptions
from heedful.decoding.translation import Translation, without_warnings
from heedful.decoding.translator import Translator
from heedful.errors import CheckpointError, ConfigError
from heedful.evaluation.metrics import evaluate_texts, try_metric
from heedful.evaluation.tokenization import language_of_files, tokenization_of
from heedful.evaluation.verification import GREEDY, NUM_SENTENCES, write_record
from heedful.model.transformer import Transformer
from heedful.ops.changes import changed_parts
from heedful.ops.lora import adapter_matrices, without_adapters
from heedful.runtime.durable import restore_backup
from heedful.runtime.threads import restored_threads
from heedful.settings.loading import load_config
from heedful.settings.options import EngineChoice
from heedful.settings.plugins import (
    changed_plugins,
    function_part,
    is_number,
    part_name,
    plugin_part,
    unnamed_parts,
)
from heedful.settings.run import Config, CorpusConfig
from heedful.storage.adapter import adapter_content
from heedful.storage.bundle import Bundle, save_bundle
from heedful.storage.description import ADAPTER_FILE, add_file, stored_scores
from heedful.tasks.card import model_card, shared_config
from heedful.tasks.directory import (
    BEST,
    BUNDLES,
    CHECKPOINTS,
    LAST,
    LOG,
    SKIPPED,
    DirectoryGuard,
    RunDirectory,
    SkippedReport,
    changed_settings,
    check_are_outside,
    check_files_are_there,
    check_resumable,
    settings_in,
    text_files,
)
from heedful.tasks.notices import Listener, Notices
from heedful.tasks.setup import HeldOut, PreparedRun, set_up_training
from heedful.training.checkpoint import DAMAGED_PREFIX, latest_checkpoint, set_damaged_aside
from heedful.training.events import (
    CUT_OUTPUTS,
    CheckpointEvent,
    EndEvent,
    Event,
    EventLog,
    SkippedEvent,
    StartEvent,
    TensorBoardLog,
    logged_events,
    summary_writer,
)
from heedful.training.loop import Trainer
from heedful.training.memory import memory_for_steps
from heedful.training.parallel.torchrun import leave_process_group, note_start
from heedful.training.schedule import LearningRate, own_schedule
from heedful.training.state import Scores, TrainerCallbacks
from heedful.training.step import LossFunction, measure_nll, own_loss

DECODED_METRICS = ("bleu", "chrf", "exact")
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class TrainResult:
    """Results of training: the best and last bundles, their validation scores, and how it ended.

    >>> run.best.name  # a bundle, for `Translator.load`
    'best'
    """

    best: Path
    last: Path
    end: EndEvent

    @property
    def scores(self) -> dict[str, float]:
        """The validation scores of the best model, as its bundle has them; empty if none was validated."""
        return stored_scores(self.best)

    @property
    def last_scores(self) -> dict[str, float]:
        """The validation scores of the last model."""
        return stored_scores(self.last)

    def __repr__(self) -> str:
        how = f"{self.end.step:,} steps in {self.end.seconds / 60:.1f} minutes, {self.end.reason}"
        return f"TrainResult(best={str(self.best)!r}, last={str(self.last)!r}, {how})"


@dataclass(frozen=True, kw_only=True)
class Training:
    """A training that is asked for: its settings, its run directory, and what no file of settings has.

    Processes of a training do not run the script that starts it: it needs no `if __name__ == "__main__":`.

    Attributes:
        config: all settings.
        output: the run directory.
        resume: continue an existing run.
        overwrite: rename what is in the directory to NAME.old-N, and start anew.
        callbacks: called with every event; one that raises `heedful.errors.StopTraining` ends training, as a
            limit does.
        command: the command line, for the model card and config.toml.
        extra_files: names of files that the caller has put into a new run directory.
        track: also write the curves for this program.
        loss: a function of a model and a batch in place of the smoothed cross-entropy
            (`heedful.training.LossFunction`). With several processes it must be defined in a module (a file),
            not in the script or the notebook.
        schedule: a function of a step, counted from 1, and of the fraction of the run that is done. It
            returns the learning rate, and replaces the settings of `[schedule]`.
    """

    config: Config
    output: Path
    resume: bool = False
    overwrite: bool = False
    callbacks: Sequence[Listener] = ()
    command: str = "heedful train"
    extra_files: tuple[str, ...] = ()
    track: Literal["tensorboard"] | None = None
    loss: LossFunction | None = None
    schedule: LearningRate | None = None

    def __post_init__(self) -> None:
        if self.resume and self.overwrite:
            raise ConfigError("give --resume to continue the run, or --overwrite to start anew, not both")

    def run(self) -> TrainResult:
        """Train; everything is checked before an existing run is renamed.

        Raises:
            HeedfulError: text, settings, the base model, the directory, a checkpoint, the loss or the
                schedule cannot be used; the loss is not finite, or a worker has died.
            Terminated, KeyboardInterrupt: stopped by SIGTERM or Ctrl-C, with a checkpoint written.
        """
        if self.track is not None:
            summary_writer()
        plugged, run = self.with_plugged_functions(), RunDirectory(self.output, self.extra_files)
        run.check(resume=self.resume, overwrite=self.overwrite)
        if self.resume:
            check_files_are_there(run.path, self.config)
        elif self.overwrite:
            check_are_outside(run.path, text_files(self.config.data).values())
        notices = Notices(self.callbacks)
        before = load_config(run.config_file) if self.resume else self.config
        plugins = (name for _, name in self.config.plugged)
        if change := changed_plugins(plugins, before.train.plugin_versions):
            notices.add(change, warning=True)
        with restored_threads(), memory_for_steps():
            prepared = set_up_training(
                self.config.with_plugin_versions(),
                run,
                notices,
                resume=self.resume,
                loss=plugged.loss,
                tests_rates=plugged.schedule is None,
            )
            if self.resume:
                check_resumable(before, prepared.config)
            end = plugged._fit(prepared, run, notices)
            leave_process_group()
        return TrainResult(run.path / BEST, run.path / LAST, end)

    def with_plugged_functions(self) -> "Training":
        """Return the training with the loss and the schedule that plugins define, if none is given.

        The parts that need no model are tried.
        """
        for key, part in unnamed_parts(self.config.model.plugged).items():
            raise ConfigError(f"{key}={part}: a run names its parts; give a function or class of a file")
        plugged = dict(self.config.plugged)
        parts = {key: plugin_part(name, key) for key, name in plugged.items()}
        loss, schedule = self.loss or parts.get("train.loss"), self.schedule or parts.get("schedule.name")
        if loss is not None:
            loss = own_loss(loss, part_name("train.loss", plugged, loss))
        if schedule is not None:
            schedule = own_schedule(schedule, part_name("schedule.name", plugged, schedule))
        metric, valid = "valid.metric", self.config.valid
        if metric in plugged and valid.metric not in valid.validators:
            try_metric(valid.metric, metric)
        return replace(self, loss=loss, schedule=schedule)

    def _fit(self, prepared: PreparedRun, run: RunDirectory, notices: Notices) -> EndEvent:
        """Start or resume a run in its directory, and train to the end."""
        log, guard = EventLog(run.path / LOG), DirectoryGuard(run.path)
        report = SkippedReport(run.path / SKIPPED, prepared.source.store, prepared.tokenizers)
        listeners: list[Listener] = [
            lambda _: guard.check(),
            _naming_the_report(report, [log, *notices.listeners]),
        ]
        before = run.commands() if self.resume else []
        commands = before if self.command in before[-1:] else [*before, self.command]
        trainer = self._trainer(prepared, guard, commands, listeners)
        if self.overwrite:
            notices.add_set_aside(run.set_aside())
        with run.locked(resume=self.resume), guard.watched(), ExitStack() as stack:
            if self.resume:
                _resume(trainer, run, notices)
                progress = trainer.run.progress
                run.write_config(prepared.config, commands)
                log.drop_after(progress.step, validated_step=progress.validated_step)
                report.drop_after(progress.step)
            else:
                note_start(run.path)
                run.start(prepared.config, prepared.tokenizers, commands)
            for event in notices.events:
                log(event)
            if self.track is not None:
                curves = TensorBoardLog(run.path / self.track, log.path, trainer.run.progress.seconds)
                listeners.append(stack.enter_context(closing(curves)))
            return trainer.fit()

    def _trainer(
        self,
        prepared: PreparedRun,
        guard: DirectoryGuard,
        commands: Sequence[str],
        listeners: Sequence[Listener],
    ) -> Trainer:
        """Return the trainer with what it does besides steps: validation, checkpoints, bundles, events."""
        config, decoding = prepared.config, DecodingValidator(prepared)
        held_out, precision = list(prepared.valid_source.batches(epoch=0)), prepared.execution.precision
        validators = [*map(_validator, config.valid.validators)]
        with torch.random.fork_rng():
            for validate in validators:  # before the first step takes its time
                validate(prepared.model)
        callbacks = TrainerCallbacks(
            validators=[
                partial(measure_nll, batches=held_out, precision=precision),
                *([decoding] if config.valid.decode_sentences else []),
                *validators,
            ],
            listeners=listeners,
            keep_model=_bundle_writer(prepared, guard, "\n".join(commands), decoding),
            checkpoints=guard.path / CHECKPOINTS,
            fingerprint=fingerprint_of(prepared, self.loss),
            # only scores of the same data and tokenizer are compared
            validation_set=f"{prepared.valid_source.store.fingerprint}, {config.valid.decode_sentences} "
            f"decoded, {decoding.tokenizer}",
            before_writing=guard.check,
        )
        return Trainer(
            prepared.model,
            config,
            prepared.source,
            callbacks,
            prepared.execution,
            loss=self.loss,
            schedule=self.schedule,
        )


def _validator(name: str) -> Callable[[Transformer], Scores]:
    """Return the validator of a plugin; the name of its score is its own."""
    key, returns = "valid.validators", "a finite number"
    measure = function_part(name, key, "model", returns=returns, is_right=is_number)

    def validate(model: Transformer) -> Scores:
        with torch.no_grad():
            return {name: float(measure(model.eval()))}

    return validate


def fingerprint_of(prepared: PreparedRun, loss: LossFunction | None) -> str:
    """Return a hash of what may not change when a run is resumed: fixed settings, text, base model, code."""
    function = getattr(loss, "__wrapped__", loss)  # the user's own
    fixed = [
        settings_in(prepared.config),
        changed_parts(prepared.model),
        prepared.tokenizers.fingerprint(),
        prepared.source.store.fingerprint,
        prepared.origin.sha256 if prepared.origin else None,
        prepared.source.mixture.counts() if prepared.source.mixture else None,
        getattr(function, "__qualname__", type(function).__qualname__),
    ]
    return hashlib.sha256(json.dumps(fixed, sort_keys=True).encode()).hexdigest()


def _resume(trainer: Trainer, run: RunDirectory, notices: Notices) -> None:
    """Resume from the newest intact checkpoint; a run that was killed before its first one starts again."""
    checkpoints = run.path / CHECKPOINTS
    for name in BUNDLES:
        restore_backup(run.path / name)
    damaged, checkpoint = set_damaged_aside(checkpoints), latest_checkpoint(checkpoints)
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
        _note_what_is_ignored(trainer, run, notices)
    elif _has_had_checkpoints(run.path):
        raise CheckpointError(
            f"{checkpoints}: no intact checkpoint is left, and a new start would replace the "
            f"results; continue from the weights with --init {run.path} and another --output, or give "
            "--overwrite instead of --resume"
        )


def _note_what_is_ignored(trainer: Trainer, run: RunDirectory, notices: Notices) -> None:
    """Warn of new settings if there is no step left to use them."""
    limit = trainer.schedule.reached_limit(trainer.run.now())
    names = Config.model_fields.keys() - {"data"}
    changed = changed_settings(load_config(run.config_file), trainer.config, names)
    settings = ", ".join(f"{name}={value}" for name, _, value in changed)
    if limit and settings:
        notices.add(f"{limit} is reached already, so {settings} changes nothing; raise {limit}", warning=True)


def _has_had_checkpoints(run: Path) -> bool:
    """Return whether a run has ever written a checkpoint, even if none is left.

    A best model may be older than the first checkpoint; only the log shows that.
    """
    events = logged_events(run / LOG)
    return (
        (run / LAST).exists()
        or any((run / CHECKPOINTS).glob(f"{DAMAGED_PREFIX}*"))
        or CheckpointEvent.kind in events
        or ((run / BEST).exists() and StartEvent.kind not in events)
    )


def _naming_the_report(report: SkippedReport, listeners: Sequence[Listener]) -> Listener:
    """Return a listener that writes the sentences of skipped steps, then calls all others."""

    def notify(event: Event) -> None:
        if isinstance(event, SkippedEvent):
            report.add(event)
            event = replace(event, sentences=str(report.path))
        for listener in listeners:
            listener(event)

    return notify


def _bundle_writer(
    prepared: PreparedRun, guard: DirectoryGuard, command: str, decoding: "DecodingValidator"
) -> Callable[[str, Transformer, Scores, int], None]:
    """Return a function that writes a bundle with its card."""
    config = shared_config(prepared.config)

    def write(name: str, model: Transformer, scores: Scores, step: int) -> None:
        card = model_card(
            prepared.config,
            prepared.source.store,
            command=command,
            step=step,
            scores=scores,
            signatures=decoding.signatures if scores else {},
            origin=prepared.origin,
        )
        bundle = Bundle(config, prepared.tokenizers, without_adapters(model), scores=scores)
        guard.check()
        save_bundle(bundle, guard.path / name, card=card)
        if name == BEST and decoding.said:
            write_record(guard.path / name, bundle, decoding.said, GREEDY)
        if prepared.origin is not None and config.lora.rank:
            matrices = {key: each.float().cpu().numpy() for key, each in adapter_matrices(model).items()}
            content = adapter_content(matrices, config.lora, base=prepared.origin.sha256)
            add_file(guard.path / name, ADAPTER_FILE, content)

    return write


@dataclass(frozen=True)
class _Sample:
    """Validation sentences of one direction.

    Attributes:
        ending: what the names of its scores end in, if there are several directions.
        config: the configuration with its tags.
        sources: sentences.
        references: their translations.
        tokenizer: sacreBLEU's, for BLEU.
    """

    ending: str
    config: Config
    sources: Sequence[str]
    references: Sequence[str]
    tokenizer: str

    @classmethod
    def of(cls, held_out: HeldOut, config: Config, number: int, ending: str) -> Self:
        """Return the first sentences of a validation text."""
        own, text = held_out.config(config), held_out.text
        references = text.tgt[:number]
        return cls(ending, own, text.src[:number], references, tokenizer_of(own, references, held_out.corpus))

    def named(self, values: Mapping[str, _Value]) -> dict[str, _Value]:
        """Return values of metrics by the names of the scores."""
        return {f"{metric}{self.ending}": value for metric, value in values.items()}


def _endings(valid: Sequence[HeldOut]) -> list[str]:
    """Return what the names of the scores of each direction end in; texts of one name are numbered."""
    names = [held_out.name for held_out in valid]
    if len(names) == 1:
        return [""]
    numbers = [f"-{number}" if names.count(name) > 1 else "" for number, name in enumerate(names, start=1)]
    return [f"/{name}{number}" for name, number in zip(names, numbers, strict=True)]


class DecodingValidator:
    """Translates validation sentences greedily and scores them; `tokenizer` is sacreBLEU's, for BLEU.

    Of several directions, a score is the mean, and each direction has its own: `bleu/>>de<<`. `said` has the
    latest translations of the first one, by engine and precision, for the record in the bundle.
    """

    def __init__(self, prepared: PreparedRun) -> None:
        self._prepared = prepared
        valid, metric = prepared.config.valid, prepared.config.valid.metric
        own = [metric] if ":" in metric and metric not in valid.validators else []
        self._metrics = [*DECODED_METRICS, *own]
        number = -(-valid.decode_sentences // len(prepared.valid))
        self._samples = [
            _Sample.of(held_out, prepared.config, number, ending)
            for held_out, ending in zip(prepared.valid, _endings(prepared.valid), strict=True)
        ]
        self.tokenizer = ", ".join(dict.fromkeys(sample.tokenizer for sample in self._samples))
        self._signatures: dict[str, str] = {}
        self.said: dict[str, list[Translation]] = {}

    @property
    def signatures(self) -> dict[str, str]:
        """The signatures of the scores, which do not depend on the outputs: a resumed run may have none."""
        if not self._signatures and self._samples[0].sources:
            for sample in self._samples:
                self._score(sample, sample.references)
        return self._signatures

    def _score(self, sample: _Sample, outputs: Sequence[str]) -> dict[str, float]:
        """Return the scores of outputs, and keep their signatures."""
        report = evaluate_texts(
            sample.sources, outputs, [sample.references], self._metrics, tokenize=sample.tokenizer
        )
        self._signatures |= sample.named(report.signatures)
        return report.scores

    def __call__(self, model: Transformer) -> dict[str, float]:
        """Return BLEU, chrF, the percentage of exact matches, and how many outputs their limit has cut."""
        scores: dict[str, float] = {}
        by_metric: dict[str, list[float]] = {CUT_OUTPUTS: []}
        # The set-up has said why it is torch.
        engine: EngineChoice | Backend = "torch" if changed_parts(model) else "auto"
        for sample in self._samples:
            translator = Translator(
                Bundle(sample.config, self._prepared.tokenizers, model),
                precision=self._prepared.execution.precision,
                engine=engine,
            )
            engine = translator.generator.backend  # of the same weights
            greedy = sample.config.decode.model_copy(update=GREEDY)
            with without_warnings():  # of the same lines each time; the set-up has said how many there are
                translations = translator.translations(
                    sample.sources, options=SearchOptions.from_config(greedy)
                )
            if sample is self._samples[0]:  # whose languages are the bundle's
                engine_name = f"{translator.engine_in_use} {translator.precision_in_use}"
                self.said = {engine_name: translations[:NUM_SENTENCES]}
            of_sample = self._score(sample, [translation.text for translation in translations])
            scores |= sample.named(of_sample)
            for metric, score in of_sample.items():
                by_metric.setdefault(metric, []).append(score)
            by_metric[CUT_OUTPUTS].append(sum(not translation.finished for translation in translations))
        cut_outputs = sum(by_metric.pop(CUT_OUTPUTS))
        means = {metric: fmean(values) for metric, values in by_metric.items()}
        return {**scores, **means, CUT_OUTPUTS: cut_outputs}


def tokenizer_of(config: Config, references: Sequence[str], corpus: CorpusConfig | None = None) -> str:
    """Return sacreBLEU's tokenizer for the validation text, of a corpus or all: as set, or by language."""
    data, own = config.data, corpus or config.data
    of_training = (own.tgt, own.pairs) if corpus else (data.first_text[1], data.pairs)
    names = (own.valid_tgt, data.tgt_key, own.valid_pairs, *of_training)
    language = config.languages.target or language_of_files(names, [references])
    return tokenization_of([references], language=language, tokenize=config.valid.tokenize).bleu
