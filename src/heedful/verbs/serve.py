"""`heedful serve`: translations over HTTP."""

import sys
from dataclasses import dataclass, field
from functools import partial

import typer

from heedful.cli.options import BeamOverrides
from heedful.serving.options import ServiceOptions, check_installed


@dataclass(frozen=True, kw_only=True)
class Serve(ServiceOptions):
    """Serve translations over HTTP.

    It has the APIs of LibreTranslate, DeepL and Microsoft Translator.

    Clients of these services work if you give them the server's address. /docs on the server lists all paths,
    and /spec describes them as an OpenAPI document. SIGTERM and Ctrl-C end the server after it has answered
    the requests it has received.

    Examples:
        heedful serve runs/en-de runs/de-en --port 5000
        heedful serve en-de=user/model --host 0.0.0.0 --keys keys.json
    """

    search: BeamOverrides = field(default_factory=dict)


def command(task: Serve) -> None:
    """Serve, or make a key and print it."""
    access = task.access
    if access.make_key is not None:
        from heedful.serving.records import new_key

        rate = task.limits.requests_per_minute
        if access.keys is None:
            raise typer.BadParameter("--make-key needs --keys FILE, the file that stores the key's hash")
        print(new_key(access.keys, access.make_key, shared=access.shared, requests_per_minute=rate))
        return
    problem = "" if task.on in ("here", "ray") else f"--on {task.on}: must be here or ray"
    if problem or not task.models:
        raise typer.BadParameter(problem or "no model; give at least one, as en-de=runs/en-de")
    check_installed()
    from heedful.serving.launch import serve

    serve(task, notify=partial(print, file=sys.stderr))
