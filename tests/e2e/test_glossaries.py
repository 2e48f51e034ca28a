"""Glossaries as users have them: `heedful translate --glossary`, and DeepL's own client."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import assert_one_clear_line, heedful, text
from tiny_bundle import PAIRS, save_memorised
from translation_server import Reply, translation_server

from heedful.decoding.glossary import IMPROBABLE

LINES = [source for source, _ in PAIRS]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_memorised(tmp_path_factory.mktemp("glossaries") / "tiny")


@pytest.fixture
def terms(tmp_path: Path) -> Path:
    path = tmp_path / "terms.tsv"
    path.write_text("cat\tKater|Kastell\nthe dog\tder Kater\nsees\tsieht\n", encoding="utf-8")
    return path


def status_of(term: dict[str, Any]) -> str:
    if term["target"] is None:
        return "missed"
    if term["replaces"]:
        return "met, replacing"
    return "met" if term["probability"] >= IMPROBABLE else "met, improbable"


def test_terms_are_in_the_translations_and_in_the_report(bundle: Path, terms: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.tsv"
    done = heedful(
        "translate", bundle, "--glossary", terms, "--glossary-report", report, "--json", stdin=text(LINES)
    )
    assert done.code == 0
    answers = [json.loads(line) for line in done.out.splitlines()]
    rows = [line.split("\t") for line in report.read_text(encoding="utf-8").splitlines()]
    assert rows == [
        [str(number), status_of(term), term["source"], term["target"] or ""]
        for number, answer in enumerate(answers, start=1)
        for term in answer["terms"]
    ]
    statuses = Counter(status for _, status, *_ in rows)
    assert statuses.keys() >= {"met", "met, replacing"}
    assert {(status != "missed", source) for _, status, source, _ in rows} == {
        (True, "cat"), (True, "the dog"), (True, "sees"),
    }  # fmt: skip
    for _, status, _, form in rows:
        assert (status != "missed") == (form in ("Kater", "Kastell", "der Kater", "sieht"))
    for answer in answers:
        for term in answer["terms"]:
            forms = {answer["text"][start:end] for start, end in term["spans"]}
            assert forms <= {"Kater", "Kastell", "der Kater", "sieht"}
            assert (term["target"] in forms) == bool(forms) == (term["target"] is not None)
    for number, status, _, form in rows:
        assert status == "missed" or f" {form} " in f" {answers[int(number) - 1]['text']} "
    said = done.err.splitlines()
    assert f"glossary: {len(rows)} of {len(rows)} terms met" in said
    [warning] = [line for line in said if "put in place" in line]
    assert f": {statuses['met, replacing']};" in warning


def test_a_term_or_prefix_with_a_character_that_the_vocabulary_lacks_is_refused(
    bundle: Path, tmp_path: Path
) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("cat\tKater\nsleep\t猫\n", encoding="utf-8")
    by_term = heedful("translate", bundle, "--glossary", path, stdin=text(LINES))
    assert (by_term.code, by_term.out) == (1, "")
    assert f"{path}: line 2: '猫' has '猫', which the vocabulary lacks" in by_term.err
    path.write_text("\n" * (len(LINES) - 1) + "🐱 der\n", encoding="utf-8")
    by_prefix = heedful("translate", bundle, "--prefix", path, stdin=text(LINES))
    assert by_prefix.code == 1
    assert f"line {len(LINES)}: the prefix has '🐱', which the vocabulary lacks" in by_prefix.err


def test_a_glossary_without_applicable_terms_changes_nothing(bundle: Path, tmp_path: Path) -> None:
    path = tmp_path / "terms.tsv"
    path.write_text("elephant\tKater\n", encoding="utf-8")
    plain = heedful("translate", bundle, "--scores", stdin=text(LINES))
    assert heedful("translate", bundle, "--scores", "--glossary", path, stdin=text(LINES)) == plain


def test_shards_and_resumed_runs_use_it_too(bundle: Path, terms: Path, tmp_path: Path) -> None:
    expected = heedful("translate", bundle, "--glossary", terms, stdin=text(LINES)).out
    shards, output = tmp_path / "in", tmp_path / "out.txt"
    shards.mkdir()
    (shards / "a.txt").write_bytes(text(LINES))
    done = heedful("translate", bundle, "--glossary", terms, "-i", shards, "-o", tmp_path / "out")
    assert done.code == 0
    assert (tmp_path / "out" / "a.txt").read_text(encoding="utf-8") == expected
    done = heedful("translate", bundle, "--glossary", terms, "-i", shards / "a.txt", "-o", output, "--resume")
    assert (done.code, output.read_text(encoding="utf-8")) == (0, expected)


def test_glossaries_that_cannot_be_used_are_refused(bundle: Path, terms: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tsv"
    bad.write_text("cat\tKatze\ncat dog\n", encoding="utf-8")
    translate = ("translate", bundle, "--glossary")
    assert_one_clear_line(heedful(*translate, bad, stdin=text(LINES)), 1, f"{bad}: line 2")
    assert_one_clear_line(
        heedful(*translate, tmp_path / "none", stdin=text(LINES)), 1, str(tmp_path / "none")
    )
    assert heedful(*translate, terms, "--sample", stdin=text(LINES)).code == 1
    report = ("--glossary-report", tmp_path / "report")
    assert_one_clear_line(heedful("translate", bundle, *report), 2, "--glossary")
    same = heedful(*translate, terms, *report, "-o", tmp_path / "report", stdin=text(LINES))
    assert_one_clear_line(same, 2, "--output")
    over = heedful(*translate, terms, "--glossary-report", terms, stdin=text(LINES))
    assert_one_clear_line(over, 1, str(terms))


ASKED = {"source_lang": "EN", "target_lang": "DE"}


@pytest.fixture(scope="module")
def deepl() -> Any:  # noqa: ANN401
    return pytest.importorskip("deepl")


@pytest.fixture
def client(deepl: Any, bundle: Path, tmp_path: Path) -> Iterator[Any]:  # noqa: ANN401
    """DeepL's own client, on a server that keeps glossaries."""
    with (
        translation_server(f"en-de,de-nl={bundle}", "--glossaries", tmp_path / "glossaries.json") as server,
        closing(deepl.DeepLClient("a key", server_url=server.url)) as opened,
    ):
        yield opened


@pytest.mark.slow
def test_deepls_client_manages_and_uses_glossaries(deepl: Any, client: Any) -> None:  # noqa: ANN401
    pairs = [(each.source_lang, each.target_lang) for each in client.get_glossary_languages()]
    assert pairs == [("de", "nl"), ("en", "de")]
    cats = client.create_glossary("cats", "EN", "DE", {"cat": "Kater", "a|b*": "c"})
    assert (cats.name, cats.source_lang, cats.target_lang) == ("cats", "EN", "DE")
    assert (cats.ready, cats.entry_count) == (True, 2)
    assert client.get_glossary_entries(cats) == {"cat": "Kater", "a|b*": "c"}
    csv = client.create_glossary_from_csv("csv", "EN", "DE", 'dog,Kastell,en,de\n"x, y",z\n')
    assert client.get_glossary_entries(csv.glossary_id) == {"dog": "Kastell", "x, y": "z"}
    assert [each.name for each in client.list_glossaries()] == ["cats", "csv"]
    assert client.get_glossary(cats.glossary_id).name == "cats"

    assert "Kater" in client.translate_text_with_glossary(LINES[0], cats).text
    plain, other = client.translate_text([LINES[0], LINES[1]], **ASKED, glossary=cats)
    assert "Kater" in plain.text
    assert other.text == PAIRS[1][1]
    assert client.translate_text(LINES[0], **ASKED).text == PAIRS[0][1]
    both = client.translate_text(LINES[2], **ASKED, glossary_ids=[cats, csv.glossary_id]).text
    assert {"Kater", "Kastell"} <= set(both.split())
    with pytest.raises(deepl.DeepLException):
        client.translate_text(LINES[0], source_lang="EN", target_lang="NL", glossary=cats.glossary_id)
    with pytest.raises(deepl.DeepLException):
        client.create_glossary("fr", "EN", "FR", {"a": "b"})

    client.delete_glossary(csv)
    for gone in (client.get_glossary, client.delete_glossary):
        with pytest.raises(deepl.GlossaryNotFoundException):
            gone(csv.glossary_id)
    with pytest.raises(deepl.DeepLException):
        client.translate_text(LINES[0], **ASKED, glossary=csv)


@pytest.mark.slow
def test_deepls_client_manages_and_uses_multilingual_glossaries(deepl: Any, client: Any) -> None:  # noqa: ANN401
    from deepl.api_data import MultilingualGlossaryDictionaryEntries as Entries

    many = client.create_multilingual_glossary(
        "many", [Entries("EN", "DE", {"cat": "Kastell"}), Entries("DE", "NL", {"Katze": "kat"})]
    )
    assert [(each.source_lang, each.entry_count) for each in many.dictionaries] == [("EN", 1), ("DE", 1)]
    assert "Kastell" in client.translate_text(LINES[0], **ASKED, glossary=many).text
    many = client.update_multilingual_glossary_name(many, "more")
    many = client.update_multilingual_glossary_dictionary(many, Entries("EN", "DE", {"dog": "Kater"}))
    assert (many.name, sorted(each.entry_count for each in many.dictionaries)) == ("more", [1, 2])
    found = client.get_multilingual_glossary_entries(many, "EN", "DE").dictionaries
    assert [each.entries for each in found] == ["cat\tKastell\ndog\tKater"]

    many = client.update_multilingual_glossary_dictionary_from_csv(many, "EN", "DE", "the,das")
    client.replace_multilingual_glossary_dictionary_from_csv(many, "DE", "NL", "Hund,hond")
    replaced = client.replace_multilingual_glossary_dictionary(many, Entries("EN", "DE", {"cat": "Kater"}))
    assert replaced.entry_count == 1
    assert "Kater" in client.translate_text(LINES[0], **ASKED, glossary=many).text
    client.delete_multilingual_glossary_dictionary(many, source_lang="DE", target_lang="NL")
    again = client.get_multilingual_glossary(many.glossary_id)
    assert [each.target_lang for each in again.dictionaries] == ["DE"]
    with pytest.raises(deepl.GlossaryNotFoundException):
        client.get_multilingual_glossary_entries(many, "DE", "NL")

    one = client.create_multilingual_glossary_from_csv("one", "EN", "DE", "cat,Kater")
    assert [each.name for each in client.list_multilingual_glossaries()] == ["more", "one"]
    client.delete_multilingual_glossary(one)
    assert [each.name for each in client.list_multilingual_glossaries()] == ["more"]


def test_a_request_may_have_its_own_terms(bundle: Path) -> None:
    asked = {"q": [LINES[0], LINES[1]], "source": "en", "target": "de"}
    with translation_server(f"en-de={bundle}") as server:
        terms = {"cat": ["Kater", "Kastell"], "elephant": "Elefant"}
        one, other = server.post("/translate", asked | {"glossary": terms}).json["translatedText"]
        assert {"Kater", "Kastell"} & set(one.split())
        assert other == PAIRS[1][1]
        assert server.post("/translate", asked).json["translatedText"] == [german for _, german in PAIRS[:2]]
        for bad in ({"cat": 1}, {"": "x"}, {"cat": []}, {"cat": " "}, ["cat"]):
            reply = server.post("/translate", asked | {"glossary": bad})
            assert (reply.status, list(reply.json)) == (400, ["error"])
        unknown = server.post("/translate", asked | {"glossary": "cat"})  # a stored one's name
        assert (unknown.status, list(unknown.json)) == (404, ["error"])


@pytest.mark.slow
def test_an_answer_says_where_the_terms_are_if_the_client_asks(bundle: Path) -> None:
    text = f"\U0001f408\u200d\u2b1b 12\n\n {LINES[1]}\n\t{LINES[0]}\n{LINES[1]}"
    fields = {"q": text, "source": "en", "target": "de", "alternatives": 1}
    asked = fields | {"glossary": {"cat": ["Kater", "Kastell"]}}
    too_long = {"q": LINES[1], "glossary": {"sleeps": " ".join(["Kater"] * 50)}, "terms": True}
    with translation_server(f"en-de={bundle}", "--threads", 1) as server:
        for request in (fields | {"terms": True}, asked, asked | {"terms": False}, asked | {"terms": None}):
            assert "terms" not in server.post("/translate", request).json
        for _ in range(2):  # the second time, the sentences are remembered
            answer = server.post("/translate", asked | {"terms": True}).json
            [cat] = answer["terms"]
            [span] = cat["spans"]
            there = answer["translatedText"][span["start"] : span["end"]]
            assert cat == {"source": "cat", "target": there, "met": True, "improbable": True, "spans": [span]}
            assert there in ("Kater", "Kastell")
        [missed] = server.post("/translate", fields | too_long).json["terms"]
        assert missed == {"source": "sleeps", "met": False, "spans": []}
        several = server.post("/translate", asked | {"q": [text, LINES[4]], "terms": "true"}).json["terms"]
        assert several == [answer["terms"], []]
        assert server.post("/translate", fields | {"glossary": {}, "terms": True}).json["terms"] == []
        marked_up = f"<p>{LINES[0]}</p>"
        html = server.post("/translate", asked | {"q": marked_up, "format": "html", "terms": True}).json
        assert [(each["source"], each["met"], each["spans"]) for each in html["terms"]] == [
            ("cat", True, []),
        ]  # fmt: skip
        lacking = server.post("/translate", asked | {"glossary": {"sleeps": "\u732b"}})
        assert lacking.status == 400
        assert "'sleeps': '\u732b' has '\u732b', which the vocabulary lacks" in lacking.json["error"]
        refused = server.post("/translate", asked | {"terms": "where"})
        assert (refused.status, list(refused.json)) == (400, ["error"])
        described = server.ask("GET", "/spec").json["components"]["schemas"]
        assert "code points" in described["TextSpan"]["description"]


@pytest.mark.slow
def test_a_request_may_name_a_stored_glossary(bundle: Path, tmp_path: Path) -> None:
    asked = {"q": LINES[0], "source": "en", "target": "de"}
    with translation_server(f"en-de={bundle}", "--glossaries", tmp_path / "glossaries.json") as server:
        cats = {"name": "cats", "source_lang": "en", "target_lang": "de", "entries": "cat\tKater"}
        stored = server.post("/v2/glossaries", cats).json["glossary_id"]
        assert "Kater" in server.post("/translate", asked | {"glossary": stored}).json["translatedText"]
        assert server.post("/translate", asked | {"glossary": "none"}).status == 404

        def add(words: Iterable[object]) -> Reply:
            entries = "\n".join(f"{word}\tx" for word in words)
            dictionary = {"source_lang": "en", "target_lang": "de", "entries": entries}
            body = json.dumps({"dictionaries": [dictionary]}).encode()
            return server.ask("PATCH", f"/v3/glossaries/{stored}", body, {"Content-Type": "application/json"})

        for start in range(1, 100_000, 11_111):
            assert add(range(start, start + 11_111)).status == 200  # 99,999 beside "cat"
        reply = add(["y"])
        assert reply.status == 400
        assert "all glossaries would have 100,001, above 100,000" in reply.json["message"]


@pytest.mark.slow
def test_a_server_without_a_file_stores_no_glossaries(bundle: Path) -> None:
    with translation_server(f"en-de={bundle}") as server:
        reply = server.post("/translate", {"q": "a", "source": "en", "target": "de", "glossary": "x"})
        assert (reply.status, reply.json) == (404, {"error": "Glossary not found"})
        reply = server.post("/v3/glossaries", {"name": "x", "dictionaries": []})
        assert (reply.status, list(reply.json)) == (400, ["message"])
        reply = server.ask("GET", "/v2/glossaries")
        assert (reply.status, "--glossaries FILE" in reply.json["message"]) == (404, True)
        assert server.ask("GET", "/v2/glossary-language-pairs").json == {"supported_languages": []}
