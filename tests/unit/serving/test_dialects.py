"""Requests as the clients of other services send them, to the application in this process."""

import asyncio
import json
import threading
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import TestCase
from urllib.parse import urlencode

import httpx
import pytest
from small_services import RuleTranslator, rule_model

from heedful.serving import deepl_glossaries, gateway
from heedful.serving.access import ApiKey, KeyRing
from heedful.serving.app import application
from heedful.serving.gateway import Gateway
from heedful.serving.glossaries import GlossaryStore
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.records import ClientRecords
from heedful.serving.server import JsonFormatter
from heedful.serving.service import TranslationService

FORM = {"Content-Type": "application/x-www-form-urlencoded"}
V3, LATER = "api-version=3.0", "api-version=2026-06-06"


class Served:
    """An application that writes capitals, and the sentences that its model has read."""

    def __init__(
        self, path: Path, *, origins: tuple[str, ...] = (), keys: tuple[ApiKey, ...] | None = None
    ) -> None:
        self.translator = RuleTranslator(str.upper)
        models = [rule_model("m", self.translator, [("en", "de"), ("en", "ar")])]
        service = TranslationService(models, Limits(cached_characters=0), Metrics())
        glossaries = GlossaryStore(path / "glossaries.json")
        records = ClientRecords(keys and KeyRing(keys))
        self.app = application(Gateway(service, records, glossaries=glossaries, origins=origins))

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:  # noqa: ANN401
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
                return await client.request(method, path, **options)

        return asyncio.run(ask())

    def sentences(self) -> list[str]:
        return [text for batch in self.translator.batches for text in batch]


@pytest.mark.parametrize(
    ("path", "parameters", "answered"),
    [
        ("/translate", {"q": "The Acme [box].", "source": "en", "target": "de"}, "THE Acme [box]."),
        (
            "/translate",
            {"q": ["The Acme.", "An Acme [box]."], "source": "en", "target": "de"},
            "AN Acme [box].",
        ),
        ("/v2/translate", {"text": ["The Acme [box]."], "target_lang": "DE"}, "THE Acme [box]."),
    ],
)
def test_a_request_says_what_is_kept(
    path: str, parameters: dict[str, object], answered: str, served: "Served"
) -> None:
    kept = served.ask("POST", path, json={**parameters, "keep": ["Acme", "wordpress", "(.*"]})
    assert answered in kept.text
    assert answered.upper() in served.ask("POST", path, json=parameters).text  # the next one keeps nothing


def test_a_form_says_what_is_kept(served: "Served") -> None:
    content = urlencode({"q": "The Acme Corp", "source": "en", "target": "de", "keep": "Acme Corp"})
    assert served.ask("POST", "/translate", content=content, headers=FORM).json()["translatedText"] == (
        "THE Acme Corp"
    )


@pytest.mark.parametrize("keep", [["a"] * 101, [1], {"a": "b"}])
def test_what_is_kept_is_a_list_of_at_most_100_texts(keep: object, served: "Served") -> None:
    parameters = {"q": "The cat", "source": "en", "target": "de", "keep": keep}
    answer = served.ask("POST", "/translate", json=parameters)
    assert answer.status_code == 400
    assert "keep" in answer.json()["error"]


@pytest.fixture
def served(tmp_path: Path) -> Served:
    return Served(tmp_path)


@pytest.mark.parametrize("text_type", ["html", "Html", "HTML"])
def test_microsofts_list_keeps_what_is_not_to_be_translated(served: Served, text_type: str) -> None:
    body = [{"Text": '<p>The <b translate="no">house</b> is small.</p>'}, {"text": "A dog."}]
    query = f"{V3}&from=en&to=de&to=ar&textType={text_type}"
    assert served.ask("POST", f"/translate?{query}", json=body).json() == [
        {
            "translations": [
                {"text": '<p>THE <b translate="no">house</b> IS SMALL.</p>', "to": to} for to in ("de", "ar")
            ]
        },
        {"translations": [{"text": "A DOG.", "to": to} for to in ("de", "ar")]},
    ]


def test_microsofts_later_inputs_have_languages_and_types_of_their_own(served: Served) -> None:
    html, plain = "<b>A dog.</b>", "1 < 2 dogs &amp;"
    inputs = [
        {"text": html, "language": "en", "textType": "Html", "targets": [{"language": "de"}]},
        {"text": plain, "targets": [{"language": "ar"}, {"language": "de"}]},
    ]
    first, second = served.ask("POST", f"/translate?{LATER}", json={"inputs": inputs}).json()["value"]
    assert first == {"translations": [{"text": "<b>A DOG.</b>", "language": "de"}]}
    assert [(each["language"], each["text"]) for each in second["translations"]] == [
        ("ar", "1 < 2 DOGS &amp;"),
        ("de", "1 < 2 DOGS &amp;"),
    ]
    assert second["detectedLanguage"]["language"] == "en"
    assert 0 <= second["detectedLanguage"]["score"] <= 1


@pytest.mark.parametrize(
    ("text", "text_type", "expected"),
    [
        ("A {} & a dog.", "plain", "A Wordomatic & A DOG."),
        ("<b>A {} &amp; a dog.</b>", "html", "<b>A Wordomatic &amp; A DOG.</b>"),
    ],
)
def test_a_dictionary_tag_gives_the_translation(
    served: Served, text: str, text_type: str, expected: str
) -> None:
    tag = '<mstrans:dictionary translation="Wordomatic">cat</mstrans:dictionary>'
    query = f"{V3}&from=en&to=de&textType={text_type}"
    reply = served.ask("POST", f"/translate?{query}", json=[{"text": text.format(tag)}])
    assert reply.json()[0]["translations"][0]["text"] == expected


def test_microsofts_spellings_of_a_language_are_one(served: Served) -> None:
    inputs = [
        {
            "text": text,
            "language": source,
            "targets": [{"language": target} for target in ("de", "DE", "deu")],
        }
        for text, source in (("A dog.", "en"), ("A cat.", "EN"))
    ]
    answers = served.ask("POST", f"/translate?{LATER}", json={"inputs": inputs}).json()["value"]
    assert answers == [
        {"translations": [{"text": text, "language": target} for target in ("de", "DE", "deu")]}
        for text in ("A DOG.", "A CAT.")
    ]
    assert served.sentences() == ["A dog.", "A cat."]


_INPUT = {"text": "a" * 2600, "language": "en", "targets": [{"language": "de"}]}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (f"/translate?{V3}&from=en&to=de&to=ar", [{"text": "a" * 2501}]),
        (f"/translate?{LATER}", {"inputs": [_INPUT, _INPUT | {"targets": [{"language": "ar"}]}]}),
        (f"/translate?{LATER}", {"inputs": [_INPUT, _INPUT | {"language": "EN"}]}),
        (f"/translate?{LATER}", {"inputs": [_INPUT | {"text": "a"}] * 129}),
        (f"/detect?{V3}", [{"text": "a"}] * 129),
        (f"/detect?{V3}", [{"text": "a" * 2501}] * 2),
    ],
)
def test_limits_are_for_the_whole_request_of_microsofts_clients(
    served: Served, path: str, body: object
) -> None:
    reply = served.ask("POST", path, json=body)
    assert reply.status_code == 400
    assert "exceeds text limit" in reply.json()["error"]["message"]


@pytest.mark.parametrize("name", ["splitting_tags", "non_splitting_tags", "ignore_tags"])
def test_deepls_clients_may_name_a_hundred_tags(served: Served, name: str) -> None:
    fields = {"text": ["A dog."], "source_lang": "EN", "target_lang": "DE", "tag_handling": "xml"}
    for number, status in ((100, 200), (101, 400)):
        names = [f"a{n}" for n in range(number)]
        for given in (names, ",".join(names)):
            assert served.ask("POST", "/v2/translate", json=fields | {name: given}).status_code == status


def test_microsofts_languages_and_detection_have_its_form(served: Served) -> None:
    languages = served.ask("GET", f"/languages?{V3}&scope=translation").json()
    assert (
        languages["translation"]["ar"].items()
        >= {"name": "Arabic", "nativeName": "العربية", "dir": "rtl"}.items()
    )
    assert list(languages) == ["translation"]
    for path in ("/detect", f"/detect?{V3}"):
        first, second = served.ask(
            "POST", path, json=[{"Text": "The dog sleeps in the house."}, {"text": "1"}]
        ).json()
        assert first["language"] == "en"
        assert 0 <= second["score"] <= first["score"] <= 1


@pytest.mark.parametrize(
    ("query", "body", "named"),
    [
        (f"{V3}&from=en&to=xx", [{"text": "a"}], "xx"),
        (f"{V3}&from=en&to=de&includeAlignment=true", [{"text": "a"}], "includeAlignment"),
        (f"{V3}&from=en&to=de&profanityAction=Marked", [{"text": "a"}], "profanityAction"),
        (f"{V3}&from=en&to=de&toScript=Latn", [{"text": "a"}], "toScript"),
        (f"{V3}&from=en&to=" + ",".join(["de"] * 11), [{"text": "a"}], "to parameter"),
        (V3, {"q": "a"}, "inputs"),
        (
            LATER,
            {"inputs": [{"text": "a", "targets": [{"language": "de", "tone": "formal"}]}]},
            "inputs[0].targets[0].tone",
        ),
        (
            LATER,
            {"inputs": [{"text": "a", "targets": [{"language": "de", "adaptiveDatasetId": "1"}]}]},
            "inputs[0].targets[0].adaptiveDatasetId",
        ),
    ],
)
def test_microsofts_clients_are_told_what_is_not_supported(
    served: Served, query: str, body: object, named: str
) -> None:
    reply = served.ask("POST", f"/translate?{query}", json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["code"] == (400000 if query.startswith(V3) else "400000")
    assert named in error["message"]


@pytest.mark.parametrize("path", ["/translate", "/detect"])
def test_a_list_without_a_version_has_errors_in_microsofts_form_too(served: Served, path: str) -> None:
    reply = served.ask("POST", path, json=[{"nothing": "a"}])
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, 400000)


@pytest.mark.parametrize(("module", "name"), [(gateway, "parse_json"), (deepl_glossaries, "parse_entries")])
def test_the_server_answers_while_it_reads_a_large_glossary(
    served: Served, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    answered, read = threading.Event(), getattr(module, name)

    def wait(*arguments: object) -> object:
        assert answered.wait(20), "nothing else is answered meanwhile"
        return read(*arguments)

    async def ask() -> int:
        transport = httpx.ASGITransport(served.app)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            entries = "".join(f"a term {number}\tx\n" for number in range(20_000))
            fields = {"name": "n", "source_lang": "en", "target_lang": "de", "entries": entries}
            sent = asyncio.create_task(client.post("/v2/glossaries", json=fields))
            await asyncio.sleep(0.01)
            await client.get("/health")
            answered.set()
            return (await sent).status_code

    monkeypatch.setattr(module, name, wait)
    assert asyncio.run(ask()) == 201


def test_other_paths_of_microsoft_are_errors_in_its_form(served: Served) -> None:
    reply = served.ask("POST", f"/breaksentence?{V3}", json=[{"text": "a"}])
    assert (reply.status_code, reply.json()["error"]["code"]) == (404, 404000)


@pytest.mark.parametrize("headers", [{}, {"Ocp-Apim-Subscription-Key": "wrong"}])
def test_a_wrong_key_has_the_status_that_each_dialect_gives_it(
    headers: dict[str, str], tmp_path: Path
) -> None:
    served = Served(tmp_path, keys=(ApiKey("ann", "0" * 64),))
    reply = served.ask("POST", f"/translate?{V3}&to=de", json=[{"text": "a"}], headers=headers)
    assert (reply.status_code, reply.json()["error"]["code"]) == (401, 401000)
    assert served.ask("POST", "/translate", json={"q": "a"}, headers=headers).status_code == 403
    assert served.ask("POST", "/v2/translate", json={"text": ["a"]}, headers=headers).status_code == 403


def dictionaries(**entries: str) -> str:
    fields = {
        f"dictionaries[{n}].{name}": value
        for n, (target, text) in enumerate(entries.items())
        for name, value in (
            ("source_lang", "en"),
            ("target_lang", target),
            ("entries", text),
            ("entries_format", "tsv"),
        )
    }
    return urlencode({"name": "g", **fields})


def test_deepls_forms_with_numbered_dictionaries_lose_no_entry(served: Served) -> None:
    made = served.ask(
        "POST", "/v3/glossaries", content=dictionaries(de="house\tHaus", ar="dog\tx"), headers=FORM
    )
    assert made.status_code == 201
    path = f"/v3/glossaries/{made.json()['glossary_id']}"
    changed = served.ask("PATCH", path, content=dictionaries(de="dog\tHund"), headers=FORM)
    assert {each["target_lang"]: each["entry_count"] for each in changed.json()["dictionaries"]} == {
        "de": 2,
        "ar": 1,
    }
    entries = served.ask("GET", f"{path}/entries?source_lang=en&target_lang=de").json()
    assert entries["dictionaries"][0]["entries"] == "house\tHaus\ndog\tHund"
    refused = served.ask("PATCH", path, content=urlencode({"entries": "a\tb"}), headers=FORM)
    assert (refused.status_code, "entries" in refused.json()["message"]) == (400, True)


def test_an_entry_may_have_the_line_ends_of_other_systems_in_it(served: Served) -> None:
    fields = {"name": "g", "source_lang": "en", "target_lang": "de", "entries": "a\u2028b\tc\u0085d\r\ne\tf"}
    refused = served.ask("POST", "/v2/glossaries", json=fields)
    assert (refused.status_code, "line 1" in refused.json()["message"]) == (400, True)


ROW = "<row><cell>The house</cell><cell>The dog</cell></row>"


@pytest.mark.parametrize(
    ("text", "options", "sentences"),
    [
        (ROW, {}, ["The house", "The dog"]),
        (f"\n {ROW.replace('><', '>  <')} ", {}, ["The house", "The dog"]),
        (ROW, {"outline_detection": "0", "splitting_tags": "cell"}, ["The house", "The dog"]),
        (ROW, {"non_splitting_tags": "cell"}, ["The houseThe dog"]),
        (ROW, {"outline_detection": "0"}, ["The houseThe dog"]),
        ("<p>The <b>house</b> is small</p><p>The <b>dog</b></p>", {}, ["The house is small", "The dog"]),
        ("<t>The house</t><p>It is <i>very</i> small</p>", {}, ["The house", "It is very small"]),
    ],
)
def test_sibling_elements_of_xml_are_sentences_of_their_own(
    served: Served, text: str, options: dict[str, str], sentences: list[str]
) -> None:
    fields = {"text": text, "source_lang": "EN", "target_lang": "DE", "tag_handling": "xml", **options}
    reply = served.ask("POST", "/v2/translate", content=urlencode(fields), headers=FORM)
    assert reply.is_success
    assert served.sentences() == sentences


def test_a_page_of_another_site_may_translate_and_store_nothing(tmp_path: Path) -> None:
    fields = {"name": "g", "source_lang": "en", "target_lang": "de", "entries": "a\tb"}
    served = Served(tmp_path, origins=("https://friend.example",))
    for origin, status in (
        ("https://evil.example", 403),
        ("null", 403),
        ("http://[", 403),
        ("http://a]b", 403),
        ("http://[here", 403),
        ("https://friend.example", 201),
        ("http://here:8080", 201),
        (None, 201),
    ):
        headers = FORM | ({} if origin is None else {"Origin": origin})
        assert (
            served.ask("POST", "/v2/glossaries", content=urlencode(fields), headers=headers).status_code
            == status
        )
        assert served.ask("GET", "/translate?q=a&source=en&target=de", headers=headers).is_success
    upload = {"files": {"file": ("a.txt", b"a")}, "headers": {"Origin": "https://evil.example"}}
    assert served.ask("POST", "/v2/document", data={"target_lang": "DE"}, **upload).status_code == 403


def test_a_line_of_the_log_has_languages_and_characters_and_no_text(served: Served) -> None:
    with TestCase().assertLogs("heedful.serving.access", "INFO") as logs:
        served.ask("POST", "/translate", json={"q": "secret", "source": "en", "target": "de"})
    [record] = logs.records
    line = json.loads(JsonFormatter().format(record))
    assert line.items() >= {"endpoint": "/translate", "status": 200, "pair": "en-de", "characters": 6}.items()
    assert "secret" not in record.getMessage()
    metrics = served.ask("GET", "/metrics").text
    assert 'heedful_characters_total{pair="en-de"} 6.0' in metrics
