"""Models of other systems: import one as a bundle, export a bundle as one."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from heedful.errors import ConfigError, InteropError, suggestion
from heedful.interop.ctranslate2.export import export_ctranslate2
from heedful.interop.exporting import refuse_variants
from heedful.interop.huggingface.adapters import ADAPTER_FILE, base_of
from heedful.interop.huggingface.pretrained import ImportedBundle, ImportOptions
from heedful.interop.huggingface.t5gemma import export_t5gemma
from heedful.interop.layouts import check_import_options, check_layout, is_directory, read_model
from heedful.interop.marian import export_marian
from heedful.interop.onnx.export import export_onnx
from heedful.runtime.durable import new_directory
from heedful.settings.arguments import taking
from heedful.settings.words import WORDS
from heedful.storage.bundle import load_bundle, save_weights
from heedful.storage.weights_file import weight_shapes
from heedful.tasks.card import front_matter, model_title
from heedful.tasks.loading import hub_repo, local_bundle, local_source
from heedful.tasks.options import SHORTLIST, ModelExport, ModelImport
from heedful.text.pair import choose_languages

_EXPORTS: Mapping[str, Callable[..., object]] = {
    "ctranslate2": export_ctranslate2,
    "marian": export_marian,
    "onnx": export_onnx,
    "t5gemma": export_t5gemma,
}
_log = logging.getLogger("heedful")


@taking(ModelImport)
def import_model(task: ModelImport) -> Path:
    """Import a model of another implementation as a bundle: `heedful import`; return the bundle's path.

    >>> heedful.import_model("opus-ct2", output="opus")
    PosixPath('opus')

    The arguments are the options of the command, by the same names, and notify: it receives sentences about
    what was not in the files; by default the logger "heedful" does.

    Raises:
        RunError: the output exists.
        InteropError: the source cannot be read or is not of the layout, or a vocabulary has a wrong size.
        TokenizerError: the tokenizer files are not usable.
        ConfigError: the settings are invalid or incompatible.
        HubError: the hub has no such model, or cannot be reached.
        InputError: an option with an invalid value.
        MissingExtraError: a library that the source needs is not installed.
    """
    source, output, layout = Path(task.source), Path(task.output), task.layout
    lang_dict = None if task.lang_dict is None else Path(task.lang_dict)
    sections = _sections(dict(task.settings))
    wanted = ImportOptions(
        settings=sections.pop("model", {}),
        src_lang=task.src_lang,
        tgt_lang=task.tgt_lang,
        ignored=task.ignore,
        task=task.task,
        vocabularies=_vocabularies(task.src_vocab, task.tgt_vocab),
    )
    if layout is not None:
        check_layout(layout)
    with new_directory(output) as directory:
        if layout is not None:
            check_import_options(layout, wanted, lang_dict)
        path, adapter = _model_and_adapter(source, task.base)
        wanted = replace(wanted, adapter=adapter)
        imported, layout = read_model(path, wanted, layout=layout, settings=sections, lang_dict=lang_dict)
        if imported.tokenizers is not None and imported.config.model.alignment_layer is None:
            imported = replace(imported, notes=(*imported.notes, _UNTRAINED_ALIGNMENT))
        card = _card(source, imported, layout, task.ignore)
        save_weights(imported.weights, imported.config, imported.tokenizers, directory, card=card)
        if imported.shortlist is not None:
            imported.shortlist.save(directory / SHORTLIST)
    for note in imported.notes:
        (task.notify or _log.warning)(note)
    return output


_UNTRAINED_ALIGNMENT = (
    "The files name no attention that was trained to align words, so tags in translations are often around "
    "other words than they should be; heedful align --learn adds an aligner, or if guided alignment trained "
    "layer N, --set model.alignment_layer=N reads its first head."
)


def _sections(settings: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    sections = defaultdict[str, dict[str, Any]](dict)
    for key, value in settings.items():
        section, _, name = key.partition(".")
        sections[section][name] = value
    return sections


def _vocabularies(src: str | Path | None, tgt: str | Path | None) -> tuple[Path, Path] | None:
    if src is None and tgt is None:
        return None
    if src is None or tgt is None:
        raise ConfigError("--src-vocab and --tgt-vocab must both be set")
    return Path(src), Path(tgt)


def _model_and_adapter(name: Path, base: str | Path | None) -> tuple[Path, Path | None]:
    """Return where the model is; of an adapter of PEFT, where its base model is, and the adapter."""
    source = local_source(name)
    if not (source / ADAPTER_FILE).is_file():
        if base is not None:
            raise ConfigError(f"--base: {source} is not an adapter of PEFT; leave it out")
        return source, None
    model = local_source(Path(base or base_of(source)))
    if not model.is_dir():
        raise InteropError(f"{source / ADAPTER_FILE}: its base {model} is not here; give --base DIR")
    return model, source


def _card(name: Path, imported: ImportedBundle, layout: str, ignored: Collection[str]) -> str:
    config = imported.config
    title = model_title(config)
    use = "`heedful translate` takes it."
    if is_directory(layout) and config.decode.max_length is not None:
        use += (
            f" Its outputs have at most {config.decode.max_length:,} tokens; "
            "`heedful import --set decode.max_length=N` makes a bundle with another limit."
        )
    if imported.tokenizers is None:
        use = "It has no tokenizer: `heedful.load_model(...)` gives the model, which takes and gives ids."
    elif imported.tokenizers.src.kind == "word":
        use = f"Its tokenizers split at spaces; {use}"
    if ignored:
        keys = ", ".join(f"`{key}`" for key in ignored)
        use += f" Keys of its configuration that were ignored on request: {keys}."
    if imported.shortlist is not None:
        use += f" Its shortlist is `{SHORTLIST}`, for `heedful translate --shortlist`."
    base = hub_repo(name)
    num_parameters = sum(map(math.prod, weight_shapes(config.model).values()))
    return front_matter(config, title=title, base_model=base) + (
        f"# {title}\n\n{num_parameters:,} parameters, imported from `{base or name.name}` as "
        f"layout `{layout}`. Not scored.\n\n{use}\n" + "".join(f"\n{note}\n" for note in imported.notes)
    )


@taking(ModelExport)
def export_model(task: ModelExport) -> Path:
    """Export a model for another system: `heedful export`; return the path of its directory.

    >>> heedful.export_model("runs/demo", to="ctranslate2", output="en-de-ct2")
    PosixPath('en-de-ct2')

    The directory is written whole, or not at all. The arguments are the options of the command, by the same
    names.

    Raises:
        RunError: the output exists.
        InteropError: there is no such target, or it does not support the model.
        BundleError: there is no bundle, it is damaged, or it has no tokenizer.
        InputError: the model does not have that language.
        MissingExtraError: a library that the target needs is not installed.
    """
    to, output = task.to, Path(task.output)
    if to not in _EXPORTS:
        raise InteropError(f"--to {to!r} does not exist{suggestion(to, _EXPORTS, WORDS)}")
    if task.quantization is not None and to != "ctranslate2":
        raise InteropError(f"--quantization is for --to ctranslate2, not for {to}; leave it out")
    bundle = load_bundle(local_bundle(Path(task.bundle)))
    languages = {"src_lang": task.src_lang, "tgt_lang": task.tgt_lang}
    config = choose_languages(bundle.config, bundle.tokenizers, **languages)
    if to != "t5gemma":  # whose decoder is a variant
        refuse_variants(config.model, to)
    options = {"quantization": task.quantization} if to == "ctranslate2" else {}
    _EXPORTS[to](replace(bundle, config=config), output, **options)
    return output
