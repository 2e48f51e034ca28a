"""Writing bundles, and moving weights between models and files."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from heedful.bundle import (
    CARD_FILE,
    CONFIG_FILE,
    FORMAT_VERSION,
    WEIGHTS_FILE,
    Bundle,
    file_sha256,
    settings_sha256,
)
from heedful.config import Config
from heedful.durable import bring_back, put_in_place, why_not_written, writing_at
from heedful.errors import BundleError
from heedful.model import Transformer
from heedful.stored_model import check_fits
from heedful.text import TokenizerPair
from heedful.text.pair import is_file_of_a_pair


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
            "settings": settings_sha256(settings)
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
    check_fits(expected, {name: tuple(weight.shape) for name, weight in weights.items()}, origin)
