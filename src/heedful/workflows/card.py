"""The model card of a bundle: data, scores, command; no directory of the machine stands in what is shared."""

import re
from collections.abc import Mapping
from pathlib import Path

from heedful.config import Config
from heedful.data.store import ParallelStore
from heedful.workflows.base_model import Origin
from heedful.workflows.front_matter import front_matter
from heedful.workflows.sources import hub_repo

_OPTION = re.compile(r"(?:--?[\w-]+=|\w+\.\w+=)?")  # before its value: --src=, or data.src= after --set
_FILES = ("src", "tgt", "valid_src", "valid_tgt", "pairs", "valid_pairs")


def without_directories(argument: str) -> str:
    """Return an argument of the command line with the file name alone of a path: directories name people.

    >>> without_directories("--set"), without_directories("data.src=/home/anna/acme/train.en")
    ('--set', 'data.src=train.en')
    """
    option = _OPTION.match(argument)
    start = option.end() if option else 0
    return argument[:start] + _file_name(argument[start:])


def shared_config(config: Config) -> Config:
    """Return the configuration that a bundle has: of each file its name alone."""
    data = config.data.model_dump() | {"cache_dir": None}
    names = {key: data[key] and _file_name(data[key]) for key in _FILES}
    init = config.train.init and shared_name(config.train.init)
    return config.replace(data=data | names, train=config.train.replace(init=init).model_dump())


def shared_name(bundle: str) -> str:
    """Return the name of a bundle: that on the hub, or that of its directory."""
    return bundle if hub_repo(Path(bundle)) else _file_name(bundle)


def _file_name(path: str) -> str:
    return Path(path).name or path


def model_card(
    config: Config,
    store: ParallelStore,
    *,
    command: str,
    step: int,
    scores: Mapping[str, float],
    signatures: Mapping[str, str],
    origin: Origin | None = None,
) -> str:
    """Return the model card in Markdown, with the hub's front matter.

    Args:
        config: of the run.
        store: the training data, for its size and fingerprint.
        command: the training command.
        step: the number of optimiser steps.
        scores: of the validation set.
        signatures: of those scores that have one.
        origin: the base model of fine-tuning, if any.
    """
    report = store.report
    rows = [f"| {name} | {value:.4g} | {signatures.get(name, '')} |" for name, value in scores.items()]
    title = model_title(config)
    base = hub_repo(Path(origin.name)) if origin else None
    names = [_file_name(file) for file in (config.data.pairs, config.data.src, config.data.tgt) if file]
    return "\n".join(
        [
            front_matter(config, title=title, scores=scores, signatures=signatures, base_model=base),
            f"# {title}",
            "",
            f"An encoder-decoder Transformer trained with heedful for {step:,} steps.",
            "",
            "## Use",
            "",
            "```sh",
            "heedful translate path/to/this/directory < input.txt  # or its name on the hub, user/model",
            "```",
            "",
            "```python",
            "from heedful import Translator",
            "",
            'translator = Translator.load("path/to/this/directory")  # or download_bundle("user/model")',
            'print(translator.translate(["..."]))',
            "```",
            "",
            *(_origin_section(origin, config) if origin else []),
            "## Data",
            "",
            f"- training text: {' and '.join(names)}",
            f"- pairs read: {report.num_read:,}; used: {report.num_kept:,}; left out as empty: "
            f"{report.num_empty:,}; as longer than {report.max_length} tokens: {report.num_too_long:,}",
            f"- fingerprint: `{store.path.stem}`",
            "",
            "## Scores on the validation set",
            "",
            "Decoded metrics are of a greedy search over at most "
            f"{config.valid.decode_sentences:,} sentences; they chose this model, so a test set will differ.",
            "",
            "| metric | value | signature |",
            "|---|---|---|",
            *rows,
            "",
            "## Command",
            "",
            "```sh",
            command,
            "```",
            "",
        ]
    )


def _origin_section(origin: Origin, config: Config) -> list[str]:
    """Return the section on the base model, its training text, and the trained weights."""
    changed = "all weights"
    if config.lora.rank:
        layers = ", ".join(config.lora.targets)
        changed = f"low-rank adapters of rank {config.lora.rank} on {layers}, merged into the weights"
    if config.train.freeze:
        changed += f", except {', '.join(f'`{prefix}`' for prefix in config.train.freeze)}"
    return [
        "## Base model",
        "",
        f"- bundle: `{shared_name(origin.name)}`, weights `{origin.sha256}`",
        f"- its training text: {origin.data}",
        f"- trained here: {changed}",
        "",
    ]


def model_title(config: Config) -> str:
    """Return a title with the model's size: layers of encoder and decoder, and d_model."""
    model = config.model
    return f"Transformer {model.num_encoder_layers}+{model.num_decoder_layers} x {model.d_model}"
