"""What a run or a bundle holds, without changing anything."""

from dataclasses import dataclass
from pathlib import Path

from heedful.analysis.curves import Curve, Curves, read_curves
from heedful.bundle import Bundle, load_bundle
from heedful.config import load_config
from heedful.errors import BundleError
from heedful.workflows.plot import LOG
from heedful.workflows.sources import local_bundle

_RUN_CONFIG = "config.toml"


@dataclass(frozen=True)
class BundleSummary:
    """A bundle whose checksums are right: its size in bytes, its parameters by part, its vocabularies."""

    path: str
    num_bytes: int
    num_parameters: int
    parameters: dict[str, int]
    src_vocab_size: int
    tgt_vocab_size: int
    joint: bool
    scores: dict[str, float]


@dataclass(frozen=True)
class RunSummary:
    """How far a run is: the last step that was logged, its time, the last value of each validation."""

    path: str
    steps: int
    seconds: float
    validation: dict[str, float]
    checkpoints: list[str]
    bundles: list[str]


@dataclass(frozen=True)
class Inspection:
    """Everything there is to say; a bundle alone has no run, an unfinished run may have no bundle."""

    config: dict[str, dict[str, object]]
    bundle: BundleSummary | None
    run: RunSummary | None


def inspect(path: Path) -> Inspection:
    """Read a run or a bundle, of the hub too, and check the bundle's files against their checksums.

    Raises:
        BundleError: neither a run nor a bundle, or a bundle that is damaged or too new.
        HubError: a name that is no path, and that the hub does not know.
        RunError: a log that cannot be read.
    """
    path = local_bundle(path)
    is_run = (path / _RUN_CONFIG).is_file()
    run = _summarise_run(path) if is_run else None
    if run is not None and not run.bundles:
        return Inspection(load_config(path / _RUN_CONFIG).model_dump(), None, run)
    bundle = load_bundle(path)
    return Inspection(bundle.config.model_dump(), _summarise_bundle(bundle), run)


def _summarise_bundle(bundle: Bundle) -> BundleSummary:
    if bundle.path is None:
        raise BundleError("inspect: the bundle was never saved")
    parts: dict[str, int] = {}
    for name, parameter in bundle.model.named_parameters():
        part = "embeddings" if ".embedding." in name else name.split(".")[0]
        parts[part] = parts.get(part, 0) + parameter.numel()
    return BundleSummary(
        path=str(bundle.path),
        num_bytes=sum(file.stat().st_size for file in bundle.path.iterdir() if file.is_file()),
        num_parameters=bundle.model.num_parameters,
        parameters=parts,
        src_vocab_size=bundle.tokenizers.src.vocab_size,
        tgt_vocab_size=bundle.tokenizers.tgt.vocab_size,
        joint=bundle.tokenizers.joint,
        scores=dict(bundle.scores),
    )


def _summarise_run(path: Path) -> RunSummary:
    curves = read_curves(path / LOG) if (path / LOG).exists() else Curves()
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
