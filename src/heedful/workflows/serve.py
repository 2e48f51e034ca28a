"""Serve trained models over HTTP."""

import json
import logging
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.errors import HeedfulError, InputError, MissingExtraError, install_hint
from heedful.serving.access import check_origin
from heedful.serving.languages import Pair, language_code
from heedful.serving.limits import Limits
from heedful.settings.options import Runtime, SearchRequest
from heedful.settings.run import Config
from heedful.text.tokenizer import Tokenizer
from heedful.workflows.loading import beam_size_of, load_translator, search_options

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful.serving.access import KeyRing
    from heedful.serving.model_queue import ServedModel, ServedPair

_NEEDED = (
    "uvicorn", "fastapi", "cachetools", "prometheus_client", "langcodes", "language_data", "syntok",
    "py3langid",
)  # fmt: skip
_VARIABLE = "HEEDFUL_SERVE"  # tells processes what to serve
_MARIAN = ">>"
_MOST_NAMED = 3  # pairs of a list
_SECONDS_BEFORE_ANOTHER = 2.0  # where a process cannot start, the next one hardly can
_log = logging.getLogger("heedful.serving")


@dataclass(frozen=True, kw_only=True)
class ServeRequest:
    """A service.

    Attributes:
        models: each a run, a bundle or one of the hub; `en-de=` before it says its languages.
        host: address to listen on.
        port: 0: any that is free.
        workers: processes.
        keys: file of API keys; None: everybody may ask.
        origins: of pages that may ask from a browser.
        trusted_proxies: addresses and networks of proxies that say for whom they ask.
        log_requests: whether each request has a line in the log.
        log_text: whether texts are logged, too.
        beam_size: None: each bundle's.
        limits: of what clients may ask.
        runtime: how to compute.
    """

    models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 5000
    workers: int = 1
    keys: str | None = None
    origins: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    log_requests: bool = False
    log_text: bool = False
    beam_size: int | None = None
    limits: Limits = field(default_factory=Limits)
    runtime: Runtime = field(default_factory=Runtime)


def serve(request: ServeRequest, *, report: Callable[[str], None]) -> None:
    """Load the models, and answer requests until SIGTERM or SIGINT; then finish what has started.

    Args:
        request: the service.
        report: receives a line for each model some of whose pairs another one translates.

    Raises:
        BundleError: no usable bundle.
        InputError: a model whose languages are not known, one that another leaves nothing to translate, an
            address that is in use, or options that cannot be.
        MissingExtraError: the service's packages are not installed.
    """
    for name in _NEEDED:
        try:
            import_module(name)
        except ImportError:
            raise MissingExtraError(f"serving needs {name}: {install_hint('serve')}") from None
    from heedful.serving import server

    _check(request)
    for address in request.trusted_proxies:
        server.check_proxy(address)
    server.check_address(request.host, request.port)
    options = server.ServerOptions(
        host=request.host,
        port=request.port,
        workers=request.workers,
        drain_seconds=request.limits.seconds + 5,
        log_requests=request.log_requests or request.log_text,
        trusted_proxies=request.trusted_proxies,
    )
    keys = _key_ring(request)
    models = load_models(request, report)  # mistakes are reported once, and before the processes start
    if request.workers == 1:
        server.run(_application(request, models, keys), options)
    else:
        del models
        os.environ[_VARIABLE] = json.dumps(asdict(request))
        server.run("heedful.workflows.serve:application_of_worker", options)


def application_of_worker() -> "FastAPI":
    """Return the application of one of several processes.

    Raises:
        SystemExit: the models cannot be loaded any more, as after a bundle was deleted; the log says why. The
            parent starts another process then, and the others go on.
    """
    settings = json.loads(os.environ[_VARIABLE])
    lists = {name: tuple(settings[name]) for name in ("models", "origins", "trusted_proxies")}
    groups = {"limits": Limits(**settings["limits"]), "runtime": Runtime(**settings["runtime"])}
    request = ServeRequest(**settings | lists | groups)
    try:
        return _application(request, load_models(request, lambda _: None), _key_ring(request))
    except (HeedfulError, OSError) as error:
        _log.error("a process cannot start: %s", " ".join(str(error).split()))
        time.sleep(_SECONDS_BEFORE_ANOTHER)
        raise SystemExit(1) from None


def _application(request: ServeRequest, models: "Sequence[ServedModel]", keys: "KeyRing | None") -> "FastAPI":
    from heedful.serving.app import application
    from heedful.serving.gateway import Gateway
    from heedful.serving.metrics import Metrics
    from heedful.serving.service import TranslationService

    service = TranslationService(models, request.limits, Metrics())
    return application(Gateway(service, keys, log_text=request.log_text), origins=request.origins)


def _key_ring(request: ServeRequest) -> "KeyRing | None":
    from heedful.serving.access import KeyRing, load_keys

    return None if request.keys is None else KeyRing(load_keys(Path(request.keys)))


def _check(request: ServeRequest) -> None:
    """Check what can be checked without the models.

    Raises:
        InputError: no origin, no pair of languages, or one that two arguments say.
    """
    for origin in request.origins:
        check_origin(origin)
    said: dict[Pair, str] = {}
    for argument in request.models:
        for pair in _parse(argument)[0]:
            if pair in said:
                raise InputError(f"{argument}: {pair} is said by {said[pair]} already; leave one out")
            said[pair] = argument


def load_models(request: ServeRequest, report: Callable[[str], None]) -> "list[ServedModel]":
    """Return the models, loaded; a pair of several is that of the first.

    Raises:
        InputError: as `load_served`, or a model all of whose pairs are those of models before it.
    """
    models: list[ServedModel] = []
    first: dict[Pair, str] = {}
    for argument in request.models:
        model = load_served(argument, request)
        shared = sorted(model.pairs & first.keys())
        if shared:
            names = ", ".join(map(str, shared[:_MOST_NAMED])) + (", ..." if shared[_MOST_NAMED:] else "")
            others = ", ".join(dict.fromkeys(first[pair] for pair in shared))
            if len(shared) == len(model.pairs):
                raise InputError(
                    f"{argument}: {others}, named before it, translates {names} already; put the one that is "
                    "to answer first, or give the other one other pairs"
                )
            report(f"{argument}: {names} ({len(shared)} of {len(model.pairs)} pairs): {others} answers")
        first |= dict.fromkeys(model.pairs - first.keys(), argument)
        models.append(model)
    return models


def load_served(argument: str, request: ServeRequest) -> "ServedModel":
    """Return a model of the command line, loaded.

    Raises:
        InputError: nothing says which languages it translates, it has others, or the engine does not have
            its search.
    """
    from heedful.serving.model_queue import ServedModel, ServedPair

    said, path = _parse(argument)
    search = SearchRequest(n_best=1, beam_size=request.beam_size)
    translator = load_translator(Path(path), search, request.runtime)
    config, tokenizers = translator.bundle.config, translator.bundle.tokenizers
    tags = _tags(config, tokenizers.src, tokenizers.tgt)
    if not tags:
        pairs = said or _pairs_of_files(config)
        if not pairs:
            raise InputError(
                f"{path}: nothing says which languages it translates; "
                f"say it with a source and a target: heedful serve en-de={path}"
            )
        tags = dict.fromkeys(pairs, (None, None))
    for pair in said:
        if pair not in tags:
            raise InputError(f"{path}: does not translate {pair}; heedful inspect shows what it has")

    def options(n_best: int) -> SearchOptions:
        return search_options(replace(search, n_best=n_best), config.decode)

    def open_pair(pair: Pair) -> "ServedPair":
        src, tgt = tags[pair]
        chosen: Translator = translator
        if (src, tgt) != (None, None):
            chosen = translator.for_languages(src_lang=src, tgt_lang=tgt)
        return ServedPair(chosen, options, beam_size_of(options(1)), chosen.bundle)

    # A search that the engine does not support fails here, and not at each request.
    open_pair(next(iter(tags))).translator.translations(["."], options=options(1))
    return ServedModel(
        path, frozenset(said or tags), open_pair, num_tokens=lambda text: len(tokenizers.src.encode(text))
    )


def _parse(argument: str) -> tuple[list[Pair], str]:
    """Return the pairs that an argument says, as `en-de,de-en=PATH`, and the path."""
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
            raise InputError(f"{text!r}: a language and itself; texts in it would stay as they are")
        if src is not None and tgt is not None:
            return Pair(src, tgt)
    raise InputError(f"{text!r}: no pair of languages; write the codes of both, as en-de")


def _tags(config: Config, src: Tokenizer, tgt: Tokenizer) -> dict[Pair, tuple[str | None, str | None]]:
    """Return the pairs of a model of many languages, with the tags that choose them."""
    src_tag, tgt_tag = config.languages.src_tag, config.languages.tgt_tag
    if src_tag is not None and src_tag.startswith(_MARIAN):
        return {}  # its source language has no tag: the command line must say it
    if src_tag is None or tgt_tag is None:
        return {}
    sources, targets = _languages(src), _languages(tgt)
    return {
        Pair(a, b): (src_name, tgt_name)
        for a, src_name in sources.items()
        for b, tgt_name in targets.items()
        if a != b
    }


def _languages(tokenizer: Tokenizer) -> dict[str, str]:
    tags = {code: tag for tag in tokenizer.tags() if (code := language_code(tag)) is not None}
    return dict(sorted(tags.items()))


def _pairs_of_files(config: Config) -> list[Pair]:
    """Return the pair that the names of the training files say: train.en and train.de."""
    names = [config.data.src, config.data.tgt]
    endings = [None if name is None else _ending(str(name)) for name in names]
    src, tgt = endings
    return [Pair(src, tgt)] if src and tgt and src != tgt else []


def _ending(name: str) -> str | None:
    suffixes = [each[1:] for each in Path(name).suffixes if each != ".gz"]
    return language_code(suffixes[-1]) if suffixes and len(suffixes[-1]) <= 3 else None
