"""Corrections and memories of clients: durable, undone by one call, in doubt if they look wrong."""

import errno
import io
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from asked_service import ask

from heedful.data.files import PairFiles
from heedful.documents.memory import TranslationMemory, read_units
from heedful.errors import InputError
from heedful.serving.access import ApiKey, KeyRing, fingerprint, label_of_key
from heedful.serving.deepl_memories import segments_of_tmx
from heedful.serving.memories import MemoryStore, new_segment
from heedful.serving.refusals import NoSuchMemoryError
from heedful.text.languages import Pair

SENT = {"q": "The cat sleeps. Look!", "s": "Die Katze\nschläft. Schau!", "source": "en", "target": "de"}
PAIR = Pair("en", "de")
TMX = """<tmx version="1.4"><header srclang="en-US"/><body>
<tu><tuv xml:lang="en-US"><seg>The old dog sleeps.</seg></tuv>
<tuv xml:lang="de-DE"><seg>Der Hund.</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>Nothing</seg></tuv></tu></body></tmx>"""


@pytest.fixture
def store(tmp_path: Path) -> MemoryStore:
    return MemoryStore(tmp_path)


def correct(store: MemoryStore, source: str, target: str, owner: str = "", doubt: str = "") -> str:
    return store.add_correction(owner, "en", new_segment(owner, "de", source, target, doubt)).id


def recalled(store: MemoryStore, text: str, owner: str = "") -> str | None:
    match = store.recall(owner)(PAIR, [text]).get(text)
    return None if match is None else match.target


@pytest.mark.parametrize(
    ("path", "sent", "found"),
    [
        ("/translate", {"q": SENT["q"], "source": "en", "target": "de"}, ["translatedText"]),
        ("/v2/translate", {"text": [SENT["q"]], "target_lang": "DE"}, ["translations", 0, "text"]),
        ("/translate?api-version=3.0&to=de&from=en", [{"Text": SENT["q"]}], [0, "translations", 0, "text"]),
        (
            "/MTRestService/TranslatePost?srcLangCode=en&trgLangCode=de&input=The cat sleeps. Look!",
            {},
            ["translation"],
        ),
    ],
)
def test_a_correction_is_the_next_answer_in_every_dialect(
    store: MemoryStore,
    path: str,
    sent: Any,  # noqa: ANN401
    found: list[Any],
) -> None:
    assert ask("POST", "/suggest", memories=store, json=SENT).json()["success"] is True
    answer = ask("POST", path, memories=store, json=sent).json()
    for step in found:
        answer = answer[step]
    assert answer == SENT["s"]


def test_a_corrected_sentence_is_used_within_texts_and_markup(store: MemoryStore) -> None:
    correct(store, "The cat sleeps.", "Die Katze ruht.")
    body = {"q": "<p>Now. The <b>cat</b> sleeps.</p>", "source": "en", "target": "de", "format": "html"}
    text = ask("POST", "/translate", memories=store, json=body).json()["translatedText"]
    assert text == "<p>NOW. Die <b>Katze</b> ruht.</p>"


def test_a_client_has_its_own_corrections(store: MemoryStore) -> None:
    keys = KeyRing([ApiKey("ann", fingerprint("a")), ApiKey("bob", fingerprint("b"))])
    ask("POST", "/suggest", memories=store, keys=keys, json=SENT | {"api_key": "a"})
    body = {"q": SENT["q"], "source": "en", "target": "de"}
    answers = [
        ask("POST", "/translate", memories=store, keys=keys, json=body | {"api_key": key}).json()
        for key in "ab"
    ]
    assert [answer["translatedText"] for answer in answers] == [SENT["s"], SENT["q"].upper()]
    [listed] = ask("GET", "/suggest?api_key=a", memories=store, keys=keys).json()
    assert (listed["client"], listed["s"]) == ("ann", SENT["s"])
    assert ask("GET", "/suggest?api_key=b", memories=store, keys=keys).json() == []
    path = f"/suggest/{listed['id']}?api_key="
    assert ask("DELETE", f"{path}b", memories=store, keys=keys).status_code == 404
    assert ask("DELETE", f"{path}a", memories=store, keys=keys).status_code == 200
    assert (store.directory / label_of_key("ann") / "corrections-en.memory").exists()


def test_one_call_undoes_a_correction(store: MemoryStore) -> None:
    correct(store, "The cat", "Die Katze")
    second = correct(store, "The  cat", "Der Kater")
    assert recalled(store, "The cat") == "Der Kater"
    assert ask("DELETE", f"/suggest/{second}", memories=store).status_code == 200
    assert recalled(store, "The cat") == "Die Katze"
    assert ask("DELETE", f"/suggest/{second}", memories=store).status_code == 404


@pytest.mark.parametrize(
    ("suggested", "is_doubtful"),
    [
        ("The cat sleeps.", True),
        ("Le chat dort dans le jardin avec ses amis.", True),
        ("Die Katze schläft im Garten mit ihren Freunden.", False),
    ],
)
def test_junk_is_listed_and_not_used_before_it_is_confirmed(
    store: MemoryStore,
    suggested: str,
    is_doubtful: bool,
) -> None:
    sent = {"q": "The cat sleeps.", "s": suggested, "source": "en", "target": "de"}
    stored = ask("POST", "/suggest", memories=store, json=sent).json()
    [listed] = ask("GET", "/suggest", memories=store).json()
    assert bool(listed["doubt"]) == is_doubtful
    assert (recalled(store, sent["q"]) is None) == is_doubtful
    assert ask("POST", f"/suggest/{stored['id']}", memories=store).json()["doubt"] == ""
    assert recalled(store, sent["q"]) == suggested


def test_what_is_in_doubt_is_exported_with_its_mark_and_not_learned(
    store: MemoryStore, tmp_path: Path
) -> None:
    correct(store, "The cat", "Die Katze", "ann")
    correct(store, "The dog", "xx", "ann", doubt="strange")
    memory = store.corrections("ann", "en")
    stream = io.BytesIO()
    memory.export(stream)
    exported = tmp_path / "out.tmx"
    exported.write_bytes(stream.getvalue())
    assert '<prop type="x-doubt">strange</prop>' in exported.read_text()
    assert 'changeid="ann"' in exported.read_text()
    [kept] = (store.folder("ann")).glob("*.memory")
    for path in (exported, kept):
        assert list(read_units(path, src="en", tgt="de")) == [("The cat", "Die Katze")]
        pairs = [(row.src, row.tgt) for row in PairFiles((path,)).rows()]
        assert ("The cat", "Die Katze") in pairs
        assert "xx" not in [tgt for _, tgt in pairs]
    assert len(TranslationMemory.load([kept], src="en", tgt=None)) == 1
    with pytest.raises(InputError, match="fr"):
        list(read_units(kept, src="fr", tgt="de"))


def test_the_same_correction_is_stored_once(store: MemoryStore) -> None:
    assert correct(store, "The cat", "Die Katze") == correct(store, "The cat ", "Die Katze")
    assert len(store.corrections("", "en").listed()) == 1


def test_corrections_of_several_processes_are_all_stored(tmp_path: Path) -> None:
    def add(number: int) -> None:
        correct(MemoryStore(tmp_path), f"text {number}", f"Text {number} {'x' * 5000}")

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(add, range(40)))
    listed = MemoryStore(tmp_path).corrections("", "en").listed()
    assert sorted(segment.source for segment in listed) == sorted(f"text {number}" for number in range(40))


def test_half_a_line_of_a_killed_process_is_removed(store: MemoryStore) -> None:
    correct(store, "The cat", "Die Katze")
    path = store.folder("") / "corrections-en.memory"
    before = path.read_bytes()
    path.write_bytes(before + b'{"id":"1","time":')
    assert recalled(store, "The cat") == "Die Katze"
    other = MemoryStore(store.directory)
    correct(other, "The dog", "Der Hund")
    assert path.read_bytes().startswith(before + b'{"id":')
    assert [json.loads(line).get("target") for line in path.read_text().splitlines()] == [
        None, "Die Katze", "Der Hund"
    ]  # fmt: skip
    assert recalled(store, "The dog") == "Der Hund"


def test_nothing_stays_of_a_line_that_is_not_on_the_disk(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    correct(store, "The cat", "Die Katze")
    before = (store.folder("") / "corrections-en.memory").read_bytes()

    def fail(_: int) -> None:
        raise OSError(errno.EIO, "no disk")

    monkeypatch.setattr("os.fsync", fail)
    assert ask("POST", "/suggest", memories=store, json=SENT).status_code == 503
    assert (store.folder("") / "corrections-en.memory").read_bytes() == before


@pytest.mark.parametrize("field", SENT)
def test_an_incomplete_suggestion_is_not_stored(store: MemoryStore, field: str) -> None:
    assert ask("POST", "/suggest", memories=store, data=SENT | {field: ""}).status_code == 400
    assert not list(store.directory.iterdir())


def test_servers_without_a_directory_refuse(tmp_path: Path) -> None:
    assert ask("POST", "/suggest", data=SENT).status_code == 403
    answer = ask("GET", "/v3/translation_memories")
    assert (answer.status_code, "--memories DIR" in answer.json()["message"]) == (404, True)
    with pytest.raises(InputError, match="missing"):
        MemoryStore(tmp_path / "missing")


def test_pages_of_others_may_not_suggest(store: MemoryStore) -> None:
    headers = {"Origin": "https://b.example"}
    assert ask("POST", "/suggest", memories=store, data=SENT, headers=headers).status_code == 403


def test_similar_segments_above_the_threshold_replace_the_translation(store: MemoryStore) -> None:
    segments = [new_segment("", "de-DE", "The old dog sleeps.", "Der Hund."), new_segment("", "fr", "a", "b")]
    memory = store.create("", "Mine", "en", segments)
    for threshold, expected in ((75, "Der Hund."), (96, "THE OLD DOG SLEEPS!"), (None, "Der Hund.")):
        sent = {"text": ["The old dog sleeps!"], "target_lang": "DE", "translation_memory_id": memory.id}
        given = {} if threshold is None else {"translation_memory_threshold": threshold}
        answer = ask("POST", "/v2/translate", memories=store, json=sent | given).json()
        assert answer["translations"][0]["text"] == expected
    body = {"q": "The old dog sleeps!", "source": "en", "target": "de", "memory": memory.id}
    assert ask("POST", "/translate", memories=store, json=body).json()["translatedText"].isupper()
    similar = ask("POST", "/translate", memories=store, json=body | {"memory_threshold": 90}).json()
    assert similar["translatedText"] == "Der Hund."


def test_an_unknown_memory_is_refused_in_the_form_of_the_dialect(store: MemoryStore) -> None:
    for memory_id in ("nothing", "../jobs/x", "e59d1520-a064-4c06-bfa1-d5b6ed975f1d"):
        sent = {"text": ["a"], "target_lang": "DE", "translation_memory_id": memory_id}
        answer = ask("POST", "/v2/translate", memories=store, json=sent)
        assert (answer.status_code, list(answer.json())) == (404, ["message"])
    bad = {"text": ["a"], "target_lang": "DE", "translation_memory_threshold": 101}
    assert ask("POST", "/v2/translate", memories=store, json=bad).status_code == 400


def test_a_memory_is_made_filled_renamed_and_deleted(store: MemoryStore) -> None:
    root = "/v3/translation_memories"
    made = ask("POST", root, memories=store, json={"name": "Mine", "source_language": "EN"})
    assert made.status_code == 201
    path = f"{root}/{made.json()['translation_memory_id']}"
    for text in ("The first dog", "The second dog", "A cat"):
        target = "Das ist die Übersetzung davon auf Deutsch."
        sent = {"source_text": text, "target_text": target, "target_language": "DE"}
        assert ask("POST", f"{path}/segments", memories=store, json=sent).status_code == 201
    first = ask("GET", f"{path}/segments?page_size=1&filter_text=DOG", memories=store).json()
    assert (first["segment_count"], first["segments"][0]["source_text"]) == (3, "The first dog")
    query = f"filter_text=dog&filter_case_sensitive=true&page_cursor={first['next_page_cursor']}"
    second = ask("GET", f"{path}/segments?{query}", memories=store).json()
    assert [segment["source_text"] for segment in second["segments"]] == ["The second dog"]
    assert "next_page_cursor" not in second
    segment = first["segments"][0]["source_segment_id"]
    assert ask("DELETE", f"{path}/segments/{segment}", memories=store).status_code == 204
    renamed = ask("PATCH", path, memories=store, json={"name": "Yours"}).json()
    assert (renamed["name"], renamed["segment_count"]) == ("Yours", 2)
    assert ask("DELETE", path, memories=store).status_code == 204
    assert ask("GET", path, memories=store).status_code == 404
    assert ask("GET", root, memories=store).json()["translation_memories"] == []


def test_each_text_of_an_import_has_the_language_that_its_file_says() -> None:
    variants = [("pt-PT", "autocarro"), ("pt-BR", "ônibus"), ("zh-Hans", "公共汽车"), ("zh-Hant", "公共汽車")]
    units = [
        f'<tu><tuv xml:lang="en"><seg>bus</seg></tuv><tuv xml:lang="{tag}"><seg>{text}</seg></tuv></tu>'
        for tag, text in [*variants, ("x-none", "?")]
    ]
    content = f'<tmx version="1.4"><header srclang="en"/><body>{"".join(units)}</body></tmx>'.encode()
    source, segments, num_skipped = segments_of_tmx(content, "acme")
    assert (source, num_skipped) == ("en", 1)
    assert [(segment.tgt, segment.target) for segment in segments] == variants


def test_an_import_that_is_sent_twice_is_one_memory(store: MemoryStore) -> None:
    root = "/v3/translation_memories"
    file = {"file_name": "a.tmx", "content_length": len(TMX)}
    begun = ask("POST", f"{root}/import", memories=store, json={"source_file": file}).json()
    address = begun["upload_url"].removeprefix("http://inside")
    waiting = ask("GET", f"{root}/jobs/{begun['job_id']}", memories=store).json()
    assert waiting["results"][0]["status"] == "awaiting_input"
    for _ in range(2):
        assert ask("PUT", address, memories=store, content=TMX.encode()).status_code == 200
    done = ask("GET", f"{root}/jobs/{begun['job_id']}", memories=store).json()["results"][0]
    assert (done["status"], done["skipped_segment_count"]) == ("completed", 1)
    [memory] = ask("GET", root, memories=store).json()["translation_memories"]
    assert (memory["translation_memory_id"], memory["segment_count"]) == (done["translation_memory_id"], 1)


@pytest.mark.parametrize("content", ["no TMX", TMX[:-30], TMX.replace("de-DE", "en-US")])
def test_a_file_that_cannot_be_imported_fails_with_its_reason(store: MemoryStore, content: str) -> None:
    root = "/v3/translation_memories"
    file = {"file_name": "a.tmx", "content_length": 1}
    begun = ask("POST", f"{root}/import", memories=store, json={"source_file": file}).json()
    ask("PUT", begun["upload_url"].removeprefix("http://inside"), memories=store, content=content.encode())
    result = ask("GET", f"{root}/jobs/{begun['job_id']}", memories=store).json()["results"][0]
    assert (result["status"], bool(result["error"]["message"])) == ("failed", True)
    assert store.of("") == []


def test_a_deleted_memory_is_gone_for_other_processes(store: MemoryStore) -> None:
    memory = store.create("", "Mine", "en", [new_segment("", "de", "a", "b")])
    other = MemoryStore(store.directory)
    assert other.get("", memory.id).listed()[0].target == "b"
    memory.delete()
    with pytest.raises(NoSuchMemoryError):
        other.get("", memory.id)
    with pytest.raises(NoSuchMemoryError):
        memory.add([new_segment("", "de", "c", "d")])


def test_a_prefix_begins_the_translation(store: MemoryStore) -> None:
    body = {"q": "The cat", "source": "en", "target": "de", "prefix": "Nun: "}
    correct(store, "The cat", "Die Katze")
    answer = ask("POST", "/translate", memories=store, json=body).json()
    assert answer["translatedText"] == "Nun: THE CAT"
    assert ask("POST", "/translate", json=body | {"q": "One. Two."}).status_code == 400
