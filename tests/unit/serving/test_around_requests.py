"""Proxies, browsers, health checks and file names: what surrounds a request."""

import gzip
from pathlib import Path
from typing import Any

import pytest
from asked_service import PAGE, ask
from starlette.datastructures import Headers, UploadFile

from heedful.documents import read_text, xml_rules
from heedful.serving.access import ApiKey, KeyRing, fingerprint
from heedful.serving.gateway import name_of_upload


@pytest.mark.parametrize("path", ["/", "/health", "/translate", "/v2/glossaries/x", "/v2/document/x/result"])
def test_options_is_a_check_of_health(path: str) -> None:
    answer = ask("OPTIONS", path)
    assert answer.status_code == 204
    assert "OPTIONS" in answer.headers["Allow"]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_an_allowed_page_may_use_all_methods_from_a_public_network(method: str) -> None:
    headers = {
        "Origin": PAGE,
        "Access-Control-Request-Method": method,
        "Access-Control-Request-Private-Network": "true",
    }
    answer = ask("OPTIONS", "/v3/glossaries/x", headers=headers)
    assert answer.status_code == 200
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    assert ask("OPTIONS", "/translate", headers=headers | {"Origin": "https://b.example"}).status_code == 400


@pytest.mark.parametrize("path", ["/translate_file", "/mt/translate_file"])  # without the prefix, or with it
def test_addresses_of_documents_are_those_that_the_proxy_names(tmp_path: Path, path: str) -> None:
    answer = ask(
        "POST",
        path,
        directory=tmp_path,
        headers={"X-Forwarded-Prefix": "/mt", "X-Forwarded-Host": "t.example", "X-Forwarded-Proto": "https"},
        data={"source": "en", "target": "de"},
        files={"file": ("a.txt", b"The cat")},
    )
    assert answer.json()["translatedFileUrl"].startswith("https://t.example/mt/download_file/")


def test_a_prefix_ends_at_a_slash() -> None:
    assert ask("GET", "/languages", headers={"X-Forwarded-Prefix": "/l"}).status_code == 200
    assert ask("GET", "/mt", headers={"X-Forwarded-Prefix": "/mt"}).status_code == 200  # the page


def test_compressed_bodies_are_refused_as_that() -> None:
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    assert ask("POST", "/translate", content=gzip.compress(b"{}"), headers=headers).status_code == 415


def test_json_sent_as_a_form_is_named() -> None:
    answer = ask(
        "POST",
        "/translate",
        content=b'{"q": "a"}',
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert answer.status_code == 400
    assert "application/json" in answer.json()["error"]


@pytest.mark.parametrize(
    "disposition",
    [
        "filename=\"=?utf-8?B?w5xiZXIudHh0?=\"; filename*=utf-8''%C3%9Cber.txt",
        "filename=x.txt; FILENAME*=iso-8859-1'de'%DCber.txt",
        'filename="=?utf-8?Q?=C3=9Cber.txt?="',
        'filename="Über.txt"',
    ],
)
def test_names_of_files_may_be_written_in_ascii(disposition: str) -> None:
    plain = disposition.partition(";")[0].partition("=")[2].strip('"')
    headers = Headers(
        {"content-disposition": f"form-data; name=file; {disposition}".encode().decode("latin-1")}
    )
    assert name_of_upload(UploadFile(file=None, filename=plain, headers=headers)) == "Über.txt"  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["=?nonsense?B?w5xi?=.txt", "=?utf-8?B?%%%?=.txt"])
def test_names_of_files_that_only_look_encoded_stay(name: str) -> None:
    assert name_of_upload(UploadFile(file=None, filename=name)).endswith(".txt")  # type: ignore[arg-type]


def test_a_wrong_key_in_a_header_is_refused_before_the_document_is_read(tmp_path: Path) -> None:
    read: list[bytes] = []

    async def body() -> Any:  # noqa: ANN401
        for _ in range(3):
            read.append(b"x")
            yield b"x"

    keys = KeyRing([ApiKey("ann", fingerprint("right"))])
    headers = {"Authorization": "Bearer wrong", "Content-Type": "multipart/form-data; boundary=b"}
    answer = ask("POST", "/v2/document", directory=tmp_path, keys=keys, content=body(), headers=headers)
    assert answer.status_code == 403
    assert not read


@pytest.mark.parametrize("element", ["<br>", "<br/>", "<linebreak />"])
def test_a_line_break_of_xml_divides_words(element: str) -> None:
    template = read_text(f"<p>The house{element}The dog</p>", xml_rules())
    sentences = [sentence.source.text for sentence in template.work(within_lines=True).sentences]
    assert sentences == ["The house", "The dog"]
