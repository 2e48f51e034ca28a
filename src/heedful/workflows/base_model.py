"""A trained model that a run begins with: what it brings, and what the user may still say."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from heedful.bundle import WEIGHTS_FILE, file_sha256, load_bundle, resolve_bundle
from heedful.config import Config
from heedful.config.section import Section
from heedful.errors import ConfigError, RunError
from heedful.model_files import unique_weights
from heedful.text import TokenizerPair
from heedful.workflows.sources import local_bundle

# What changes neither the function that the model computes nor the tokens of its vocabulary.
_FREE = {"dropout", "attention_dropout", "activation_dropout", "word_dropout", "sampling"}
_OF_THE_VOCABULARY = {"src_vocab_size", "tgt_vocab_size", "src_pad_id", "tgt_pad_id"}


@dataclass(frozen=True)
class Origin:
    """Which bundle a model comes from.

    Attributes:
        name: as the user gave it.
        sha256: of its weights.
        data: what it was trained on, in words.
    """

    name: str
    sha256: str
    data: str


@dataclass(frozen=True)
class BaseModel:
    """A bundle to continue from."""

    origin: Origin
    config: Config
    tokenizers: TokenizerPair
    weights: dict[str, Tensor]


def load_base_model(name: str, *, output: Path | None = None) -> BaseModel:
    """Read a bundle, or the best one of a run.

    Args:
        name: its path, or its id on the hub.
        output: the directory of the new run, where one begins.

    Raises:
        RunError: one of bundle and output is inside the other.
        BundleError: it is missing, damaged, too new, or has no tokenizer.
        HubError: it is on the hub and cannot be fetched.
    """
    path = local_bundle(Path(name))
    if output is not None:
        _check_apart(resolve_bundle(path), output)
    bundle = load_bundle(path)
    assert bundle.path is not None  # it was read from there
    data = bundle.config.data
    text = data.pairs or (f"{data.src} and {data.tgt}" if data.src else "see its own card")
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
    """Put the bundle's architecture, tokenizers, languages and search below what the user has set.

    Raises:
        ConfigError: the user has set something else than the bundle has, and it cannot be changed any more.
    """
    for section in ("model", "tokenizer"):
        _check(section, getattr(config, section), getattr(base.config, section), base.origin.name)
    merged = {
        section: getattr(base.config, section).model_dump() | _given(getattr(config, section))
        for section in ("model", "tokenizer", "languages", "decode")
    }
    sizes = {key: getattr(base.config.model, key) for key in _OF_THE_VOCABULARY}
    return config.replace(**merged | {"model": merged["model"] | sizes})


def _check(section: str, wanted: Section, has: Section, name: str) -> None:
    for key, value in _given(wanted).items():
        there = getattr(has, key)
        if key not in _FREE | _OF_THE_VOCABULARY and value != there:
            raise ConfigError(
                f"{section}.{key}={json.dumps(value)}: {name} has {json.dumps(there)}, and --init keeps its "
                "architecture and tokenizers; leave the setting out, or the preset that makes it"
            )


def _given(section: Section) -> dict[str, Any]:
    """Return the settings of a section that were given; None counts as not given."""
    return {key: value for key, value in section.model_dump(exclude_unset=True).items() if value is not None}
