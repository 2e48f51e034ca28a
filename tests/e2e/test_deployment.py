"""The files of deploy/: their commands are heedful's, and their limits fit those of the service."""

import getpass
import json
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
import typer
import yaml
from running_services import Running
from tiny_bundle import PAIRS, save_memorised
from translation_server import translation_server

from heedful.cli.main import program
from heedful.serving import server
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics

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
ALERTS = (ROOT / "deploy/alerts.yaml").read_text(encoding="utf-8")


def options_of(command: list[str]) -> dict[str, Any]:
    """The values that `heedful serve ...` has, as its command line reads them."""
    name, verb, *arguments = command
    assert (Path(name).name, verb) == ("heedful", "serve")
    group: Any = typer.main.get_command(program(["serve"]))
    with group.commands["serve"].make_context("serve", arguments) as context:
        values: dict[str, Any] = context.params
        return values


def options_named(text: str, name: str) -> list[str]:
    """The values of a name in a file of settings, without their units."""
    return re.findall(rf"^\s*{name}[ =](\d+)", text, re.MULTILINE)


def option(text: str, name: str) -> str:
    """The only value of a name in a file of settings, without its unit."""
    [value] = options_named(text, name)
    return value


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


def test_alerts_are_about_numbers_that_the_service_has() -> None:
    metrics = Metrics()
    metrics.watch(int, int)
    metrics.seconds.labels("/translate", "200").observe(0.1)
    numbers = set(re.findall(r"^(heedful_\w+)", metrics.text().decode(), re.MULTILINE))
    assert set(re.findall(r"heedful_\w+", ALERTS)) <= numbers
    alerts = [rule["alert"] for rule in yaml.safe_load(ALERTS)["groups"][0]["rules"]]
    assert re.findall(r"^\| (Heedful\w+) \|", PAGE, re.MULTILINE) == alerts


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
    for timeout in (
        *options_named(NGINX, "proxy_read_timeout"),
        *options_named(CADDY, "response_header_timeout"),
    ):
        assert float(timeout) > seconds
    assert float(option(UNIT, "TimeoutStopSec")) > seconds + 5
    for closed in (option(NGINX, "keepalive_timeout"), *options_named(CADDY, "keepalive")):
        assert 0 < float(closed) < idle
    assert int(option(NGINX, "client_max_body_size")) * 2**20 > Limits().document_bytes + 2**20
    [files] = re.findall(r"^LimitNOFILE=(\d+)", UNIT, re.MULTILINE)
    assert int(files) > 10_000  # as many connections as the service takes


def test_proxies_ask_where_the_service_listens_and_say_for_whom() -> None:
    assert set(re.findall(r"[\d.]+:5\d+", NGINX + CADDY)) == {"127.0.0.1:5000"}
    assert "proxy_set_header X-Forwarded-For $remote_addr;" in NGINX  # which Caddy does by itself
    assert re.search(r"location = /metrics \{\s*deny all;", NGINX)
    assert "respond /metrics 403" in CADDY


def of_nginx(directory: Path, port: int, upstream: str) -> tuple[str, list[str]]:
    """The shipped file without TLS and on other ports, and the command that runs it."""
    site = NGINX.replace("listen 443 ssl", f"listen 127.0.0.1:{port}").replace("127.0.0.1:5000", upstream)
    site = re.sub(r"^ *(listen \[::\]|ssl_).*\n", "", site, flags=re.MULTILINE)
    paths = "".join(
        f"{each}_temp_path {directory}/{each};"
        for each in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = (
        f"daemon off; user {getpass.getuser()}; pid {directory}/pid; error_log {directory}/log; events {{}}\n"
        f"http {{ access_log off; {paths}\n{site} }}"
    )
    (directory / "nginx.conf").write_text(text)
    return "nginx", ["-p", str(directory), "-e", f"{directory}/log", "-c", f"{directory}/nginx.conf"]


def of_caddy(directory: Path, port: int, upstream: str) -> tuple[str, list[str]]:
    """The shipped file without TLS and on other ports, and the command that runs it."""
    site = CADDY.replace("translate.example.org", f"http://127.0.0.1:{port}").replace(
        "127.0.0.1:5000", upstream
    )
    (directory / "Caddyfile").write_text("{\n\tadmin off\n}\n" + site)
    return "caddy", ["run", "--adapter", "caddyfile", "--config", f"{directory}/Caddyfile"]


@pytest.mark.slow
@pytest.mark.parametrize("proxy", [of_nginx, of_caddy])
def test_documents_of_two_megabytes_pass_the_proxies(
    proxy: Callable[[Path, int, str], tuple[str, list[str]]], tmp_path: Path
) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with translation_server(f"en-de={bundle}", "--trust-proxy", "127.0.0.1") as server:
        name, arguments = proxy(tmp_path, port, f"127.0.0.1:{server.port}")
        program = shutil.which(name)
        if program is None:
            pytest.skip(f"{name} is not installed")
        with subprocess.Popen([program, *arguments], stderr=subprocess.DEVNULL) as process:
            try:
                text = f"<p>{PAIRS[0][0]}</p><!-- {'x' * 2**21} -->"
                transport = httpx.HTTPTransport(retries=10)
                with httpx.Client(
                    base_url=f"http://127.0.0.1:{port}", transport=transport, timeout=60
                ) as client:
                    data, files = {"source": "en", "target": "de"}, {"file": ("a.html", text.encode())}
                    reply = client.post("/translate_file", data=data, files=files)
                    assert reply.status_code == 200, reply.text
                    result = client.get(urlsplit(reply.json()["translatedFileUrl"]).path)
                    assert result.text == text.replace(PAIRS[0][0], PAIRS[0][1])
                    assert client.get("/metrics").status_code == 403
            finally:
                process.terminate()
