"""Requests as the plug-ins of OPUS-CAT send them."""

from typing import Any

import pytest
from asked_service import ask

from heedful.serving.access import ApiKey, KeyRing, fingerprint

_PAIR = "srcLangCode=en&trgLangCode=de"


@pytest.mark.parametrize(
    ("method", "query", "answer"),
    [
        ("GET", "Login?userName=a&password=a", "0"),
        ("GET", "ListSupportedLanguagePairs?tokenCode=0", ["en-de"]),
        ("GET", f"GetLanguagePairModelTags?tokenCode=0&{_PAIR}", ["a rule"]),
        ("GET", f"Translate?tokenCode=0&input=a+cat&{_PAIR}&modelTag=", "A CAT"),
        ("GET", f"TranslateJson?tokenCode=0&input=a+cat&{_PAIR}&modelTag=%22%22", {"translation": "A CAT"}),
        ("POST", f"TranslatePost?tokenCode=0&input=a+cat&{_PAIR}", {"translation": "A CAT"}),
    ],
)
@pytest.mark.parametrize("root", ["MTRestService", "MtRestService"])
def test_requests_of_plugins_are_answered(root: str, method: str, query: str, answer: Any) -> None:  # noqa: ANN401
    assert ask(method, f"/{root}/{query}").json() == answer


def test_a_stream_is_the_text_itself() -> None:
    answer = ask("GET", f"/MTRestService/TranslateStream?tokenCode=0&input=a+cat&{_PAIR}")
    assert answer.text == "A CAT"


def test_a_batch_may_have_more_texts_than_a_request() -> None:
    texts = [f"text {number}" for number in range(300)]
    assert ask("POST", f"/MTRestService/PreOrderBatch?{_PAIR}", json=texts).status_code == 200
    assert ask("POST", f"/MTRestService/PreOrderBatch?{_PAIR}", json=[]).status_code == 400


def test_the_password_is_the_key() -> None:
    keys = KeyRing([ApiKey("ann", fingerprint("right"))])
    assert ask("GET", "/MTRestService/Login?userName=ann&password=right", keys=keys).json() == "right"
    assert ask("GET", "/MTRestService/Login?userName=ann&password=wrong", keys=keys).json() is None
    query = f"/MTRestService/TranslateJson?input=a&{_PAIR}&tokenCode="
    assert ask("GET", query + "right", keys=keys).status_code == 200
    assert ask("GET", query + "0", keys=keys).status_code == 403


@pytest.mark.parametrize("query", [_PAIR, "languagePair=en-de", "SrcLangCode=en&TRGLANGCODE=de"])
def test_a_pair_has_several_names(query: str) -> None:
    assert ask("GET", f"/MTRestService/GetLanguagePairModelTags?{query}").json() == ["a rule"]
    assert ask("GET", f"/MTRestService/CheckModelStatus?{query}").status_code == 200


@pytest.mark.parametrize("name", ["GetLanguagePairModelTags", "CheckModelStatus"])
def test_a_pair_that_is_missing_is_refused(name: str) -> None:
    answer = ask("GET", f"/MTRestService/{name}?tokenCode=0")
    assert (answer.status_code, list(answer.json())) == (400, ["error"])


def test_a_token_of_microsofts_service_authorises() -> None:
    keys = KeyRing([ApiKey("ann", fingerprint("right"))])
    header = "Ocp-Apim-Subscription-Key"
    token = ask("POST", "/sts/v1.0/issueToken", keys=keys, headers={header: "right"}).text
    asked = {"url": "/translate?api-version=3.0&to=de&from=en", "json": [{"Text": "a cat"}]}
    for sent, status in ((token, 200), ("other", 401)):
        headers = {"Authorization": f"Bearer {sent}"}
        assert ask("POST", asked["url"], keys=keys, json=asked["json"], headers=headers).status_code == status
    assert ask("POST", "/sts/v1.0/issueToken", keys=keys, headers={header: "wrong"}).status_code == 403
    assert ask("POST", "/sts/v1.0/issueToken").text


def test_deepls_first_version_says_what_it_ignores() -> None:
    answer = ask("GET", "/v1/translate?auth_key=k&text=a+cat&source_lang=en&target_lang=de&context=x").json()
    assert answer["translations"][0]["text"] == "A CAT"
    assert answer["ignored_parameters"] == ["context"]
