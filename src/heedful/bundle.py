"""A bundle: what a trained model is on disk, for use, and what people share.

    config.json         format_version, the configuration, scores, and a checksum of each file beside it
    model.safetensors   the weights; a shared matrix is written once
    tokenizer.model     (or source.model and target.model, or the files of an imported tokenizer:
                        text/pair.py; without any, the model works on ids)
    README.md           the model card

Nothing in it is code, and nothing is executed when it is read.
"""

import hashlib
import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from heedful.config import Config
from heedful.config.loading import validate
from heedful.durable import bring_back, put_in_place
from heedful.errors import BundleError, ConfigError
from heedful.model import Transformer
from heedful.text import TokenizerPair
from heedful.text.pair import is_file_of_a_pair

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"


@dataclass(frozen=True)
class Bundle:
    """A model ready for use, with all that belongs to it."""

    config: Config
    tokenizers: TokenizerPair
    model: Transformer
    path: Path | None = None
    scores: Mapping[str, float] = field(default_factory=dict)  # of the validation set, at the time of saving


def resolve_bundle(path: Path | str) -> Path:
    """Return the bundle meant by RUN: the run's `best/`, else its `last/`, else the directory itself.

    Raises:
        BundleError: there is no bundle there.
    """
    path = Path(path)
    for candidate in (path / "best", path / "last", path):
        if (candidate / CONFIG_FILE).is_file():
            return candidate
    if (path / "config.toml").is_file():
        raise BundleError(f"{path}: this run has no bundle yet; wait for its first validation")
    found = "holds no bundle" if path.is_dir() else "no such directory"
    raise BundleError(f"{path}: {found}; give a run directory or a bundle (a directory with {CONFIG_FILE})")


def bundle_file_names(path: Path) -> list[str]:
    """Name the files that make up a bundle, from what its config.json says; none of the others need be there.

    Raises:
        BundleError: config.json is missing, damaged, or of a newer format.
    """
    listed = _read_description(path)["sha256"].keys() - {"settings"}
    return [CONFIG_FILE, *sorted(listed), CARD_FILE]


def save_bundle(bundle: Bundle, path: Path | str, *, card: str) -> None:
    """Write the bundle as a whole, or not at all: under a temporary name first, then renamed.

    Args:
        bundle: what to write; its weights are stored in float32.
        path: the directory to make; one that exists is replaced.
        card: the text of the model card.

    Raises:
        BundleError: the disk is full or cannot be written; an older bundle of that name is still there.
    """
    settings = {"config": bundle.config.model_dump(), "scores": dict(bundle.scores)}
    _save(Path(path), bundle.model, bundle.tokenizers, settings, card)


def save_model(model: Transformer, config: Config, path: Path | str, *, card: str) -> None:
    """Write a bundle without tokenizers, for `load_model`; otherwise as `save_bundle`."""
    _save(Path(path), model, None, {"config": config.model_dump(), "scores": {}}, card)


def _save(
    path: Path, model: Transformer, tokenizers: TokenizerPair | None, settings: dict[str, Any], card: str
) -> None:
    temporary = path.with_name(f".{path.name}.writing")
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        bring_back(path)
        temporary.mkdir(parents=True)
        if tokenizers is not None:
            tokenizers.save(temporary)
        save_file(unique_weights(model), temporary / WEIGHTS_FILE, metadata={"format": "pt"})
        (temporary / CARD_FILE).write_text(card, encoding="utf-8")
        shutil.copymode(temporary / CARD_FILE, temporary / WEIGHTS_FILE)  # safetensors keeps others out
        files = sorted(file.name for file in temporary.iterdir() if file.name != CARD_FILE)
        checksums = {name: file_sha256(temporary / name) for name in files} | {
            "settings": _sha256_of(settings)
        }
        description = {"format_version": FORMAT_VERSION, **settings, "sha256": checksums}
        (temporary / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        _keep_what_others_wrote(path, temporary)
        put_in_place(temporary, path)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(temporary, ignore_errors=True)
        raise BundleError(f"{path}: cannot be written ({error}); free some space") from error


def _keep_what_others_wrote(path: Path, temporary: Path) -> None:
    """Bring files that a user put into a bundle into the one that takes its place."""
    if not (path / CONFIG_FILE).is_file():
        return
    for other in path.iterdir():
        is_own = other.name in {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE} or is_file_of_a_pair(other.name)
        if not is_own and not other.is_dir():
            shutil.copy2(other, temporary, follow_symlinks=False)
        elif not is_own:
            shutil.copytree(other, temporary / other.name, symlinks=True)


def load_bundle(path: Path | str, *, dtype: torch.dtype = torch.float32) -> Bundle:
    """Read a bundle, or the bundle of a run; the model comes in evaluation mode.

    Raises:
        BundleError: it is missing, incomplete, altered, of a newer format, or has no tokenizer.
    """
    path = resolve_bundle(path)
    description, config = _read_checked(path)
    if not TokenizerPair.is_among(description["sha256"]):
        raise BundleError(
            f"{path}: this bundle has no tokenizer; it works on ids, with heedful.load_model in Python, "
            "or import it again with --src-vocab and --tgt-vocab"
        )
    tokenizers = TokenizerPair.load(path)
    return Bundle(config, tokenizers, _load_weights(path, config, dtype), path, description["scores"])


def load_model(path: Path | str, *, dtype: torch.dtype = torch.float32) -> Transformer:
    """Read the model of a bundle, with or without tokenizers, or of a run; it comes in evaluation mode.

    Example:
        model = load_model("runs/demo")
        logits = model(src, tgt_in)  # (B, T, V), for int64 ids (B, S) and (B, T), padded on the right

    Raises:
        BundleError: it is missing, incomplete, altered, or of a newer format.
    """
    path = resolve_bundle(path)
    _, config = _read_checked(path)
    return _load_weights(path, config, dtype)


def _read_checked(path: Path) -> tuple[dict[str, Any], Config]:
    """Read what a bundle says of itself, and compare every file with its checksum."""
    description = _read_description(path)
    checksums = dict(description["sha256"])
    if checksums.pop("settings", None) != _sha256_of({key: description[key] for key in ("config", "scores")}):
        raise BundleError(f"{path / CONFIG_FILE}: altered (checksum differs); copy the bundle again")
    for name, expected in checksums.items():
        if not (path / name).is_file():
            raise BundleError(f"{path / name}: missing; the bundle is incomplete, copy it again")
        if file_sha256(path / name) != expected:
            raise BundleError(
                f"{path / name}: truncated or altered (checksum differs); copy the bundle again"
            )
    try:
        return description, validate(description["config"])
    except ConfigError as error:
        raise BundleError(f"{path / CONFIG_FILE}: {error}") from None


def _load_weights(path: Path, config: Config, dtype: torch.dtype) -> Transformer:
    try:
        weights = load_file(path / WEIGHTS_FILE)
    except (SafetensorError, OSError) as error:
        raise BundleError(f"{path / WEIGHTS_FILE}: cannot be read: {error}") from None
    model = Transformer.outline(config.model)
    _check_fits(model, weights, path / WEIGHTS_FILE)
    # Copies: what safetensors gives is the file itself, and somebody may overwrite it.
    model.assign({name: weight.to(dtype, copy=True) for name, weight in weights.items()})
    return model.to(dtype).eval()


def unique_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights by name in float32, each shared matrix under its first name only."""
    return {name: weight.detach().float().contiguous() for name, weight in model.named_parameters()}


def load_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy what `unique_weights` gave into a model of the same configuration.

    Raises:
        BundleError: a weight is missing, unknown, or of another shape.
    """
    _check_fits(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def _check_fits(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    parameters = dict(model.named_parameters())
    if wrong := parameters.keys() ^ weights.keys():
        name = min(wrong)
        kind = "missing" if name in parameters else "unknown"
        raise BundleError(
            f"{origin}: weight {name!r} is {kind}; the file does not belong to its configuration"
        )
    for name, parameter in parameters.items():
        if parameter.shape != weights[name].shape:
            expected, found = tuple(parameter.shape), tuple(weights[name].shape)
            raise BundleError(
                f"{origin}: weight {name!r} has shape {found}, the configuration says {expected}"
            )


def file_sha256(file: Path) -> str:
    """Return the checksum that bundles and checkpoints keep of each of their files, in hexadecimal."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _read_description(path: Path) -> dict[str, Any]:
    file = path / CONFIG_FILE
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
        version = description["format_version"]
    except (ValueError, KeyError, TypeError):
        raise BundleError(
            f"{file}: truncated or altered (not a bundle's {CONFIG_FILE}); copy it again"
        ) from None
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}") from None
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise BundleError(
            f"{path}: format_version {version} is newer than the {FORMAT_VERSION} read here; upgrade heedful"
        )
    for name in ("config", "scores", "sha256"):
        if not isinstance(description.get(name), dict):
            raise BundleError(f"{file}: altered ({name!r} is missing); copy the bundle again")
    return description  # type: ignore[no-any-return]


def _sha256_of(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
