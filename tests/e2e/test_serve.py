"""`heedful serve` as a process, with the clients that people have: unmodified, from PyPI."""

import itertools
import json
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from urllib.parse import quote, urlencode

import pytest
from command_line import heedful
from tiny_bundle import PAIRS, save_memorised
from translation_server import TranslationServer, own_ray, translation_server

from heedful.errors import install_hint

ENGLISH, GERMAN = PAIRS[0]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def as_request(body: bytes) -> bytes:
    """The bytes of a request to translate."""
    head = "POST /translate HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length:"
    return f"{head} {len(body)}\r\n\r\n".encode() + body


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("served") / "tiny")


@pytest.fixture(
    scope="module", params=["here", pytest.param("ray", marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def server(bundle: Path, request: pytest.FixtureRequest) -> Iterator[TranslationServer]:
    """From English to German, and by the same model from German to Dutch, so that there is a way round."""
    if request.param == "ray":
        pytest.importorskip("ray.serve")
    with own_ray(), translation_server(f"en-de,de-nl={bundle}", "--on", request.param) as running:
        yield running


def test_the_log_says_what_is_served_and_then_where(server: TranslationServer, bundle: Path) -> None:
    if not server.is_on_ray:
        at = next(n for n, line in enumerate(server.log) if f"running on {server.url}" in line)
        assert all(each in server.log[at - 1] for each in ("de-nl", "en-de", str(bundle), "float32"))


def test_answers_are_those_of_translate(server: TranslationServer, bundle: Path) -> None:
    lines = [*(english for english, _ in PAIRS), "the cat the dog", "a b c"]
    expected = heedful("translate", bundle, stdin="\n".join([*lines, ""]).encode()).out.splitlines()
    reply = server.post("/translate", {"q": lines, "source": "en", "target": "de"})
    assert (reply.status, reply.json) == (200, {"translatedText": expected})
    assert expected[: len(PAIRS)] == [german for _, german in PAIRS]


@pytest.mark.parametrize("q", [ENGLISH, [ENGLISH, PAIRS[1][0]]])
def test_parameters_may_be_anywhere(server: TranslationServer, q: str | list[str]) -> None:
    fields = {"q": q, "source": "en", "target": "de"}
    expected = {"translatedText": GERMAN if isinstance(q, str) else [GERMAN, PAIRS[1][1]]}
    encoded = urlencode(fields, doseq=True)
    replies = [
        server.post("/translate", fields),
        server.ask("POST", "/translate", encoded.encode(), FORM),
        server.ask("POST", f"/translate?{encoded}"),
        server.ask("GET", f"/translate?{encoded}"),
        server.ask("GET", "/translate", encoded.encode(), FORM),
    ]
    assert [(reply.status, reply.json) for reply in replies] == [(200, expected)] * 5


def multipart(**fields: str) -> str:
    """The body of a form."""
    parts = (f'--x\r\nContent-Disposition: form-data; name="{n}"\r\n\r\n{v}\r\n' for n, v in fields.items())
    return "".join([*parts, "--x--\r\n"])


def test_a_multipart_form_is_one_too(server: TranslationServer) -> None:
    body = multipart(q=ENGLISH, source="en", target="de").encode()
    reply = server.ask("POST", "/translate", body, {"Content-Type": "multipart/form-data; boundary=x"})
    assert reply.json == {"translatedText": GERMAN}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("multipart/form-data; boundary=x", multipart(q="caf\xe9", source="en", target="de")),
        ("multipart/form-data; boundary=x", multipart(q="a", source="en", target="de", **{"\xe9": "b"})),
        ("application/x-www-form-urlencoded", "q=caf\xe9&source=en&target=de"),
    ],
)
def test_a_form_that_is_not_utf_8_is_refused(server: TranslationServer, kind: str, body: str) -> None:
    reply = server.ask("POST", "/translate", body.encode("latin-1"), {"Content-Type": kind})
    assert reply.status == 400
    assert "Invalid form: 'utf-8' codec can't decode byte 0xe9" in reply.json["error"]


def test_a_form_that_was_cut_is_refused(server: TranslationServer) -> None:
    body = multipart(q=ENGLISH, source="en", target="de", format="html").encode()
    for cut in (body.rpartition(b"--x--")[0], body.rstrip(b"\r\n")[:-1]):
        reply = server.ask("POST", "/translate", cut, {"Content-Type": "multipart/form-data; boundary=x"})
        assert (reply.status, reply.json["error"]) == (
            400, "Invalid form: it ends before its last boundary",
        )  # fmt: skip


def test_libretranslate_tells_language_alternatives_and_pivot(server: TranslationServer) -> None:
    reply = server.post("/translate", {"q": ENGLISH, "source": "auto", "target": "de", "alternatives": 2})
    assert reply.json["translatedText"] == GERMAN
    assert reply.json["detectedLanguage"]["language"] == "en"
    assert 0 <= reply.json["detectedLanguage"]["confidence"] <= 100
    assert 1 <= len(reply.json["alternatives"]) <= 2
    assert GERMAN not in reply.json["alternatives"]
    reply = server.post("/translate", {"q": [ENGLISH], "source": "auto", "target": "nl", "alternatives": 1})
    assert set(reply.json) == {"translatedText", "detectedLanguage", "alternatives", "pivot"}
    assert reply.json["pivot"] == ["de"]
    assert [len(reply.json[name]) for name in ("translatedText", "detectedLanguage", "alternatives")] == [
        1
    ] * 3


def test_html_keeps_its_tags(server: TranslationServer) -> None:
    document = f"<p class='a'>{ENGLISH}</p><!-- c --><p>{PAIRS[2][0]}<br/></p>"
    reply = server.post("/translate", {"q": document, "source": "en", "target": "de", "format": "html"})
    assert reply.json == {"translatedText": f"<p class='a'>{GERMAN}</p><!-- c --><p>{PAIRS[2][1]}<br/></p>"}


def test_languages_are_listed(server: TranslationServer) -> None:
    expected = [
        {"code": "de", "name": "German", "targets": ["nl"]},
        {"code": "en", "name": "English", "targets": ["de", "nl"]},
        {"code": "nl", "name": "Dutch", "targets": []},
    ]
    for method, body in (("GET", None), ("POST", b""), ("GET", b"api_key=x")):
        assert server.ask(method, "/languages", body, FORM).json == expected
    listed = server.ask("GET", "/v2/languages?type=target").json
    assert [each["language"] for each in listed] == ["DE", "NL"]
    assert [each["lang"] for each in server.ask("GET", "/v3/languages").json] == ["de", "en", "nl"]


def test_microsofts_array_is_answered(server: TranslationServer) -> None:
    reply = server.post("/translate?from=en&to=de", [{"text": ENGLISH}, {"Text": PAIRS[1][0]}])
    assert reply.json == [
        {"translations": [{"text": GERMAN, "to": "de"}]},
        {"translations": [{"text": PAIRS[1][1], "to": "de"}]},
    ]
    reply = server.post("/translate?to=de&to=nl", [{"text": ENGLISH}])
    assert [each["to"] for each in reply.json[0]["translations"]] == ["de", "nl"]
    assert reply.json[0]["detectedLanguage"]["language"] == "en"


def test_operations_are_answered(server: TranslationServer) -> None:
    assert server.ask("GET", "/health").json == {"status": "ok"}
    assert server.ask("GET", "/frontend/settings").json["charLimit"] == 5000
    spec = server.ask("GET", "/spec").json
    assert {"/translate", "/detect", "/languages", "/v2/translate"} <= set(spec["paths"])
    for path in ("/", "/docs"):
        page = server.ask("GET", path)
        assert page.headers["content-type"].startswith("text/html")
        assert b"http://" not in page.body  # nothing from other servers
        assert "default-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
    metrics = server.ask("GET", "/metrics").body.decode()
    count = r'heedful_http_request_duration_seconds_count\{endpoint="/health",(replica="\w+",)?status="200"\}'
    assert re.search(count, metrics)
    assert "heedful_sentences_total" in metrics


def test_libretranslatepy_works(server: TranslationServer) -> None:
    module = pytest.importorskip("libretranslatepy")
    client = module.LibreTranslateAPI(server.url)
    assert client.translate(ENGLISH, "en", "de") == GERMAN
    assert client.detect("the dog sleeps in the house today")[0]["language"] == "en"
    assert [each["code"] for each in client.languages()] == ["de", "en", "nl"]


def test_deep_translator_works(server: TranslationServer) -> None:
    module = pytest.importorskip("deep_translator")
    client = module.LibreTranslator(source="en", target="de", custom_url=f"{server.url}/", api_key="none")
    assert client.translate(ENGLISH) == GERMAN


def test_deepls_own_client_works(server: TranslationServer) -> None:
    deepl = pytest.importorskip("deepl")
    with closing(deepl.DeepLClient("a key", server_url=server.url)) as client:
        one = client.translate_text(ENGLISH, target_lang="DE")
        assert (one.text, one.detected_source_lang, one.billed_characters) == (GERMAN, "EN", len(ENGLISH))
        two = client.translate_text([ENGLISH, PAIRS[1][0]], source_lang="EN", target_lang="DE")
        assert [each.text for each in two] == [GERMAN, PAIRS[1][1]]
        tagged = client.translate_text(f"<p>{ENGLISH}</p>", target_lang="DE", tag_handling="html")
        assert tagged.text == f"<p>{GERMAN}</p>"
        assert [str(each) for each in client.get_source_languages()] == ["DE", "EN"]
        assert [str(each) for each in client.get_target_languages()] == ["DE", "NL"]
        assert client.get_usage().character.count > 0
        with pytest.raises(deepl.DeepLException, match="'target_lang' not supported"):
            client.translate_text(ENGLISH, target_lang="FR")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"source": "en", "target": "de"}, "Invalid request: missing q parameter"),
        ({"q": "", "source": "en", "target": "de"}, "Invalid request: missing q parameter"),
        ({"q": [], "source": "en", "target": "de"}, "Invalid request: missing q parameter"),
        ({"q": {}, "source": "en", "target": "de"}, "q parameter: Input should be a valid string"),
        ({"q": "a", "target": "de"}, "Invalid request: missing source parameter"),
        ({"q": "a", "source": "en"}, "Invalid request: missing target parameter"),
        ({"q": "a", "source": "zz", "target": "de"}, "zz is not supported"),
        ({"q": "a", "source": "de", "target": "en"}, "en is not available as a target language; "
         "there are: de"),
        ({"q": "a", "source": "EN", "target": "en"}, "source and target are both en; give another target"),
        ({"q": "a", "source": "fr", "target": "fr"}, "fr is not supported"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": "x"}, "alternatives parameter is not"),
        ({"q": "a", "source": "en", "target": "de", "alternatives": 10_000}, "alternatives parameter must"),
        ({"q": "a" * 5001, "source": "en", "target": "de"}, "exceeds text limit"),
        ({"q": ["a"] * 129, "source": "en", "target": "de"}, "exceeds text limit"),
        ({"q": "a", "source": "en", "target": "de", "format": "pdf"}, "format parameter"),
    ],
)  # fmt: skip
def test_libretranslates_mistakes(server: TranslationServer, fields: dict[str, object], message: str) -> None:
    reply = server.post("/translate", fields)
    assert reply.status == 400
    assert list(reply.json) == ["error"]
    assert message in reply.json["error"]


def test_mistakes_in_deepls_form(server: TranslationServer) -> None:
    good = {"text": [ENGLISH], "target_lang": "DE"}
    for fields, status in (
        ({"target_lang": "DE"}, 400),
        (good | {"target_lang": "FR"}, 400),
        (good | {"text": ["a" * 5001]}, 413),
        (good | {"glossary_id": "x"}, 400),
        (good | {"glossary_id": "x", "source_lang": "EN"}, 404),
        (good | {"formality": "more"}, 400),
        (good | {"split_sentences": "often"}, 400),
    ):
        reply = server.post("/v2/translate", fields)
        assert (reply.status, list(reply.json)) == (status, ["message"])
    assert list(server.ask("POST", "/v2/document").json) == ["message"]


HOSTILE = [
    b"", b"{", b"[" * 50_000, b'{"q":' * 5_000, b'"q"', b"\xff\xfe", b'{"q": "\\ud800", "source": "en"}',
    b'{"q": "a", "q": "b"}', b"null", b"[[]]", b'[{"text": 1}]', b'{"q": {"a": 1}}', b"NaN", b'{"q": 1e999}',
    '{"q": "a\u0000\u202e"}'.encode(), b"&" * 5_000, b"--x\r\nContent-Disposition: form-data",
    b"q=%ff&source=en",
]  # fmt: skip
KINDS = [
    "application/json",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "text/x",
    "",
]


@pytest.mark.parametrize("path", ["/translate", "/detect", "/v2/translate", "/v2/languages", "/languages"])
def test_hostile_bodies_are_the_clients_mistake(server: TranslationServer, path: str) -> None:
    for kind in KINDS:
        for body in HOSTILE:
            reply = server.ask("POST", path, body, {"Content-Type": kind} if kind else {})
            assert reply.status in {200, 400, 413, 415}, (kind, body, reply)
            assert reply.status == 200 or list(reply.json) in (["error"], ["message"])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sockets are no files there")
def test_slow_clients_do_not_take_the_files_of_others(bundle: Path) -> None:
    health = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"
    unread = b"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
    with translation_server(f"en-de={bundle}", max_files=300) as server, ExitStack() as slow:
        for number in range(320):
            connection = slow.enter_context(socket.create_connection((server.host, server.port), timeout=60))
            with suppress(ConnectionError):
                connection.sendall([b"", b"GET /hea", health + b"G", unread][number % 4])
            if number % 10 == 0:
                assert server.ask("GET", "/health").json == {"status": "ok"}
        assert server.post("/translate", {"q": ENGLISH, "source": "en", "target": "de"}).status == 200
        assert server.terminate() == 0
    assert "Traceback" not in "".join(server.log)
    assert len(server.log) < 50


def test_what_is_no_http_and_what_is_too_large_is_refused(server: TranslationServer) -> None:
    if not server.is_on_ray:  # whose proxy reads HTTP itself, and keeps the connection
        assert server.raw(b"nonsense\r\n\r\n").startswith(b"HTTP/1.1 400")
        long = b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n"
        assert server.raw(long).startswith(b"HTTP/1.1 414")
    assert server.ask("POST", "/translate", b" " * 131_073).status == 413
    if not server.is_on_ray:
        assert server.raw(as_request(b" " * 131_073)).startswith(b"HTTP/1.1 413")
    assert server.ask("DELETE", "/translate").headers["allow"] == "GET, HEAD, OPTIONS, POST"
    assert server.ask("GET", "/nothing").json == {"error": "Not Found"}


def test_no_origin_may_ask_unless_it_is_let_in(server: TranslationServer) -> None:
    reply = server.post("/translate", {"q": ENGLISH, "source": "en", "target": "de"}, Origin="http://a.org")
    assert "access-control-allow-origin" not in reply.headers


@pytest.mark.slow
def test_keys_rates_origins_and_logs(bundle: Path, tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    made = heedful("serve", "--make-key", "ann", "--keys", keys)
    key = made.out.strip()
    assert (made.code, len(key) > 40) == (0, True)
    arguments = (f"en-de={bundle}", "--keys", keys, "--rate", 60, "--cors", "http://a.org", "--log-requests")
    with translation_server(*arguments) as server:
        fields = {"q": ENGLISH, "source": "en", "target": "de"}
        refused = server.post("/translate", fields)
        assert (refused.status, refused.json) == (403, {"error": "An API key is required"})
        assert server.post("/translate", fields | {"api_key": "wrong"}).status == 403
        assert server.post("/v2/usage", {}).status == 405
        assert server.ask("GET", "/v2/usage").status == 403
        asked = server.post("/translate", fields | {"api_key": key}, Origin="http://a.org")
        assert asked.json == {"translatedText": GERMAN}
        assert asked.headers["access-control-allow-origin"] == "http://a.org"
        header = {"Authorization": f"DeepL-Auth-Key {key}"}
        deepl = server.post("/v2/translate", {"text": [ENGLISH], "target_lang": "DE"}, **header)
        assert deepl.json["translations"][0]["text"] == GERMAN
        usage = server.ask("GET", "/v2/usage", None, header)
        assert usage.json["character_count"] == 2 * len(ENGLISH)
        statuses = {server.ask("GET", "/v2/usage", None, header).status for _ in range(40)}
        assert statuses == {200, 429}
        code = server.terminate()
    log = "".join(server.log)
    assert code == 0
    assert "POST /translate 200" in log
    assert key not in log + keys.read_text()
    assert "sleeps" not in log


@pytest.mark.parametrize("trusted", [(), ("--trust-proxy", "10.0.0.0/8", "--trust-proxy", "127.0.0.1")])
@pytest.mark.slow
def test_an_address_is_taken_from_a_header_only_of_a_proxy_that_is_trusted(
    bundle: Path, trusted: tuple[str, ...]
) -> None:
    with translation_server(f"en-de={bundle}", "--rate", 1, *trusted) as server:
        statuses = [
            server.ask("GET", "/v2/usage", None, {"X-Forwarded-For": f"192.0.2.{number}"}).status
            for number in range(10)
        ]
        server.terminate()
    assert statuses[0] == 200
    assert (429 in statuses) is not bool(trusted)


@pytest.mark.slow
def test_texts_are_logged_only_when_asked_for(bundle: Path) -> None:
    with translation_server(f"en-de={bundle}", "--log-text") as server:
        server.ask("GET", f"/translate?q={quote(ENGLISH)}&source=en&target=de")
        server.terminate()
    assert f"en -> de: ('{ENGLISH}',)" in "".join(server.log)


def characters(server: TranslationServer) -> tuple[float, float]:
    """Those of requests that are worked on, and of those that are done."""
    text = server.ask("GET", "/metrics").body.decode()
    found = dict(line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
    counted = [float(each) for name, each in found.items() if name.startswith("heedful_characters_total")]
    return float(found["heedful_admitted_characters"]), sum(counted)


@pytest.mark.slow
def test_too_many_at_once_are_told_to_come_back(bundle: Path) -> None:
    limits = ("--max-characters", 3000, "--max-waiting", 3000)
    with translation_server(f"en-de={bundle}", *limits) as server:
        for (
            attempt
        ) in itertools.count():  # a fast machine may be done with the first before it hears the second
            lines = [f"the cat sees the dog {attempt} {number}" for number in range(100)]
            fields = {"q": "\n".join(lines), "source": "en", "target": "de", "alternatives": 5}
            with socket.create_connection((server.host, server.port)) as first:
                first.sendall(as_request(json.dumps(fields).encode()))
                second = server.post("/translate", {"q": "a" * 2999, "source": "en", "target": "de"})
            while characters(server)[0]:  # the place of a client that goes away comes free
                time.sleep(0.001)
            if second.status == 429:
                break
            assert second.status == 200
        assert list(second.json) == ["error"]
        assert int(second.headers["retry-after"]) >= 1
        assert server.post("/translate", {"q": ENGLISH, "source": "en", "target": "de"}).status == 200


@pytest.mark.representatives(1)
@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_lets_what_has_begun_end(which: signal.Signals, bundle: Path) -> None:
    with translation_server(f"en-de={bundle}") as server:
        lines = [f"the cat sees the dog {number}" for number in range(120)]
        body = json.dumps({"q": lines, "source": "en", "target": "de", "alternatives": 3}).encode()
        with socket.create_connection((server.host, server.port), timeout=60) as client:
            client.sendall(as_request(body))
            while not any(characters(server)):
                time.sleep(0.001)
            server.process.send_signal(which)
            assert server.process.wait(600) == 0
            answer = b"".join(iter(lambda: client.recv(65536), b""))
        assert answer.startswith(b"HTTP/1.1 200")
        assert len(json.loads(answer.split(b"\r\n\r\n", 1)[1])["translatedText"]) == 120


@pytest.mark.parametrize("name", ["uvicorn", "fastapi", "prometheus_client", "langcodes", "py3langid"])
def test_a_package_that_is_missing_is_one_line(bundle: Path, name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        for module in [each for each in sys.modules if each.startswith((name, "heedful.serving"))]:
            patch.delitem(sys.modules, module)
        patch.setitem(sys.modules, name, None)
        outcome = heedful("serve", f"en-de={bundle}")
    assert (outcome.code, outcome.err) == (1, f"error: serving needs {name}: {install_hint('serve')}\n")


def test_a_model_without_languages_is_one_line(bundle: Path) -> None:
    outcome = heedful("serve", bundle, "--port", 0)
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        f"error: {bundle}: the languages of this model are not known; name source and target: "
        f"heedful serve en-de={bundle}"
    ]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "no model; give at least one"),
        (["en-zz=x"], "'en-zz': no pair of languages"),
        (["en-de="], "a bundle must follow"),
        (["en-de=nowhere"], "nowhere"),
        (["en-de=x", "--keys", "nothing.json"], "nothing.json: not a file of keys"),
        (["en-de=x", "--keys", "nothing.json", "--workers", 2], "nothing.json: not a file of keys"),
        (["en-de=x", "--timeout", "inf"], "'--timeout'"),
        (["en-de=x", "--max-texts", 10**30], "'--max-texts'"),
        (["en-de=x", "--max-waiting", 10**30], "'--max-waiting'"),
        (["en-de=x", "--max-alternatives", 1000], "'--max-alternatives'"),
        (["en-de=x", "--rate", 10**30], "'--rate'"),
        (["en-de=x", "--beam-size", 10**6], "--beam-size"),
        (["en-de=x", "--cors", "https://a.org", "--cors", "b.org"], "'b.org': not an origin"),
        (["en-de=x", "de-en=y", "en-de=z"], "en-de=z: en-de is already listed by en-de=x"),
        (["en-de,deu_Latn-fr,de-fr=x"], "de-fr is already listed by"),
        (["--make-key", "ann", "--keys", "nothing.json", "--rate", 10**30], "'--rate'"),
        (["en-de=x", "--workers", 65], "--workers"),
        (["en-de=x", "--trust-proxy", "nginx"], "'nginx': not a proxy's address"),
        (["en-de=x", "--trust-proxy", "10.0.0.1/8"], "has host bits set"),
        (["en-de=x", "--max-characters", 200_000], "--max-waiting 100,000: must be at least"),
        (["en-de=x", "--on", "mars"], "--on mars: must be here or ray"),
        (["en-de=x", "--replicas", 3, "--max-replicas", 2], "--max-replicas 2"),
        (["en-de=x", "--shared", "http://x"], "--shared http://x"),
        (["--make-key", "ann"], "need --keys FILE"),
        (["--make-key", "a\nb", "--keys", "nothing.json"], "not a name for a key"),
    ],
)
def test_mistakes_at_the_start_are_one_line(arguments: list[str], message: str) -> None:
    outcome = heedful("serve", *arguments, "--port", 0)
    assert outcome.code in {1, 2}
    assert message in outcome.err
    assert len(outcome.err.splitlines()) == 1


def test_an_address_that_is_in_use_is_one_line() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        outcome = heedful("serve", "en-de=nowhere", "--port", port)
    assert outcome.code == 1
    assert outcome.err.startswith(f"error: cannot listen on 127.0.0.1, port {port}: ")
    assert len(outcome.err.splitlines()) == 1
