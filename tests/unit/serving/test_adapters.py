"""Adapters of a service: chosen by a key, a parameter or a tag, loaded and dropped while it runs."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from small_adapters import save_adapter
from tiny_bundle import PAIRS, save_memorised

from heedful import InputError, Pair, Translator
from heedful.serving.access import ApiKey, KeyRing, fingerprint, make_key
from heedful.serving.app import application
from heedful.serving.document_jobs import DocumentJobs
from heedful.serving.gateway import Gateway
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.models import load_models
from heedful.serving.options import ServiceOptions
from heedful.serving.records import ClientRecords
from heedful.serving.service import TranslationService
from heedful.spans import Request

SOURCES = [source for source, _ in PAIRS]
Work = Callable[[httpx.AsyncClient], Awaitable[Any]]


class Shop:
    """A base with the adapters acme and beta in a directory, and a service of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.base, self.adapters = folder, folder / "base", folder / "adapters"
        save_memorised(self.base)
        self.adapters.mkdir()
        self.wanted = {"": Translator.load(self.base).translate(SOURCES)}
        for seed, name in enumerate(("acme", "beta"), start=1):
            self.put(name, seed)

    def put(self, name: str, seed: int) -> None:
        merged = save_adapter(self.base, self.adapters / f"{name}.safetensors", seed=seed)
        self.wanted[name] = Translator(merged).translate(SOURCES)

    def visit(self, work: Work, keys: KeyRing | None = None) -> Any:  # noqa: ANN401
        options = ServiceOptions(models=[f"en-de={self.base}"], adapter=[str(self.adapters)])

        async def visited() -> object:
            service = TranslationService(load_models(options), Limits(cached_characters=10_000), Metrics())
            jobs = DocumentJobs(service, self.folder)
            app = application(Gateway(service, ClientRecords(keys), documents=jobs))
            async with (
                app.router.lifespan_context(app),
                httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://inside") as client,
            ):
                return await work(client)

        return asyncio.run(visited())


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    found = Shop(tmp_path)
    assert len({*map(tuple, found.wanted.values())}) == 3
    return found


async def libre(client: httpx.AsyncClient, q: str, **fields: str) -> str:
    answer = await client.post("/translate", json={"q": q, "source": "en", "target": "de"} | fields)
    return str(answer.json().get("translatedText", answer.json().get("error")))


def test_requests_of_all_adapters_share_batches_and_have_the_outputs_of_merged_models(shop: Shop) -> None:
    async def work(client: httpx.AsyncClient) -> list[list[str]]:
        asked = [libre(client, q, adapter=name) for _ in range(2) for name in shop.wanted for q in SOURCES]
        answers = await asyncio.gather(*asked)
        size = len(SOURCES)
        return [answers[start : start + size] for start in range(0, len(answers), size)]

    assert shop.visit(work) == [*shop.wanted.values()] * 2


def test_every_dialect_names_an_adapter_in_its_own_way(shop: Shop) -> None:
    text = SOURCES[0]
    opus = {"input": text, "srcLangCode": "en", "trgLangCode": "de", "modelTag": "acme"}

    async def work(client: httpx.AsyncClient) -> list[str]:
        asked = {"text": [text], "source_lang": "EN", "target_lang": "DE", "style_id": "acme"}
        deepl = await client.post("/v2/translate", json=asked)
        microsoft = await client.post(
            "/translate?api-version=3.0&from=en&to=de&category=acme", json=[{"Text": text}]
        )
        cat = await client.get("/MTRestService/TranslateJson", params=opus)
        form = {"source": "en", "target": "de", "adapter": "acme"}
        file = await client.post("/translate_file", data=form, files={"file": ("a.txt", text.encode())})
        document = await client.get(file.json()["translatedFileUrl"])
        return [
            deepl.json()["translations"][0]["text"],
            microsoft.json()[0]["translations"][0]["text"],
            cat.json()["translation"],
            document.text,
        ]

    assert shop.visit(work) == [shop.wanted["acme"][0]] * 4


def test_lists_show_the_adapters_and_an_unknown_one_is_named(shop: Shop) -> None:
    async def work(client: httpx.AsyncClient) -> tuple[Any, ...]:
        tags = {"srcLangCode": "en", "trgLangCode": "de"}
        styles = (await client.get("/v3/style_rules")).json()["style_rules"]
        return (
            (await client.get("/adapters")).json(),
            [(style["style_id"], style["language"]) for style in styles],
            (await client.get("/MTRestService/GetLanguagePairModelTags", params=tags)).json(),
            await libre(client, "a", adapter="amce"),
        )

    listed, styles, tags, refusal = shop.visit(work)
    assert listed == [{"name": name, "pairs": ["en-de"]} for name in ("acme", "beta")]
    assert styles == [("acme", "de"), ("beta", "de")]
    assert tags == ["base", "acme", "beta"]
    assert "'amce' is none for en-de" in refusal


def test_a_key_has_its_adapter_alone(shop: Shop) -> None:
    keys = KeyRing([ApiKey("ann", fingerprint("a"), adapter="acme"), ApiKey("all", fingerprint("b"))])

    async def work(client: httpx.AsyncClient) -> list[Any]:
        text = SOURCES[0]
        return [
            await libre(client, text, api_key="a"),
            await libre(client, text, api_key="a", adapter="acme"),
            await libre(client, text, api_key="a", adapter="beta"),
            await libre(client, text, api_key="b"),
            await libre(client, text, api_key="b", adapter="beta"),
            (await client.get("/adapters?api_key=a")).json(),
            (await client.get("/adapters")).status_code,
        ]

    own, named, other, plain, free, listed, status = shop.visit(work, keys)
    wanted = {name: texts[0] for name, texts in shop.wanted.items()}
    assert (own, named, plain, free) == (wanted["acme"], wanted["acme"], wanted[""], wanted["beta"])
    assert "'acme' alone" in other
    assert [each["name"] for each in listed] == ["acme"]
    assert status == 403


def test_adapters_come_change_and_go_while_the_service_runs(shop: Shop) -> None:
    async def work(client: httpx.AsyncClient) -> None:
        async def answers(name: str) -> list[str]:
            return [await libre(client, q, adapter=name) for q in SOURCES]

        assert "is none" in await libre(client, "a", adapter="new")
        shop.put("new", 3)
        assert await answers("new") == shop.wanted["new"]
        assert await answers("acme") == shop.wanted["acme"]
        shop.put("acme", 4)
        assert await answers("acme") == shop.wanted["acme"]
        (shop.adapters / "acme.safetensors").write_bytes(b"half")  # while it is copied, the one before
        assert await answers("acme") == shop.wanted["acme"]
        (shop.adapters / "acme.safetensors").unlink()
        assert "is none" in await libre(client, "a", adapter="acme")
        assert await answers("") == shop.wanted[""]

    shop.visit(work)


def test_what_is_no_adapter_of_a_served_model_is_refused_at_the_start(shop: Shop, tmp_path: Path) -> None:
    (shop.adapters / "wrong.safetensors").write_bytes(b"no")
    for argument, message in (
        (str(shop.adapters), "--adapter wrong"),
        (f"x={shop.base}", "--adapter x"),
        (str(tmp_path / "none"), "NAME=RUN"),
    ):
        with pytest.raises(InputError, match=message):
            load_models(ServiceOptions(models=[f"en-de={shop.base}"], adapter=[argument]))


def test_keys_are_made_with_an_adapter(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    key = make_key(file, "ann", adapter="acme")
    found = KeyRing(path=file).find(key)
    assert found is not None
    assert found.adapter == "acme"


def test_only_the_matrices_of_an_adapter_are_in_memory(shop: Shop) -> None:
    options = ServiceOptions(models=[f"en-de={shop.base}"], adapter=[str(shop.adapters)])
    [model] = load_models(options)
    assert model.adapters is not None
    adapter = model.adapters.find("acme")
    assert adapter is not None
    sizes = [matrix.size for change in adapter.changes.values() for matrix in change]
    assert adapter.num_bytes == 4 * sum(sizes)
    mixed = model.translate(
        Pair("en", "de"),
        [Request(source, aligned=False, adapter=adapter) for source in SOURCES],
        alternatives=0,
    )
    assert [each.text for each in mixed] == shop.wanted["acme"]
