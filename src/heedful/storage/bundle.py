"""A bundle: what a trained model is on disk, for use, and what people share.

    config.json         format_version, the configuration, scores, a calibration of the confidence if there is
                        one (calibration.py), and a checksum of each file beside it; for a model with
                        classes or methods that are not heedful's own, their names (ops/changes.py)
    model.safetensors   the weights; a shared matrix is written once
    tokenizer.model     (or source.model and target.model, or the files of an imported tokenizer:
                        text/pair.py; without any, the model works on ids)
    aligner.safetensors if there is one, aligns words (decoding/aligner.py)
    verification.json   if there is one, what the model said when it was written (evaluation/verification.py)
    adapter.safetensors if LoRA trained it, what was added to the base's weights (adapter.py)
    README.md           the model card

Nothing in it is code, and nothing is executed when it is read.
"""

import json
import logging
import math
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from heedful.errors import BundleError, ConfigError, OptionError, refuse_if
from heedful.runtime.durable import claimed_directory, replace_directory, restore_backup, why_not_written
from heedful.settings.arguments import checked
from heedful.settings.model import ModelConfig
from heedful.settings.parsing import shown
from heedful.settings.plugins import changed_plugins, unnamed_parts
from heedful.settings.run import Config
from heedful.storage.calibration import Calibration
from heedful.storage.description import (
    ADAPTER_FILE,
    CARD_FILE,
    CONFIG_FILE,
    FORMAT_VERSION,
    WEIGHTS_FILE,
    Description,
    file_sha256,
    read_description,
    resolve_bundle,
)
from heedful.storage.weights_file import SafetensorsArrays, Shape, check_fits, embedding_names, weight_shapes
from heedful.text import TokenizerPair
from heedful.text.languages import Pair
from heedful.text.pair import choose_languages, is_file_of_a_pair, pairs_of

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from heedful.model.transformer import Transformer

_BLOCK = 2**22  # weights that are written at a time
_log = logging.getLogger("heedful.model")


WeightVersions = list[tuple[int, int]]  # of each weight: where it is, and how often it was changed in place


def _versions_of(model: "Transformer") -> WeightVersions:
    return [(weight.data_ptr(), weight._version) for weight in model.parameters()]


@dataclass(frozen=True)
class Bundle:
    """A model ready for use, with all that belongs to it.

    >>> bundle = load_bundle("runs/demo")
    >>> bundle.config.model.num_heads, bundle.tokenizers.src.eos_id
    (4, 3)
    >>> model = bundle.model  # a torch module, in evaluation mode

    Attributes:
        config: all settings of the run.
        tokenizers: the tokenizers of source and target.
        network: the model in memory, or as it is stored, which needs no torch until `model` is used.
        path: the directory that it was read from.
        scores: the scores of the validation text, when it was saved.
        calibration: how its confidence is computed; None: it has none.
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
    def weight_versions(self) -> WeightVersions:
        """The versions of the weights in memory; none: they are as they are stored.

        A change in place of `weight.data` is not counted.
        """
        if not isinstance(self.network, StoredModel):
            return _versions_of(self.network)
        versions = [] if self.network.built is None else _versions_of(self.network.built)
        return [] if versions == self.network.versions else versions

    def pairs(self, named: Collection[Pair] = ()) -> dict[Pair, tuple[str | None, str | None]]:
        """Return the pairs of languages that the model translates, with the arguments of `for_languages`.

        >>> heedful.load_bundle("runs/demo").pairs([heedful.Pair("en", "de")])
        {Pair(src='en', tgt='de'): (None, None)}

        Args:
            named: pairs to choose from if the vocabulary does not name source languages; by default the pair
                in the configuration, or in the names of the training files.

        Returns:
            By each pair, `src_lang` and `tgt_lang` for `for_languages`.

        Raises:
            MissingExtraError: langcodes is not installed.
        """
        return pairs_of(self.config, self.tokenizers, named)

    def for_languages(self, *, src_lang: str | None = None, tgt_lang: str | None = None) -> Self:
        """Return the model for other languages that it has; None keeps a language.

        Raises:
            InputError: a language that the model does not have, or a model without a choice of languages.
        """
        config = choose_languages(self.config, self.tokenizers, src_lang=src_lang, tgt_lang=tgt_lang)
        return replace(self, config=config)

    @property
    def calibration_in_use(self) -> Calibration | None:
        """The calibration, if it is of the languages that the bundle now translates between."""
        tags = self.config.languages.src_tag, self.config.languages.tgt_tag
        calibrated = self.calibration and (self.calibration.src_tag, self.calibration.tgt_tag)
        return self.calibration if calibrated == tags else None


class StoredModel:
    """The weights of a model in a safetensors file, which stays open.

    Attributes:
        config: the architecture.
        built: the model in torch once it was used, since it may have been changed; None until then.
        versions: the versions of its weights when it was built.
    """

    def __init__(self, file: Path, config: ModelConfig, shapes: Mapping[str, Shape] | None = None) -> None:
        """Compare the header of the safetensors file with a configuration: nothing is read or built before.

        `shapes` has the shape of each weight by its name; None: as the configuration says. A BundleError says
        that the file cannot be read, or does not belong to the configuration.
        """
        self.config, self._file = config, file
        self.built: Transformer | None = None
        self.versions: WeightVersions = []
        with _damaged(file):
            self._arrays = SafetensorsArrays(file)
        check_fits(shapes or weight_shapes(config), self._arrays.shapes, file)

    def weight(self, name: str) -> NDArray[np.float32]:
        """Return a copy of a weight by its name in `weight_shapes`; a constant embedding is refused."""
        with _damaged(self._file):
            weight = self._arrays[name]
        is_embedding, first = name in embedding_names(self.config), weight.flat[0]
        if is_embedding and weight.size > 1 and (weight[0] == first).all() and (weight == first).all():
            raise BundleError(
                f"{self._file}: {name}: every value is {first:g}, so that all tokens are one; "
                "this model was never trained, or its weights were lost; use another copy"
            )
        return weight

    @property
    def model(self) -> "Transformer":
        """The model in torch, in evaluation mode, with copies of the weights."""
        if self.built is None:
            from heedful.storage.torch_weights import model_from_arrays  # torch, for those who need it

            self.built = model_from_arrays(self.config, self.weight)
            self.versions = _versions_of(self.built)
        return self.built


@contextmanager
def _damaged(file: Path) -> Iterator[None]:
    """Turn an error of the block, about what a file holds, into a BundleError."""
    try:
        yield
    except (ConfigError, ValueError) as error:
        remedy = "" if isinstance(error, ConfigError) else "; copy the bundle again"
        raise BundleError(f"{file}: {error}{remedy}") from error


@checked
def load_bundle(path: Path | str, *, into: "Transformer | None" = None) -> Bundle:
    """Read a bundle, or the bundle of a run, and check its checksums; weights are loaded when they are used.

    >>> load_bundle("runs/demo")
    Bundle(runs/demo...: 2 + 2 layers, d_model=...)

    A bundle holds no code. If its model had a class or a method of the user's own, this process has to build
    the same model from the configuration, or give it.

    Args:
        path: the directory of the bundle or run.
        into: a model of the same configuration and code, which gets the weights; None: heedful builds it.

    Raises:
        BundleError: it is missing, incomplete, altered, of a newer format, of a model with other code, or has
            no tokenizer.
    """
    found = _read(path)
    if not found.has_tokenizers:
        raise BundleError(
            f"{found.path}: this bundle has no tokenizer; it works on ids, with heedful.load_model in "
            "Python, or import it again with --src-vocab and --tgt-vocab"
        )
    tokenizers = load_tokenizers(found.path, found.config)
    network = found.network if into is None else _loaded_into(into, found)
    return Bundle(found.config, tokenizers, network, found.path, found.scores, found.calibration)


@dataclass(frozen=True)
class BundleContents:
    """A bundle as it is stored, with or without tokenizers, which are not read yet; see `Bundle`."""

    path: Path
    config: Config
    scores: Mapping[str, float]
    changed_parts: Mapping[str, str]
    calibration: Calibration | None
    has_tokenizers: bool

    @cached_property
    def network(self) -> "StoredModel":
        """The weights, if the model that is built here is the one that was saved."""
        config, file = self.config.model, self.path / WEIGHTS_FILE
        if not self.changed_parts:
            return StoredModel(file, config)
        if config.plugged or "heedful.model" in sys.modules:  # otherwise, nothing here can have changed it
            from heedful.storage.torch_weights import changes_and_shapes

            with _damaged(self.path):
                found, shapes = changes_and_shapes(config)
            if found == self.changed_parts and not unnamed_parts(config.plugged):
                if change := changed_plugins(config.plugged.values(), self.config.train.plugin_versions):
                    _log.warning("%s: %s", self.path, change)
                return StoredModel(file, config, shapes)
        name, value = next(iter(self.changed_parts.items()))
        raise BundleError(
            f"{self.path}: its model has a part that is not heedful's own ({shown(name)}: {shown(value)}), "
            "and a bundle holds no code; build the model by the same code, then call load_bundle(path, "
            "into=model)"
        )


def read_bundle(path: Path | str) -> BundleContents:
    """Read a bundle with or without tokenizers, or the bundle of a run, and check all of it."""
    found = _read(path)
    _ = found.network  # compares the weights with the configuration
    return found


def _read(path: Path | str) -> BundleContents:
    """Read config.json, and compare every file with its checksum."""
    path = resolve_bundle(path)
    description, file = read_description(path), path / CONFIG_FILE
    description.check(path)
    with _damaged(file):
        config, saved = Config(**description.config), description.calibration
        calibration = None if saved is None else Calibration.read(saved)
        refuse_if(
            (not config.model.src_vocab_size, "model.src_vocab_size=0: must be at least 1"),
            (not config.model.tgt_vocab_size, "model.tgt_vocab_size=0: must be at least 1"),
            error=ValueError,
        )
    parts, has_tokenizers = description.changed_parts or {}, TokenizerPair.is_among(description.files)
    return BundleContents(path, config, description.scores, parts, calibration, has_tokenizers)


def load_tokenizers(path: Path, config: Config) -> TokenizerPair:
    """Read the tokenizers of a bundle, and check that the model has all of their ids."""
    tokenizers = TokenizerPair.load(path)
    for name, tokenizer, size in (
        ("source", tokenizers.src, config.model.src_vocab_size),
        ("target", tokenizers.tgt, config.model.tgt_vocab_size),
    ):
        highest = tokenizer.vocab_size - 1
        if highest >= size:
            raise BundleError(
                f"{path}: the {name} tokenizer has the id {highest:,}, but the model has {size:,} tokens; "
                "the files are not of one model, copy the bundle again"
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
    found = _read(path)
    model = found.network.model if into is None else _loaded_into(into, found)
    if dtype is None:
        return model
    if not getattr(dtype, "is_floating_point", False):
        raise OptionError(f"dtype={dtype!r}: must be a torch.dtype of floats, such as torch.float64")
    return model.to(dtype)


def _loaded_into(model: "Transformer", found: BundleContents) -> "Transformer":
    from heedful.storage.torch_weights import load_weights, read_safetensors

    file = found.path / WEIGHTS_FILE
    if getattr(model, "config", None) != found.config.model:
        raise BundleError(
            f"{found.path}: its model has another configuration than the model that it is read into"
        )
    if change := changed_plugins(model.config.plugged.values(), found.config.train.plugin_versions):
        _log.warning("%s: %s", found.path, change)
    with _damaged(file):
        load_weights(model, read_safetensors(file), file)
    return model.eval()


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
    from heedful.storage.torch_weights import saved_parts

    weights, changed_parts = saved_parts(bundle.model)
    save_weights(
        weights, bundle.config, bundle.tokenizers, path,
        card=card, scores=bundle.scores, calibration=bundle.calibration, changed_parts=changed_parts,
    )  # fmt: skip


@checked
def save_model(
    model: "Transformer", path: Path | str, *, config: Config | None = None, card: str = ""
) -> None:
    """Write a bundle without tokenizers, for `load_model`; otherwise as `save_bundle`.

    >>> save_model(model, "copy-task")

    `config` has all settings of the training; None: only the architecture is known.
    """
    from heedful.storage.torch_weights import saved_parts

    weights, changed_parts = saved_parts(model)
    config = config or Config(model=model.config)
    save_weights(weights, config, None, path, card=card, changed_parts=changed_parts)


def save_weights(
    weights: "Mapping[str, Tensor]",
    config: Config,
    tokenizers: TokenizerPair | None,
    path: Path | str,
    *,
    card: str,
    scores: Mapping[str, float] = MappingProxyType({}),
    calibration: Calibration | None = None,
    changed_parts: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Write a bundle of weights that may be read one at a time; otherwise as `save_bundle`.

    `weights` are by the names of `weight_shapes`, a shared matrix under its first name; only one of them need
    be in memory, unless the model has parts that are not heedful's own. Without tokenizers, the model works
    on ids.
    """
    path = Path(path)
    if not config.train.plugin_versions:
        config = config.with_plugin_versions()
    try:
        with claimed_directory(path) as temporary:
            restore_backup(path)
            if tokenizers is not None:
                tokenizers.save(temporary)
            shapes = weight_shapes(config.model)
            if changed_parts:
                shapes = {name: tuple(weight.shape) for name, weight in weights.items()}
            _write_weights(weights, shapes, temporary / WEIGHTS_FILE)
            # A path that it names may be no UTF-8.
            (temporary / CARD_FILE).write_text(card, encoding="utf-8", errors="backslashreplace")
            files = sorted(file.name for file in temporary.iterdir() if file.name != CARD_FILE)
            Description(
                format_version=FORMAT_VERSION,
                config=config.model_dump(),
                scores=dict(scores),
                changed_parts=dict(changed_parts) or None,
                calibration=None if calibration is None else calibration.as_json(),
                sha256={name: file_sha256(temporary / name) for name in files},
            ).write(temporary)
            _keep_what_others_wrote(path, temporary)
            replace_directory(path, temporary)
    except (OSError, SafetensorError) as error:
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
        is_own = other.name in {CONFIG_FILE, WEIGHTS_FILE, CARD_FILE, ADAPTER_FILE} or is_file_of_a_pair(
            other.name
        )
        if not is_own and not other.is_dir():
            shutil.copy2(other, temporary, follow_symlinks=False)
        elif not is_own:
            shutil.copytree(other, temporary / other.name, symlinks=True)
