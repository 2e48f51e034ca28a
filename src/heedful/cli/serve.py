"""`heedful serve`: translations over HTTP."""

import sys
from typing import Annotated

import typer

from heedful.cli.serve_options import Access, Bounds, Logging
from heedful.settings.options import BeamRequest, Runtime


def serve(
    models: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PAIR=]RUN",
            help="Runs, bundles or models of the hub. Write en-de=RUN where its languages are not known.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0: from everywhere.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any that is free.")] = 5000,
    workers: Annotated[
        int,
        typer.Option(
            min=1, max=64, help="Processes; each loads the models, with a queue and limits of its own."
        ),
    ] = 1,
    beam: BeamRequest = BeamRequest(),
    access: Access = Access(),
    bounds: Bounds = Bounds(),
    logging: Logging = Logging(),
    runtime: Runtime = Runtime(),
) -> None:
    """Translate over HTTP, as LibreTranslate, DeepL and Microsoft's translator are asked.

    Clients of those work with the server's address in place of theirs; /docs on the server lists what it
    answers, and /spec describes it in OpenAPI's form. SIGTERM and Ctrl-C end the server when what has started
    is done.
    """
    if access.make_key is not None:
        print(_new_key(access, access.make_key))
        return
    if not models:
        raise typer.BadParameter("no model; give at least one, as en-de=runs/en-de")
    if bounds.max_waiting < bounds.max_characters:
        raise typer.BadParameter(
            f"--max-waiting {bounds.max_waiting:,}: must be at least --max-characters "
            f"{bounds.max_characters:,}, or a request of that length is never let in"
        )
    from heedful.serving.limits import Limits
    from heedful.workflows.serve import ServeRequest
    from heedful.workflows.serve import serve as run_server

    limits = Limits(
        characters=bounds.max_characters,
        texts=bounds.max_texts,
        body_bytes=max(2**17, 16 * bounds.max_characters),
        alternatives=bounds.max_alternatives,
        waiting_characters=bounds.max_waiting,
        seconds=bounds.timeout,
        requests_per_minute=access.rate,
    )
    run_server(
        ServeRequest(
            models=tuple(models),
            host=host,
            port=port,
            workers=workers,
            keys=None if access.keys is None else str(access.keys),
            origins=tuple(access.cors or ()),
            trusted_proxies=tuple(access.trust_proxy or ()),
            log_requests=logging.log_requests,
            log_text=logging.log_text,
            beam_size=beam.beam_size,
            limits=limits,
            runtime=runtime,
        ),
        report=lambda line: print(line, file=sys.stderr),
    )


def _new_key(access: Access, name: str) -> str:
    from heedful.serving.access import make_key
    from heedful.serving.limits import Limits

    if access.keys is None:
        raise typer.BadParameter("--make-key needs --keys FILE, where the key's hash is kept")
    limits = Limits(requests_per_minute=access.rate)
    return make_key(access.keys, name, requests_per_minute=limits.requests_per_minute)
