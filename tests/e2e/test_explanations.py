"""/explain of a real server: beside translations, with keys, and without torch."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tiny_bundle import PAIRS, save_memorised
from translation_server import TranslationServer, translation_server

from heedful.runtime.native import native
from heedful.serving.access import make_key

ENGLISH, GERMAN = PAIRS[0]
FIELDS = {"q": ENGLISH, "source": "en", "target": "de"}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("explained") / "tiny")


@pytest.fixture(scope="module")
def server(bundle: Path) -> Iterator[TranslationServer]:
    with translation_server(f"en-de={bundle}") as running:
        yield running


@pytest.mark.slow
def test_translations_go_on_during_the_first_explanation(
    server: TranslationServer,
) -> None:
    statuses = []
    first = threading.Thread(target=lambda: statuses.append(server.post("/explain", FIELDS).status))
    first.start()
    number = 0
    while first.is_alive():
        number += 1
        statuses.append(server.post("/translate", FIELDS | {"q": f"the cat sleeps {number} ."}).status)
    assert set(statuses) == {200}


def test_an_explanation_is_answered_in_every_form_of_request(server: TranslationServer) -> None:
    reply = server.post("/explain", FIELDS | {"attention": "decoder", "layer": 1})
    (sentence,) = reply.json["sentences"]
    assert sentence["hypotheses"][0]["text"] == GERMAN
    assert [each["layer"] for each in sentence["attention"]["maps"]] == [1]
    form = server.ask(
        "POST",
        "/explain",
        b"q=the+cat+sleeps+.&source=en&target=de&layer=1&attention=decoder",
        {"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert form.json == reply.json
    assert "/explain" in server.ask("GET", "/spec").json["paths"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"q": ""}, "missing q parameter"),
        ({"attention": "all"}, "attention parameter"),
        ({"attention": "cross", "layer": 9}, "layer parameter must be from 1 to 2"),
        ({"target": "fr"}, "fr is not supported"),
        ({"q": "a" * 5001}, "exceeds text limit"),
    ],
)
def test_mistakes_are_told(server: TranslationServer, change: dict[str, object], message: str) -> None:
    reply = server.post("/explain", FIELDS | change)
    assert reply.status == (404 if "layer" in change else 400)
    assert message in reply.json["error"]


@pytest.mark.slow
def test_keys_and_rates_are_those_of_translations(bundle: Path, tmp_path: Path) -> None:
    key = make_key(tmp_path / "keys.json", "ann", requests_per_minute=6)
    with translation_server(f"en-de={bundle}", "--keys", tmp_path / "keys.json") as own:
        assert own.post("/explain", FIELDS).status == 403
        assert own.post("/explain", FIELDS | {"api_key": key}).status == 200
        refused = own.post("/translate", FIELDS | {"api_key": key})
        assert refused.status == 429
        assert int(refused.headers["retry-after"]) >= 1


@pytest.mark.slow
@pytest.mark.skipif(native().level is None, reason="without the native engine nothing works without torch")
def test_explanations_without_torch_are_those_with_it(
    server: TranslationServer, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('not here', name='torch')\n", encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with translation_server(f"en-de={bundle}") as own:
        for kind in ("cross", "encoder", "decoder"):
            reply = own.post("/explain", FIELDS | {"attention": kind})
            assert reply.json == server.post("/explain", FIELDS | {"attention": kind}).json
            assert reply.json["sentences"][0]["hypotheses"][0]["text"] == GERMAN
