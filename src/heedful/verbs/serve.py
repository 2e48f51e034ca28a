"""`heedful serve`: translations over HTTP."""

import json
import logging
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from uuid import uuid4

import typer

from heedful.cli.options import BeamOverrides
from heedful.errors import HeedfulError, InputError, MissingExtraError, install_hint
from heedful.serving.limits import Limits, Replicas
from heedful.settings.options import Languages, Option, Runtime

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful.decoding.backends.protocol import Backend
    from heedful.decoding.options import SearchOptions
    from heedful.documents.memory import TranslationMemory
    from heedful.documents.projection import PairTranslator
    from heedful.serving.access import ApiKey
    from heedful.serving.model_queue import ServedModel
    from heedful.serving.server import ServerOptions
    from heedful.settings.run import Config
    from heedful.storage.bundle import Bundle
    from heedful.text.languages import Pair
    from heedful.text.tokenizer import Tokenizer

_ACCESS, _LOG = "Access", "Log"
_NEEDED = (
    "uvicorn",
    "fastapi",
    "cachetools",
    "prometheus_client",
    "langcodes",
    "language_data",
    "syntok",
    "py3langid",
)
_VARIABLE = "HEEDFUL_SERVE"  # tells processes what to serve
_MOST_NAMED = 3  # pairs of a list
_SECONDS_BEFORE_ANOTHER = 2.0  # where a process cannot start, the next one hardly can
_LOGGER = logging.getLogger("heedful.serving")


@dataclass(frozen=True, kw_only=True)
class Access:
    """Access control."""

    keys: Annotated[
        Path | None, Option("API keys; each translation needs one of them.", _ACCESS, metavar="FILE")
    ] = None
    make_key: Annotated[
        str | None, Option("Print a new key, and add its hash to --keys.", _ACCESS, metavar="NAME")
    ] = None
    cors: Annotated[
        list[str] | None,
        Option(
            "Allow browser requests from this origin (* = any); repeatable.",
            _ACCESS,
            metavar="ORIGIN",
        ),
    ] = None
    shared: Annotated[
        str | None,
        Option(
            "Share keys, rates and usage among all processes and machines with this Redis server.",
            _ACCESS,
            metavar="URL",
        ),
    ] = None
    trust_proxy: Annotated[
        list[str] | None,
        Option(
            "Read clients' addresses from X-Forwarded-For of this proxy or network; repeatable.",
            _ACCESS,
            metavar="ADDRESS",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Logging:
    """Lines in the log beside those of how the server does."""

    log_requests: Annotated[bool, Option("Log a line for each request, without texts.", _LOG)] = False
    log_text: Annotated[bool, Option("Log a line for each request, with its texts.", _LOG)] = False


@dataclass(frozen=True, kw_only=True)
class Serve:
    """Serve translations over HTTP.

    It has the APIs of LibreTranslate, DeepL and Microsoft Translator.

    Clients of these services work if you give them the server's address. /docs on the server lists all paths,
    and /spec describes them as an OpenAPI document. SIGTERM and Ctrl-C end the server after it has answered
    the requests it has received.
    """

    models: Annotated[
        list[str] | None,
        Option(
            "Runs, bundles, Argos packages or models of the hub. Write en-de=RUN if its languages are "
            "not known.",
            metavar="[PAIR=]RUN",
            is_argument=True,
        ),
    ] = None
    host: Annotated[str, Option("Address to listen on; 0.0.0.0 listens on all.")] = "127.0.0.1"
    port: Annotated[int, Option("Port to listen on; 0 picks a free port.", minimum=0, maximum=65535)] = 5000
    workers: Annotated[
        int,
        Option(
            "Number of processes; each has its own models, queue and limits, on Ray only queue and limits.",
            minimum=1,
            maximum=64,
        ),
    ] = 1
    on: Annotated[
        str,
        Option("Where models are served; ray is a Ray cluster, or Ray on this machine.", metavar="here|ray"),
    ] = "here"
    ray: Replicas = field(default_factory=Replicas)
    glossaries: Annotated[
        Path | None,
        Option("Store the clients' glossaries in this file.", metavar="FILE", is_file=True),
    ] = None
    memory: Annotated[
        list[Path] | None,
        Option(
            "Translation memory in TMX: a sentence with an exact match is translated as there; repeatable.",
            metavar="FILE",
        ),
    ] = None
    search: BeamOverrides = field(default_factory=dict)
    access: Access = field(default_factory=Access)
    limits: Limits = field(default_factory=Limits)
    logging: Logging = field(default_factory=Logging)
    runtime: Runtime = field(default_factory=Runtime)


def serve(task: Serve, *, report: Callable[[str], None]) -> None:
    """Load the models, and answer requests until SIGTERM or SIGINT; then finish what has started.

    Args:
        task: the service.
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

    _check(task)
    trusted = tuple(task.access.trust_proxy or ())
    for address in trusted:
        server.check_proxy(address)
    server.check_address(task.host, task.port)
    options = server.ServerOptions(
        host=task.host,
        port=task.port,
        workers=task.workers,
        drain_seconds=task.limits.seconds + 5,
        log_requests=task.logging.log_requests or task.logging.log_text,
        trusted_proxies=trusted,
    )
    keys = _shared_keys(task, report)
    if task.on == "ray":
        _serve_on_ray(_for_other_machines(task), keys, options, report)
        return
    from heedful.serving.document_jobs import documents_directory

    models = load_models(task, report)  # mistakes are reported once, and before the processes start
    with documents_directory() as documents:
        if task.workers == 1:
            server.run(_application(task, models, keys, documents=documents), options)
        else:
            del models
            os.environ[_VARIABLE] = json.dumps([asdict(task), documents], default=str)  # of paths
            server.run("heedful.verbs.serve:application_of_worker", options)


def application_of_worker() -> "FastAPI":
    """Return the application of one of several processes, which ends when their parent is gone.

    Raises:
        SystemExit: the models cannot be loaded any more, as after a bundle was deleted; the log says why. The
            parent starts another process then, and the others go on.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    settings, documents = json.loads(os.environ[_VARIABLE])
    groups = {"access": Access, "limits": Limits, "logging": Logging, "ray": Replicas, "runtime": Runtime}
    task = Serve(**settings | {name: group(**settings[name]) for name, group in groups.items()})
    try:
        models = load_models(task, lambda _: None)
        return _application(task, models, _keys(task), documents=Path(documents))
    except (HeedfulError, OSError) as error:
        _LOGGER.error("a process cannot start: %s", " ".join(str(error).split()))
        time.sleep(_SECONDS_BEFORE_ANOTHER)
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    """End as by SIGTERM when the parent is gone: workers that nobody stops would hold the port for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _serve_on_ray(
    task: Serve, keys: "Sequence[ApiKey] | None", options: "ServerOptions", report: Callable[[str], None]
) -> None:
    from heedful.runs.loading import load_translator
    from heedful.serving import on_ray
    from heedful.serving.server import log_config

    placement = on_ray.Placement(
        replicas=task.ray,
        applications=task.workers,
        cpus=task.runtime.threads or 1,
        gpus=int(task.runtime.device == "cuda"),
        drain_seconds=options.drain_seconds,
        log_config=log_config(requests=options.log_requests),
    )
    paths = list(dict.fromkeys(_parse(argument)[1] for argument in task.models or ()))
    on_ray.run(
        {path: partial(load_translator, Path(path), Languages(), task.runtime) for path in paths},
        partial(application_on_ray, task, keys, on_ray.application_names(paths, task.ray), placement.batches),
        placement,
        options,
        check=partial(_lines_of_models, task),
        report=report,
    )


def application_on_ray(
    task: Serve, keys: "Sequence[ApiKey] | None", names: Mapping[str, str], batches: int
) -> "FastAPI":
    """Return the application of a process whose models are in others.

    Args:
        task: the service.
        keys: of clients.
        names: of the Ray Serve applications that have the models, by the paths of these.
        batches: of a model at a time.
    """
    from heedful.runs.loading import local_bundle
    from heedful.serving.on_ray import RemoteModel
    from heedful.storage.bundle import load_bundle

    def remote(path: str) -> OpenedModel:
        return OpenedModel(
            load_bundle(local_bundle(Path(path))), RemoteModel(names[path], path).translator, batches
        )

    models = load_models(task, lambda _: None, open_model=remote)
    return _application(task, models, keys, replica=uuid4().hex[:8])


def _lines_of_models(task: Serve) -> list[str]:
    lines: list[str] = []
    load_models(task, lines.append)
    return lines


def _for_other_machines(task: Serve) -> Serve:
    """Return a task with absolute paths, and one thread for each replica where nothing else is asked for."""

    def absolute(argument: str) -> str:
        path = _parse(argument)[1]
        pairs = argument.removesuffix(path)
        return pairs + str(Path(path).absolute() if Path(path).exists() else path)

    return replace(
        task,
        models=[absolute(each) for each in task.models or ()],
        glossaries=task.glossaries and task.glossaries.absolute(),
        memory=[each.absolute() for each in task.memory or ()],
        runtime=replace(task.runtime, threads=task.runtime.threads or 1),
    )


def _application(
    task: Serve,
    models: "Sequence[ServedModel]",
    keys: "Sequence[ApiKey] | None",
    *,
    replica: str | None = None,
    documents: Path | None = None,
) -> "FastAPI":
    from heedful.serving.app import application
    from heedful.serving.document_jobs import DocumentJobs
    from heedful.serving.gateway import Gateway
    from heedful.serving.glossaries import GlossaryStore
    from heedful.serving.metrics import Metrics
    from heedful.serving.records import ClientRecords, SharedRecords
    from heedful.serving.service import TranslationService

    records = ClientRecords(keys)
    if task.access.shared is not None:
        records = SharedRecords(task.access.shared, key_required=keys is not None)
    service = TranslationService(models, task.limits, Metrics(replica))
    glossaries = None if task.glossaries is None else GlossaryStore(Path(task.glossaries))
    jobs = None if documents is None else DocumentJobs(service, documents)
    gateway = Gateway(service, records, log_text=task.logging.log_text, glossaries=glossaries, documents=jobs)
    return application(gateway, origins=tuple(task.access.cors or ()))


def _keys(task: Serve) -> "Sequence[ApiKey] | None":
    from heedful.serving.access import load_keys

    return None if task.access.keys is None else load_keys(Path(task.access.keys))


def _shared_keys(task: Serve, report: Callable[[str], None]) -> "Sequence[ApiKey] | None":
    """Return the keys, which other servers know too where there is something to share them by."""
    from heedful.serving.records import share_keys

    keys = _keys(task)
    if task.access.shared is not None:
        share_keys(task.access.shared, keys)
    elif task.workers > 1:
        report("--rate and usage are counted by each process for itself; --shared redis://... shares them")
    return keys


def _check(task: Serve) -> None:
    """Check what can be checked without the models.

    Raises:
        InputError: no origin, no pair of languages, or one that two arguments say.
    """
    from heedful.serving.access import check_origin

    for origin in task.access.cors or ():
        check_origin(origin)
    said: dict[Pair, str] = {}
    for argument in task.models or ():
        for pair in _parse(argument)[0]:
            if pair in said:
                raise InputError(f"{argument}: {pair} is already listed by {said[pair]}; leave one out")
            said[pair] = argument


@dataclass(frozen=True)
class OpenedModel:
    """A model that is ready to translate.

    Attributes:
        bundle: of the model.
        translator: returns its translator; the arguments are the tags of languages, where it has many.
        threads: that can translate sentences of their own.
        backend: of its translators; None: it is in another process.
    """

    bundle: "Bundle"
    translator: "Callable[[str | None, str | None], PairTranslator]"
    threads: int
    backend: "Backend | None" = None


def load_models(
    task: Serve,
    report: Callable[[str], None],
    *,
    open_model: Callable[[str], OpenedModel] | None = None,
) -> "list[ServedModel]":
    """Return the models, loaded; a pair of several is that of the first.

    Args:
        task: the service.
        report: receives a line for each model some of whose pairs another one translates.
        open_model: loads the model at a path; None: in this process.

    Raises:
        InputError: as `load_served`, or a model all of whose pairs are those of models before it.
    """
    models: list[ServedModel] = []
    first: dict[Pair, str] = {}
    for argument in task.models or ():
        model = load_served(argument, task, open_model=open_model)
        shared = sorted(model.pairs & first.keys())
        if shared:
            names = ", ".join(map(str, shared[:_MOST_NAMED])) + (", ..." if shared[_MOST_NAMED:] else "")
            others = ", ".join(dict.fromkeys(first[pair] for pair in shared))
            if len(shared) == len(model.pairs):
                raise InputError(
                    f"{argument}: all of its pairs ({names}) are taken by {others}, listed before it; change "
                    "the order, or name other pairs"
                )
            report(f"{argument}: {names} ({len(shared)} of {len(model.pairs)} pairs): {others} answers")
        first |= dict.fromkeys(model.pairs - first.keys(), argument)
        models.append(model)
    return models


def _open_here(task: Serve, path: str) -> OpenedModel:
    from heedful.runs.loading import load_translator

    translator = load_translator(Path(path), Languages(), task.runtime)
    return OpenedModel(
        translator.bundle,
        lambda src, tgt: translator.for_languages(src_lang=src, tgt_lang=tgt),
        translator.generator.backend.parallel_batches,
        translator.generator.backend,
    )


def load_served(
    argument: str, task: Serve, *, open_model: Callable[[str], OpenedModel] | None = None
) -> "ServedModel":
    """Return a model of the command line, loaded; see `load_models`.

    Raises:
        InputError: the languages it translates are not known, it has others, or the engine does not have
            its search.
    """
    from heedful.bulk.memories import pair_of
    from heedful.decoding.options import search_options
    from heedful.serving.model_queue import ServedModel, ServedPair
    from heedful.text.pair import TAGS_OF_TARGET, choose_languages

    said, path = _parse(argument)
    opened = _open_here(task, path) if open_model is None else open_model(path)
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
        tags = {
            pair: (None, targets.get(pair.tgt))
            for pair in pairs
            if pair.tgt in targets or not (said and targets)
        }
    for pair in said:
        if pair not in tags:
            raise InputError(f"{path}: does not translate {pair}; heedful inspect shows what it has")

    def options(n_best: int) -> "SearchOptions":
        return search_options({**task.search, "n_best": n_best}, config.decode)

    def open_pair(pair: "Pair") -> ServedPair:
        src, tgt = tags[pair]
        chosen = bundle
        if (src, tgt) != (None, None):
            languages = choose_languages(config, tokenizers, src_lang=src, tgt_lang=tgt)
            chosen = replace(bundle, config=languages)
        width, translator = options(1).strategy.width, opened.translator(src, tgt)
        memory = _memory_of(pair, task.memory or ())
        return ServedPair(translator, options, width, chosen, backend=opened.backend, memory=memory)

    if open_model is None:  # a search that the engine does not support fails here, and not at each task
        open_pair(next(iter(tags))).translator.translations(["."], options=options(1))
    return ServedModel(
        path,
        frozenset(said or tags),
        open_pair,
        num_tokens=lambda text: len(tokenizers.src.encode(text)),
        threads=opened.threads,
    )


def _memory_of(pair: "Pair", files: Sequence[Path]) -> "TranslationMemory | None":
    if not files:
        return None
    from heedful.documents.memory import TranslationMemory

    return TranslationMemory.load(files, src=pair.src, tgt=pair.tgt, is_needed=False)


def _parse(argument: str) -> "tuple[list[Pair], str]":
    """Return the pairs that an argument says, as `en-de,de-en=PATH`, and the path."""
    before, equals, path = argument.partition("=")
    if not equals or "/" in before or os.sep in before:
        return [], argument
    if not path:
        raise InputError(f"{argument}: a bundle must follow, as en-de=runs/en-de")
    return [_parse_pair(each) for each in before.split(",")], path


def _parse_pair(text: str) -> "Pair":
    from heedful.text.languages import Pair, language_code

    parts = text.split("-")
    for at in range(1, len(parts)):
        src, tgt = (language_code("-".join(half)) for half in (parts[:at], parts[at:]))
        if src is not None and src == tgt:
            raise InputError(f"{text!r}: source and target are the same language; give two")
        if src is not None and tgt is not None:
            return Pair(src, tgt)
    raise InputError(f"{text!r}: no pair of languages; write the codes of both, as en-de")


def _tags(
    config: "Config", src: "Tokenizer", tgt: "Tokenizer"
) -> "dict[Pair, tuple[str | None, str | None]]":
    """Return the pairs of a model of many languages, with the tags that choose them."""
    from heedful.text.pair import TAGS_OF_TARGET

    src_tag, tgt_tag = config.languages.src_tag, config.languages.tgt_tag
    if src_tag is not None and src_tag.startswith(TAGS_OF_TARGET):
        return {}  # its source language has no tag: the command line must say it
    if src_tag is None or tgt_tag is None:
        return {}
    from heedful.text.languages import Pair

    sources, targets = _languages(src), _languages(tgt)
    return {
        Pair(a, b): (src_name, tgt_name)
        for a, src_name in sources.items()
        for b, tgt_name in targets.items()
        if a != b
    }


def _languages(tokenizer: "Tokenizer", *, starts: str | tuple[str, ...] = "") -> dict[str, str]:
    """Return the tags of languages by code, of those with one of these starts."""
    from heedful.text.languages import language_code

    tags = [tag for tag in tokenizer.tags() if tag.startswith(starts)]
    return dict(sorted((code, tag) for tag in tags if (code := language_code(tag)) is not None))


def command(task: Serve) -> None:
    """Serve, or make a key and print it."""
    if task.access.make_key is not None:
        print(_new_key(task, task.access.make_key))
        return
    if not task.models:
        raise typer.BadParameter("no model; give at least one, as en-de=runs/en-de")
    if task.on not in ("here", "ray"):
        raise typer.BadParameter(f"--on {task.on}: must be here or ray")
    serve(
        replace(task, limits=replace(task.limits, body_bytes=max(2**17, 16 * task.limits.characters))),
        report=lambda line: print(line, file=sys.stderr),
    )


def _new_key(task: Serve, name: str) -> str:
    from heedful.serving.access import load_keys, make_key

    if task.access.keys is None:
        raise typer.BadParameter("--make-key needs --keys FILE, the file that stores the key's hash")
    from heedful.serving.records import share_keys

    if task.access.shared is not None:
        share_keys(task.access.shared, None)  # it answers, or no key is made
    key = make_key(task.access.keys, name, requests_per_minute=task.limits.requests_per_minute)
    if task.access.shared is not None:
        share_keys(task.access.shared, load_keys(task.access.keys))
    return key
