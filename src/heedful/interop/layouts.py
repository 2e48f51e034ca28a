"""Read a model of another system: a directory, a package or a file of weights, by the layout of its names."""

import hashlib
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import version
from pathlib import Path

import platformdirs
from torch import Tensor

from heedful.errors import BundleError, ConfigError, InteropError, suggestion
from heedful.interop import (
    fairseq,
    fairseq_dictionaries,
    marian_native,
    opennmt,
    worked_examples,
)
from heedful.interop.conversion import Checkpoint, Conversion, Imported, Settings, read_checkpoint
from heedful.interop.ctranslate2 import argos
from heedful.interop.ctranslate2.reading import LAYOUT as CTRANSLATE2
from heedful.interop.ctranslate2.reading import MODEL_FILE, read_ctranslate2
from heedful.interop.huggingface.fairseq_families import BART, M2M100, MBART, MVP, PLBART
from heedful.interop.huggingface.other_families import BLENDERBOT, BLENDERBOT_SMALL, FSMT, PEGASUS
from heedful.interop.huggingface.pretrained import (
    CONFIG_FILE,
    ImportedBundle,
    ImportOptions,
    read_pretrained,
)
from heedful.interop.huggingface.reading import Family
from heedful.interop.huggingface.t5 import MT5, T5, UMT5
from heedful.interop.huggingface.t5gemma import T5GEMMA, T5GEMMA2
from heedful.interop.marian import MARIAN
from heedful.interop.marian_files import is_marian, is_model
from heedful.interop.tables import Table
from heedful.interop.vocabulary import fit_vocabularies, read_settings, read_tokenizers
from heedful.runtime.durable import locked, why_not_written
from heedful.settings.parsing import shown
from heedful.settings.plugins import plugin_part
from heedful.settings.run import Config
from heedful.storage.bundle import save_weights
from heedful.storage.description import FORMAT_VERSION, file_sha256, read_description

LAYOUTS: dict[str, Table] = {
    "abhishek-thread": worked_examples.ABHISHEK_THREAD,
    "nptel-lecture": worked_examples.NPTEL_LECTURE,
    "kaggle-notebook": worked_examples.KAGGLE_NOTEBOOK,
    "adeveloperdiary": worked_examples.ADEVELOPERDIARY,
    "jadore": worked_examples.JADORE,
    "jadore-prj": worked_examples.JADORE_PRJ,
    "torch": worked_examples.TORCH,
    "annotated": worked_examples.ANNOTATED,
    fairseq.LAYOUT: fairseq.TABLE,
}
# Directories of transformers, by "model_type" of config.json.
FAMILIES: dict[str, Family] = {
    family.model_type: family
    for family in (
        *(MARIAN, M2M100, BART, MBART, MVP, PLBART, FSMT, PEGASUS, BLENDERBOT, BLENDERBOT_SMALL),
        *(T5, MT5, UMT5, T5GEMMA, T5GEMMA2),
    )
}
PRETRAINED = tuple(dict.fromkeys(family.layout for family in FAMILIES.values()))
OTHERS: dict[str, Callable[[Path, ImportOptions], ImportedBundle]] = {
    CTRANSLATE2: read_ctranslate2,
    argos.LAYOUT: argos.read_argos,
    marian_native.LAYOUT: marian_native.read_marian_native,
    opennmt.LAYOUT: opennmt.read_opennmt,
    opennmt.EOLE: opennmt.read_eole,
}
DIRECTORY_LAYOUTS = (*PRETRAINED, *OTHERS)
# The options of an import that a layout takes; other files of weights take vocabularies alone.
_TAKEN: dict[str, Collection[str]] = {
    fairseq.LAYOUT: {"vocabularies", "languages", "lang_dict"},
    marian_native.LAYOUT: {"vocabularies", "languages"},
    opennmt.LAYOUT: {"languages"},
    **dict.fromkeys((CTRANSLATE2, argos.LAYOUT, opennmt.EOLE), ("languages", "ignored")),
}
_TAKEN_OF_TRANSFORMERS = {"languages", "ignored", "task", "adapter"}


def families(layout: str) -> dict[str, Family]:
    """Return the families of transformers with a layout, by model_type; a plugin's is `PLUGIN:NAME`."""
    if ":" in layout:
        plugged = plugin_part(layout, "layout")
        return {plugged.model_type: plugged} if isinstance(plugged, Family) else {}
    return {name: family for name, family in FAMILIES.items() if family.layout == layout}


def is_directory(layout: str) -> bool:
    """Return whether models of a layout are directories or packages, and not files of weights."""
    return layout in OTHERS or bool(families(layout))


def read_model(
    source: Path,
    options: ImportOptions,
    *,
    layout: str | None = None,
    settings: Mapping[str, Settings],
    lang_dict: Path | None = None,
) -> tuple[ImportedBundle, str]:
    """Return a model as a bundle has it, and the layout of its files.

    Args:
        source: a directory, a package or a file.
        options: the user's settings of the model.
        layout: the layout of its files; None: it is recognised.
        settings: settings of other sections than `[model]`.
        lang_dict: the languages of a multilingual model of fairseq, one per line.

    Raises:
        InteropError: the source cannot be read or is not of the layout, or a vocabulary has a wrong size.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings or options are invalid or incompatible.
    """
    layout = layout or recognise(source)
    if layout is None or not is_directory(layout):
        return _read_file(layout, source, options, settings, lang_dict)
    check_import_options(layout, options, lang_dict)
    imported = read_directory(layout, source, options)
    read = imported.config.model_dump(exclude_unset=True)
    sections = {name: read.get(name, {}) | values for name, values in settings.items()}
    return replace(imported, config=_config(read | sections)), layout


def check_import_options(layout: str, options: ImportOptions, lang_dict: Path | None) -> None:
    """Check that a layout has what the options are about.

    Raises:
        ConfigError: it has not.
    """
    taken = _TAKEN_OF_TRANSFORMERS if families(layout) else _TAKEN.get(layout, {"vocabularies"})
    languages = options.src_lang or options.tgt_lang
    given: dict[str, tuple[object, str, str]] = {
        "vocabularies": (
            options.vocabularies, "--src-vocab, --tgt-vocab", "has its own tokenizers; leave them out",
        ),
        "ignored": (options.ignored, "--ignore", "has no config.json; leave it out"),
        "task": (options.task, "--task", "has no tasks; leave it out"),
        "adapter": (options.adapter, "--base", "has no adapters; leave it out"),
        "lang_dict": (lang_dict, "--lang-dict", "has no such file; leave it out"),
        "languages": (languages, "--src-lang, --tgt-lang", "has no languages; leave them out"),
    }  # fmt: skip
    for name, (value, option, problem) in given.items():
        if value and name not in taken:
            raise ConfigError(f"{option}: layout {layout!r} {problem}")


def _read_file(
    layout: str | None,
    source: Path,
    options: ImportOptions,
    settings: Mapping[str, Settings],
    lang_dict: Path | None,
) -> tuple[ImportedBundle, str]:
    checkpoint = read_checkpoint(source)
    layout = layout or recognise_weights(source, checkpoint, options.settings)
    check_import_options(layout, options, lang_dict)
    sections = {name: dict(values) for name, values in settings.items()}
    vocabularies = options.vocabularies
    read = partial(read_layout, layout, checkpoint.tensors, origin=source, beside=checkpoint.beside)
    tokenizers = None
    if vocabularies is None:
        if lang_dict or options.src_lang or options.tgt_lang:
            raise ConfigError("--lang-dict, --src-lang, --tgt-lang: give --src-vocab and --tgt-vocab too")
        imported = read(settings=options.settings)
    elif layout == fairseq.LAYOUT:  # it has another format of vocabularies
        imported = read(settings=options.settings)
        languages = fairseq_dictionaries.Languages.of(checkpoint.beside, lang_dict)
        tokenizers = fairseq_dictionaries.read_dictionaries(
            *vocabularies, imported.config, languages=languages
        )
        tagged = languages.settings(options.src_lang, options.tgt_lang, tokenizers)
        imported = replace(imported, config=imported.config.replace(**tagged.pop("model", {})))
        sections = {name: tagged.get(name, {}) | sections.get(name, {}) for name in tagged | sections}
    else:
        tokenizers = read_tokenizers(*vocabularies)
        pads = {"src_pad_id": tokenizers.src.pad_id, "tgt_pad_id": tokenizers.tgt.pad_id}
        imported = read(settings={**options.settings, **pads})
    if tokenizers is not None:
        imported = fit_vocabularies(imported, tokenizers)
        sections["tokenizer"] = {"kind": "word", "joint": tokenizers.joint} | sections.get("tokenizer", {})
    config = _config(sections | {"model": imported.config.model_dump(exclude_unset=True)})
    return ImportedBundle(config, imported.weights, tokenizers), layout


def _config(sections: Settings) -> Config:
    """Return the configuration of an imported model, without label smoothing, which no format states."""
    return Config(**{**sections, "train": {"label_smoothing": 0.0} | sections.get("train", {})})


def read_layout(
    layout: str,
    tensors: Mapping[str, Tensor],
    *,
    settings: Settings | None = None,
    origin: Path | str = "weights",
    beside: Settings | None = None,
) -> Imported:
    """Convert the tensors of a checkpoint to a configuration and weights with the same outputs.

    Args:
        layout: a key of `LAYOUTS`, or a table or function of a plugin, `plugin:name`.
        tensors: the tensors by the checkpoint's names.
        settings: settings that cannot be inferred, by key of `ModelConfig`, for example `{"num_heads": 8}`.
        origin: the name of the file in messages.
        beside: the other contents of the checkpoint, for example the arguments of the training script.

    Raises:
        InteropError: no such layout, or a tensor is unknown, missing or of a wrong shape.
        ConfigError: the settings are invalid.
    """
    check_layout(layout)
    conversion = Conversion(
        tensors, layout=layout, origin=Path(origin), settings=settings or {}, beside=beside
    )
    read = LAYOUTS.get(layout) or plugin_part(layout, "layout")
    return read.read(conversion) if isinstance(read, Table) else read(conversion)


def read_directory(layout: str, path: Path, options: ImportOptions) -> ImportedBundle:
    """Convert a directory or package to a configuration, weights and tokenizers.

    Args:
        layout: a member of `DIRECTORY_LAYOUTS`.
        path: the directory or package.
        options: the user's settings.

    Raises:
        InteropError: no such layout, a file is missing, or it has settings that are not supported.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid.
    """
    check_layout(layout)
    if layout in OTHERS:
        return OTHERS[layout](path, options)
    directory = read_pretrained(path, options=options)
    known, model_type = families(layout), directory.config.get("model_type")
    if not isinstance(model_type, str) or model_type not in known:
        types = " or ".join(map(repr, known))
        directory.refuse(f"model_type is {shown(model_type)}, not {types}; give another --layout")
    return known[model_type].read(directory)


def cached_bundle(path: Path) -> Path:
    """Return the bundle in the user's cache that a directory or package was imported to.

    It is imported the first time, once for its contents and this version: a bundle in a temporary directory
    would be made anew at each start, by each process. Processes that need it meanwhile wait; a bundle that is
    damaged is imported again.

    Raises:
        InteropError: it cannot be imported.
        BundleError: the cache cannot be written.
    """
    digest = hashlib.sha256(f"{version('heedful')} {FORMAT_VERSION}".encode())
    files = [path] if path.is_file() else [*path.iterdir(), *path.glob("model/*")]
    for file in sorted(filter(Path.is_file, files)):
        digest.update(f"{file.relative_to(path)} {file_sha256(file)} ".encode(errors="backslashreplace"))
    output = platformdirs.user_cache_path("heedful") / "imported" / digest.hexdigest()[:32]
    if _is_whole(output):
        return output
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        with locked(output.with_suffix(".import")):
            if not _is_whole(output):
                layout = recognise(path)
                assert layout is not None  # only files of weights have none
                imported = read_directory(layout, path, ImportOptions(settings={}))
                card = f"# {path.name}\n\nImported from `{path}` as layout `{layout}`, for use.\n"
                save_weights(imported.weights, imported.config, imported.tokenizers, output, card=card)
    except OSError as error:
        remedy = "import it with `heedful import`, or set XDG_CACHE_HOME to another folder"
        raise BundleError(f"{output}: cannot be written: {why_not_written(error, remedy=remedy)}") from error
    return output


def _is_whole(bundle: Path) -> bool:
    try:
        read_description(bundle).check(bundle)
    except BundleError:
        return False
    return True


def recognise(path: Path) -> str | None:
    """Return the layout of a directory or package; None for a file of weights (`recognise_weights`).

    Raises:
        InteropError: no layout fits, or Marian's and CTranslate2's do.
    """
    if argos.is_package(path):
        return argos.LAYOUT
    has_ctranslate2 = (path / MODEL_FILE).is_file()
    if is_marian(path):
        if has_ctranslate2 and not is_model(path / MODEL_FILE):
            raise InteropError(
                f"{path}: the layouts {marian_native.LAYOUT} and {CTRANSLATE2} fit; choose one by --layout"
            )
        return marian_native.LAYOUT
    if path.is_file():
        return opennmt.LAYOUT if opennmt.is_opennmt(path) else None
    if has_ctranslate2:
        return CTRANSLATE2
    if opennmt.is_eole(path):
        return opennmt.EOLE
    if not (path / CONFIG_FILE).is_file():
        raise InteropError(
            f"{path}: no such model: there is neither {MODEL_FILE} of CTranslate2, nor {CONFIG_FILE} of "
            "transformers, nor metadata.json of Argos, nor a .npz or .bin of Marian"
        )
    model_type = read_settings(path / CONFIG_FILE).get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise InteropError(
            f"{path / CONFIG_FILE}: model_type is {shown(model_type)}; there are {', '.join(FAMILIES)}"
        )
    return FAMILIES[model_type].layout


def recognise_weights(path: Path, checkpoint: Checkpoint, settings: Settings) -> str:
    """Return the layout of a file of weights.

    Args:
        path: the file.
        checkpoint: its contents.
        settings: the user's settings.

    Raises:
        InteropError: no layout fits, or several do.
    """
    with_heads = {"num_heads": 1, **settings}  # weights may not show the number of heads
    fitting = [layout for layout in LAYOUTS if _fits(layout, checkpoint, settings, with_heads)]
    if len(fitting) == 1:
        return fitting[0]
    problem = f"the layouts {' and '.join(fitting)} fit; choose one by --layout"
    none = f"no layout fits; --layout NAME says why, with one of {', '.join(LAYOUTS)}"
    raise InteropError(f"{path}: {problem if fitting else none}")


def _fits(layout: str, checkpoint: Checkpoint, *attempts: Settings) -> bool:
    """Return whether a layout can be read with one of several settings."""
    for settings in attempts:
        with suppress(InteropError, ConfigError):
            read_layout(layout, checkpoint.tensors, settings=settings, beside=checkpoint.beside)
            return True
    return False


def check_layout(layout: str) -> None:
    """Raise an InteropError with a suggestion if there is no such layout."""
    known = [*LAYOUTS, *DIRECTORY_LAYOUTS]
    if ":" not in layout and layout not in known:
        raise InteropError(f"layout {layout!r} does not exist{suggestion(layout, known)}")
