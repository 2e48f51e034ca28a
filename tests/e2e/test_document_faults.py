"""Documents and glossaries under kill -9 at random moments: nothing is lost, and nothing wrong is served."""

import io
import json
import random
import signal
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path

import pytest
from tiny_bundle import SOURCES, save_untrained
from translation_server import TranslationServer, translation_server

from heedful.storage.bundle import load_bundle, save_bundle

deepl = pytest.importorskip("deepl")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]
KILLS = 5
NUM_UNITS = 4_000
SEARCH = ("--beam-size", "1", "--threads", "1")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a bundle whose outputs end after 12 tokens, so that a document takes seconds."""
    path = tmp_path_factory.mktemp("random") / "weights"
    known = load_bundle(save_untrained(path.with_name("long")))
    config = known.config.replace(decode=known.config.decode.replace(max_length=12))
    save_bundle(replace(known, config=config), path, card="# A model that knows nothing\n")
    return path


def document() -> str:
    """Return lines that all differ."""
    words = sorted({word for source in SOURCES for word in source.split()} - {".", "?"})
    rng = random.Random(1)
    lines = (f"{n} " + " ".join(rng.choices(words, k=rng.randint(1, 8))) for n in range(NUM_UNITS))
    return "".join(f"{line} .\n" for line in lines)


def test_a_server_that_is_killed_serves_nothing_wrong_afterwards(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    text = document()
    with translation_server(f"en-de={bundle}", *SEARCH) as server:
        client = deepl.DeepLClient("a key", server_url=server.url)
        with closing(client):
            handle = client.translate_document_upload(
                text, filename="a.txt", source_lang="EN", target_lang="DE"
            )
            while (status := client.translate_document_get_status(handle)).seconds_remaining is None:
                assert status.ok
                assert not status.done
                time.sleep(0.05)
            server.process.kill()
            server.process.wait()
    with (
        translation_server(f"en-de={bundle}", *SEARCH) as server,
        closing(deepl.DeepLClient("a key", server_url=server.url)) as client,
    ):
        with pytest.raises(deepl.DeepLException, match="Document not found"):
            client.translate_document_get_status(handle)
        with pytest.raises(deepl.DeepLException, match="Not found"):
            client.translate_document_download(handle, io.BytesIO())
        assert len(list(tmp_path.glob("heedful-documents-*"))) == 1
        assert list(tmp_path.glob("heedful-documents-*/*/*")) == []
        first, second = io.BytesIO(), io.BytesIO()
        for stream in (first, second):
            source = io.BytesIO(text.encode())
            source.name = "a.txt"  # type: ignore[attr-defined]
            client.translate_document(source, stream, source_lang="EN", target_lang="DE")
        assert first.getvalue() == second.getvalue()
        assert first.getvalue().count(b"\n") == NUM_UNITS


def test_glossaries_that_were_acknowledged_survive_kills(bundle: Path, tmp_path: Path) -> None:
    file = tmp_path / "glossaries.json"
    rng = random.Random(3)
    acknowledged: dict[str, dict[str, str]] = {}  # entries by id
    for kill in range(KILLS):
        with translation_server(f"en-de={bundle}", "--glossaries", file) as server:
            check_glossaries(server, acknowledged, most_others=kill)
            change(server, acknowledged, rng)  # before the kill, on any machine
            timer = threading.Timer(rng.uniform(0.05, 1.0), server.process.kill)
            timer.start()
            with suppress(OSError, HTTPException):
                while True:
                    change(server, acknowledged, rng)
            timer.join()
            assert server.process.wait() == -signal.SIGKILL
    with translation_server(f"en-de={bundle}", "--glossaries", file) as server:
        check_glossaries(server, acknowledged, most_others=KILLS)
    assert len(acknowledged) > 1


either: dict[str, tuple[dict[str, str], dict[str, str]]] = {}  # of changes that were not acknowledged


def change(server: TranslationServer, acknowledged: dict[str, dict[str, str]], rng: random.Random) -> None:
    """Store a new glossary, or replace the entries of one; note it when the server has acknowledged it."""
    entries = {f"term {n}": f"Wort {rng.random()}" for n in range(rng.randint(1, 300))}
    lines = "\n".join(f"{source}\t{target}" for source, target in entries.items())
    dictionary = {"source_lang": "en", "target_lang": "de", "entries": lines, "entries_format": "tsv"}
    json_type = {"Content-Type": "application/json"}
    if acknowledged and rng.random() < 0.5:
        glossary_id = rng.choice(sorted(acknowledged))
        replaced = acknowledged.pop(glossary_id)  # until the answer, it may be the old one or the new one
        path = f"/v3/glossaries/{glossary_id}/dictionaries"
        try:
            reply = server.ask("PUT", path, json.dumps(dictionary).encode(), json_type)
        except (OSError, HTTPException):
            either[glossary_id] = (replaced, entries)
            raise
        assert reply.status == 200
    else:
        reply = server.post("/v2/glossaries", {"name": "terms", **dictionary})
        assert reply.status == 201
        glossary_id = reply.json["glossary_id"]
    acknowledged[glossary_id] = entries


def check_glossaries(
    server: TranslationServer, acknowledged: dict[str, dict[str, str]], *, most_others: int
) -> None:
    """Check that all that was acknowledged is there, and little else: what each kill interrupted."""
    listed = server.ask("GET", "/v2/glossaries").json["glossaries"]
    stored = {}
    for each in listed:
        found = server.ask("GET", f"/v2/glossaries/{each['glossary_id']}/entries").body.decode()
        stored[each["glossary_id"]] = dict(line.split("\t") for line in found.splitlines())
    for glossary_id, alternatives in either.items():
        assert stored[glossary_id] in alternatives
        acknowledged[glossary_id] = stored[glossary_id]
    either.clear()
    assert {name: stored.get(name) for name in acknowledged} == acknowledged
    assert len(stored) - len(acknowledged) <= most_others
