"""The service on Ray Serve: replicas of the application, and replicas of the models that it calls.

    client > Ray's HTTP proxy > application (keys, sentences, a queue for each model) > model

The application is the one of `heedful serve`. Its models are in other processes, so `RemoteTranslator` is in
the place of a translator. Ray starts the replicas, chooses one for each batch, adds some while batches wait,
and replaces dead ones. If a replica dies, its batch goes to another one.
"""

import asyncio
import logging
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from heedful import Bundle, HeedfulError, InputError, load_bundle
from heedful.errors import SearchCancelledError, needing
from heedful.serving.limits import Replicas
from heedful.serving.refusals import UnavailableError
from heedful.tasks.loading import local_bundle

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful import SearchOptions, Translation, Translator
    from heedful.serving.options import ServiceOptions

NAME = "heedful"  # of the application; the names of the models have a number after it
_ATTEMPTS = 3  # of a batch: one that ends its process would end them all
_LOOK_SECONDS = 1.0  # between two checks whether a client still waits for a batch
_REQUESTS = 10_000  # of a replica of the application, which has limits of its own
_TRANSLATORS = 64  # of pairs of languages, which share a model
_RAY = "--on ray"
_log = logging.getLogger("heedful.serving")

Tags = tuple[str | None, str | None]  # of source and target language; None: the model's own
_Untyped = Any  # Ray's types say too little
Loader = Callable[[], "Translator"]


class ModelReplica:
    """A process that translates batches of sentences, as many at a time as it has CPUs."""

    def __init__(self, loaders: Mapping[str, Loader], *, cpus: int, most: int) -> None:
        """Load the models; with `most`, at most this number of them, when requests need them."""
        self._threads = ThreadPoolExecutor(cpus, thread_name_prefix="heedful")
        models = {} if most else {name: _open(load) for name, load in loaders.items()}

        async def opened(name: str) -> "Callable[[Tags], Translator]":
            return models[name] if models else await asyncio.to_thread(_open, loaders[name])

        self._opened: Any = _serve().multiplexed(max_num_models_per_replica=most)(opened) if most else opened

    async def call(
        self, method: str, name: str, tags: Tags, *arguments: object, **options: "SearchOptions | None"
    ) -> _Untyped:
        """Return the result of a translator's method; of a mistake in the texts, its message.

        Args:
            method: the name of a method of `SentenceTranslator`.
            name: the name of the model.
            tags: the tags of the languages.
            arguments: the arguments of the method.
            options: `options`, without what cannot be sent.
        """
        translator_for = await self._opened(name)
        cancelled = threading.Event()
        search = options.get("options")
        if search is not None:
            options["options"] = replace(search, threads=1, cancelled=cancelled.is_set)

        def work() -> _Untyped:
            try:
                return getattr(translator_for(tags), method)(*arguments, **options)
            except SearchCancelledError:
                return "cancelled"
            except HeedfulError as error:
                return str(error)

        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except asyncio.CancelledError:
            cancelled.set()
            raise


def _open(load: Loader) -> "Callable[[Tags], Translator]":
    """Load a model, and return what makes its translator for two languages."""
    translator = load()
    return lru_cache(_TRANSLATORS)(lambda tags: translator.for_languages(src_lang=tags[0], tgt_lang=tags[1]))


@dataclass(frozen=True)
class RemoteTranslator:
    """The translator of a model that replicas have; its methods are a `Translator`'s, for any thread.

    Attributes:
        bundle: the model, for what is computed here.
        name: the name of the model in its Ray Serve application.
        handle: calls the replicas.
        batches: how many batches they translate at a time, with one that waits in each.
        tags: the tags of the languages.
    """

    bundle: Bundle
    name: str
    handle: _Untyped
    batches: int = 1
    tags: Tags = (None, None)

    @classmethod
    def of(cls, application: str, name: str, *, batches: int = 1) -> "RemoteTranslator":
        """Return the translator of the model at a path, which is its name in a Ray Serve application."""
        handle = _serve().get_app_handle(application)
        handle = handle.options(method_name="call", multiplexed_model_id=name)
        return cls(load_bundle(local_bundle(Path(name))), name, handle, batches)

    def for_languages(self, *, src_lang: str | None, tgt_lang: str | None) -> "RemoteTranslator":
        """Return the translator of two languages."""
        bundle = self.bundle.for_languages(src_lang=src_lang, tgt_lang=tgt_lang)
        return replace(self, bundle=bundle, tags=(src_lang, tgt_lang))

    @property
    def can_align(self) -> bool:
        """Whether translations can have the links of their words: every engine of a replica records them."""
        return True

    def translations(
        self, texts: Sequence[str], *, options: "SearchOptions | None" = None, **how: object
    ) -> "list[Translation]":
        """Return the translation of each text; see `Translator.translations`."""
        cancelled = None if options is None else options.cancelled
        sent = None if options is None else replace(options, cancelled=None, threads=None)
        found = self._call("translations", list(texts), options=sent, cancelled=cancelled, **how)
        return cast("list[Translation]", found)

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, split: Callable[[str], list[tuple[int, int]]]
    ) -> list[_Untyped]:
        """Return the alignment of each pair of texts."""
        return cast(list[_Untyped], self._call("align", list(sources), list(targets), split=split))

    def _call(
        self, method: str, *arguments: object, cancelled: Callable[[], bool] | None = None, **options: object
    ) -> object:
        """Return the result of a translator's method, from one replica, or from the next if it dies.

        Raises:
            HeedfulError: a mistake in the texts.
            SearchCancelledError: all clients have left.
            UnavailableError: replica after replica died.
        """
        from ray.exceptions import RayActorError

        for _ in range(_ATTEMPTS):
            response = self.handle.remote(method, self.name, self.tags, *arguments, **options)
            try:
                result = _wait(response, cancelled)
            except RayActorError as error:
                _log.warning("a replica of %s died; the batch goes to another: %s", self.name, _line(error))
                continue
            if isinstance(result, str):
                raise InputError(result)
            return result
        raise UnavailableError("the model cannot be reached; try again later", retry_after=5)


def _wait(response: _Untyped, cancelled: Callable[[], bool] | None) -> object:
    """Return the result of a call, unless it is cancelled."""
    while True:
        try:
            return response.result(timeout_s=_LOOK_SECONDS)
        except TimeoutError:
            if cancelled is not None and cancelled():
                response.cancel()
                raise SearchCancelledError from None


def _line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def _serve() -> _Untyped:
    """Return Ray Serve, untyped: the types of its decorators say too little."""
    from ray import serve

    return serve


def application_names(models: Sequence[str], replicas: Replicas) -> dict[str, str]:
    """Return the name of the Ray Serve application of each model."""
    if replicas.models_per_replica:
        return dict.fromkeys(models, f"{NAME}-models")
    return {model: f"{NAME}-{number}" for number, model in enumerate(models, 1)}


def resources(options: "ServiceOptions") -> tuple[int, int]:
    """Return the CPUs and GPUs of a replica of a model."""
    return options.runtime.threads or 1, int(options.runtime.device == "cuda")


def model_application(loaders: Mapping[str, Loader], options: "ServiceOptions") -> _Untyped:
    """Return a Ray Serve application: a group of replicas of one model, or of all."""
    replicas, (cpus, gpus) = options.ray, resources(options)
    number: dict[str, Any] = {"num_replicas": replicas.replicas}
    if replicas.highest > replicas.replicas:
        bounds = {"min_replicas": replicas.replicas, "max_replicas": replicas.highest}
        number = {"autoscaling_config": {**bounds, "target_ongoing_requests": cpus}}
    deployment = (
        _serve()
        .deployment(ModelReplica)
        .options(
            name="model",
            max_ongoing_requests=cpus + 1,
            ray_actor_options={"num_cpus": cpus, "num_gpus": gpus},
            graceful_shutdown_timeout_s=options.limits.drain_seconds,
            logging_config=_QUIET,
            **number,
        )
    )
    return deployment.bind(loaders, cpus=cpus, most=replicas.models_per_replica)


def service_application(make: "Callable[[], FastAPI]", options: "ServiceOptions") -> _Untyped:
    """Return a Ray Serve application: replicas of the ASGI application that `make` returns in each."""
    serve = _serve()
    deployment = serve.deployment(serve.ingress(lambda: make())()).options(
        name="application",
        num_replicas=options.workers,
        max_ongoing_requests=_REQUESTS,
        ray_actor_options={"num_cpus": 0},
        graceful_shutdown_timeout_s=options.limits.drain_seconds,
        graceful_shutdown_wait_loop_s=0.5,
        logging_config=_QUIET,
    )
    return deployment.bind()


_QUIET = {"log_level": "WARNING", "enable_access_log": False}


def run(
    loaders: Mapping[str, Loader],
    make: "Callable[[], FastAPI]",
    options: "ServiceOptions",
    *,
    check: "Callable[[ServiceOptions], tuple[list[str], str]]",
    report: Callable[[str], None],
) -> None:
    """Run the service on Ray until SIGTERM or SIGINT; then the application ends first, and the models last.

    Args:
        loaders: functions that load the models, by name; called in the replicas.
        make: returns the application; called in its replicas.
        options: the options of the service.
        check: loads the models and returns lines to report, or a mistake: once, and before replicas start.
        report: receives these lines, and one with the address when all replicas are ready.

    Raises:
        InputError: a model cannot be loaded there, or Ray does not start.
        MissingExtraError: Ray Serve is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's proxy is uvicorn: without this, it believes whoever asks from this machine.
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(options.access.trust_proxy or ())
    with needing(_RAY, extra="ray"):
        import ray

        serve = _serve()
    stopped = threading.Event()
    try:
        if not ray.is_initialized():
            ray.init(logging_level=logging.ERROR)
    except Exception as error:  # Ray does not say which classes it raises
        raise InputError(f"{_RAY}: Ray does not start: {_line(error)}") from error
    for request_to_stop in (signal.SIGTERM, signal.SIGINT):  # Ray has set its own
        signal.signal(request_to_stop, lambda *_: stopped.set())
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    names = application_names(list(loaders), options.ray)
    port = options.port
    if not port:  # take one that is free now
        with socket.create_server((options.host, 0)) as probe:
            port = int(probe.getsockname()[1])
    try:
        cpus, gpus = resources(options)  # a Ray task has a replica's resources; this process may have no GPU
        remote: Any = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=1)
        lines, mistake = ray.get(remote(check).remote(options))
        if mistake:
            raise InputError(mistake)
        for line in lines:
            report(line)
        serve.start(http_options={"host": options.host, "port": port}, logging_config=_QUIET)
        for name in dict.fromkeys(names.values()):
            group = {model: load for model, load in loaders.items() if names[model] == name}
            serve.run(model_application(group, options), name=name, route_prefix=None)
        serve.run(service_application(make, options), name=NAME, route_prefix="/")
        report(f"heedful on Ray is running on http://{options.host}:{port} (SIGTERM or Ctrl-C ends it)")
        stopped.wait()
    finally:
        for name in [NAME, *dict.fromkeys(names.values())]:
            if name in serve.status().applications:
                serve.delete(name)
        if not serve.status().applications:  # no application of another program runs
            serve.shutdown()
        ray.shutdown()
