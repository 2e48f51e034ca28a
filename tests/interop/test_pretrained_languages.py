"""Other languages than those a model was imported with: as transformers translates into them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pretrained_models import FAMILIES, imported
from small_tokenizers import phrases

from heedful import SearchOptions, Translator
from heedful.decoding.strategies.beam import BeamSearch
from heedful.storage.bundle import Bundle

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
]
LINES = list(phrases()[0][:6])
NEW_TOKENS = 12


def generated(model: Any, tokenizer: Any, texts: list[str], **settings: int) -> list[list[int]]:  # noqa: ANN401
    """What a greedy `generate` writes for each text by itself, after the start token."""
    found = [
        model.generate(
            **tokenizer(text, return_tensors="pt"),
            max_new_tokens=NEW_TOKENS,
            num_beams=1,
            bad_words_ids=[[model.config.pad_token_id]],
            **settings,
        )
        for text in texts
    ]
    end = model.generation_config.eos_token_id
    return [[i for i in row[0].tolist()[1:] if i != end] for row in found]


def ours(name: str, directory: Path, **languages: str) -> list[list[int]]:
    bundle, model = imported(FAMILIES[name].layout, directory)
    translator = Translator(Bundle(bundle.config, bundle.tokenizers, model)).for_languages(**languages)
    options = replace(
        SearchOptions.from_config(bundle.config.decode),
        strategy=BeamSearch(beam_size=1),
        max_length=NEW_TOKENS,
        suppressed_ids=(bundle.tokenizers.tgt.pad_id,),
    )
    found = translator.translations(LINES, options=options)
    end = bundle.tokenizers.tgt.eos_id
    return [[i for i in each.hypotheses[0].ids if i != end] for each in found]


@pytest.mark.parametrize(
    ("name", "src_lang", "tgt_lang"),
    [
        ("m2m100", "__de__", "__fr__"),
        ("nllb", "deu_Latn", "eng_Latn"),
        ("mbart", "de_DE", "fr_XX"),
        ("mbart-50", "de_DE", "fr_XX"),
    ],
)
def test_families_of_many_languages(name: str, src_lang: str, tgt_lang: str, tmp_path: Path) -> None:
    from transformers import AutoTokenizer

    model = FAMILIES[name].save(tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    tokenizer.src_lang = src_lang.strip("_")
    key = "decoder_start_token_id" if name == "mbart" else "forced_bos_token_id"
    wanted = generated(model, tokenizer, LINES, **{key: tokenizer.convert_tokens_to_ids(tgt_lang)})
    found = ours(name, tmp_path / "model", src_lang=src_lang.strip("_"), tgt_lang=tgt_lang.strip("_"))
    assert found == wanted
    assert ours(name, tmp_path / "model") != wanted


def test_marian_into_one_of_its_languages(tmp_path: Path) -> None:
    from transformers import MarianTokenizer

    model = FAMILIES["marian"].save(tmp_path / "model")
    tokenizer = MarianTokenizer.from_pretrained(tmp_path / "model")
    wanted = generated(model, tokenizer, [f">>fra<< {line}" for line in LINES])
    assert ours("marian", tmp_path / "model", tgt_lang="fra") == wanted
    assert ours("marian", tmp_path / "model") != wanted
