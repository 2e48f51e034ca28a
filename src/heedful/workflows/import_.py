"""Weights from elsewhere become a bundle."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from heedful.bundle import Bundle, load_weights, save_bundle, save_model
from heedful.config import Config
from heedful.config.loading import validate
from heedful.errors import ConfigError, RunError
from heedful.interop.checkpoint import read_checkpoint
from heedful.interop.layouts import read_layout
from heedful.interop.vocabulary import fit_vocabularies, read_tokenizers
from heedful.model import Transformer
from heedful.text import TokenizerPair
from heedful.workflows.card import model_title
from heedful.workflows.front_matter import front_matter


@dataclass(frozen=True, kw_only=True)
class ImportTask:
    """What to import.

    Attributes:
        checkpoint: a file written by `torch.save`, or safetensors.
        layout: the name of the system that wrote it, one of `heedful.interop.layouts.LAYOUTS`.
        output: the bundle to write.
        overrides: settings that the weights do not tell, as `parse_override` gives them.
        src_vocab: tokens of the source by id, a line each or JSON; None with tgt_vocab for a bundle on ids.
        tgt_vocab: the same of the target.
    """

    checkpoint: Path
    layout: str
    output: Path
    overrides: Sequence[tuple[str, Any]] = ()
    src_vocab: Path | None = None
    tgt_vocab: Path | None = None


def import_(task: ImportTask) -> Config:
    """Write a bundle with the weights of a checkpoint, and return its configuration.

    Raises:
        RunError: the output exists.
        InteropError: the checkpoint cannot be read or is not of the layout, or a vocabulary does not fit.
        ConfigError: settings that cannot be.
    """
    if task.output.exists():
        raise RunError(f"{task.output}: already exists; give another --output")
    if (task.src_vocab is None) != (task.tgt_vocab is None):
        raise ConfigError("--src-vocab and --tgt-vocab must be given together")
    tokenizers = None
    if task.src_vocab is not None and task.tgt_vocab is not None:
        tokenizers = read_tokenizers(task.src_vocab, task.tgt_vocab)
    settings = _sections(task.overrides)
    model_settings = settings.pop("model", {}) | _padding(tokenizers)
    tensors = read_checkpoint(task.checkpoint)
    imported = read_layout(task.layout, tensors, settings=model_settings, origin=task.checkpoint)
    if tokenizers is not None:
        imported = fit_vocabularies(imported, tokenizers)
        settings["tokenizer"] = {"kind": "word", "joint": tokenizers.joint} | settings.get("tokenizer", {})
    config = validate(settings | {"model": imported.config.model_dump()})
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced at once
        model = Transformer.from_config(config.model)
    load_weights(model, imported.weights, task.checkpoint)
    card = _card(task, config, model)
    if tokenizers is None:
        save_model(model, config, task.output, card=card)
    else:
        save_bundle(Bundle(config, tokenizers, model), task.output, card=card)
    return config


def _sections(overrides: Sequence[tuple[str, Any]]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for key, value in overrides:
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def _padding(tokenizers: TokenizerPair | None) -> dict[str, int]:
    if tokenizers is None:
        return {}
    return {"src_pad_id": tokenizers.src.pad_id, "tgt_pad_id": tokenizers.tgt.pad_id}


def _card(task: ImportTask, config: Config, model: Transformer) -> str:
    title = model_title(config)
    use = (
        "It has no tokenizer: `heedful.load_model(...)` gives the model, which takes and gives ids."
        if task.src_vocab is None
        else "Its tokenizers split at spaces; `heedful translate` takes it."
    )
    return front_matter(config, title=title) + (
        f"# {title}\n\n{model.num_parameters:,} parameters, imported from `{task.checkpoint.name}` as layout "
        f"`{task.layout}`. Not scored.\n\n{use}\n"
    )
