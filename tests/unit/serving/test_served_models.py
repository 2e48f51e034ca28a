"""What an argument of `heedful serve` stands for."""

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from pretrained_models import FAMILIES, imported
from tagged_bundle import nllb_like
from tiny_bundle import PAIRS, memorised

from heedful.decoding.generator import Generator
from heedful.decoding.options import SearchOptions
from heedful.decoding.task import Hypothesis, Source
from heedful.decoding.translator import Translator
from heedful.errors import InputError
from heedful.serving.limits import Limits
from heedful.serving.metrics import Metrics
from heedful.serving.models import load_models, load_served
from heedful.serving.options import ServiceOptions
from heedful.serving.service import TranslationRequest, TranslationService
from heedful.spans import Request
from heedful.spans.words import words
from heedful.storage.bundle import Bundle, load_bundle, save_bundle
from heedful.text.languages import Pair

pytestmark = [
    pytest.mark.by_class,
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
]


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "bundle"
    save_bundle(nllb_like(), path, card="# Many languages\n")
    return path


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle that was trained on train.en.gz and train.de."""
    bundle = memorised()
    data = bundle.config.data.replace(src="data/train.en.gz", tgt="data/train.de")
    path = tmp_path_factory.mktemp("two") / "bundle"
    save_bundle(replace(bundle, config=bundle.config.replace(data=data.model_dump())), path, card="# Two\n")
    return path


def requests(texts: Sequence[str], *, aligned: bool = False) -> list[Request]:
    return [Request(text, aligned) for text in texts]


def pairs(argument: str) -> list[str]:
    return sorted(map(str, load_served(argument).pairs))


def test_the_languages_of_training_files_are_those_of_a_model(two: Path) -> None:
    model = load_served(str(two))
    assert model.pairs == {Pair("en", "de")}
    sources = [source for source, _ in PAIRS]
    found = model.translate(Pair("en", "de"), requests(sources), alternatives=0)
    assert [translation.text for translation in found] == [target for _, target in PAIRS]
    for (source, target), output in zip(
        PAIRS, model.translate(Pair("en", "de"), requests(sources, aligned=True), alternatives=0), strict=True
    ):
        [alignment] = Translator(load_bundle(two)).align([source], [target], split=words)
        assert output.alignment == alignment
        assert alignment.links


def test_what_is_said_goes_before_what_is_known(two: Path) -> None:
    assert pairs(f"fr-pt-BR={two}") == ["fr-pt-BR"]
    assert pairs(f"zh-Hans-en,deu_Latn-EN={two}") == ["de-en", "zh-Hans-en"]


def test_a_model_of_many_languages_has_all_pairs_or_those_that_are_said(many: Path) -> None:
    everything = pairs(str(many))
    assert {"en-de", "de-en", "en-fr", "fr-de"} <= set(everything)
    assert "en-en" not in everything
    assert pairs(f"en-fr={many}") == ["en-fr"]
    with pytest.raises(InputError, match="'en-eng'"):
        pairs(f"en-eng={many}")
    with pytest.raises(InputError, match="does not translate en-ja"):
        pairs(f"en-ja={many}")


def test_each_pair_is_that_of_the_translator(many: Path) -> None:
    model = load_served(str(many))
    lines = ["the house", "a cat and a dog"]
    for src, tgt, codes in (("eng_Latn", "fra_Latn", ("en", "fr")), ("deu_Latn", "eng_Latn", ("de", "en"))):
        expected = Translator(nllb_like()).for_languages(src_lang=src, tgt_lang=tgt).translate(lines)
        found = model.translate(Pair(*codes), requests(lines), alternatives=0)
        assert [translation.text for translation in found] == expected


@pytest.mark.parametrize(
    ("layout", "tags"), [("madlad", ("<2de>", "<2fr>")), ("marian", (">>deu<<", ">>fra<<"))]
)
def test_a_tag_before_the_source_names_the_target_of_a_pair(
    layout: str, tags: tuple[str, str], tmp_path: Path
) -> None:
    FAMILIES[layout].save(tmp_path / "model")
    found, model = imported(FAMILIES[layout].layout, tmp_path / "model")
    assert found.tokenizers is not None
    bundle = Bundle(found.config, found.tokenizers, model)
    save_bundle(bundle, tmp_path / "bundle", card="# Tags\n")
    served = load_served(f"en-de,en-fr={tmp_path / 'bundle'}")
    lines = ["the house", "a cat and a dog"]
    outputs = []
    for code, tag in zip(("de", "fr"), tags, strict=True):
        expected = Translator(bundle).for_languages(tgt_lang=tag).translate(lines)
        found_lines = served.translate(Pair("en", code), requests(lines), alternatives=0)
        outputs.append([translation.text for translation in found_lines])
        assert outputs[-1] == expected
    assert outputs[0] != outputs[1]
    with pytest.raises(InputError, match="does not translate en-ja"):
        load_served(f"en-ja={tmp_path / 'bundle'}")


def test_alternatives_begin_with_the_best_translation(two: Path) -> None:
    model = load_served(str(two))
    [translation] = model.translate(Pair("en", "de"), requests([PAIRS[0][0]]), alternatives=6)
    assert translation.text == translation.hypotheses[0].text == PAIRS[0][1]
    assert len({output.text for output in translation.hypotheses}) == 7


def test_the_first_model_of_a_pair_answers(two: Path, many: Path) -> None:
    lines: list[str] = []
    arguments = [f"en-de={two}", str(many)]
    models = load_models(ServiceOptions(models=arguments), notify=lines.append)
    assert lines == [f"{many}: en-de (1 of {len(models[1].pairs)} pairs): en-de={two} answers"]
    service = TranslationService(models, Limits(), Metrics())
    assert service.model_of(Pair("en", "de")) is models[0]
    assert service.model_of(Pair("en", "fr")) is models[1]
    service.close()


def test_a_model_that_another_leaves_nothing_is_refused(two: Path, many: Path) -> None:
    for first, second in ((many, f"en-de={two}"), (two, two), (many, many)):
        arguments = [str(first), str(second)]
        with pytest.raises(
            InputError, match=f"{second}: all of its pairs .* are taken by {first}, listed before it"
        ):
            load_models(ServiceOptions(models=arguments))


def test_the_service_imports_no_torch() -> None:
    code = (
        "import sys, heedful.serving.launch, heedful.serving.server, heedful.serving.app, "
        "heedful.serving.service; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize("limit", [12, 100])
def test_a_long_line_is_cut_as_by_a_translator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    bundle = memorised()
    config = bundle.config.replace(decode={"max_source_tokens": limit})
    save_bundle(replace(bundle, config=config), tmp_path / "m", card="# Short lines\n")
    searched: set[tuple[int, ...]] = set()
    search = Generator.search

    def recorded(
        generator: Generator, sources: Sequence[Source], options: SearchOptions
    ) -> list[list[Hypothesis]]:
        searched.update(tuple(each.ids) for each in sources)
        return search(generator, sources, options)

    monkeypatch.setattr(Generator, "search", recorded)
    line = (
        "the cat sleeps. Dr. Dog sees it: " + "the dog, sees the cat, " * 12 + "does it sleep? " + "the" * 40
    )
    [translated] = Translator.load(tmp_path / "m").translate([line])
    by_translator = searched.copy()
    assert len(by_translator) > 2
    service = TranslationService([load_served(f"en-de={tmp_path / 'm'}")], Limits(), Metrics())
    searched.clear()
    request = TranslationRequest(texts=(line,), source="en", target="de")
    [answer] = asyncio.run(service.translate(request))
    assert searched == by_translator
    assert answer.text == translated
