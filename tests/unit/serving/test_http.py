"""What the dialects take and refuse, over HTTP."""

import hashlib
import json
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest
from running_services import Running, running

from heedful.serving.access import ApiKey

KEY = "secret"
TEXT = {"text": ["a"], "target_lang": "DE", "source_lang": "EN"}


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


def ask(
    server: Running, method: str, path: str, content: object = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    """Return status, headers and body of an answer."""
    connection = HTTPConnection(*server.address, timeout=60)
    body = None if content is None else json.dumps(content).encode()
    connection.request(method, path, body, {"Content-Type": "application/json"} | headers)
    response = connection.getresponse()
    found = {name.lower(): value for name, value in response.getheaders()}
    answer = response.read()
    connection.close()
    return response.status, found, answer


@pytest.mark.parametrize("path", ["/translate", "/v2/translate"])
@pytest.mark.parametrize("query", ["q=%ff%fe+cat&source=en&target=de", "text=%c3&target_lang=DE", "%ff=1"])
def test_a_query_that_is_not_utf_8_is_refused(server: Running, path: str, query: str) -> None:
    status, _, body = ask(server, "GET", f"{path}?{query}")
    assert status == 400
    assert b"Invalid query string" in body


def test_a_query_in_utf_8_is_answered(server: Running) -> None:
    status, _, body = ask(server, "GET", "/translate?q=gr%c3%bcn+a%2bb&source=en&target=de")
    assert (status, json.loads(body)) == (200, {"translatedText": "GRÜN A+B"})


def test_a_translation_that_a_length_limit_has_cut_is_marked(server: Running) -> None:
    """In LibreTranslate's dialect alone, and only there: other answers are as its clients know them."""
    for texts, wanted in (("endless", True), (["rain", "endless"], [False, True]), (["rain"], None)):
        question = {"q": texts, "source": "en", "target": "de"}
        assert json.loads(ask(server, "POST", "/translate", question)[2]).get("truncated") == wanted
    [translation] = json.loads(ask(server, "POST", "/v2/translate", TEXT | {"text": ["endless"]})[2])[
        "translations"
    ]
    assert "truncated" not in translation


@pytest.mark.representatives(2)
@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "DeepL-Auth-Key", "deepl-auth-key"])
def test_the_scheme_of_a_key_has_no_case(scheme: str) -> None:
    key = ApiKey("ann", hashlib.sha256(KEY.encode()).hexdigest())
    with running(keys=(key,)) as server:
        question = {"q": "a", "source": "en", "target": "de"}
        assert ask(server, "POST", "/translate", question, Authorization=f"{scheme} {KEY}")[0] == 200
        assert ask(server, "POST", "/translate", question, Authorization=f"Basic {KEY}")[0] == 403


@pytest.mark.parametrize("path", ["/", "/health", "/languages", "/spec", "/nope"])
def test_head_is_answered_as_get_without_the_body(server: Running, path: str) -> None:
    status, headers, body = ask(server, "HEAD", path)
    status_of_get, headers_of_get, _ = ask(server, "GET", path)
    assert (status, body) == (status_of_get, b"")
    assert headers["content-length"] == headers_of_get["content-length"]
    assert headers["content-type"] == headers_of_get["content-type"]


def test_the_methods_that_are_allowed_are_named(server: Running) -> None:
    assert ask(server, "DELETE", "/translate")[1]["allow"] == "GET, HEAD, OPTIONS, POST"
    assert ask(server, "HEAD", "/detect")[1]["allow"] == "OPTIONS, POST"


@pytest.mark.parametrize("source", ["de", "DE", "de-AT", "auto"])
def test_a_text_in_the_target_language_stays_as_it_is(server: Running, source: str) -> None:
    text = "Der Hund schläft in der Nacht unter dem großen Tisch."
    status, _, body = ask(server, "POST", "/translate", {"q": text, "source": source, "target": "de"})
    assert (status, json.loads(body)["translatedText"]) == (200, text)


@pytest.mark.parametrize(
    "fields",
    [
        {"formality": "more"},
        {"formality": "MORE"},
        {"formality": "More"},
        {"formality": "invalid"},
        {"model_type": "bogus"},
        {"custom_instructions": ["be kind"]},
        {"custom_instructions": "be kind"},
        {"style_id": "x"},
        {"nonsense": 1},
    ],
)
def test_what_deepl_would_do_and_this_server_does_not_is_refused(
    server: Running, fields: dict[str, object]
) -> None:
    status, _, body = ask(server, "POST", "/v2/translate", TEXT | fields)
    assert (status, list(json.loads(body))) == (400, ["message"])
    assert next(iter(fields)) in json.loads(body)["message"]


@pytest.mark.parametrize(
    "fields",
    [
        {"formality": "default"},
        {"formality": "prefer_more"},
        {"formality": "prefer_less"},
        {"model_type": "latency_optimized"},
        {"model_type": "prefer_quality_optimized"},
        {"custom_instructions": []},
        {"context": "about dogs", "preserve_formatting": True, "show_billed_characters": True},
    ],
)
def test_what_changes_nothing_here_is_taken(server: Running, fields: dict[str, object]) -> None:
    status, _, body = ask(server, "POST", "/v2/translate", TEXT | fields)
    assert (status, json.loads(body)["translations"][0]["text"]) == (200, "A")
