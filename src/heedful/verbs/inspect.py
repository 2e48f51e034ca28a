"""`heedful inspect`: describe a run or a bundle, check parallel text, or describe the machine."""

import json
import platform
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heedful.cli.streams import bar
from heedful.errors import MissingExtraError, install_hint
from heedful.settings.options import AsJson, Filtering, HeldOutText, Option

if TYPE_CHECKING:
    from heedful.storage.bundle import BundleContents

_RUN_CONFIG, _LOG = "config.toml", "log.jsonl"


@dataclass(frozen=True, kw_only=True)
class Inspect:
    """Describe a run, bundle or machine; check parallel text.

    For a run: sizes, parameters, scores and every setting; the checksums of a bundle are verified. For text:
    faulty pairs, duplicates, overlap with validation and test, and coverage; docs/corpus.md lists the
    filters. For the machine: the level of the native library that is in use, and why no faster one is.
    """

    paths: Annotated[
        list[Path] | None,
        Option(
            "A run, a bundle, or the id of one on the hub; or parallel text, as two files or one .tsv or "
            ".jsonl; .gz too.",
            metavar="RUN | SRC TGT",
            is_argument=True,
        ),
    ] = None
    machine: Annotated[bool, Option("Describe this machine instead of a run.")] = False
    held_out: HeldOutText = field(default_factory=HeldOutText)
    filtering: Filtering = field(default_factory=Filtering)
    as_json: AsJson = False


@dataclass(frozen=True)
class BundleSummary:
    """A bundle with correct checksums.

    Attributes:
        path: of the bundle.
        num_bytes: of its files.
        num_parameters: of the model; a shared matrix counts once.
        parameters: of each part.
        src_vocab_size: of the source tokenizer; without one, of the model.
        tgt_vocab_size: of the target tokenizer; without one, of the model.
        joint: whether source and target share a tokenizer; None without one.
        no_tokenizer: why there is no tokenizer; None if there is one.
        scores: of the validation set.
        calibration: how its confidence is computed, as the bundle has it; None: it has none.
        aligner: the bytes of its aligner, and how that was learned; None: it has none.
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
    """Inspect a run or a bundle, also of the hub, and verify the bundle's checksums.

    Raises:
        BundleError: neither a run nor a bundle, or a bundle that is damaged or too new.
        HubError: the name is neither a path nor a model on the hub.
        RunError: the log cannot be read.
    """
    from heedful.runs.loading import local_bundle
    from heedful.settings.loading import load_config
    from heedful.storage.bundle import read_bundle

    path = local_bundle(path)
    is_run = (path / _RUN_CONFIG).is_file()
    run = _summarise_run(path) if is_run else None
    if run is not None and not run.bundles:
        return Inspection(load_config(path / _RUN_CONFIG).model_dump(), None, run)
    bundle = read_bundle(path)
    return Inspection(bundle.config.model_dump(), _summarise_bundle(bundle), run)


@dataclass(frozen=True)
class MachineSummary:
    """The hardware and libraries of this machine.

    Attributes:
        cpu: the name of the CPU.
        cores: the number of cores that compute.
        torch: its version; None where it is not installed.
        level: of the native library in use; None without the library.
        why_not: why no higher level is in use; None if it is the highest.
        levels: for each level of the library, why this machine cannot run it; None if it can.
        decoding: the precisions of the native engine here.
        training: the precision of `train.precision="auto"` on the CPU; without torch, what to install.
        gpus: the names of the GPUs.
    """

    cpu: str
    cores: int
    torch: str | None
    level: str | None
    why_not: str | None
    levels: dict[str, str | None]
    decoding: list[str]
    training: str
    gpus: list[str]


def inspect_machine() -> MachineSummary:
    """Return the hardware and libraries of this machine.

    Raises:
        ConfigError: HEEDFUL_ISA names a level that is not possible.
    """
    from heedful.decoding.backends.choice import has_torch
    from heedful.decoding.backends.engine import engine_precisions
    from heedful.runtime.native import native
    from heedful.runtime.threads import num_threads

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


def _summarise_bundle(bundle: "BundleContents") -> BundleSummary:
    from heedful.decoding.aligner import ALIGNER_FILE, stored_aligner
    from heedful.storage.bundle import load_tokenizers
    from heedful.storage.weights_file import weight_shapes

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
    from heedful.analysis.curves import Curve, Curves, read_curves

    curves = read_curves(path / _LOG) if (path / _LOG).exists() else Curves()
    every = [*curves.training.values(), *curves.validation.values()]
    clocks = [group.get("seconds", Curve()).values for group in (curves.training, curves.validation)]
    checkpoints = sorted(
        (folder.name for folder in (path / "checkpoints").glob("step-*")), key=lambda name: (len(name), name)
    )
    return RunSummary(
        path=str(path),
        steps=max((curve.steps[-1] for curve in every if curve.steps), default=0),
        seconds=max((clock[-1] for clock in clocks if clock), default=0.0),
        validation={n: c.values[-1] for n, c in curves.validation.items() if c.values and n != "seconds"},
        checkpoints=checkpoints,
        bundles=[name for name in ("best", "last") if (path / name / "config.json").is_file()],
    )


def command(task: Inspect) -> None:
    """Inspect what the paths name, or the machine, and print it."""
    from heedful.data.files import holds_pairs

    paths = task.paths or []
    if task.machine == bool(paths):
        raise typer.BadParameter("give either a run or bundle, or --machine")
    if len(paths) > 2:
        raise typer.BadParameter(f"give a run, or the two files of a text; these are {len(paths)} paths")
    is_text = bool(paths) and (len(paths) == 2 or holds_pairs(paths[0]))
    if not is_text and (task.held_out, task.filtering) != (HeldOutText(), Filtering()):
        raise typer.BadParameter("the options of parallel text, such as --fix, need a text to inspect")
    result: object
    if task.machine:
        result = machine = inspect_machine()
        lines = _machine_text(machine)
    elif is_text:
        from heedful.data.inspection import inspect_text, report_lines

        with bar() as show:
            result = text = inspect_text(
                paths, held_out=task.held_out, filtering=task.filtering, on_progress=show
            )
        lines = report_lines(text)
    else:
        if paths[0].is_file():
            raise typer.BadParameter(
                f"{paths[0]}: is one file: for parallel text give SRC and TGT, or one .tsv or .jsonl; "
                "for a model give its directory"
            )
        result = run = inspect_run(paths[0])
        lines = _text(run)
    if task.as_json:
        print(json.dumps(asdict(result), ensure_ascii=isinstance(result, MachineSummary)))
    else:
        print("\n".join(lines))


def _text(result: Inspection) -> Iterator[str]:
    if result.run:
        yield from _run_text(result.run)
    if result.bundle:
        yield from _bundle_text(result.bundle)
    for section, values in result.config.items():
        yield f"[{section}]"
        yield from (f"  {key} = {json.dumps(value, ensure_ascii=False)}" for key, value in values.items())


def _machine_text(machine: MachineSummary) -> Iterator[str]:
    yield f"CPU         {machine.cpu}, {machine.cores} cores in use"
    yield from (f"GPU         {name}" for name in machine.gpus)
    yield f"torch       {machine.torch or 'not installed'}"
    if machine.level is None:
        yield f"native      none: {machine.why_not}"
        yield f"  decoding  {'by torch, several times slower' if machine.torch else 'none'}"
    else:
        yield f"native      level {machine.level}" + (f" ({machine.why_not})" if machine.why_not else "")
        yield f"  decoding  {', '.join(machine.decoding)}"
    yield f"  training  {machine.training}"
    for name, why_not in machine.levels.items():
        in_use = "in use" if name == machine.level else "possible"
        yield f"  {name:<11} {why_not or in_use}"


def _run_text(run: RunSummary) -> Iterator[str]:
    yield f"run         {run.path}"
    yield f"  steps     {run.steps:,} in {run.seconds / 60:,.1f} minutes"
    if run.validation:
        yield f"  last      {_numbers(run.validation)}"
    yield f"  saved     {', '.join([*run.bundles, *run.checkpoints]) or 'nothing yet'}"


def _bundle_text(bundle: BundleSummary) -> Iterator[str]:
    from heedful.settings.parsing import is_whole, shown

    kind = bundle.no_tokenizer or ("joint" if bundle.joint else "separate")
    parts = ", ".join(f"{part} {count:,}" for part, count in bundle.parameters.items())
    yield f"bundle      {bundle.path}"
    yield f"  size      {bundle.num_bytes / 1e6:,.1f} MB, checksums correct"
    yield f"  model     {bundle.num_parameters:,} parameters ({parts})"
    yield f"  tokens    {bundle.src_vocab_size:,} source, {bundle.tgt_vocab_size:,} target ({kind})"
    if bundle.scores:
        yield f"  scores    {_numbers(bundle.scores)}"
    if bundle.calibration is None:
        yield "  confidence: not calibrated"
    else:
        lines, ece = bundle.calibration["lines"], bundle.calibration["ece"]
        yield f"  confidence: calibrated on {lines:,} lines, ECE {_numbers(ece)}"
    if bundle.aligner is not None:
        pairs, texts = bundle.aligner.get("pairs"), bundle.aligner.get("text")
        learned = f"learned from {pairs:,} pairs" if is_whole(pairs) else "its pairs are not recorded"
        if isinstance(texts, list) and texts:
            learned += f" of {' and '.join(map(shown, texts[:2]))}"
        yield f"  aligner   {learned}, {bundle.aligner['num_bytes'] / 1e6:,.1f} MB"


def _numbers(values: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4g}" for name, value in values.items())
