"""The service on Ray Serve: replicas of the application, and replicas of the models behind it.

    client > Ray's HTTP proxy > application (keys, sentences, a queue for each model) > model

The application is the one of `heedful serve`. Its models are in other processes, so `RemoteTranslator` is in
the place of a translator. Ray starts the replicas, chooses one for each batch, adds some while batches wait,
and replaces dead ones. If a replica dies, its batch goes to another one.
"""

import asyncio
import logging
import logging.config
import os
import signal
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from heedful.errors import HeedfulError, InputError, MissingExtraError, SearchCancelledError, install_hint
from heedful.serving.limits import Replicas
from heedful.serving.refusals import UnavailableError

if TYPE_CHECKING:
    from fastapi import FastAPI

    from heedful.decoding.alignment import Alignment, Span
    from heedful.decoding.options import SearchOptions
    from heedful.decoding.translation import Translation
    from heedful.decoding.translator import Translator
    from heedful.serving.server import ServerOptions

NAME = "heedful"  # of the application; the names of the models have a number after it
_ATTEMPTS = 3  # of a batch: one that ends its process would end them all
_LOOK_SECONDS = 1.0  # between two checks whether a client still waits for a batch
_REQUESTS = 10_000  # of a replica of the application, which has limits of its own
_TRANSLATORS = 64  # of pairs of languages, which share a model
_RAY = "--on ray"
_log = logging.getLogger("heedful.serving")

Tags = tuple[str | None, str | None]  # of source and target language, in a model of many
_Untyped = Any  # Ray's types say too little
Loader = Callable[[], "Translator"]


@dataclass(frozen=True, kw_only=True)
class Placement:
    """How many processes Ray runs, and what each has.

    Attributes:
        replicas: of the models.
        applications: replicas of the application.
        cpus: of each replica of a model.
        gpus: of each replica of a model.
        drain_seconds: how long a replica that is stopped goes on with what it has started.
        log_config: of the processes.
    """

    replicas: Replicas
    applications: int
    cpus: int
    gpus: int
    drain_seconds: float
    log_config: Mapping[str, Any]

    @property
    def batches(self) -> int:
        """How many batches an application has translated at a time: each replica has one that waits."""
        return self.replicas.highest * (self.cpus + 1)


class ModelReplica:
    """A process that translates batches of sentences, as many at a time as it has CPUs."""

    def __init__(self, loaders: Mapping[str, Loader], *, cpus: int, most: int) -> None:
        """Load the models; with `most`, at most this number of them, when requests need them."""
        self._threads = ThreadPoolExecutor(cpus, thread_name_prefix="heedful")
        self._loaders = loaders
        self._models = {} if most else {name: self._model(name) for name in loaders}
        self._open: Any = self._loaded
        if most:
            from ray import serve

            async def opened(name: str) -> "Callable[[Tags], Translator]":
                return await asyncio.to_thread(self._model, name)

            self._open = serve.multiplexed(max_num_models_per_replica=most)(opened)

    async def call(
        self, method: str, name: str, tags: Tags, *arguments: object, **options: "SearchOptions | None"
    ) -> _Untyped:
        """Return the result of a translator's method; of a mistake in the texts, its message.

        Args:
            method: of `PairTranslator`.
            name: of the model.
            tags: of the languages.
            arguments: of the method.
            options: `options`, without what cannot be sent.
        """
        translator_for = await self._open(name)
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

    async def _loaded(self, name: str) -> "Callable[[Tags], Translator]":
        return self._models[name]

    def _model(self, name: str) -> "Callable[[Tags], Translator]":
        """Load a model, and return what makes its translator for two languages."""
        translator = self._loaders[name]()

        @lru_cache(_TRANSLATORS)
        def for_tags(tags: Tags) -> "Translator":
            return translator.for_languages(src_lang=tags[0], tgt_lang=tags[1])

        return for_tags


class RemoteTranslator:
    """A `PairTranslator` that asks replicas for translations; for any thread."""

    def __init__(self, model: "RemoteModel", tags: Tags) -> None:
        self._model, self._tags = model, tags

    def translations(
        self, texts: Sequence[str], *, options: "SearchOptions | None" = None
    ) -> "list[Translation]":
        """Return the translation of each text."""
        cancelled = None if options is None else options.cancelled
        sent = None if options is None else replace(options, cancelled=None, threads=None)
        return cast(
            "list[Translation]",
            self._model.call("translations", self._tags, list(texts), options=sent, cancelled=cancelled),
        )

    def align(
        self, sources: Sequence[str], targets: Sequence[str], *, split: "Callable[[str], list[Span]]"
    ) -> "list[Alignment]":
        """Return the alignment of each pair of texts."""
        arguments = list(sources), list(targets)
        return cast("list[Alignment]", self._model.call("align", self._tags, *arguments, split=split))


class RemoteModel:
    """A model that replicas of a Ray Serve deployment have."""

    def __init__(self, application: str, name: str) -> None:
        """Take the name of the Ray Serve application, and of the model in it."""
        from ray import serve
        from ray.exceptions import RayActorError

        self._name = name
        self._handle: Any = serve.get_app_handle(application)
        self._handle = self._handle.options(method_name="call", multiplexed_model_id=name)
        self._died: type[Exception] = RayActorError

    def translator(self, src: str | None, tgt: str | None) -> RemoteTranslator:
        """Return the translator of two languages."""
        return RemoteTranslator(self, (src, tgt))

    def call(
        self,
        method: str,
        tags: Tags,
        *arguments: object,
        cancelled: Callable[[], bool] | None = None,
        **options: object,
    ) -> object:
        """Return the result of a translator's method, from one replica, or from the next if it dies.

        Raises:
            HeedfulError: a mistake in the texts.
            SearchCancelledError: all clients have left.
            UnavailableError: replica after replica died.
        """
        for _ in range(_ATTEMPTS):
            response = self._handle.remote(method, self._name, tags, *arguments, **options)
            try:
                result = _wait(response, cancelled)
            except self._died as error:
                _log.warning("a replica of %s died; the batch goes to another: %s", self._name, _line(error))
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


def model_application(loaders: Mapping[str, Loader], placement: Placement) -> _Untyped:
    """Return a Ray Serve application: a group of replicas of one model, or of all."""
    serve = _serve()
    replicas, at_once = placement.replicas, placement.cpus
    number: dict[str, Any] = {"num_replicas": replicas.replicas}
    if replicas.highest > replicas.replicas:
        number = {
            "autoscaling_config": {
                "min_replicas": replicas.replicas,
                "max_replicas": replicas.highest,
                "target_ongoing_requests": at_once,
            }
        }
    deployment = serve.deployment(ModelReplica).options(
        name="model",
        max_ongoing_requests=at_once + 1,
        ray_actor_options={"num_cpus": placement.cpus, "num_gpus": placement.gpus},
        graceful_shutdown_timeout_s=placement.drain_seconds,
        logging_config=_QUIET,
        **number,
    )
    return deployment.bind(loaders, cpus=placement.cpus, most=replicas.models_per_replica)


def service_application(make: "Callable[[], FastAPI]", placement: Placement) -> _Untyped:
    """Return a Ray Serve application: replicas of the ASGI application that `make` returns in each."""
    serve = _serve()
    log_config = placement.log_config

    def build() -> "FastAPI":
        logging.config.dictConfig(dict(log_config))
        return make()

    return (
        serve.deployment(serve.ingress(build)())
        .options(
            name="application",
            num_replicas=placement.applications,
            max_ongoing_requests=_REQUESTS,
            ray_actor_options={"num_cpus": 0},
            graceful_shutdown_timeout_s=placement.drain_seconds,
            graceful_shutdown_wait_loop_s=0.5,
            logging_config=_QUIET,
        )
        .bind()
    )


_QUIET = {"log_level": "WARNING", "enable_access_log": False}


def run(
    loaders: Mapping[str, Loader],
    make: "Callable[[], FastAPI]",
    placement: Placement,
    options: "ServerOptions",
    *,
    check: Callable[[], list[str]],
    report: Callable[[str], None],
) -> None:
    """Run the service on Ray until SIGTERM or SIGINT; then the application ends first, and the models last.

    Args:
        loaders: of the models, by their names; called in the replicas.
        make: returns the application; called in its replicas.
        placement: what Ray is to run.
        options: how to listen.
        check: loads the models and returns lines to report; called once, where Ray has the CPUs for it.
        report: receives these lines, and one with the address when all replicas are ready.

    Raises:
        InputError: a model cannot be loaded there, or Ray does not start.
        MissingExtraError: Ray Serve is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Ray's proxy is uvicorn: without this, it believes whoever asks from this machine.
    os.environ["FORWARDED_ALLOW_IPS"] = ",".join(options.trusted_proxies)
    try:
        import ray

        serve = _serve()
    except ImportError:
        raise MissingExtraError(f"{_RAY}: {install_hint('ray')}") from None
    stopped = threading.Event()
    try:
        if not ray.is_initialized():
            ray.init(logging_level=logging.ERROR)
    except Exception as error:  # which is all that is known of its class
        raise InputError(f"{_RAY}: Ray does not start: {_line(error)}") from error
    for each in (signal.SIGTERM, signal.SIGINT):  # Ray has set its own
        signal.signal(each, lambda *_: stopped.set())
    logging.getLogger("ray.serve").setLevel(logging.ERROR)
    names = application_names(list(loaders), placement.replicas)
    port = options.port or _free_port(options.host)
    try:
        for line in _check(check, placement):
            report(line)
        serve.start(
            http_options={"host": options.host, "port": port},
            logging_config=_QUIET,
        )
        for name in dict.fromkeys(names.values()):
            group = {model: load for model, load in loaders.items() if names[model] == name}
            serve.run(model_application(group, placement), name=name, route_prefix=None)
        serve.run(service_application(make, placement), name=NAME, route_prefix="/")
        report(f"heedful on Ray is running on http://{options.host}:{port} (SIGTERM or Ctrl-C ends it)")
        stopped.wait()
    finally:
        for name in [NAME, *dict.fromkeys(names.values())]:
            if name in serve.status().applications:
                serve.delete(name)
        if not serve.status().applications:  # of others
            serve.shutdown()
        ray.shutdown()


def _free_port(host: str) -> int:
    with socket.create_server((host, 0)) as probe:
        return int(probe.getsockname()[1])


def _check(check: Callable[[], list[str]], placement: Placement) -> list[str]:
    """Load the models once in a process of Ray: a mistake is reported once, and before replicas start.

    Raises:
        InputError: a model cannot be loaded.
    """
    import ray

    remote: Any = ray.remote(num_cpus=placement.cpus, num_gpus=placement.gpus, max_retries=1)
    lines, error = ray.get(remote(_tried).remote(check))
    if error:
        raise InputError(error)
    return list(lines)


def _tried(check: Callable[[], list[str]]) -> tuple[list[str], str]:
    try:
        return check(), ""
    except (HeedfulError, OSError) as error:
        return [], str(error)
