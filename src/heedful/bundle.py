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
from safetensors.torch import save_file
from torch import Tensor

from heedful.config import Config
from heedful.config.loading import validate
from heedful.durable import aside_of, bring_back, put_in_place, why_not_written, writing_at
from heedful.errors import BundleError, ConfigError
from heedful.meta_device import assign_weights, meta_model, weight_shapes
from heedful.model import Transformer
from heedful.ops import use_fused_ops
from heedful.parsing import MAX_WHOLE, is_plain_name, is_whole, parse_json, read_limited, shown
from heedful.text import TokenizerPair
from heedful.text.pair import is_file_of_a_pair
from heedful.weight_files import read_safetensors, safetensors_shapes

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"

Shape = tuple[int, ...]


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

    For the moment in which a bundle takes the place of another, it is the other one.

    Raises:
        BundleError: there is no bundle there.
    """
    path = Path(path)
    best, last = path / "best", path / "last"
    for candidate in (best, aside_of(best), last, aside_of(last), path):
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
    temporary = writing_at(path)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        bring_back(path)
        temporary.mkdir(parents=True)
        if tokenizers is not None:
            tokenizers.save(temporary)
        save_file(unique_weights(model), temporary / WEIGHTS_FILE, metadata={"format": "pt"})
        # A path that it names may be no UTF-8.
        (temporary / CARD_FILE).write_text(card, encoding="utf-8", errors="backslashreplace")
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
        raise BundleError(f"{path}: cannot be written: {why_not_written(error)}") from error


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
    tokenizers = load_tokenizers(path, config)
    return Bundle(config, tokenizers, _load_weights(path, config, dtype), path, description["scores"])


@dataclass(frozen=True)
class BundleContents:
    """A bundle as far as any has it: its tokenizers, if there are some, are not read yet."""

    config: Config
    model: Transformer
    path: Path
    scores: Mapping[str, float]
    has_tokenizers: bool


def read_bundle(path: Path | str) -> BundleContents:
    """Read a bundle with or without tokenizers, or the bundle of a run, for who wants to know what it holds.

    Raises:
        BundleError: it is missing, incomplete, altered, or of a newer format.
    """
    path = resolve_bundle(path)
    description, config = _read_checked(path)
    model = _load_weights(path, config, torch.float32)
    has_tokenizers = TokenizerPair.is_among(description["sha256"])
    return BundleContents(config, model, path, description["scores"], has_tokenizers)


def load_tokenizers(path: Path, config: Config) -> TokenizerPair:
    """Read the tokenizers of a bundle, all of whose ids the model has.

    Raises:
        BundleError: they have more ids than the model of that configuration.
        TokenizerError: they are damaged.
        MissingExtraError: they need the `tokenizers` library, which is not installed.
    """
    tokenizers = TokenizerPair.load(path)
    for side, tokenizer, size in (
        ("source", tokenizers.src, config.model.src_vocab_size),
        ("target", tokenizers.tgt, config.model.tgt_vocab_size),
    ):
        special = tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id
        highest = max(tokenizer.vocab_size - 1, *special)
        if highest >= size or min(special) < 0:
            raise BundleError(
                f"{path}: the {side} tokenizer has the id {min(*special, 0) or highest:,}, but the model has "
                f"{size:,} tokens; the files are not of one model, copy the bundle again"
            )
    return tokenizers


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
        try:
            found = file_sha256(path / name)
        except OSError as error:
            raise BundleError(f"{path / name}: cannot be read ({error.strerror})") from None
        if found != expected:
            raise BundleError(
                f"{path / name}: truncated or altered (checksum differs); copy the bundle again"
            )
    try:
        config = validate(description["config"])
    except ConfigError as error:
        raise BundleError(f"{path / CONFIG_FILE}: {error}") from None
    for key in ("src_vocab_size", "tgt_vocab_size"):
        if not getattr(config.model, key):
            raise BundleError(f"{path / CONFIG_FILE}: model.{key}=0: must be at least 1 in a trained model")
    return description, config


def _load_weights(path: Path, config: Config, dtype: torch.dtype) -> Transformer:
    file = path / WEIGHTS_FILE
    try:
        # The header alone: nothing is built or read for sizes that the file does not have.
        _check_fits(weight_shapes(config.model), safetensors_shapes(file), file)
        weights = read_safetensors(file)
    except ValueError as error:
        raise BundleError(f"{file}: {error}; copy the bundle again") from None
    model = meta_model(config.model)
    # Copies: what safetensors gives is the file itself, and somebody may overwrite it.
    assign_weights(model, {name: weight.to(dtype, copy=True) for name, weight in weights.items()})
    use_fused_ops(model, kernels=False)  # training asks for them
    return model.to(dtype).eval()


def unique_weights(model: Transformer) -> dict[str, Tensor]:
    """Return the weights by name in float32, each shared matrix under its first name only."""
    return {name: weight.detach().float().contiguous() for name, weight in model.named_parameters()}


def load_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Copy what `unique_weights` gave into a model of the same configuration.

    Raises:
        BundleError: a weight is missing, unknown, or of another shape.
    """
    check_weights(model, weights, origin)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(weights[name])


def check_weights(model: Transformer, weights: Mapping[str, Tensor], origin: Path) -> None:
    """Compare weights with those of a model. Raises as `load_weights` does."""
    expected = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    _check_fits(expected, {name: tuple(weight.shape) for name, weight in weights.items()}, origin)


def _check_fits(expected: Mapping[str, Shape], found: Mapping[str, Shape], origin: Path) -> None:
    if wrong := expected.keys() ^ found.keys():
        name = min(wrong)
        kind = "missing" if name in expected else "unknown"
        raise BundleError(
            f"{origin}: weight {shown(name)} is {kind}; the file does not belong to its configuration"
        )
    for name, shape in expected.items():
        if shape != found[name]:
            raise BundleError(
                f"{origin}: weight {name!r} has shape {found[name]}, the configuration says {shape}"
            )


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
                f"{file}: altered ({shown(name)} is no name of a file in it); copy the bundle again"
            )
    for name, score in description["scores"].items():
        if not (isinstance(score, float) or is_whole(score, least=-MAX_WHOLE)):
            raise BundleError(f"{file}: scores.{name}={shown(score)} is no number; copy the bundle again")
    return description


def _sha256_of(settings: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()
