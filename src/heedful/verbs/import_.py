"""`heedful import`: import models of other implementations as bundles."""

import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from heedful.errors import ConfigError, InteropError, RunError
from heedful.settings.options import OUTPUT, Option, settings_like

if TYPE_CHECKING:
    from torch import Tensor

    from heedful.decoding.shortlist import Shortlist
    from heedful.settings.run import Config
    from heedful.text import TokenizerPair

_SHORTLIST = "shortlist.safetensors"


@dataclass(frozen=True, kw_only=True)
class Import:
    """Import a model of another implementation.

    No code in the files is executed. The bundle gives the same logits; docs/interop.md and docs/systems.md
    describe the layouts.
    """

    source: Annotated[
        Path,
        Option(
            "A file from torch.save, or .safetensors. A directory of transformers, CTranslate2 or Eole. An "
            "Argos package. Marian's model.npz or .bin, or a directory or .zip with one. OpenNMT-py's .pt. "
            "A LoRA adapter of PEFT, which is merged. Or the id of a model on the hub.",
            metavar="SOURCE",
            is_argument=True,
        ),
    ]
    output: Annotated[Path, Option("The bundle to write.", flags=OUTPUT)]
    layout: Annotated[
        str | None,
        Option(
            "The system that wrote the weights. Needed if several fit: ctranslate2, argos, marian-native, "
            "marian, m2m100, bart, fsmt, pegasus, blenderbot, t5, opennmt-py, eole, fairseq, torch, "
            "annotated, abhishek-thread, nptel-lecture, kaggle-notebook, adeveloperdiary, jadore, "
            "jadore-prj.",
            metavar="NAME",
            default="recognised",
        ),
    ] = None
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
        Option("For a multilingual model: the source language.", metavar="LANG"),
    ] = None
    tgt_lang: Annotated[str | None, Option("The language to translate into.", metavar="LANG")] = None
    task: Annotated[
        str | None,
        Option(
            "For a directory of transformers: one of its task_specific_params, such as "
            "translation_en_to_de for T5. Each source is preceded by the task's text.",
            metavar="NAME",
        ),
    ] = None
    base: Annotated[
        Path | None,
        Option(
            "For a LoRA adapter of PEFT: the directory or hub id of its base model.",
            metavar="DIR",
            default="as adapter_config.json says",
        ),
    ] = None
    lang_dict: Annotated[
        Path | None,
        Option(
            "For a multilingual model of fairseq: its languages in their order, one per line. Without it, "
            "the checkpoint's arguments say them.",
            metavar="FILE",
        ),
    ] = None
    ignore: Annotated[
        list[str] | None,
        Option(
            "A key of config.json that is unknown here and only describes text; repeatable.", metavar="KEY"
        ),
    ] = None


@dataclass(frozen=True)
class _Imported:
    config: "Config"
    weights: "Mapping[str, Tensor]"
    tokenizers: "TokenizerPair | None"
    layout: str
    notes: tuple[str, ...] = ()
    shortlist: "Shortlist | None" = None


def import_(task: Import, *, report: Callable[[str], None] = lambda _: None) -> "Config":
    """Write a bundle with an imported model; return its configuration.

    Args:
        task: what to import.
        report: receives sentences for the user, about what was not in the files.

    Raises:
        RunError: the output exists.
        InteropError: the source cannot be read or is not of the layout, or a vocabulary has a wrong size.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid or incompatible.
        HubError: the hub has no such model, or cannot be reached.
        MissingExtraError: a library that the source needs is not installed.
    """
    from heedful.interop.huggingface.adapters import ADAPTER_FILE, base_of
    from heedful.interop.layouts import DIRECTORY_LAYOUTS, PRETRAINED, check_layout, recognise
    from heedful.runs.loading import local_source
    from heedful.storage.bundle import save_weights

    settings = _sections(task)
    if task.layout is not None:
        check_layout(task.layout)
    if task.output.exists():
        raise RunError(f"{task.output}: already exists; give another --output")
    if task.layout is not None:
        _check_options(task, task.layout)
    source = local_source(task.source)
    adapter = source if (source / ADAPTER_FILE).is_file() else None
    if adapter is not None:
        source = local_source(task.base or Path(base_of(adapter)))
        if not source.is_dir():
            raise InteropError(f"{adapter / ADAPTER_FILE}: its base {source} is not here; give --base DIR")
    elif task.base is not None:
        raise ConfigError(f"--base: {source} is not an adapter of PEFT; leave it out")
    layout = recognise(source) if task.layout is None else task.layout
    if adapter is not None and layout not in PRETRAINED:
        raise ConfigError(f"--base {source}: an adapter needs a directory of transformers")
    if layout in DIRECTORY_LAYOUTS:
        _check_options(task, layout)
        read = _read_directory(task, layout, source, settings, adapter)
    else:
        read = _read_file(task, layout, source, settings)
    save_weights(read.weights, read.config, read.tokenizers, task.output, card=_card(task, read))
    if read.shortlist is not None:
        read.shortlist.save(task.output / _SHORTLIST)
    for note in read.notes:
        report(note)
    return read.config


def _check_options(task: Import, layout: str) -> None:
    from heedful.interop.fairseq import LAYOUT as FAIRSEQ
    from heedful.interop.layouts import DIRECTORY_LAYOUTS, PRETRAINED
    from heedful.interop.marian_native import LAYOUT as MARIAN
    from heedful.interop.opennmt import LAYOUT as OPENNMT

    is_directory = layout in DIRECTORY_LAYOUTS
    if is_directory and layout != MARIAN and (task.src_vocab or task.tgt_vocab):
        raise ConfigError(
            f"--src-vocab, --tgt-vocab: layout {layout!r} has its own tokenizers; leave them out"
        )
    if task.ignore and (not is_directory or layout in (MARIAN, OPENNMT)):
        raise ConfigError(f"--ignore: layout {layout!r} has no config.json; leave it out")
    if layout not in PRETRAINED and task.task:
        raise ConfigError(f"--task: layout {layout!r} has no tasks; leave it out")
    if layout != FAIRSEQ and task.lang_dict:
        raise ConfigError(f"--lang-dict: layout {layout!r} has no such file; leave it out")
    if not is_directory and layout != FAIRSEQ and (task.src_lang or task.tgt_lang):
        raise ConfigError(f"--src-lang, --tgt-lang: layout {layout!r} has no languages; leave them out")
    if (task.src_vocab is None) != (task.tgt_vocab is None):
        raise ConfigError("--src-vocab and --tgt-vocab must both be set")


def _read_directory(
    task: Import, layout: str, source: Path, settings: dict[str, dict[str, Any]], adapter: Path | None
) -> _Imported:
    from heedful.interop.huggingface.pretrained import ImportOptions
    from heedful.interop.layouts import read_directory

    options = ImportOptions(
        settings=settings.pop("model", {}),
        src_lang=task.src_lang,
        tgt_lang=task.tgt_lang,
        ignored=task.ignore or (),
        task=task.task,
        adapter=adapter,
        vocabularies=(task.src_vocab, task.tgt_vocab) if task.src_vocab and task.tgt_vocab else None,
    )
    imported = read_directory(layout, source, options)
    read = imported.config.model_dump(exclude_unset=True)
    config = _config(read | {name: read.get(name, {}) | values for name, values in settings.items()})
    return _Imported(
        config, imported.weights, imported.tokenizers, layout, imported.notes, imported.shortlist
    )


def _read_file(
    task: Import, layout: str | None, source: Path, settings: dict[str, dict[str, Any]]
) -> _Imported:
    from heedful.interop import fairseq, fairseq_dictionaries
    from heedful.interop.conversion import read_checkpoint
    from heedful.interop.layouts import read_layout, recognise_weights
    from heedful.interop.vocabulary import fit_vocabularies, read_tokenizers

    vocabularies = (task.src_vocab, task.tgt_vocab) if task.src_vocab and task.tgt_vocab else None
    checkpoint = read_checkpoint(source)
    own = settings.pop("model", {})
    layout = layout or recognise_weights(source, checkpoint, own)
    _check_options(task, layout)
    of_fairseq = layout == fairseq.LAYOUT  # whose vocabularies have another format
    tokenizers = read_tokenizers(*vocabularies) if vocabularies and not of_fairseq else None
    model_settings = own | _padding(tokenizers)
    imported = read_layout(
        layout, checkpoint.tensors, settings=model_settings, origin=source, beside=checkpoint.beside
    )
    if vocabularies and of_fairseq:
        languages = fairseq_dictionaries.Languages.of(checkpoint.beside, task.lang_dict)
        tokenizers = fairseq_dictionaries.read_dictionaries(
            *vocabularies, imported.config, languages=languages
        )
        read = languages.settings(task.src_lang, task.tgt_lang, tokenizers)
        imported = replace(imported, config=imported.config.replace(**read.pop("model", {})))
        settings = {name: read.get(name, {}) | settings.get(name, {}) for name in {**read, **settings}}
    elif task.lang_dict or task.src_lang or task.tgt_lang:
        raise ConfigError("--lang-dict, --src-lang, --tgt-lang: give --src-vocab and --tgt-vocab too")
    if tokenizers is not None:
        imported = fit_vocabularies(imported, tokenizers)
        settings["tokenizer"] = {"kind": "word", "joint": tokenizers.joint} | settings.get("tokenizer", {})
    config = _config(settings | {"model": imported.config.model_dump(exclude_unset=True)})
    return _Imported(config, imported.weights, tokenizers, layout)


def _config(sections: dict[str, dict[str, Any]]) -> "Config":
    """Return the configuration of an imported model, without label smoothing, which no format states."""
    from heedful.settings.loading import validate

    return validate(sections | {"train": {"label_smoothing": 0.0} | sections.get("train", {})})


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


def _card(task: Import, read: _Imported) -> str:
    from heedful.interop.layouts import DIRECTORY_LAYOUTS
    from heedful.runs.card import front_matter, model_title
    from heedful.runs.loading import hub_repo
    from heedful.storage.weights_file import weight_shapes

    config = read.config
    title = model_title(config)
    use = "`heedful translate` takes it."
    if read.layout in DIRECTORY_LAYOUTS and config.decode.max_length is not None:
        use += (
            f" Its outputs have at most {config.decode.max_length:,} tokens; "
            "`heedful import --set decode.max_length=N` makes a bundle with another limit."
        )
    if read.tokenizers is None:
        use = "It has no tokenizer: `heedful.load_model(...)` gives the model, which takes and gives ids."
    elif read.tokenizers.src.kind == "word":
        use = f"Its tokenizers split at spaces; {use}"
    if task.ignore:
        keys = ", ".join(f"`{key}`" for key in task.ignore)
        use += f" Keys of its configuration that were ignored on request: {keys}."
    if read.shortlist is not None:
        use += f" Its shortlist is `{_SHORTLIST}`, for `heedful translate --shortlist`."
    base = hub_repo(task.source)
    num_parameters = sum(map(math.prod, weight_shapes(config.model).values()))
    return front_matter(config, title=title, base_model=base) + (
        f"# {title}\n\n{num_parameters:,} parameters, imported from `{base or task.source.name}` as "
        f"layout `{read.layout}`. Not scored.\n\n{use}\n" + "".join(f"\n{note}\n" for note in read.notes)
    )


def command(task: Import) -> None:
    """Import, and print the path of the bundle."""
    import_(task, report=lambda note: print(f"note: {note}", file=sys.stderr))
    print(task.output)
