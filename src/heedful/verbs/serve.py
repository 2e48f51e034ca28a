"""`heedful serve`: translations over HTTP."""

from dataclasses import dataclass, field

import typer

from heedful.cli.options import BeamOverrides
from heedful.cli.streams import notify
from heedful.errors import refuse_if
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
    """Serve, or make, list or remove keys."""
    access = task.access
    if access.make_key is not None or access.revoke_key is not None or access.list_keys:
        _change_keys(task)
        return
    refuse_if(
        (task.on not in ("here", "ray"), f"--on {task.on}: must be here or ray"),
        (not task.models, "no model; give at least one, as en-de=runs/en-de"),
        error=typer.BadParameter,
    )
    check_installed()
    from heedful.serving.launch import serve

    serve(task, notify=notify)


def _change_keys(task: Serve) -> None:
    from heedful.serving.access import lines_of_keys, make_key, revoke_key

    access = task.access
    if access.keys is None:
        raise typer.BadParameter(
            "--make-key, --revoke-key and --list-keys need --keys FILE, the file with the hashes"
        )
    if access.revoke_key is not None:
        revoke_key(access.keys, access.revoke_key, shared=access.shared)
    if access.make_key is not None:
        rate = task.limits.requests_per_minute
        bound = access.key_adapter or ""
        key = make_key(
            access.keys, access.make_key, shared=access.shared, requests_per_minute=rate, adapter=bound
        )
        print(key)
    if access.list_keys:
        print(*lines_of_keys(access.keys, shared=access.shared), sep="\n")
