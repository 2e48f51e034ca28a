"""Each example of docs/examples/ works through a public hook, beside the source of heedful."""

import asyncio
import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from command_line import assert_one_clear_line, heedful, text
from pretrained_models import FAMILIES, batch, logits_of
from small_models import small_model
from small_services import rule_service
from tiny_bundle import PAIRS, memorised, save_memorised
from tolerances import FLOAT32, assert_close

from heedful import Translator, evaluate, load_bundle, translate_file
from heedful.data.batches import Batch
from heedful.documents import formats
from heedful.interop.conversion import Conversion
from heedful.model.transformer import Transformer
from heedful.serving.app import application
from heedful.serving.gateway import Gateway
from heedful.serving.records import ClientRecords
from heedful.settings import plugins
from heedful.settings.plugins import load_plugin
from heedful.settings.run import TrainConfig
from heedful.text.special_tokens import SpecialTokens
from heedful.training.step import batch_loss

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SENTENCE, TRANSLATION = PAIRS[0]


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugins, "_LOADED", {})
    monkeypatch.setattr(sys, "path", [*sys.path])


def example(name: str) -> Any:  # noqa: ANN401
    return load_plugin(EXAMPLES / f"{name}.py")


def plugin(name: str) -> tuple[object, ...]:
    return "--plugin", EXAMPLES / f"{name}.py"


def test_a_strategy_has_a_name_on_the_command_line(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    options = ("--strategy", "best_of_both:BestOfBoth:alpha=1")
    refused = heedful("translate", bundle, *options, stdin=text([SENTENCE]))
    assert_one_clear_line(refused, 2, "no plugin 'best_of_both'")
    found = heedful("translate", bundle, *plugin("best_of_both"), *options, stdin=text([SENTENCE]))
    assert (found.code, found.out) == (0, f"{TRANSLATION}\n")


def test_a_backend_computes_for_every_search() -> None:
    backend = example("copying").CopyBackend(memorised().tokenizers.tgt.vocab_size)
    translator = Translator(memorised(), engine=backend)
    assert translator.translate([SENTENCE]) == [SENTENCE]


def test_a_metric_has_a_name_on_the_command_line(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    (tmp_path / "en").write_bytes(text([SENTENCE] * 2))
    (tmp_path / "de").write_bytes(text([TRANSLATION, "other words"]))
    files = ("--src", tmp_path / "en", "--ref", tmp_path / "de")
    metric = ("--metric", "same_length:same_length", *plugin("same_length"))
    found = heedful("evaluate", bundle, *files, *metric, "--json")
    assert '"same_length:same_length": 50.0' in found.out, found.err
    report = evaluate(
        bundle, src=tmp_path / "en", ref=tmp_path / "de", metric=example("same_length").same_length
    )
    assert report.scores == {"same_length:same_length": 50.0}


def test_a_filter_removes_its_fault(tmp_path: Path) -> None:
    (tmp_path / "en").write_bytes(text(["The dog sees us.", "HELP US NOW", "The cat sees us."]))
    (tmp_path / "de").write_bytes(text(["Der Hund sieht uns.", "Hilf uns jetzt", "Die Katze sieht uns."]))
    options = (*plugin("shouting"), "--remove", "shouting:shouting", "--fix", tmp_path / "fixed")
    done = heedful("inspect", tmp_path / "en", tmp_path / "de", *options)
    assert (done.code, "shouting:shouting" in done.out) == (0, True), done.err
    assert (tmp_path / "fixed" / "train.src").read_bytes() == text(["The dog sees us.", "The cat sees us."])


def test_a_loss_is_the_paper_s_without_its_exponent() -> None:
    model = small_model().train()
    src, tgt = torch.tensor([[3, 4, 5], [6, 7, 0]]), torch.tensor([[2, 8, 9, 0], [2, 10, 3, 4]])
    batch = Batch(src, tgt[:, :-1], tgt[:, 1:], num_tgt_tokens=5)
    focal, plain, wanted = (
        loss(model.eval(), batch)
        for loss in (
            example("focal_loss").FocalLoss(),
            example("focal_loss").FocalLoss(gamma=0.0),
            partial(batch_loss, settings=TrainConfig(label_smoothing=0.0)),
        )
    )
    assert_close(plain.smoothed, wanted.smoothed, FLOAT32.MODEL)
    assert_close(focal.nll, wanted.nll, FLOAT32.MODEL)
    assert 0.0 < focal.smoothed.item() < plain.smoothed.item()


def test_a_layout_gives_the_same_weights() -> None:
    weights = memorised().model.state_dict()
    theirs = {name.replace(".", "/"): tensor for name, tensor in weights.items()}
    imported = example("slashes").SLASHES.read(
        Conversion(theirs, layout="slashes", origin=Path("theirs"), settings={"num_heads": 4})
    )
    model = Transformer.from_config(imported.config)
    model.load_state_dict(imported.weights, strict=False)  # a shared matrix is stored once
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_a_family_of_transformers_is_imported_by_its_declaration(tmp_path: Path) -> None:
    theirs = FAMILIES["m2m100"].save(tmp_path / "model", strength=0.5)
    file = tmp_path / "model" / "tokenizer_config.json"
    settings = json.loads(file.read_text()) | {"tokenizer_class": "SMALL100Tokenizer"}
    file.write_text(json.dumps(settings))
    options = ("--layout", "small100:SMALL100", "--tgt-lang", "de", "--output", tmp_path / "bundle")
    done = heedful("import", tmp_path / "model", *plugin("small100"), *options)
    assert done.code == 0, done.err
    bundle = load_bundle(tmp_path / "bundle")
    src = bundle.tokenizers.src
    template = SpecialTokens.of(bundle.config, bundle.tokenizers)
    assert template.source(src.encode("The cat")) == [src.tag_id("de"), *src.encode("The cat"), src.eos_id]
    assert template.tgt_prefix == ()
    ids = batch(bundle.model)
    wanted = logits_of(theirs, *ids, bundle.model.config)
    assert_close(logits_of(bundle.model, *ids, bundle.model.config), wanted, FLOAT32.MODEL)


def test_a_format_of_documents_is_known_by_its_ending(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "_FORMAT_OF", dict(formats._FORMAT_OF))
    monkeypatch.delitem(sys.modules, "properties", raising=False)
    bundle, file = save_memorised(tmp_path / "bundle"), tmp_path / "a.properties"
    file.write_bytes(f"# a note\r\napp.title = {SENTENCE}\r\n\r\nnumber=7".encode())
    translated = f"# a note\r\napp.title = {TRANSLATION}\r\n\r\nnumber=7".encode()
    refused = heedful("translate", bundle, "--document", file, "-o", tmp_path / "b.properties")
    assert_one_clear_line(refused, 1, "a.properties")
    command = ("translate", bundle, *plugin("properties"), "--document", file)
    done = heedful(*command, "-o", tmp_path / "b.properties")
    assert done.code == 0, done.err
    assert (tmp_path / "b.properties").read_bytes() == translated
    translate_file(bundle, file, tmp_path / "c.properties")
    assert (tmp_path / "c.properties").read_bytes() == translated
    assert ".properties" in formats.suffixes()  # which the service lists


def test_a_dialect_answers_beside_the_others() -> None:
    gateway = Gateway(rule_service(str.upper), ClientRecords(None))
    app = application(gateway)
    app.include_router(example("plain_text").router(gateway))

    async def answer() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get("/plain", params={"q": "hello", "source": "en", "target": "de"})

    assert asyncio.run(answer()).text == "HELLO"
