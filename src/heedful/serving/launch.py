"""Start the service: in this process, in several of this machine, or on Ray."""

import gc
import logging
import logging.config
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from socket import socket
from uuid import uuid4

from fastapi import FastAPI
from pydantic import TypeAdapter

from heedful import HeedfulError, InputError, Pair
from heedful.serving import on_ray
from heedful.serving.access import ApiKey, KeyRing, check_origin, check_proxy, share_keys
from heedful.serving.app import application
from heedful.serving.document_jobs import DocumentJobs, documents_directory
from heedful.serving.gateway import Gateway
from heedful.serving.glossaries import GlossaryStore
from heedful.serving.memories import MemoryStore
from heedful.serving.metrics import Metrics
from heedful.serving.model_queue import ServedModel
from heedful.serving.models import load_models, parse_argument
from heedful.serving.on_ray import RemoteTranslator
from heedful.serving.options import ServiceOptions
from heedful.serving.records import ClientRecords, SharedRecords
from heedful.serving.server import bound_sockets, log_config
from heedful.serving.server import run as run_server
from heedful.serving.service import TranslationService
from heedful.settings.options import Languages
from heedful.settings.plugins import load_again, loaded_plugins
from heedful.tasks.loading import load_translator

_VARIABLE = "HEEDFUL_SERVE"  # tells processes what to serve
_SECONDS_BEFORE_ANOTHER = 2.0  # where a process cannot start, the next one hardly can
_LOGGER = logging.getLogger("heedful.serving")


@dataclass(frozen=True)
class _Service:
    """What a process of several serves."""

    options: ServiceOptions
    documents: Path
    plugins: tuple[str, ...]


_SERVICES = TypeAdapter(_Service)


def serve(options: ServiceOptions, *, notify: Callable[[str], None] = lambda _: None) -> None:
    """Load the models, and answer requests until SIGTERM or SIGINT; then finish what has started.

    Args:
        options: the service.
        notify: receives a line for each model if another one translates some of its pairs.

    Raises:
        BundleError: no usable bundle.
        InputError: a model whose languages are not known, one that another leaves nothing to translate, an
            address that is in use, or options that cannot be.
        MissingExtraError: redis or Ray is needed, and not installed.
    """
    _check(options)
    with bound_sockets(options.host, options.port) as sockets:
        keys = _keys(options)
        if options.access.shared is not None:
            share_keys(options.access.shared, None if keys is None else keys.keys)
        elif options.workers > 1:
            notify(
                "--rate and usage are counted by each process for itself; --shared redis://... shares them"
            )
        if options.on == "here":
            _serve_here(options, keys, sockets, notify)
            return
    _serve_on_ray(_for_other_machines(options), None if keys is None else keys.keys, notify)


def _serve_here(
    options: ServiceOptions,
    keys: KeyRing | None,
    sockets: Sequence[socket],
    notify: Callable[[str], None],
) -> None:
    models = load_models(options, notify=notify)  # mistakes are reported once, and before the processes start
    lines = list(map(str, models))
    with documents_directory() as documents:
        if options.workers == 1:
            run_server(_application(options, models, keys, documents=documents), sockets, options, lines)
            return
        del models
        service = _Service(options, documents, loaded_plugins())
        os.environ[_VARIABLE] = _SERVICES.dump_json(service).decode()
        run_server("heedful.serving.launch:application_of_worker", sockets, options, lines)


def application_of_worker() -> FastAPI:
    """Return the application of one of several processes, which ends when their parent is gone.

    Raises:
        SystemExit: the models cannot be loaded any more, as after a bundle was deleted; the log says why. The
            parent starts another process then, and the others go on.
    """
    threading.Thread(target=_end_with_parent, daemon=True).start()
    service = _SERVICES.validate_json(os.environ[_VARIABLE])
    try:
        load_again(service.plugins)
        models = load_models(service.options)
        return _application(service.options, models, _keys(service.options), documents=service.documents)
    except (HeedfulError, OSError) as error:
        _LOGGER.error("a process cannot start: %s", " ".join(str(error).split()))
        time.sleep(_SECONDS_BEFORE_ANOTHER)
        raise SystemExit(1) from None


def _end_with_parent() -> None:
    """End as by SIGTERM when the parent is gone: such workers would hold the port for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)


def _serve_on_ray(
    options: ServiceOptions, keys: Sequence[ApiKey] | None, notify: Callable[[str], None]
) -> None:
    paths = list(dict.fromkeys(parse_argument(argument)[1] for argument in options.models or ()))
    names = on_ray.application_names(paths, options.ray)
    on_ray.run(
        {path: partial(load_translator, Path(path), Languages(), options.runtime) for path in paths},
        partial(application_on_ray, options, keys, names),
        options,
        check=_lines_of_models,
        report=notify,
    )


def application_on_ray(
    options: ServiceOptions, keys: Sequence[ApiKey] | None, names: Mapping[str, str]
) -> FastAPI:
    """Return the application for a process whose models are in other processes.

    Args:
        options: the service.
        keys: the keys of clients.
        names: the Ray Serve application of each model, by the path of its bundle.
    """
    logging.config.dictConfig(log_config(options.logging))
    batches = options.ray.highest * (on_ray.resources(options)[0] + 1)  # one waits in each replica
    models = load_models(options, lambda path: RemoteTranslator.of(names[path], path, batches=batches))
    return _application(options, models, None if keys is None else KeyRing(keys), replica=uuid4().hex[:8])


def _lines_of_models(options: ServiceOptions) -> tuple[list[str], str]:
    """Load the models, and return lines to report, or a mistake."""
    lines: list[str] = []
    try:
        load_models(options, notify=lines.append)
    except (HeedfulError, OSError) as error:
        return [], str(error)
    return lines, ""


def _for_other_machines(options: ServiceOptions) -> ServiceOptions:
    """Return options with absolute paths, and one thread for each replica if nothing else is asked for."""

    def absolute(argument: str) -> str:
        path = parse_argument(argument)[1]
        pairs = argument.removesuffix(path)
        return pairs + str(Path(path).absolute() if Path(path).exists() else path)

    return replace(
        options,
        models=list(map(absolute, options.models or ())),
        glossaries=options.glossaries and options.glossaries.absolute(),
        memories=options.memories and options.memories.absolute(),
        memory=[path.absolute() for path in options.memory or ()],
        runtime=replace(options.runtime, threads=options.runtime.threads or 1),
    )


def _application(
    options: ServiceOptions,
    models: Sequence[ServedModel],
    keys: KeyRing | None,
    *,
    replica: str | None = None,
    documents: Path | None = None,
) -> FastAPI:
    records = ClientRecords(keys)
    if options.access.shared is not None:
        records = SharedRecords(options.access.shared, key_required=keys is not None)
    service = TranslationService(models, options.limits, Metrics(replica))
    gateway = Gateway(
        service,
        records,
        log_text=options.logging.log_text,
        glossaries=None if options.glossaries is None else GlossaryStore(options.glossaries),
        memories=None if options.memories is None else MemoryStore(options.memories),
        documents=None if documents is None else DocumentJobs(service, documents),
        origins=tuple(options.access.cors or ()),
    )
    gc.freeze()  # modules and models stay: a collection that looks at them too holds all requests up
    return application(gateway, proxies=options.access.trust_proxy or ())


def _keys(options: ServiceOptions) -> KeyRing | None:
    return None if options.access.keys is None else KeyRing(path=options.access.keys)


def _check(options: ServiceOptions) -> None:
    """Check what can be checked without the models: origins, proxies, and pairs of languages."""
    if options.adapter and options.on != "here":
        raise InputError(f"--adapter: models on {options.on} have no adapters; serve with --on here")
    for origin in options.access.cors or ():
        check_origin(origin)
    for address in options.access.trust_proxy or ():
        check_proxy(address)
    said: dict[Pair, str] = {}
    for argument in options.models or ():
        for pair in parse_argument(argument)[0]:
            if pair in said:
                raise InputError(f"{argument}: {pair} is already listed by {said[pair]}; leave one out")
            said[pair] = argument
