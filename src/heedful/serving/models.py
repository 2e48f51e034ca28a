"""The models of the service: their languages, and their translators, here or in other processes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from heedful.bulk.memories import pair_of
from heedful.decoding.backends.protocol import Backend
from heedful.decoding.options import SearchOptions, search_options
from heedful.decoding.texts import TextCodec
from heedful.documents.alignment import PairTranslator
from heedful.documents.memory import TranslationMemory
from heedful.errors import InputError
from heedful.runs.loading import load_translator
from heedful.serving.model_queue import ServedModel, ServedPair
from heedful.settings.options import Languages, Runtime
from heedful.settings.run import Config
from heedful.storage.bundle import Bundle
from heedful.text.languages import Pair, language_code
from heedful.text.pair import TAGS_OF_TARGET, choose_languages
from heedful.text.tokenizer import Tokenizer

_MOST_NAMED = 3  # pairs of a list


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to translate.

    Attributes:
        bundle: the bundle of the model.
        translator: returns its translator; the arguments are the tags of languages, if it has many.
        threads: that can translate sentences of their own.
        description: engine and precision, for the log.
        backend: the backend of its translators; None: it is in another process.
    """

    bundle: Bundle
    translator: Callable[[str | None, str | None], PairTranslator]
    threads: int
    description: str = ""
    backend: Backend | None = None


def open_here(path: str, runtime: Runtime | None = None) -> OpenedModel:
    """Load a model in this process."""
    translator = load_translator(Path(path), Languages(), runtime or Runtime())
    return OpenedModel(
        translator.bundle,
        lambda src, tgt: translator.for_languages(src_lang=src, tgt_lang=tgt),
        translator.generator.backend.parallel_batches,
        f"{translator.engine_in_use} engine, {translator.precision_in_use}",
        translator.generator.backend,
    )


def load_models(
    arguments: Sequence[str],
    open_model: Callable[[str], OpenedModel] = open_here,
    *,
    search: Mapping[str, Any] | None = None,
    memory: Sequence[Path] = (),
    notify: Callable[[str], None] = lambda _: None,
) -> list[ServedModel]:
    """Return the models, loaded; if several have a pair, the first one translates it.

    Args:
        arguments: the models, as `heedful serve` takes them: paths, or en-de,de-en=PATH.
        open_model: loads the model at a path.
        search: options of the search by name; others are the bundles'.
        memory: translation memories: a sentence with an exact match is translated as there.
        notify: receives a line for each model if another one translates some of its pairs.

    Raises:
        InputError: as `load_served`, or all pairs of a model are translated by models before it.
    """
    models: list[ServedModel] = []
    first: dict[Pair, str] = {}
    for argument in arguments:
        model = load_served(argument, open_model, search=search, memory=memory)
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
    return models


def load_served(
    argument: str,
    open_model: Callable[[str], OpenedModel] = open_here,
    *,
    search: Mapping[str, Any] | None = None,
    memory: Sequence[Path] = (),
) -> ServedModel:
    """Return a model, loaded; see `load_models`.

    Raises:
        InputError: the languages it translates are not known, it has others, or the engine does not have
            its search.
    """
    said, path = parse_argument(argument)
    opened = open_model(path)
    bundle = opened.bundle
    config, tokenizers = bundle.config, bundle.tokenizers
    tags = _tags(config, tokenizers.src, tokenizers.tgt)
    if not tags:
        pair = pair_of(config)
        pairs = said or ([pair] if pair else [])
        if not pairs:
            raise InputError(
                f"{path}: the languages of this model are not known; "
                f"name source and target: heedful serve en-de={path}"
            )
        targets = _languages(tokenizers.src, starts=TAGS_OF_TARGET)
        known = (each for each in pairs if each.tgt in targets or not (said and targets))
        tags = {pair: (None, targets.get(pair.tgt)) for pair in known}
    for pair in said:
        if pair not in tags:
            raise InputError(f"{path}: does not translate {pair}; heedful inspect shows what it has")

    def options(n_best: int) -> SearchOptions:
        return search_options({**(search or {}), "n_best": n_best}, config.decode)

    def open_pair(pair: Pair) -> ServedPair:
        src, tgt = tags[pair]
        chosen, known = bundle, None
        if (src, tgt) != (None, None):
            languages = choose_languages(config, tokenizers, src_lang=src, tgt_lang=tgt)
            chosen = replace(bundle, config=languages)
        if memory:
            known = TranslationMemory.load(memory, src=pair.src, tgt=pair.tgt, is_needed=False)
        width, translator = options(1).beam_size, opened.translator(src, tgt)
        return ServedPair(translator, options, width, chosen, backend=opened.backend, memory=known)

    if opened.backend is not None:  # an engine without the search fails here, and not at each task
        open_pair(next(iter(tags))).translator.translations(["."], options=options(1))
    codec = TextCodec.of(bundle)
    return ServedModel(
        path,
        frozenset(said or tags),
        open_pair,
        tokenizer=tokenizers.src,
        max_tokens=codec.max_tokens(codec.resolved(options(1))),
        threads=opened.threads,
        description=opened.description,
    )


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
    return [_parse_pair(each) for each in before.split(",")], path


def _parse_pair(text: str) -> Pair:
    parts = text.split("-")
    for at in range(1, len(parts)):
        src, tgt = (language_code("-".join(half)) for half in (parts[:at], parts[at:]))
        if src is not None and src == tgt:
            raise InputError(f"{text!r}: source and target are the same language; give two")
        if src is not None and tgt is not None:
            return Pair(src, tgt)
    raise InputError(f"{text!r}: no pair of languages; write the codes of both, as en-de")


def _tags(config: Config, src: Tokenizer, tgt: Tokenizer) -> dict[Pair, tuple[str | None, str | None]]:
    """Return the pairs of a model of many languages, with the tags that choose them."""
    src_tag, tgt_tag = config.languages.src_tag, config.languages.tgt_tag
    if src_tag is None or src_tag.startswith(TAGS_OF_TARGET) or tgt_tag is None:
        return {}  # of a source language without a tag: the command line must say it
    pairs = product(_languages(src).items(), _languages(tgt).items())
    return {Pair(a, b): (src_tag, tgt_tag) for (a, src_tag), (b, tgt_tag) in pairs if a != b}


def _languages(tokenizer: Tokenizer, *, starts: str | tuple[str, ...] = "") -> dict[str, str]:
    """Return the tags of languages by code, of those with one of these starts."""
    tags = [tag for tag in tokenizer.tags() if tag.startswith(starts)]
    return dict(sorted((code, tag) for tag in tags if (code := language_code(tag)) is not None))
