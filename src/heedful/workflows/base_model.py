"""The base model of fine-tuning, and the settings that may differ from its own."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.errors import ConfigError, RunError
from heedful.settings.model import Section
from heedful.settings.run import Config
from heedful.storage.bundle import WEIGHTS_FILE, file_sha256, load_bundle, resolve_bundle
from heedful.storage.model_files import unique_weights
from heedful.text import TokenizerPair
from heedful.workflows.loading import local_bundle

# Settings that change neither the function of the model nor its vocabulary.
_FREE = {"dropout", "attention_dropout", "activation_dropout", "word_dropout", "sampling"}
_OF_THE_VOCABULARY = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id"}


@dataclass(frozen=True)
class Origin:
    """The bundle that a model was fine-tuned from.

    Attributes:
        name: as specified by the user.
        sha256: of its weights.
        data: a description of its training text.
    """

    name: str
    sha256: str
    data: str


@dataclass(frozen=True)
class BaseModel:
    """A bundle to fine-tune."""

    origin: Origin
    config: Config
    tokenizers: TokenizerPair
    weights: dict[str, Tensor]


def load_base_model(name: str, *, output: Path | None = None) -> BaseModel:
    """Load a bundle, or the best one of a run.

    Args:
        name: its path, or its id on the hub.
        output: the directory of a new run.

    Raises:
        RunError: one of bundle and output is inside the other.
        BundleError: it is missing, damaged, too new, or has no tokenizer.
        HubError: it cannot be downloaded.
    """
    path = local_bundle(Path(name))
    if output is not None:
        _check_apart(resolve_bundle(path), output)
    bundle = load_bundle(path)
    assert bundle.path is not None
    data = bundle.config.data
    files = [Path(file).name for file in (data.pairs, data.src, data.tgt) if file]
    text = " and ".join(files) or "see its own card"
    origin = Origin(name, file_sha256(bundle.path / WEIGHTS_FILE), text)
    return BaseModel(origin, bundle.config, bundle.tokenizers, unique_weights(bundle.model))


def _check_apart(bundle: Path, output: Path) -> None:
    """Refuse a new run that would replace, or write into, the bundle that it continues from."""
    base, new = bundle.resolve(), output.resolve()
    if base.is_relative_to(new):
        raise RunError(
            f"{output}: holds {bundle}, which --init continues from, and the new run would replace it; give "
            "another --output"
        )
    if new.is_relative_to(base):
        raise RunError(f"{output}: is inside {bundle}, which --init continues from; give another --output")


def continued_settings(config: Config, base: BaseModel) -> Config:
    """Return the user's settings, with the base model's architecture, tokenizers, languages and search.

    Raises:
        ConfigError: the user has changed a setting that fine-tuning cannot change.
    """
    for section in ("model", "tokenizer"):
        _check(section, getattr(config, section), getattr(base.config, section), base.origin.name)
    merged = {
        section: getattr(base.config, section).model_dump() | _set_values(getattr(config, section))
        for section in ("model", "tokenizer", "languages", "decode")
    }
    sizes = {key: getattr(base.config.model, key) for key in _OF_THE_VOCABULARY}
    return config.replace(**merged | {"model": merged["model"] | sizes})


def _check(section: str, requested: Section, actual: Section, name: str) -> None:
    for key, value in _set_values(requested).items():
        there = getattr(actual, key)
        if key not in _FREE | _OF_THE_VOCABULARY and value != there:
            raise ConfigError(
                f"{section}.{key}={json.dumps(value)}: {name} has {json.dumps(there)}, and --init keeps its "
                "architecture and tokenizers; leave the setting out, or the preset that makes it"
            )


def _set_values(section: Section) -> dict[str, Any]:
    """Return the settings of a section that were set to a value other than None."""
    return {key: value for key, value in section.model_dump(exclude_unset=True).items() if value is not None}
