"""Train a model on parallel text."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heedful.errors import CheckpointError
from heedful.model.transformer import Transformer
from heedful.ops.lora import without_adapters
from heedful.settings.loading import load_config
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.storage.model_files import save_bundle
from heedful.training import (
    EndEvent,
    Event,
    EventLog,
    Scores,
    SkippedEvent,
    Trainer,
    TrainerCallbacks,
    latest_checkpoint,
)
from heedful.training.checkpoint import set_damaged_aside
from heedful.training.parallel.distributed import join_process_group, leave_process_group, run_worker
from heedful.workflows.card import model_card, shared_config
from heedful.workflows.material import Listener, Material, Notes, prepare, training_device
from heedful.workflows.run_directory import (
    DirectoryGuard,
    RunDirectory,
    check_files_are_there,
    check_resumable,
)
from heedful.workflows.skipped_report import SkippedReport
from heedful.workflows.validators import DecodingValidator, NllValidator


@dataclass(frozen=True, kw_only=True)
class TrainTask:
    """A training run: settings and output directory.

    Attributes:
        config: all settings.
        output: the run directory.
        resume: continue an existing run.
        overwrite: replace an existing run.
        command: the command line, for the model card.
        beside: names of files that the caller has put into a new run directory.
    """

    config: Config
    output: Path
    resume: bool = False
    overwrite: bool = False
    command: str = "heedful train"
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class TrainResult:
    """Results of training: the best and last bundles, and how it ended."""

    best: Path
    last: Path
    end: EndEvent


def run_as_worker(config: Config) -> bool:
    """Run as a worker if torchrun started this process as one; return whether it did.

    Rank 0 of torchrun, and a process that it did not start, continue with `train`.
    """
    if not join_process_group(config.train.device):
        return False
    try:
        run_worker(training_device(config.train.device))
    finally:
        leave_process_group()
    return True


def train(task: TrainTask, *, listeners: Sequence[Listener] = ()) -> TrainResult:
    """Train a model; everything is checked before an existing run is replaced.

    Raises:
        RunError: the output directory has a run and neither `resume` nor `overwrite` is set, another process
            is training there, or the directory is moved during training.
        CorpusError: the text is not usable.
        TokenizerError: the text is too small for the vocabulary.
        ConfigError: there is no training text, or settings differ from those of the base model or of the run
            to resume.
        BundleError: the base model is not usable.
        CheckpointError: a checkpoint does not belong to this data and model.
        TrainingError: the loss is not finite, or a worker has died.
        Terminated: stopped by SIGTERM, with a checkpoint written.
        KeyboardInterrupt: stopped by Ctrl-C, with a checkpoint written.
    """
    run = RunDirectory(task.output, task.beside)
    run.check(resume=task.resume, overwrite=task.overwrite)
    if task.resume:
        check_files_are_there(run.path, task.config)
    notes = Notes(listeners)
    material = prepare(task.config, run, notes, resume=task.resume)
    if task.resume:
        check_resumable(load_config(run.config_file), material.config)
    log = EventLog(run.log_file)
    report = SkippedReport(run.skipped_file, material.source.store, material.tokenizers)
    decoding = _decoding_validator(material)
    guard = DirectoryGuard(run.path)
    trainer = Trainer(
        material.model,
        material.config,
        material.source,
        TrainerCallbacks(
            validators=[
                NllValidator(material.valid_source, material.execution.precision),
                *([decoding] if material.config.valid.decode_sentences else []),
            ],
            listeners=[lambda event: guard.check(), _naming_the_report(report, [log, *listeners])],
            keep_model=_bundle_writer(material, guard, task.command, decoding.signatures),
            checkpoints=run.checkpoints,
            fingerprint=material.fingerprint(),
            validation_set=material.validation_fingerprint(),
            before_writing=guard.check,
        ),
        material.execution,
    )
    with run.locked(resume=task.resume, overwrite=task.overwrite), guard.watched():
        if task.resume:
            _resume(trainer, run, notes)
            run.write_config(material.config)
            log.drop_after(trainer.progress.step, validated_step=trainer.progress.validated_step)
            report.drop_after(trainer.progress.step)
        else:
            run.start(material.config, material.tokenizers)
        for event in notes.events:
            log(event)
        end = trainer.fit()
    leave_process_group()
    return TrainResult(run.path / "best", run.path / "last", end)


def _resume(trainer: Trainer, run: RunDirectory, notes: Notes) -> None:
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
        notes.add(
            f"damaged (a checksum differs), set aside: {names}; {checkpoint.name} is resumed", warning=True
        )
    if checkpoint:
        trainer.resume(checkpoint)
    elif run.has_had_checkpoints():
        raise CheckpointError(
            f"{run.checkpoints}: no intact checkpoint is left, and starting again would replace the run's "
            f"results; continue from its weights with --init {run.path} and another --output, or give "
            "--overwrite instead of --resume to start again"
        )


def _naming_the_report(report: SkippedReport, listeners: Sequence[Listener]) -> Listener:
    """Return a listener that calls all others, after writing the sentences of skipped steps."""

    def notify(event: Event) -> None:
        if isinstance(event, SkippedEvent):
            report.add(event)
            event = replace(event, sentences=str(report.path))
        for listener in listeners:
            listener(event)

    return notify


def _decoding_validator(material: Material) -> DecodingValidator:
    pairs = material.decodable()[: material.config.valid.decode_sentences]
    src, tgt = [src for src, _ in pairs], [tgt for _, tgt in pairs]
    return DecodingValidator(material.config, material.tokenizers, src, tgt, material.execution.precision)


def _bundle_writer(
    material: Material, guard: DirectoryGuard, command: str, signatures: Mapping[str, str]
) -> Callable[[str, Transformer, Scores, int], None]:
    """Return a function that writes a bundle with its card; the first validation sets the signatures."""
    config = shared_config(material.config)

    def write(name: str, model: Transformer, scores: Scores, step: int) -> None:
        card = model_card(
            material.config,
            material.source.store,
            command=command,
            step=step,
            scores=scores,
            signatures=signatures,
            origin=material.origin,
        )
        bundle = Bundle(config, material.tokenizers, without_adapters(model), scores=scores)
        guard.check()
        save_bundle(bundle, guard.path / name, card=card)

    return write
