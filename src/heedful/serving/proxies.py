"""What a trusted proxy says about its client: its address, and the scheme, host and path of its request."""

from starlette.types import Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


class ProxyHeaders(ProxyHeadersMiddleware):
    """Reads X-Forwarded-For and -Proto as uvicorn does, and X-Forwarded-Host and -Prefix.

    Addresses in answers, for example of a translated document, then are those that the client can reach.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # type: ignore[override]
        """Pass a request on; a proxy may have removed the prefix from the path, or not."""
        if scope["type"] == "http" and scope["client"] and scope["client"][0] in self.trusted_hosts:
            given = dict(scope["headers"])
            prefix = given.get(b"x-forwarded-prefix", b"").decode("latin-1").strip(" /")
            if prefix:
                path = f"{scope['path']}/".removeprefix(f"/{prefix}/").removesuffix("/")
                scope = {**scope, "root_path": f"/{prefix}", "path": f"/{path.removeprefix('/')}"}
            if b"x-forwarded-host" in given:
                host = given[b"x-forwarded-host"].partition(b",")[0].strip()
                others = [(name, value) for name, value in scope["headers"] if name != b"host"]
                scope = {**scope, "headers": [(b"host", host), *others]}
        await super().__call__(scope, receive, send)  # type: ignore[arg-type]
