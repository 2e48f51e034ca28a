"""`heedful import`: import models of other implementations as bundles."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from heedful.errors import ConfigError, RunError
from heedful.settings.options import OUTPUT, Option, settings_like

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.model.transformer import Transformer
    from heedful.settings.run import Config
    from heedful.text import TokenizerPair


@dataclass(frozen=True, kw_only=True)
class Import:
    """Import a model of another implementation.

    No code in the files is executed. The bundle gives the same logits; docs/interop.md and docs/systems.md
    describe the layouts.
    """

    source: Annotated[
        Path,
        Option(
            "A file from torch.save, or .safetensors. For marian, m2m100 and bart: a directory saved by "
            "transformers, or the id of one on the hub.",
            metavar="SOURCE",
            is_argument=True,
        ),
    ]
    layout: Annotated[
        str,
        Option(
            "The system that wrote the weights: marian, m2m100, bart, fairseq, torch, annotated, "
            "abhishek-thread, nptel-lecture, kaggle-notebook, adeveloperdiary, jadore, jadore-prj.",
            metavar="NAME",
        ),
    ]
    output: Annotated[Path, Option("The bundle to write.", flags=OUTPUT)]
    settings: Annotated[
        list[str] | None, settings_like("Settings not in the weights, for example model.num_heads=8.")
    ] = None
    src_vocab: Annotated[
        Path | None,
        Option("For a file: source tokens by id, one per line, or .json. Without it, ids only."),
    ] = None
    tgt_vocab: Annotated[Path | None, Option("The same for target tokens.")] = None
    src_lang: Annotated[
        str | None,
        Option("For the directory of a multilingual model: the source language.", metavar="LANG"),
    ] = None
    tgt_lang: Annotated[str | None, Option("The language to translate into.", metavar="LANG")] = None


@dataclass(frozen=True)
class _Imported:
    config: "Config"
    weights: "dict[str, Tensor]"
    tokenizers: "TokenizerPair | None"


def import_(task: Import) -> "Config":
    """Write a bundle with an imported model; return its configuration.

    Raises:
        RunError: the output exists.
        InteropError: the source cannot be read or is not of the layout, or a vocabulary has a wrong size.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid or incompatible.
        HubError: the hub has no such model, or cannot be reached.
        MissingExtraError: a library that the source needs is not installed.
    """
    from heedful.interop.layouts import DIRECTORY_LAYOUTS, check_layout
    from heedful.storage.bundle import Bundle
    from heedful.storage.model_files import assign_weights, meta_model, save_bundle, save_model
    from heedful.verbs.loading import local_source

    settings = _sections(task)
    check_layout(task.layout)
    if task.output.exists():
        raise RunError(f"{task.output}: already exists; give another --output")
    is_directory = task.layout in DIRECTORY_LAYOUTS
    _check_options(task, is_directory=is_directory)
    source = local_source(task.source)
    read = (_read_directory if is_directory else _read_file)(task, source, settings)
    model = meta_model(read.config.model)
    assign_weights(model, read.weights)  # without copying them
    card = _card(task, read, model, is_directory=is_directory)
    if read.tokenizers is None:
        save_model(model, read.config, task.output, card=card)
    else:
        save_bundle(Bundle(read.config, read.tokenizers, model), task.output, card=card)
    return read.config


def _check_options(task: Import, *, is_directory: bool) -> None:
    if is_directory and (task.src_vocab or task.tgt_vocab):
        raise ConfigError(
            f"--src-vocab, --tgt-vocab: layout {task.layout!r} has its own tokenizers; leave them out"
        )
    if not is_directory and (task.src_lang or task.tgt_lang):
        raise ConfigError(f"--src-lang, --tgt-lang: layout {task.layout!r} has no languages; leave them out")
    if (task.src_vocab is None) != (task.tgt_vocab is None):
        raise ConfigError("--src-vocab and --tgt-vocab must both be set")


def _read_directory(task: Import, source: Path, settings: dict[str, dict[str, Any]]) -> _Imported:
    from heedful.interop.huggingface.pretrained import ImportOptions
    from heedful.interop.layouts import read_directory
    from heedful.settings.loading import validate

    options = ImportOptions(
        settings=settings.pop("model", {}), src_lang=task.src_lang, tgt_lang=task.tgt_lang
    )
    imported = read_directory(task.layout, source, options)
    read = imported.config.model_dump(exclude_unset=True)
    config = validate(read | {name: read.get(name, {}) | values for name, values in settings.items()})
    return _Imported(config, imported.weights, imported.tokenizers)


def _read_file(task: Import, source: Path, settings: dict[str, dict[str, Any]]) -> _Imported:
    from heedful.interop import fairseq
    from heedful.interop.conversion import read_checkpoint
    from heedful.interop.layouts import read_layout
    from heedful.interop.vocabulary import fit_vocabularies, read_tokenizers
    from heedful.settings.loading import validate

    vocabularies = (task.src_vocab, task.tgt_vocab) if task.src_vocab and task.tgt_vocab else None
    of_fairseq = task.layout == fairseq.LAYOUT  # whose vocabularies have another format
    tokenizers = read_tokenizers(*vocabularies) if vocabularies and not of_fairseq else None
    model_settings = settings.pop("model", {}) | _padding(tokenizers)
    checkpoint = read_checkpoint(source)
    imported = read_layout(
        task.layout, checkpoint.tensors, settings=model_settings, origin=source, beside=checkpoint.beside
    )
    if vocabularies and of_fairseq:
        tokenizers = fairseq.read_dictionaries(*vocabularies, imported.config)
    if tokenizers is not None:
        imported = fit_vocabularies(imported, tokenizers)
        settings["tokenizer"] = {"kind": "word", "joint": tokenizers.joint} | settings.get("tokenizer", {})
    config = validate(settings | {"model": imported.config.model_dump()})
    return _Imported(config, imported.weights, tokenizers)


def _sections(task: Import) -> dict[str, dict[str, Any]]:
    from heedful.settings.loading import parse_override

    overrides = [parse_override(setting) for setting in task.settings or []]
    sections: dict[str, dict[str, Any]] = {}
    for key, value in overrides:
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections


def _padding(tokenizers: "TokenizerPair | None") -> dict[str, int]:
    if tokenizers is None:
        return {}
    return {"src_pad_id": tokenizers.src.pad_id, "tgt_pad_id": tokenizers.tgt.pad_id}


def _card(task: Import, read: _Imported, model: "Transformer", *, is_directory: bool) -> str:
    from heedful.verbs.card import front_matter, model_title
    from heedful.verbs.loading import hub_repo

    config = read.config
    title = model_title(config)
    use = "`heedful translate` takes it."
    if is_directory and config.decode.max_length is not None:
        use += (
            f" Its outputs have at most {config.decode.max_length:,} tokens; "
            "`heedful import --set decode.max_length=N` makes a bundle with another limit."
        )
    if read.tokenizers is None:
        use = "It has no tokenizer: `heedful.load_model(...)` gives the model, which takes and gives ids."
    elif task.src_vocab is not None:
        use = f"Its tokenizers split at spaces; {use}"
    base = hub_repo(task.source)
    return front_matter(config, title=title, base_model=base) + (
        f"# {title}\n\n{model.num_parameters:,} parameters, imported from `{base or task.source.name}` as "
        f"layout `{task.layout}`. Not scored.\n\n{use}\n"
    )


def command(task: Import) -> None:
    """Import, and print the path of the bundle."""
    import_(task)
    print(task.output)
