"""Load a translator from a path and options: the first step of every verb with a trained model."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, TypeVar, cast

from heedful.decoding.backends.choice import has_torch
from heedful.decoding.options import SEARCH_NAMES, check_names
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translator import Translator
from heedful.errors import HubError, InputError, MissingExtraError, install_hint
from heedful.interop.huggingface.hub import download_bundle, download_source
from heedful.runtime.threads import may_have_gpu, set_threads
from heedful.settings.options import Device, Languages, Runtime, check_options, kinds_of, options_of
from heedful.storage.adapter import Adapter, read_adapter
from heedful.storage.bundle import Bundle, load_bundle
from heedful.storage.description import WEIGHTS_FILE
from heedful.tasks.options import Notify, say_nothing

_Options = TypeVar("_Options")
_PREFIX = "hf:"
_PEFT_FILE = "adapter_config.json"
_SUFFIXES = {
    ".pt",
    ".pth",
    ".bin",
    ".ckpt",
    ".safetensors",
    ".npz",
    ".onnx",
    ".json",
    ".toml",
    ".gz",
    ".zip",
    ".argosmodel",
}
_HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>.+))?", re.ASCII)


def local_bundle(name: Path) -> Path:
    """Return the path of a bundle or run: download a model of the hub, import one of CTranslate2 or Argos.

    An existing path is returned unchanged, even if it is no bundle (see `resolve_bundle`). Otherwise
    `user/model` or `user/model@revision`, with or without `hf:`, is the id of a model on the hub. Without
    `hf:`, a name in an existing directory or with the suffix of a file is a path. A package of Argos or a
    directory of CTranslate2 is imported into the user's cache, once for its contents and this version.

    Raises:
        HubError: the hub has no such bundle, or cannot be reached.
        BundleError: the bundle has a newer format.
        InteropError: a model of CTranslate2 that cannot be imported.
        InputError: not a valid id after `hf:`, or a path that does not exist.
        MissingExtraError: it may be an id, and huggingface_hub is not installed.
    """
    path = _local(name, download_bundle)
    files = ("model.bin", "model/model.bin") if path.is_dir() else ("",) * (path.suffix == ".argosmodel")
    if not any((path / file).is_file() for file in files):
        return path
    from heedful.interop.layouts import cached_bundle

    return cached_bundle(path)


def local_source(name: Path) -> Path:
    """Return the path of a model to import, like `local_bundle`."""
    return _local(name, download_source)


def hub_repo(name: Path) -> str | None:
    """Return the repository of a name, `user/model`; None for a path.

    >>> hub_repo(Path("hf:user/model@v2"))
    'user/model'
    """
    text = name.as_posix()
    is_path = name.exists() or (not text.startswith(_PREFIX) and _is_meant_as_path(name))
    match = None if is_path else _HUB_ID.fullmatch(text.removeprefix(_PREFIX))
    return match["repo"] if match else None


def _local(name: Path, download: Callable[..., Path]) -> Path:
    text = name.as_posix()
    if name.exists():
        return name
    hub_id = _HUB_ID.fullmatch(text.removeprefix(_PREFIX))
    if text.startswith(_PREFIX):
        if hub_id is None:
            raise InputError(f"{text}: not an id of the hub; give hf:user/model or hf:user/model@revision")
        return download(hub_id["repo"], revision=hub_id["revision"])
    if hub_id is None:
        return name
    if _is_meant_as_path(name):
        raise InputError(f"{text}: no such file or directory; {_advice(name)}")
    try:
        return download(hub_id["repo"], revision=hub_id["revision"])
    except (HubError, MissingExtraError) as error:
        raise type(error)(f"there is no {text} here; {error}") from None


def _is_meant_as_path(name: Path) -> bool:
    return name.parent.is_dir() or name.suffix.lower() in _SUFFIXES


def _advice(name: Path) -> str:
    beside = [entry.name for entry in name.parent.iterdir()] if name.parent.is_dir() else []
    if close := difflib.get_close_matches(name.name, beside, n=1):
        return f"did you mean {name.parent / close[0]}?"
    return f"check the path, or write hf:{name.as_posix()} for a model of the hub"


def load_translator(
    run: Path,
    languages: Languages,
    runtime: Runtime,
    *,
    shortlist: Path | None = None,
    adapter: Path | None = None,
    ensemble: Sequence[Path] = (),
    notify: Notify = say_nothing,
) -> Translator:
    """Load the best bundle of a run, a bundle, or one of the hub, onto its device.

    Args:
        run: a run, a bundle, a checkpoint of a run, or a name on the hub.
        languages: the languages of a multilingual model.
        runtime: precision, engine, device, threads and batch sizes.
        shortlist: the file of a shortlist.
        adapter: the adapter of all texts; see `load_adapter`.
        ensemble: further runs or bundles of an ensemble.
        notify: called with the precision that "auto" has chosen, because outputs may depend on it.

    Raises:
        BundleError: nothing there, or a bundle that is damaged or too new.
        HubError: a name that is neither a path nor a model on the hub.
        InputError: a precision or device that does not exist, a language that the model does not have, models
            that cannot be an ensemble, or a shortlist that cannot be read or is for another model.
        MissingExtraError: an option needs torch, and it is not installed.
    """
    device = _device(runtime.device)
    if runtime.threads is not None:
        set_threads("threads", runtime.threads)
    bundle, *others = map(_loaded, (run, *ensemble))
    if device != "cpu":
        bundle, *others = (replace(loaded, network=loaded.model.to(device)) for loaded in (bundle, *others))
    translator = Translator(
        bundle,
        precision=runtime.precision,
        batch_tokens=runtime.batch_tokens,
        batch_size=runtime.batch_size,
        ensemble=others,
        engine=runtime.engine,
        shortlist=None if shortlist is None else Shortlist.load(shortlist),
    )
    if adapter is not None:
        name = str(adapter)
        translator.adapters[name] = load_adapter(adapter, bundle)
        translator = translator.with_adapter(name)
    if runtime.precision == "auto":
        notify(f"precision {translator.precision_in_use}: the fastest here")
    if languages == Languages():
        return translator
    return translator.for_languages(src_lang=languages.src_lang, tgt_lang=languages.tgt_lang)


def load_adapter(path: Path, base: Bundle) -> Adapter:
    """Read an adapter of a base: a run, a bundle or a file (`read_adapter`), or a directory of PEFT.

    Raises:
        BundleError: there is none, or it is damaged or of another base.
        InteropError: an adapter of PEFT that is not LoRA, or changes more than linear layers.
        MissingExtraError: an adapter of PEFT needs torch, and it is not installed.
    """
    if not (path / _PEFT_FILE).is_file():
        return read_adapter(path, base)
    if not has_torch():
        raise MissingExtraError(f"{path}: an adapter of PEFT needs torch: {install_hint('torch')}")
    from heedful.interop.peft import read_peft  # torch

    return read_peft(path, base)


def _loaded(path: Path) -> Bundle:
    """Load a bundle, or a checkpoint of a run, which has all but the weights from the run's bundle."""
    checkpoints = path.absolute().parent
    if checkpoints.name != "checkpoints" or not (path / WEIGHTS_FILE).is_file():
        return load_bundle(local_bundle(path))
    from heedful.tasks.checkpoints import bundle_of_checkpoints  # training, which needs torch

    return bundle_of_checkpoints(checkpoints.parent, [path])


def from_keywords(
    kind: type[_Options],
    keywords: Mapping[str, Any],
    function: Callable[..., Any],
    **own: Any,  # noqa: ANN401
) -> _Options:
    """Return the options of a task from the keyword arguments of a function; paths may be strings.

    Args:
        kind: the dataclass of the options, with fields languages, runtime and search.
        keywords: its fields, and those of its languages, runtime and search, by their own names.
        function: the public function that takes them; its parameters are suggested for a misspelt one.
        own: fields that the function takes itself.

    Raises:
        InputError: an option that does not exist, or an invalid value; the message names it.
    """
    own_kinds, groups = kinds_of(cast(type, kind)), {"languages": Languages, "runtime": Runtime}
    names = options_of(cast(type, kind)).keys()
    known = SEARCH_NAMES.union(names, *map(options_of, groups.values()))
    check_names(keywords, known - own.keys(), signature(function).parameters)
    left = {**keywords, **own}
    values: dict[str, Any] = {}
    for name, group in groups.items():
        values[name] = group(**{key: left.pop(key) for key in options_of(group).keys() & left.keys()})
    for name in names & left.keys():
        values[name] = _as_option(left.pop(name), own_kinds[name])
    options: _Options = cast(Any, kind)(**values, search=left)
    for checked in (values["languages"], values["runtime"], options):
        check_options(checked)
    return options


def refuse_options_of_models(keywords: Mapping[str, Any]) -> None:
    """Check that options do not load a model, because it is loaded already.

    Raises:
        InputError: an option of loading; the message names one.
    """
    for name in keywords.keys() & {"ensemble", "shortlist", *options_of(Languages), *options_of(Runtime)}:
        raise InputError(f"{name}: this translator has its own; give it where the model is loaded")


def _as_option(value: object, kinds: Sequence[Any]) -> object:
    """Convert a value to the type of an option: a string to a path or the reverse, one value to a list."""
    items = [value] if isinstance(value, str | Path) else value
    if not isinstance(items, list | tuple):
        return value
    for of_items, kind in ((list[Path], Path), (list[str], str)):
        written = [kind(item) if isinstance(item, str | Path) else item for item in items]
        if of_items in kinds:
            return written
        if kind in kinds and items is not value:
            return written[0]
    return value


def _device(name: Device) -> str:
    if name == "cpu" or (name == "auto" and not may_have_gpu()):
        return "cpu"
    if has_torch() and import_module("torch").cuda.is_available():
        return "cuda"
    if name == "auto":
        return "cpu"
    if has_torch():
        raise InputError("device='cuda': torch finds no GPU here; use --device cpu")
    raise MissingExtraError(f"device='cuda': this needs torch: {install_hint('torch')}")
