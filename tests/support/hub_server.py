"""A stand-in for the Hugging Face hub: as much of its HTTP API as huggingface_hub's own client asks for.

A real server on this machine, so that the real client runs against it: repositories with branches, commits
and large files, tokens, private repositories, and the hub's answers to what it does not have or allow.
Large files are served from a second address, as the hub does, so that the client follows a redirect.
"""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKENS = {"token-of-ann": "ann", "token-of-bob": "bob"}
_LARGE = (".safetensors", ".model", ".bin", ".spm", ".h5")


@dataclass(frozen=True)
class Blob:
    """A file's content."""

    data: bytes
    large: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    @property
    def oid(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.large else self.oid


Files = dict[str, Blob]


@dataclass
class Repository:
    """A model repository: its commits by id, and which of them each branch is at."""

    private: bool
    commits: dict[str, Files] = field(default_factory=dict)
    branches: dict[str, str] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    @property
    def head(self) -> str:
        return self.branches["main"]

    def commit(self, branch: str, files: Files, message: str) -> str:
        oid = hashlib.sha1(f"{len(self.commits)}{branch}{message}".encode()).hexdigest()
        self.commits[oid] = files
        self.branches[branch] = oid
        self.messages.append(message)
        return oid

    def resolve(self, revision: str) -> str:
        oid = self.branches.get(revision, revision)
        if oid not in self.commits:
            raise RefusalError(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        return oid


class RefusalError(Exception):
    """An answer other than success."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class Hub:
    """What the server has, what it was asked, and what it is to fail at.

    Attributes:
        endpoint: where it is, for HF_ENDPOINT.
        storage: where it serves large files.
        repos: by name, as "ann/model".
        requests: every method and path that came in.
        failures: a status for each request whose method and path a pattern finds.
    """

    endpoint: str
    storage: str
    repos: dict[str, Repository] = field(default_factory=dict)
    uploads: dict[str, bytes] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    failures: dict[str, int] = field(default_factory=dict)

    def files(self, repo: str, revision: str = "main") -> dict[str, bytes]:
        """The content of a revision, by name."""
        repository = self.repos[repo]
        return {name: blob.data for name, blob in repository.commits[repository.resolve(revision)].items()}

    def add(self, repo: str, files: dict[str, bytes], *, private: bool = False) -> None:
        """Put files there, as somebody else's push would have."""
        self.repos.setdefault(repo, Repository(private))
        blobs = {name: Blob(data, name.endswith(_LARGE)) for name, data in files.items()}
        self.repos[repo].commit("main", blobs, "by hand")


@contextmanager
def hub_server() -> Iterator[Hub]:
    """Run the stand-in until the end of the block."""
    servers = [ThreadingHTTPServer(("127.0.0.1", 0), _Handler) for _ in range(2)]
    hosts = ("127.0.0.1", "localhost")  # two names, or the client takes both for the hub itself
    hub = Hub(*(f"http://{host}:{server.server_port}" for host, server in zip(hosts, servers, strict=True)))
    for server in servers:
        server.RequestHandlerClass = type("Handler", (_Handler,), {"hub": hub})
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield hub
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urlsplit(self.path).path
        self.hub.requests.append(f"{self.command} {path}")
        try:
            for pattern, status in self.hub.failures.items():
                if re.search(pattern, f"{self.command} {path}"):
                    raise RefusalError(status, "", "out of order")
            user = self.user()
            for pattern, route in _ROUTES:
                if found := re.fullmatch(pattern, f"{self.command} {path}"):
                    route(self, user, body, *(unquote(each) if each else "" for each in found.groups()))
                    return
            raise RefusalError(404, "", f"the stand-in has no {self.command} {path}")
        except RefusalError as refusal:
            headers = {"X-Error-Code": refusal.code, "X-Error-Message": str(refusal)}
            self.send(refusal.status, {"error": str(refusal)}, {k: v for k, v in headers.items() if v})

    do_GET = do_HEAD = do_POST = do_PUT = answer  # noqa: N815

    def send(self, status: int, content: object, headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        kind = "application/octet-stream" if isinstance(content, bytes) else "application/json"
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def user(self) -> str | None:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in TOKENS:
            raise RefusalError(401, "", "Invalid credentials in Authorization header")
        return TOKENS.get(token)

    def readable(self, user: str | None, repo: str) -> Repository:
        found = self.hub.repos.get(repo)
        if found is None or (found.private and user != repo.split("/")[0]):
            raise RefusalError(404 if user else 401, "RepoNotFound", "Repository not found")
        return found

    def writable(self, user: str | None, repo: str) -> Repository:
        found = self.readable(user, repo)
        self.check_owner(user, repo.split("/")[0])
        return found

    def check_owner(self, user: str | None, namespace: str) -> None:
        if user is None:
            raise RefusalError(401, "", "Invalid username or password.")
        if user != namespace:
            raise RefusalError(403, "", f"You don't have the rights to create a model under {namespace}")

    def create(self, user: str | None, body: bytes) -> None:
        wish = json.loads(body)
        namespace = wish.get("organization") or user
        self.check_owner(user, namespace)
        repo = f"{namespace}/{wish['name']}"
        if repo in self.hub.repos:
            self.send(
                409, {"error": "You already created this model repo", "url": f"{self.hub.endpoint}/{repo}"}
            )
            return
        private = bool(wish.get("private")) or wish.get("visibility") == "private"
        self.hub.repos[repo] = Repository(private)
        self.hub.repos[repo].commit("main", {".gitattributes": Blob(b"", large=False)}, "initial commit")
        self.send(200, {"url": f"{self.hub.endpoint}/{repo}", "name": repo})

    def validate(self, _: str | None, body: bytes) -> None:
        bad = "model-index: wrong" in json.loads(body)["content"]
        errors = [{"message": '"model-index" must be an array'}] if bad else []
        self.send(400 if bad else 200, {"errors": errors, "warnings": []})

    def info(self, user: str | None, _: bytes, repo: str, revision: str) -> None:
        repository = self.readable(user, repo)
        sha = repository.resolve(revision or "main")
        siblings = [{"rfilename": name} for name in repository.commits[sha]]
        self.send(200, {"id": repo, "sha": sha, "private": repository.private, "siblings": siblings})

    def tree(self, user: str | None, _: bytes, repo: str, revision: str) -> None:
        repository = self.readable(user, repo)
        files = repository.commits[repository.resolve(revision)]
        entries = []
        for name, blob in files.items():
            entry = {"type": "file", "path": name, "size": len(blob.data), "oid": blob.oid}
            if blob.large:
                entry["lfs"] = {"oid": blob.sha256, "size": len(blob.data), "pointerSize": 130}
            entries.append(entry)
        self.send(200, entries)

    def preupload(self, user: str | None, body: bytes, repo: str, revision: str) -> None:
        repository = self.writable(user, repo)
        there = repository.commits[repository.resolve(revision)]
        answers = [
            {
                "path": file["path"],
                "uploadMode": "lfs" if file["path"].endswith(_LARGE) else "regular",
                "shouldIgnore": False,
                "oid": there[file["path"]].etag if file["path"] in there else None,
            }
            for file in json.loads(body)["files"]
        ]
        self.send(200, {"files": answers})

    def batch(self, user: str | None, body: bytes, repo: str) -> None:
        self.writable(user, repo)
        objects = [
            {**wish, "actions": {"upload": {"href": f"{self.hub.storage}/lfs/{wish['oid']}"}}}
            for wish in json.loads(body)["objects"]
        ]
        self.send(200, {"transfer": "basic", "objects": objects})

    def store(self, _: str | None, body: bytes, sha256: str) -> None:
        if hashlib.sha256(body).hexdigest() != sha256:
            raise RefusalError(400, "", "checksum differs")
        self.hub.uploads[sha256] = body
        self.send(200, {})

    def commit(self, user: str | None, body: bytes, repo: str, branch: str) -> None:
        repository = self.writable(user, repo)
        files = dict(repository.commits[repository.resolve(branch)])
        message = ""
        for line in body.splitlines():
            item = json.loads(line)
            value = item["value"]
            match item["key"]:
                case "header":
                    message = value["summary"]
                case "file":
                    files[value["path"]] = Blob(base64.b64decode(value["content"]), large=False)
                case "lfsFile":
                    files[value["path"]] = Blob(self.hub.uploads[value["oid"]], large=True)
        oid = repository.commit(branch, files, message)
        self.send(200, {"commitUrl": f"{self.hub.endpoint}/{repo}/commit/{oid}", "commitOid": oid})

    def branch(self, user: str | None, _: bytes, repo: str, name: str) -> None:
        repository = self.writable(user, repo)
        repository.branches[name] = repository.branches["main"]
        self.send(200, {})

    def resolve(self, user: str | None, _: bytes, repo: str, revision: str, name: str) -> None:
        repository = self.readable(user, repo)
        sha = repository.resolve(revision)
        blob = repository.commits[sha].get(name)
        if blob is None:
            raise RefusalError(404, "EntryNotFound", "Entry not found")
        headers = {"X-Repo-Commit": sha, "ETag": f'"{blob.oid}"'}
        if blob.large:
            self.hub.uploads[blob.sha256] = blob.data
            linked = {"X-Linked-Etag": f'"{blob.sha256}"', "X-Linked-Size": str(len(blob.data))}
            self.send(302, {}, headers | linked | {"Location": f"{self.hub.storage}/lfs/{blob.sha256}"})
        else:
            self.send(200, blob.data, headers)

    def fetch(self, _: str | None, __: bytes, sha256: str) -> None:
        self.send(200, self.hub.uploads[sha256])


_REPO = "([^/]+/[^/]+)"
_ROUTES: list[tuple[str, Callable[..., None]]] = [
    ("POST /api/repos/create", _Handler.create),
    ("POST /api/validate-yaml", _Handler.validate),
    (f"GET /api/models/{_REPO}(?:/revision/([^/]+))?", _Handler.info),
    (f"GET /api/models/{_REPO}/tree/([^/]+)", _Handler.tree),
    (f"POST /api/models/{_REPO}/preupload/([^/]+)", _Handler.preupload),
    (f"POST /api/models/{_REPO}/commit/([^/]+)", _Handler.commit),
    (f"POST /api/models/{_REPO}/branch/([^/]+)", _Handler.branch),
    (f"POST /{_REPO}.git/info/lfs/objects/batch", _Handler.batch),
    ("PUT /lfs/([0-9a-f]+)", _Handler.store),
    ("GET /lfs/([0-9a-f]+)", _Handler.fetch),
    (f"(?:GET|HEAD) /{_REPO}/resolve/([^/]+)/(.+)", _Handler.resolve),
]
