"""What a run or a bundle holds, the learning curves of runs, and what a machine has."""

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from heedful.analysis.curves import Curve, Curves, draw_curves, read_curves
from heedful.analysis.plotting import check_picture
from heedful.decoding.aligner import ALIGNER_FILE, stored_aligner
from heedful.decoding.backends.choice import has_torch
from heedful.decoding.backends.engine import engine_precisions
from heedful.errors import MissingExtraError, RunError, install_hint
from heedful.runtime.native import native
from heedful.runtime.threads import num_threads
from heedful.settings.loading import load_config
from heedful.settings.options import Precision
from heedful.storage.bundle import BundleContents, load_tokenizers, read_bundle
from heedful.storage.description import CONFIG_FILE, runs_of
from heedful.storage.weights_file import weight_shapes
from heedful.tasks.directory import BUNDLES, CHECKPOINTS, CONFIG, LOG
from heedful.tasks.loading import local_bundle
from heedful.tasks.output_checks import check_output

_PICTURE = "curves.png"


@dataclass(frozen=True)
class BundleSummary:
    """A bundle with correct checksums.

    A shared matrix counts once in `num_parameters`. Without a tokenizer, `no_tokenizer` says why, `joint` is
    None, and the sizes of the vocabularies are the model's. `scores` are on the validation set; `calibration`
    and `aligner`, with its size in bytes, are as the bundle has them.
    """

    path: str
    num_bytes: int
    num_parameters: int
    parameters: dict[str, int]
    src_vocab_size: int
    tgt_vocab_size: int
    joint: bool | None
    no_tokenizer: str | None
    scores: dict[str, float]
    calibration: dict[str, Any] | None
    aligner: dict[str, Any] | None


@dataclass(frozen=True)
class RunSummary:
    """The state of a run: the last logged step, its time, the last value of each validation."""

    path: str
    steps: int
    seconds: float
    validation: dict[str, float]
    checkpoints: list[str]
    bundles: list[str]


@dataclass(frozen=True)
class Inspection:
    """The inspection of a run or bundle; a bundle has no run, an unfinished run may have no bundle."""

    config: dict[str, dict[str, object]]
    bundle: BundleSummary | None
    run: RunSummary | None


def inspect_run(path: Path) -> Inspection:
    """Inspect a run or a bundle, also of the hub, and verify the bundle's checksums."""
    path = local_bundle(path)
    is_run = (path / CONFIG).is_file()
    run = _summarise_run(path) if is_run else None
    if run is not None and not run.bundles:
        return Inspection(load_config(path / CONFIG).model_dump(), None, run)
    bundle = read_bundle(path)
    return Inspection(bundle.config.model_dump(), _summarise_bundle(bundle), run)


def _summarise_bundle(bundle: BundleContents) -> BundleSummary:
    parts: dict[str, int] = {}
    for name, shape in weight_shapes(bundle.config.model).items():  # which reading has compared with the file
        part = "embeddings" if ".embedding." in name else name.split(".")[0]
        parts[part] = parts.get(part, 0) + prod(shape)
    sizes = bundle.config.model.src_vocab_size, bundle.config.model.tgt_vocab_size
    joint, no_tokenizer = None, None
    if bundle.has_tokenizers:
        try:
            tokenizers = load_tokenizers(bundle.path, bundle.config)
            sizes, joint = (tokenizers.src.vocab_size, tokenizers.tgt.vocab_size), tokenizers.joint
        except MissingExtraError as error:
            no_tokenizer = str(error)
    else:
        no_tokenizer = "no tokenizer: the model works on ids"
    aligner = stored_aligner(bundle.path)
    return BundleSummary(
        path=str(bundle.path),
        num_bytes=sum(file.stat().st_size for file in bundle.path.iterdir() if file.is_file()),
        num_parameters=sum(parts.values()),
        parameters=parts,
        src_vocab_size=sizes[0],
        tgt_vocab_size=sizes[1],
        joint=joint,
        no_tokenizer=no_tokenizer,
        scores=dict(bundle.scores),
        calibration=None if bundle.calibration is None else bundle.calibration.as_json(),
        aligner=None
        if aligner is None
        else aligner[1] | {"num_bytes": (bundle.path / ALIGNER_FILE).stat().st_size},
    )


def _summarise_run(path: Path) -> RunSummary:
    curves = read_curves(path) if (path / LOG).exists() else Curves()
    every = [*curves.training.values(), *curves.validation.values()]
    clocks = [group.get("seconds", Curve()).values for group in (curves.training, curves.validation)]
    checkpoints = sorted(
        (folder.name for folder in (path / CHECKPOINTS).glob("step-*")), key=lambda name: (len(name), name)
    )
    return RunSummary(
        path=str(path),
        steps=max((curve.steps[-1] for curve in every if curve.steps), default=0),
        seconds=max((clock[-1] for clock in clocks if clock), default=0.0),
        validation={n: c.values[-1] for n, c in curves.validation.items() if c.values and n != "seconds"},
        checkpoints=checkpoints,
        bundles=[name for name in BUNDLES if (path / name / CONFIG_FILE).is_file()],
    )


def plot(runs: Sequence[Path], output: Path | None = None) -> Path:
    """Draw the learning curves of runs, each once; return the path of the image.

    A directory of several seeds is a line of means with a band, one standard deviation to each side; a
    directory of several settings has such a line for each.

    By default it is curves.png: in the run if `runs` has one run, otherwise in the working directory.
    """
    runs = list(dict.fromkeys(runs))
    if output is not None:
        check_output(output, models=runs, makes_folder=True)
    path = output or (runs[0] / _PICTURE if len(runs) == 1 else Path(_PICTURE))
    check_picture(path)
    for run in runs:
        if not run.is_dir():
            raise RunError(f"{run}: no such run; give a directory that `heedful train` made")
    runs = [curve for run in runs for curve in _lines_of(run)]
    names = _names(runs)
    draw_curves({name: read_curves(run) for name, run in zip(names, runs, strict=True)}, path)
    return path


def _lines_of(run: Path) -> list[Path]:
    """Return the directories that are a line each: runs, or those that hold the runs of several seeds."""
    runs = runs_of(run)
    is_of_seeds = runs != [run] and all(path.name.startswith("seed-") for path in runs)
    return list(dict.fromkeys(path.parent for path in runs)) if is_of_seeds else runs


def _names(runs: Sequence[Path]) -> list[str]:
    """Return the names of the directories, or, if two are equal, their paths."""
    names = [_printable(run.resolve().name) for run in runs]
    return names if len(set(names)) == len(names) else [_printable(str(run)) for run in runs]


def _printable(name: str) -> str:
    """Return a printable name: a directory's need not be UTF-8."""
    return name.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True)
class MachineSummary:
    """The hardware and libraries of this machine.

    Attributes:
        level: the level of the native library in use; None without the library.
        why_not: why no higher level is in use; None if it is the highest.
        levels: for each level of the library, why this machine cannot run it; None if it can.
        decoding: the precisions of the native engine here.
        training: the precision of `train.precision="auto"` on the CPU; without torch, what to install.
    """

    cpu: str
    cores: int
    torch: str | None
    level: str | None
    why_not: str | None
    levels: dict[str, str | None]
    decoding: Sequence[Precision]
    training: str
    gpus: list[str]


def inspect_machine() -> MachineSummary:
    """Return the hardware and libraries of this machine; ConfigError if HEEDFUL_ISA is not possible."""
    library = native()
    version, training, gpus = _with_torch() if has_torch() else (None, f"none: {install_hint('torch')}", [])
    return MachineSummary(
        cpu=cpu_name(),
        cores=num_threads(),
        torch=version,
        level=library.level,
        why_not=library.why_not,
        levels={level.name: level.why_not for level in library.levels},
        decoding=engine_precisions(),
        training=training,
        gpus=gpus,
    )


def _with_torch() -> tuple[str, str, list[str]]:
    """Return torch's version, the precision of training on the CPU, and the names of the GPUs."""
    import torch

    from heedful.training.execution import resolve_precision

    gpus = [torch.cuda.get_device_name(gpu) for gpu in range(torch.cuda.device_count())]
    return torch.__version__, resolve_precision("auto", torch.device("cpu")), gpus


def cpu_name() -> str:
    """Return the name of the CPU, or else its architecture."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    names = (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())
