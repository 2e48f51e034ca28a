"""The models of the service: their languages, and their translators, here or in other processes."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

from heedful import InputError, Pair, SearchOptions, Translator
from heedful.decoding import TextCodec
from heedful.documents import TranslationMemory
from heedful.serving.adapters import AdapterShelf, AdaptersOfModel
from heedful.serving.model_queue import ServedModel, ServedPair
from heedful.serving.on_ray import RemoteTranslator
from heedful.serving.options import ServiceOptions
from heedful.settings.options import Languages
from heedful.spans import Request
from heedful.tasks.loading import load_translator
from heedful.tasks.verify import check_as_recorded
from heedful.text.languages import language_code

_MOST_NAMED = 3  # pairs of a list


Opener = Callable[[str], Translator | RemoteTranslator]


def load_models(
    options: ServiceOptions,
    open_model: Opener | None = None,
    *,
    notify: Callable[[str], None] = lambda _: None,
) -> list[ServedModel]:
    """Return the models of a service, loaded; if several have a pair, the first one translates it.

    Args:
        options: the service.
        open_model: returns the translator of the model at a path; None: the model is loaded here.
        notify: receives a line for each model if another one translates some of its pairs.

    Raises:
        InputError: as `load_served`, or all pairs of a model are translated by models before it.
    """
    models: list[ServedModel] = []
    shelf = AdapterShelf(options.adapter or ())
    first: dict[Pair, str] = {}
    for argument in options.models or ():
        model = load_served(argument, options, open_model, shelf)
        shared = sorted(model.pairs & first.keys())
        if shared:
            names = ", ".join(map(str, shared[:_MOST_NAMED])) + (", ..." if shared[_MOST_NAMED:] else "")
            others = ", ".join(dict.fromkeys(first[pair] for pair in shared))
            if len(shared) == len(model.pairs):
                raise InputError(
                    f"{argument}: all of its pairs ({names}) are taken by {others}, listed before it; change "
                    "the order, or name other pairs"
                )
            notify(f"{argument}: {names} ({len(shared)} of {len(model.pairs)} pairs): {others} answers")
        first |= dict.fromkeys(model.pairs - first.keys(), argument)
        models.append(model)
    known = {name for model in models if model.adapters is not None for name in model.adapters.names()}
    for name, path in shelf.paths().items():
        if name not in known:
            reason = f"{path} is no adapter of a model that is served; the log says why"
            raise InputError(f"--adapter {name}: {reason}")
    return models


def load_served(
    argument: str,
    service: ServiceOptions | None = None,
    open_model: Opener | None = None,
    shelf: AdapterShelf | None = None,
) -> ServedModel:
    """Return a model, loaded; see `load_models`.

    Raises:
        InputError: the languages it translates are not known, it has others, or the engine does not have
            its search.
        BundleError: with `verify`, it does not say what its bundle has recorded.
    """
    said, path = parse_argument(argument)
    service = service or ServiceOptions()
    if open_model is None:
        loaded = load_translator(Path(path), Languages(), service.runtime)
        if service.verify:
            check_as_recorded(loaded)
        translator: Translator | RemoteTranslator = loaded
    else:
        translator = open_model(path)
    bundle = translator.bundle
    tags = bundle.pairs(said)
    if not (tags or said):
        raise InputError(
            f"{path}: the languages of this model are not known; "
            f"name source and target: heedful serve en-de={path}"
        )
    for pair in said:
        if pair not in tags:
            raise InputError(f"{path}: does not translate {pair}; heedful inspect shows what it has")
    if isinstance(translator, Translator):
        threads = translator.generator.parallel_batches
        description = f"{translator.engine_in_use} engine, {translator.precision_in_use}"
    else:
        threads, description = translator.batches, ""

    @cache
    def options(n_best: int) -> SearchOptions:
        return SearchOptions.from_config(bundle.config.decode, **{**service.search, "n_best": n_best})

    def open_pair(pair: Pair) -> ServedPair:
        src, tgt = tags[pair]
        of_pair = translator.for_languages(src_lang=src, tgt_lang=tgt)
        known = None
        if service.memory:
            known = TranslationMemory.load(service.memory, src=pair.src, tgt=pair.tgt, is_needed=False)
        return ServedPair(of_pair, options, known)

    codec = TextCodec.of(bundle)
    model = ServedModel(
        path,
        frozenset(said or tags),
        open_pair,
        bundle=bundle,
        max_tokens=codec.max_tokens(codec.resolved(options(1))),
        threads=threads,
        description=description,
    )
    if shelf is not None:
        model.adapters = AdaptersOfModel(shelf, bundle)
    if isinstance(translator, Translator):  # an engine without the search fails here, and not at each task
        model.translate(next(iter(said or tags)), [Request(".", aligned=False)], alternatives=0)
    return model


def parse_argument(argument: str) -> tuple[list[Pair], str]:
    """Return the pairs that an argument says, as `en-de,de-en=PATH`, and the path.

    Raises:
        InputError: no path, or no pair of languages.
    """
    before, equals, path = argument.partition("=")
    if not equals or "/" in before or os.sep in before:
        return [], argument
    if not path:
        raise InputError(f"{argument}: a bundle must follow, as en-de=runs/en-de")
    return list(map(_parse_pair, before.split(","))), path


def _parse_pair(text: str) -> Pair:
    parts = text.split("-")
    for at in range(1, len(parts)):
        src, tgt = (language_code("-".join(half)) for half in (parts[:at], parts[at:]))
        if src is not None and src == tgt:
            raise InputError(f"{text!r}: source and target are the same language; give two")
        if src is not None and tgt is not None:
            return Pair(src, tgt)
    raise InputError(f"{text!r}: no pair of languages; write the codes of both, as en-de")
