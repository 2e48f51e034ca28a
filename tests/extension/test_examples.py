"""Each example of docs/examples/ works through a public hook, beside the source of heedful."""

import asyncio
import importlib
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import torch
from command_line import heedful, text
from small_models import small_model
from small_services import rule_service
from surveyed import survey_of
from tiny_bundle import PAIRS, memorised, save_memorised
from tolerances import FLOAT32, assert_close

from heedful import Translator
from heedful.data.batches import Batch
from heedful.data.cleaning import FILTERS, Pair, PairChecker
from heedful.interop.conversion import Conversion
from heedful.model.transformer import Transformer
from heedful.serving.app import application
from heedful.serving.gateway import Gateway
from heedful.serving.records import ClientRecords
from heedful.settings.run import TrainConfig
from heedful.training.step import batch_loss

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"
SENTENCE, TRANSLATION = PAIRS[0]
ENTRY_POINTS = """[heedful.strategies]
best-of-both = best_of_both:BestOfBoth
[heedful.metrics]
same-length = same_length:same_length
"""


@pytest.fixture(autouse=True)
def _installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the examples as a package with entry points."""
    metadata = tmp_path / "site" / "examples-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: examples\nVersion: 1.0\n", "utf-8")
    (metadata / "entry_points.txt").write_text(ENTRY_POINTS, "utf-8")
    monkeypatch.syspath_prepend(metadata.parent)
    monkeypatch.syspath_prepend(EXAMPLES)


def example(name: str) -> Any:  # noqa: ANN401
    return importlib.import_module(name)


def test_a_strategy_has_a_name_on_the_command_line(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    found = heedful("translate", bundle, "--strategy", "best-of-both:alpha=1", stdin=text([SENTENCE]))
    assert (found.code, found.out) == (0, f"{TRANSLATION}\n")
    refused = heedful("translate", bundle, "--strategy", "best-of-bth", stdin=text([SENTENCE]))
    assert (refused.code, refused.out) == (2, "")
    assert "best-of-both" in refused.err


def test_a_backend_computes_for_every_search() -> None:
    backend = example("copying").CopyBackend(memorised().tokenizers.tgt.vocab_size)
    translator = Translator(memorised(), engine=backend)
    assert translator.translate([SENTENCE]) == [SENTENCE]


def test_a_metric_has_a_name_on_the_command_line(tmp_path: Path) -> None:
    bundle = save_memorised(tmp_path / "bundle")
    (tmp_path / "en").write_bytes(text([SENTENCE] * 2))
    (tmp_path / "de").write_bytes(text([TRANSLATION, "other words"]))
    files = ("--src", tmp_path / "en", "--ref", tmp_path / "de")
    found = heedful("evaluate", bundle, *files, "--metric", "same-length", "--json")
    assert '"same-length": 50.0' in found.out, found.err


def test_a_filter_finds_its_fault() -> None:
    checker = PairChecker(survey_of([("HELP ME", "so")]), filters=(*FILTERS, example("shouting").SHOUTING))
    assert "shouting" in checker.faults(Pair("HELP ME", "so"))
    assert "shouting" not in checker.faults(Pair("Help me", "so"))


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
    conversion = Conversion(theirs, layout="slashes", origin=Path("theirs"), settings={"num_heads": 4})
    imported = example("slashes").read(conversion)
    model = Transformer.from_config(imported.config)
    model.load_state_dict(imported.weights, strict=False)  # a shared matrix is stored once
    assert all(torch.equal(tensor, weights[name]) for name, tensor in model.state_dict().items())


def test_a_dialect_answers_beside_the_others() -> None:
    gateway = Gateway(rule_service(str.upper), ClientRecords(None))
    app = application(gateway)
    app.include_router(example("plain_text").router(gateway))

    async def answer() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://here") as client:
            return await client.get("/plain", params={"q": "hello", "source": "en", "target": "de"})

    assert asyncio.run(answer()).text == "HELLO"
