"""A bundle: what a trained model is on disk, for use, and what people share.

    config.json         format_version, the configuration, scores, a calibration of the confidence if there is
                        one (calibration.py), and a checksum of each file beside it; for a model with
                        classes or methods that are not heedful's own, their names (ops/changes.py)
    model.safetensors   the weights; a shared matrix is written once
    tokenizer.model     (or source.model and target.model, or the files of an imported tokenizer:
                        text/pair.py; without any, the model works on ids)
    aligner.safetensors if there is one, aligns words (decoding/aligner.py)
    README.md           the model card

Nothing in it is code, and nothing is executed when it is read.
"""

import hashlib
import json
import math
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from heedful.errors import BundleError, ConfigError
from heedful.runtime.durable import (
    backup_path,
    put_file_in_place,
    put_in_place,
    restore_backup,
    why_not_written,
    writing_at,
)
from heedful.settings.arguments import checked
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import MAX_WHOLE, is_plain_name, is_whole, parse_json, read_limited, shown
from heedful.settings.run import Config
from heedful.storage.calibration import Calibration
from heedful.storage.weights_file import (
    SafetensorsArrays,
    Shape,
    check_fits,
    embedding_names,
    safetensors_shapes,
    weight_shapes,
)
from heedful.text import TokenizerPair
from heedful.text.pair import is_file_of_a_pair

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from heedful.model.transformer import Transformer

FORMAT_VERSION = 1
CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
CARD_FILE = "README.md"
_CHANGES = "changed_parts"  # the key of their names in config.json
_BLOCK = 2**22  # weights that are written at a time


Changes = list[tuple[int, int]]  # of weights


def _changes_of(model: "Transformer") -> Changes:
    return [(weight.data_ptr(), weight._version) for weight in model.parameters()]


@dataclass(frozen=True)
class Bundle:
    """A model ready for use, with all that belongs to it.

    >>> bundle = load_bundle("runs/demo")
    >>> bundle.config.model.num_heads, bundle.tokenizers.src.eos_id
    (4, 3)
    >>> model = bundle.model  # a torch module, in evaluation mode

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

    def __repr__(self) -> str:
        languages, model = self.config.languages, self.config.model
        pair = languages.src or languages.src_tag, languages.target
        between = f"{pair[0] or '?'} -> {pair[1] or '?'}, " if any(pair) else ""
        size = sum(map(math.prod, weight_shapes(model).values()))
        return (
            f"Bundle({self.path or 'in memory'}: {between}{model.num_encoder_layers} + "
            f"{model.num_decoder_layers} layers, d_model={model.d_model}, {size:,} parameters)"
        )

    @property
    def model(self) -> "Transformer":
        """The model; a stored one is built the first time, in evaluation mode and float32."""
        return self.network.model if isinstance(self.network, StoredModel) else self.network

    @property
    def current_network(self) -> "Transformer | StoredModel":
        """The model that computes: once `model` was used, that one, since it may have been changed."""
        is_used = isinstance(self.network, StoredModel) and "model" in vars(self.network)
        return self.model if is_used else self.network

    @property
    def changes(self) -> "Changes":
        """Where each weight is and how often it was changed in memory; none: they are as they are stored.

        A change in place of `weight.data` is not counted.
        """
        if isinstance(self.network, StoredModel):
            return self.network.changes
        return _changes_of(self.network)

    @property
    def calibration_in_use(self) -> Calibration | None:
        """The calibration, if it is of the languages that the bundle now translates between."""
        tags = self.config.languages.src_tag, self.config.languages.tgt_tag
        calibrated = self.calibration and (self.calibration.src_tag, self.calibration.tgt_tag)
        return self.calibration if calibrated == tags else None


class StoredModel:
    """The weights of a model in a safetensors file, which stays open."""

    def __init__(self, file: Path, config: ModelConfig, shapes: Mapping[str, Shape] | None = None) -> None:
        """Compare the file with a configuration, by its header alone: nothing is read or built before.

        Args:
            file: of the weights.
            config: of the model.
            shapes: of the weights by name; None: as the configuration says.

        Raises:
            BundleError: it cannot be read, or does not belong to the configuration.
        """
        self.config = config
        self._file = file
        self._built: Changes = []
        try:
            check_fits(shapes or weight_shapes(config), safetensors_shapes(file), file)
            self._arrays = SafetensorsArrays(file)
        except ValueError as error:
            raise BundleError(f"{file}: {error}; copy the bundle again") from None

    def weight(self, name: str) -> NDArray[np.float32]:
        """Return a copy of a weight by its name in `weight_shapes`.

        Raises:
            BundleError: it cannot be read any more, or no two tokens differ in it.
        """
        try:
            weight = self._arrays[name]
        except ValueError as error:
            raise BundleError(f"{self._file}: {error}; copy the bundle again") from None
        if name in embedding_names(self.config) and _is_constant(weight):
            raise BundleError(
                f"{self._file}: {name}: every value is {weight.flat[0]:g}, so that all tokens are one; "
                "this model was never trained, or its weights were lost; use another copy"
            )
        return weight

    @cached_property
    def model(self) -> "Transformer":
        """The model in torch, in evaluation mode, with copies of the weights."""
        from heedful.storage.torch_weights import model_from_arrays  # torch, for those who need it

        model = model_from_arrays(self.config, self.weight)
        self._built = _changes_of(model)
        return model

    @property
    def changes(self) -> Changes:
        """Those of the model in torch; none: it is as it is stored."""
        changes = _changes_of(self.model) if "model" in vars(self) else []
        return [] if changes == self._built else changes


def _is_constant(weight: NDArray[np.float32]) -> bool:
    first = weight.flat[0]
    return weight.size > 1 and bool((weight[0] == first).all()) and bool((weight == first).all())


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


@checked
def load_bundle(path: Path | str, *, into: "Transformer | None" = None) -> Bundle:
    """Read a bundle, or the bundle of a run; of its weights, the names and shapes alone.

    >>> load_bundle("runs/demo")
    Bundle(runs/demo...: 2 + 2 layers, d_model=...)

    A bundle holds no code. If its model had a class or a method of the user's own, this process has to build
    the same model from the configuration, or give it.

    Args:
        path: of the bundle or run.
        into: a model of the same configuration and code, which gets the weights; None: heedful builds it.

    Raises:
        BundleError: it is missing, incomplete, altered, of a newer format, of a model with other code, or has
            no tokenizer.
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
        _network(path, config.model, description, into),
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
    network = _stored_model(path, config.model, description)
    has_tokenizers = TokenizerPair.is_among(description["sha256"])
    calibration = _calibration(path, description)
    return BundleContents(config, network, path, description["scores"], has_tokenizers, calibration)


def stored_scores(path: Path | str) -> dict[str, float]:
    """Read the validation scores of a bundle, or of the bundle of a run, and nothing else.

    Raises:
        BundleError: config.json is missing, damaged, or of a newer format.
    """
    scores: dict[str, float] = _read_description(resolve_bundle(path))["scores"]
    return scores


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


@checked
def load_model(
    path: Path | str, *, dtype: "torch.dtype | None" = None, into: "Transformer | None" = None
) -> "Transformer":
    """Read the model of a bundle, with or without tokenizers, or of a run; it comes in evaluation mode.

    >>> model = load_model("runs/demo")
    >>> logits = model(src, tgt_in)  # (B, S), (B, T) ids -> (B, T, V)

    `into` is as for `load_bundle`.

    Raises:
        BundleError: it is missing, incomplete, altered, of a newer format, or of a model with other code.
    """
    path = resolve_bundle(path)
    description, config = _read_checked(path)
    network = _network(path, config.model, description, into)
    model = network.model if isinstance(network, StoredModel) else network
    return model if dtype is None else model.to(dtype)


def _network(
    path: Path, config: ModelConfig, description: Mapping[str, Any], into: "Transformer | None"
) -> "Transformer | StoredModel":
    if into is None:
        return _stored_model(path, config, description)
    from heedful.storage.torch_weights import load_weights, read_safetensors

    file = path / WEIGHTS_FILE
    if into.config != config:
        raise BundleError(f"{path}: its model has another configuration than the model that it is read into")
    try:
        load_weights(into, read_safetensors(file), file)
    except ValueError as error:
        raise BundleError(f"{file}: {error}; copy the bundle again") from None
    return into.eval()


def _stored_model(path: Path, config: ModelConfig, description: Mapping[str, Any]) -> StoredModel:
    """Return the model of a bundle, if what is built here is what was saved.

    Raises:
        BundleError: it is not: other classes, methods or functions.
    """
    file, changes = path / WEIGHTS_FILE, description.get(_CHANGES)
    if not changes:
        return StoredModel(file, config)
    name, value = next(iter(changes.items()))
    if config.plugged or "heedful.model" in sys.modules:  # otherwise, nothing here can have changed it
        from heedful.ops.changes import changes_by_code
        from heedful.storage.torch_weights import meta_model

        try:
            found = changes_by_code(config)
        except ConfigError as error:
            raise BundleError(f"{path}: {error}") from error
        if found == changes:
            weights = meta_model(config).named_parameters()
            return StoredModel(file, config, {each: tuple(weight.shape) for each, weight in weights})
    raise BundleError(
        f"{path}: its model has a part that is not heedful's own ({shown(name)}: {shown(value)}), and a "
        "bundle holds no code; build the model by the same code, then call load_bundle(path, into=model)"
    )


@checked
def save_bundle(bundle: Bundle, path: Path | str, *, card: str = "") -> None:
    """Write the bundle as a whole, or not at all: under a temporary name first, then renamed.

    >>> bundle = load_bundle("runs/demo")
    >>> save_bundle(bundle, "copy", card="# A copy of the demo's model")

    Args:
        bundle: what to write; its weights are stored in float32.
        path: the directory to make; one that exists is replaced.
        card: the text of the model card, in Markdown.

    Raises:
        BundleError: the disk is full or cannot be written; an older bundle of that name is still there.
    """
    from heedful.storage.torch_weights import unique_weights

    more = {"scores": dict(bundle.scores)} | _changes(bundle.model)
    if bundle.calibration is not None:
        more["calibration"] = bundle.calibration.as_json()
    save_weights(unique_weights(bundle.model), bundle.config, bundle.tokenizers, path, card=card, more=more)


@checked
def save_model(model: "Transformer", config: Config, path: Path | str, *, card: str = "") -> None:
    """Write a bundle without tokenizers, for `load_model`; otherwise as `save_bundle`.

    >>> save_model(model, Config(model=model.config), "copy-task")
    """
    from heedful.storage.torch_weights import unique_weights

    more = {"scores": {}} | _changes(model)
    save_weights(unique_weights(model), config, None, path, card=card, more=more)


def _changes(model: "Transformer") -> dict[str, Any]:
    from heedful.ops.changes import changed_parts

    changes = changed_parts(model)
    return {_CHANGES: changes} if changes else {}


def save_weights(
    weights: "Mapping[str, Tensor]",
    config: Config,
    tokenizers: TokenizerPair | None,
    path: Path | str,
    *,
    card: str,
    more: Mapping[str, Any] = {"scores": {}},
) -> None:
    """Write a bundle of weights that may be read one at a time; otherwise as `save_bundle`.

    Args:
        weights: by the names of `weight_shapes`, a shared matrix under its first name; only one of them
            need be in memory, unless the model has parts that are not heedful's own.
        config: of the bundle.
        tokenizers: None: the model works on ids.
        path: the directory to make; one that exists is replaced.
        card: the text of the model card.
        more: the settings besides the configuration.
    """
    path, settings = Path(path), {"config": config.model_dump(), **more}
    temporary = writing_at(path)
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        restore_backup(path)
        temporary.mkdir(parents=True)
        if tokenizers is not None:
            tokenizers.save(temporary)
        shapes = weight_shapes(config.model)
        if _CHANGES in more:
            shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
        _write_weights(weights, shapes, temporary / WEIGHTS_FILE)
        # A path that it names may be no UTF-8.
        (temporary / CARD_FILE).write_text(card, encoding="utf-8", errors="backslashreplace")
        files = sorted(file.name for file in temporary.iterdir() if file.name != CARD_FILE)
        checksums = {name: file_sha256(temporary / name) for name in files} | {
            "settings": settings_sha256(settings)
        }
        description = {"format_version": FORMAT_VERSION, **settings, "sha256": checksums}
        (temporary / CONFIG_FILE).write_text(json.dumps(description, indent=2) + "\n", encoding="utf-8")
        _keep_what_others_wrote(path, temporary)
        put_in_place(temporary, path)
    except BaseException as error:  # of a weight that is read only now, or of the keyboard, too
        shutil.rmtree(temporary, ignore_errors=True)
        if not isinstance(error, OSError | SafetensorError):
            raise
        raise BundleError(f"{path}: cannot be written: {why_not_written(error)}") from error


def _write_weights(weights: "Mapping[str, Tensor]", shapes: Mapping[str, Shape], file: Path) -> None:
    """Write a safetensors file in float32, a tensor at a time: its own writer needs all of them at once."""
    shapes = dict(sorted(shapes.items()))
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, shape in shapes.items():
        start, end = end, end + 4 * math.prod(shape)
        header[name] = {"dtype": "F32", "shape": list(shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at multiples of 8
    with file.open("wb") as written:
        written.write(len(text).to_bytes(8, "little") + text)
        for name, shape in shapes.items():
            weight = weights[name]
            assert weight.shape == shape, name
            rows = max(_BLOCK * len(weight) // weight.numel(), 1)
            for start in range(0, len(weight), rows):
                part = weight[start : start + rows] if rows < len(weight) else weight
                part = part.detach().cpu().float().contiguous()
                written.write(part.numpy().astype("<f4", copy=False).data)
                del part  # before the next is read
            del weight


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
        config = Config(**description["config"])
    except ConfigError as error:
        raise BundleError(f"{path / CONFIG_FILE}: {error}") from None
    for key in ("src_vocab_size", "tgt_vocab_size"):
        if not getattr(config.model, key):
            raise BundleError(f"{path / CONFIG_FILE}: model.{key}=0: must be at least 1 in a trained model")
    return description, config


def _settings(description: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the checksum of the settings is of."""
    keys = ("config", "scores", "calibration", _CHANGES)
    return {key: description[key] for key in keys if key in description}


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
    version = description.get("format_version", 0) if isinstance(description, dict) else 0
    if not isinstance(description, dict) or not is_whole(version, least=FORMAT_VERSION):
        raise BundleError(f"{file}: truncated or altered (not a bundle's {CONFIG_FILE}); copy it again")
    if version > FORMAT_VERSION:
        raise BundleError(
            f"{path}: format_version {version} is newer than the {FORMAT_VERSION} read here; upgrade heedful"
        )
    for name in ("config", "scores", "sha256"):
        if not isinstance(description.get(name), dict):
            raise BundleError(f"{file}: altered ({name!r} is missing); copy the bundle again")
    changes = description.get(_CHANGES, {})
    if not (isinstance(changes, dict) and all(isinstance(each, str) for each in changes.values())):
        raise BundleError(f"{file}: altered ({_CHANGES!r} has no names of parts); copy the bundle again")
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
