"""A bundle: what a trained model is on disk, for use, and what people share.

    config.json         format_version, the configuration, scores, a calibration of the confidence if there is
                        one (calibration.py), and a checksum of each file beside it
    model.safetensors   the weights; a shared matrix is written once
    tokenizer.model     (or source.model and target.model, or the files of an imported tokenizer:
                        text/pair.py; without any, the model works on ids)
    aligner.safetensors if there is one, aligns words (decoding/aligner.py)
    README.md           the model card

Nothing in it is code, and nothing is executed when it is read.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from heedful.errors import BundleError, ConfigError
from heedful.runtime.durable import backup_path, put_file_in_place, why_not_written
from heedful.settings.loading import validate
from heedful.settings.parsing import MAX_WHOLE, is_plain_name, is_whole, parse_json, read_limited, shown
from heedful.settings.run import Config
from heedful.storage.calibration import Calibration
from heedful.storage.stored_model import StoredModel
from heedful.text import TokenizerPair

if TYPE_CHECKING:
    import torch

    from heedful.model.transformer import Transformer

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"


@dataclass(frozen=True)
class Bundle:
    """A model ready for use, with all that belongs to it.

    Attributes:
        config: of the run.
        tokenizers: of source and target.
        network: the model in memory, or as it is stored, which needs no torch until `model` is used.
        path: the directory that it was read from.
        scores: of the validation set, at the time of saving.
        calibration: of its confidence; None: it has none.
    """

    config: Config
    tokenizers: TokenizerPair
    network: "Transformer | StoredModel"
    path: Path | None = None
    scores: Mapping[str, float] = field(default_factory=dict)
    calibration: Calibration | None = None

    @property
    def model(self) -> "Transformer":
        """The model; a stored one is built the first time, in evaluation mode and float32."""
        return self.network.model if isinstance(self.network, StoredModel) else self.network

    @property
    def calibration_in_use(self) -> Calibration | None:
        """The calibration, if it is of the languages that the bundle now translates between."""
        tags = self.config.languages.src_tag, self.config.languages.tgt_tag
        calibrated = self.calibration and (self.calibration.src_tag, self.calibration.tgt_tag)
        return self.calibration if calibrated == tags else None


def resolve_bundle(path: Path | str) -> Path:
    """Return the bundle meant by RUN: the run's `best/`, else its `last/`, else the directory itself.

    For the moment in which a bundle takes the place of another, it is the other one.

    Raises:
        BundleError: there is no bundle there.
    """
    path = Path(path)
    best, last = path / "best", path / "last"
    for candidate in (best, backup_path(best), last, backup_path(last), path):
        if (candidate / CONFIG_FILE).is_file():
            return candidate
    if (path / "config.toml").is_file():
        raise BundleError(f"{path}: this run has no bundle yet; wait for its first validation")
    reason = "holds no bundle" if path.is_dir() else "no such directory"
    raise BundleError(f"{path}: {reason}; give a run directory or a bundle (a directory with {CONFIG_FILE})")


def bundle_file_names(path: Path) -> list[str]:
    """Name the files that make up a bundle, from what its config.json says; none of the others need be there.

    Raises:
        BundleError: config.json is missing, damaged, or of a newer format.
    """
    listed = _read_description(path)["sha256"].keys() - {"settings"}
    return [CONFIG_FILE, *sorted(listed), CARD_FILE]


def add_file(path: Path, name: str, content: bytes) -> Path:
    """Add a file to a bundle, or replace it, with its checksum; return the file's path.

    The bundle is whole at every moment: without that file until it is there.

    Raises:
        BundleError: config.json is missing, damaged, or of a newer format, or something cannot be written.
    """
    description, file = _read_description(path), path / name
    checksums = description["sha256"]
    try:
        if checksums.pop(name, None) is not None:
            put_file_in_place(path / CONFIG_FILE, json.dumps(description, indent=2) + "\n")
        put_file_in_place(file, content)
        checksums[name] = file_sha256(file)
        put_file_in_place(path / CONFIG_FILE, json.dumps(description, indent=2) + "\n")
    except OSError as error:
        raise BundleError(f"{file}: cannot be written: {why_not_written(error)}") from error
    return file


def load_bundle(path: Path | str) -> Bundle:
    """Read a bundle, or the bundle of a run; of its weights, the names and shapes alone.

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
    tokenizers = load_tokenizers(path, config)
    return Bundle(
        config,
        tokenizers,
        StoredModel(path / WEIGHTS_FILE, config.model),
        path,
        description["scores"],
        _calibration(path, description),
    )


@dataclass(frozen=True)
class BundleContents:
    """A bundle as far as any has it: its tokenizers, if there are some, are not read yet."""

    config: Config
    network: StoredModel
    path: Path
    scores: Mapping[str, float]
    has_tokenizers: bool
    calibration: Calibration | None

    @property
    def model(self) -> "Transformer":
        """The model, built the first time, in evaluation mode."""
        return self.network.model


def read_bundle(path: Path | str) -> BundleContents:
    """Read a bundle with or without tokenizers, or the bundle of a run, for who wants to know what it holds.

    Raises:
        BundleError: it is missing, incomplete, altered, or of a newer format.
    """
    path = resolve_bundle(path)
    description, config = _read_checked(path)
    network = StoredModel(path / WEIGHTS_FILE, config.model)
    has_tokenizers = TokenizerPair.is_among(description["sha256"])
    calibration = _calibration(path, description)
    return BundleContents(config, network, path, description["scores"], has_tokenizers, calibration)


def load_tokenizers(path: Path, config: Config) -> TokenizerPair:
    """Read the tokenizers of a bundle, all of whose ids the model has.

    Raises:
        BundleError: they have more ids than the model of that configuration.
        TokenizerError: they are damaged.
        MissingExtraError: they need the `tokenizers` library, which is not installed.
    """
    tokenizers = TokenizerPair.load(path)
    for name, tokenizer, size in (
        ("source", tokenizers.src, config.model.src_vocab_size),
        ("target", tokenizers.tgt, config.model.tgt_vocab_size),
    ):
        special = tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id
        highest = max(tokenizer.vocab_size - 1, *special)
        if highest >= size or min(special) < 0:
            raise BundleError(
                f"{path}: the {name} tokenizer has the id {min(*special, 0) or highest:,}, but the model has "
                f"{size:,} tokens; the files are not of one model, copy the bundle again"
            )
    return tokenizers


def load_model(path: Path | str, *, dtype: "torch.dtype | None" = None) -> "Transformer":
    """Read the model of a bundle, with or without tokenizers, or of a run; it comes in evaluation mode.

    Example:
        model = load_model("runs/demo")
        logits = model(src, tgt_in)  # (B, T, V), for int64 ids (B, S) and (B, T), padded on the right

    Raises:
        BundleError: it is missing, incomplete, altered, or of a newer format.
    """
    path = resolve_bundle(path)
    _, config = _read_checked(path)
    model = StoredModel(path / WEIGHTS_FILE, config.model).model
    return model if dtype is None else model.to(dtype)


def _read_checked(path: Path) -> tuple[dict[str, Any], Config]:
    """Read what a bundle says of itself, and compare every file with its checksum."""
    description = _read_description(path)
    checksums = dict(description["sha256"])
    if checksums.pop("settings", None) != settings_sha256(_settings(description)):
        raise BundleError(f"{path / CONFIG_FILE}: altered (checksum differs); copy the bundle again")
    for name, expected in checksums.items():
        if not (path / name).is_file():
            raise BundleError(f"{path / name}: missing; the bundle is incomplete, copy it again")
        try:
            digest = file_sha256(path / name)
        except OSError as error:
            raise BundleError(f"{path / name}: cannot be read ({error.strerror})") from None
        if digest != expected:
            raise BundleError(
                f"{path / name}: truncated or altered (checksum differs); copy the bundle again"
            )
    try:
        config = validate(description["config"], is_stored=True)
    except ConfigError as error:
        raise BundleError(f"{path / CONFIG_FILE}: {error}") from None
    for key in ("src_vocab_size", "tgt_vocab_size"):
        if not getattr(config.model, key):
            raise BundleError(f"{path / CONFIG_FILE}: model.{key}=0: must be at least 1 in a trained model")
    return description, config


def _settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the checksum of the settings is of."""
    keys = ("config", "scores", *(["calibration"] if "calibration" in description else []))
    return {key: description[key] for key in keys}


def _calibration(path: Path, description: Mapping[str, Any]) -> Calibration | None:
    if "calibration" not in description:
        return None
    try:
        return Calibration.read(description["calibration"])
    except ValueError as error:
        raise BundleError(
            f"{path / CONFIG_FILE}: calibration: {error}; copy the bundle again, or calibrate it again"
        ) from None


def store_calibration(path: Path, calibration: Calibration) -> None:
    """Write a calibration into a bundle, whose config.json alone is replaced, as a whole or not at all.

    Args:
        path: of the bundle itself.
        calibration: takes the place of another one.

    Raises:
        BundleError: there is no bundle, or it cannot be written.
    """
    description = _read_description(path) | {"calibration": calibration.as_json()}
    description["sha256"] = description["sha256"] | {"settings": settings_sha256(_settings(description))}
    try:
        put_file_in_place(path / CONFIG_FILE, json.dumps(description, indent=2) + "\n")
    except OSError as error:
        raise BundleError(f"{path / CONFIG_FILE}: cannot be written: {why_not_written(error)}") from error


def file_sha256(file: Path) -> str:
    """Return the checksum that bundles and checkpoints keep of each of their files, in hexadecimal."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()


def _read_description(path: Path) -> dict[str, Any]:
    file = path / CONFIG_FILE
    try:
        description = parse_json(read_limited(file))
    except ValueError as error:
        raise BundleError(f"{file}: truncated or altered ({error}); copy it again") from None
    except OSError as error:
        raise BundleError(f"{file}: {error.strerror}") from None
    version = description.get("format_version") if isinstance(description, dict) else None
    if not isinstance(description, dict) or version is None:
        raise BundleError(f"{file}: truncated or altered (not a bundle's {CONFIG_FILE}); copy it again")
    if not isinstance(version, int) or version > FORMAT_VERSION:
        raise BundleError(
            f"{path}: format_version {shown(version)} is newer than the {FORMAT_VERSION} read here; "
            "upgrade heedful"
        )
    for name in ("config", "scores", "sha256"):
        if not isinstance(description.get(name), dict):
            raise BundleError(f"{file}: altered ({name!r} is missing); copy the bundle again")
    for name in description["sha256"]:
        if not is_plain_name(name):
            raise BundleError(
                f"{file}: altered ({shown(name)} is not the name of a file in it); copy the bundle again"
            )
    for name, score in description["scores"].items():
        if not (isinstance(score, float) or is_whole(score, least=-MAX_WHOLE)):
            raise BundleError(f"{file}: scores.{name}={shown(score)} is not a number; copy the bundle again")
    return description


def settings_sha256(settings: Mapping[str, Any]) -> str:
    """Return the checksum of a bundle's settings, in hexadecimal."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
