"""The files of deploy/: their commands are heedful's, and their limits fit those of the service."""

import json
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
from running_services import Running

from heedful.cli.main import program
from heedful.serving import server
from heedful.serving.limits import Limits

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE, UNIT, NGINX, CADDY, MANIFESTS, PAGE = (
    (ROOT / name).read_text(encoding="utf-8")
    for name in (
        "deploy/Dockerfile",
        "deploy/heedful.service",
        "deploy/nginx.conf",
        "deploy/Caddyfile",
        "deploy/kubernetes.yaml",
        "docs/deploy.md",
    )
)


def options_of(command: list[str]) -> dict[str, Any]:
    """The values that `heedful serve ...` has, as its command line reads them."""
    name, verb, *arguments = command
    assert (Path(name).name, verb) == ("heedful", "serve")
    group: Any = typer.main.get_command(program(["serve"]))
    with group.commands["serve"].make_context("serve", arguments) as context:
        values: dict[str, Any] = context.params
        return values


def option(text: str, name: str) -> str:
    """The only value of a name in a file of settings, without its unit."""
    [value] = re.findall(rf"^\s*{name}[ =](\d+)", text, re.MULTILINE)
    return str(value)


def docker_command(text: str) -> list[str]:
    """What a container of `docker run ... heedful ARGUMENTS` runs."""
    joined = text.replace("\\\n", " ")
    [line] = re.findall(r"docker run .* heedful (en-de=.*)", joined)
    [entry] = re.findall(r"^ENTRYPOINT (.*)", DOCKERFILE, re.MULTILINE)
    return [*json.loads(entry), *shlex.split(line)]


def test_the_unit_serves_behind_a_proxy_of_this_machine() -> None:
    [line] = re.findall(r"^ExecStart=(.*)", UNIT, re.MULTILINE)
    options = options_of(shlex.split(line))
    assert options["models"] == ["en-de=/srv/heedful/en-de"]
    assert (options["host"], options["port"]) == ("127.0.0.1", 5000)
    assert options["trust_proxy"] == ["127.0.0.1"]


@pytest.mark.parametrize("text", [DOCKERFILE, PAGE], ids=["Dockerfile", "deploy.md"])
def test_a_container_listens_on_the_port_that_is_published(text: str) -> None:
    options = options_of(docker_command(text.replace("\n#", "\n")))
    assert (options["models"], options["host"]) == (["en-de=/en-de"], "0.0.0.0")
    [published] = set(re.findall(r"--publish 127\.0\.0\.1:\d+:(\d+)", text))
    assert published == str(options["port"]) == option(DOCKERFILE, "EXPOSE")


@pytest.fixture
def service() -> Iterator[Running]:
    running = Running(None, None)
    yield running
    running.stop()


@pytest.mark.slow
def test_a_container_is_healthy_while_the_service_answers(service: Running) -> None:
    [line] = re.findall(r"^ *CMD (\[.*urllib.*\])", DOCKERFILE, re.MULTILINE)
    name, *arguments = json.loads(line)
    assert (name, line.count("127.0.0.1:5000")) == ("python", 1)

    def is_healthy(address: str) -> bool:
        command = [sys.executable, *(each.replace("127.0.0.1:5000", address) for each in arguments)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    assert is_healthy("{}:{}".format(*service.address))
    assert not is_healthy("127.0.0.1:1")


def test_kubernetes_manifests_are_valid_and_their_command_is_heedfuls() -> None:
    """The schemas are those of Kubernetes 1.30, by kubernetes-validate; nothing runs here."""
    yaml, validate = pytest.importorskip("yaml"), pytest.importorskip("kubernetes_validate")
    documents = [each for each in yaml.safe_load_all(MANIFESTS) if each]
    for each in documents:
        validate.validate(each, "1.30", strict=True)
    assert {each["metadata"].get("namespace", "heedful") for each in documents} == {"heedful"}
    by_name = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in documents if "spec" in each}
    pod = by_name["Deployment", "heedful"]["template"]["spec"]
    [container] = pod["containers"]
    options = options_of(["heedful", "serve", *container["args"]])
    assert (options["models"], options["host"]) == (["en-de=/models/en-de"], "0.0.0.0")
    assert container["ports"][0]["containerPort"] == options["port"]
    assert pod["terminationGracePeriodSeconds"] > options["seconds"] + 5
    mounts = {each["mountPath"] for each in container["volumeMounts"]}
    assert {f"/{path.strip('/').split('/')[0]}" for path in ("/models/en-de", str(options["keys"]))} <= mounts
    shared = urlsplit(options["shared"])
    [port] = by_name["Service", "redis"]["ports"]
    assert (shared.hostname, shared.port) == ("redis", port["port"])
    user = re.findall(r"--uid (\d+)", DOCKERFILE)
    assert [str(pod["securityContext"]["runAsUser"])] == user


def test_a_manifest_with_an_unknown_field_is_refused() -> None:
    yaml, validate = pytest.importorskip("yaml"), pytest.importorskip("kubernetes_validate")
    wrong = next(yaml.safe_load_all(MANIFESTS.replace("runAsNonRoot", "runAsNobody").split("---")[1]))
    with pytest.raises(validate.ValidationError):
        validate.validate(wrong, "1.30", strict=True)


def test_the_image_is_built_from_all_that_a_build_needs() -> None:
    excluded = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["scikit-build"]
    needed = {each.removeprefix("!/") for each in excluded["sdist"]["exclude"] if each.startswith("!/")}
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    sent = {line.removeprefix("!") for line in lines if line.startswith("!")}
    assert len(needed) > 3
    assert sent == needed | {"constraints.txt"}


def test_the_limits_of_proxies_and_unit_are_above_those_of_the_service() -> None:
    seconds, idle = Limits().seconds, server._KEEP_ALIVE_SECONDS
    for timeout in (option(NGINX, "proxy_read_timeout"), option(CADDY, "response_header_timeout")):
        assert float(timeout) > seconds
    assert float(option(UNIT, "TimeoutStopSec")) > seconds + 5
    for closed in (option(NGINX, "keepalive_timeout"), option(CADDY, "keepalive")):
        assert 0 < float(closed) < idle
    assert "client_max_body_size 1m;" in NGINX
    assert Limits().body_bytes < 2**20
    [files] = re.findall(r"^LimitNOFILE=(\d+)", UNIT, re.MULTILINE)
    assert int(files) > 10_000  # as many connections as the service takes


def test_proxies_ask_where_the_service_listens_and_say_for_whom() -> None:
    assert re.findall(r"[\d.]+:5\d+", NGINX + CADDY) == ["127.0.0.1:5000"] * 2
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in NGINX  # which Caddy does by itself
    assert re.search(r"location = /metrics \{\s*deny all;", NGINX)
    assert "respond /metrics 403" in CADDY
