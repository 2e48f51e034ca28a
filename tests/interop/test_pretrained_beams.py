"""Models of transformers: from text to text, what is imported finds what `generate` finds, token by token."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pretrained_models import FAMILIES, Family, end_sooner, imported

from heedful import Translator
from heedful.data.phrasebook import phrase_book
from heedful.storage.bundle import Bundle

pytestmark = [
    pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses"),
    pytest.mark.filterwarnings("ignore:builtin type .*has no __module__ attribute:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:Using the model-agnostic default `max_length`"),
]
# What each model's own generation_config.json says, and how much sooner it ends.
SEARCHES: dict[str, tuple[float, dict[str, Any]]] = {
    "marian": (6.0, {"num_beams": 4, "bad_words_ids": True, "renormalize_logits": True}),
    "marian, separate vocabularies": (5.0, {"num_beams": 3, "bad_words_ids": True, "early_stopping": True}),
    "m2m100": (3.0, {"num_beams": 5, "early_stopping": "never", "length_penalty": 0.7}),
    "nllb": (4.0, {"num_beams": 4, "early_stopping": True, "length_penalty": 1.3}),
    "bart": (
        6.0,
        {"num_beams": 4, "early_stopping": False, "length_penalty": 2.0, "no_repeat_ngram_size": 2}
        | {"repetition_penalty": 1.4},  # the decoder starts with the end token, which is penalised too
    ),
    "mbart": (4.0, {"num_beams": 5, "early_stopping": "never", "length_penalty": 0.0}),
    "t5": (5.0, {"num_beams": 1, "bad_words_ids": True}),
    "t5 1.1": (2.0, {"num_beams": 5, "bad_words_ids": True, "early_stopping": False}),
    "t5, tied and gated": (
        0.3,
        {"num_beams": 4, "bad_words_ids": True, "early_stopping": True, "repetition_penalty": 1.3},
    ),
    "t5, untied and scaled": (3.0, {"num_beams": 5, "bad_words_ids": True}),
    "umt5": (0.3, {"num_beams": 5, "bad_words_ids": True, "early_stopping": "never", "length_penalty": 0.5}),
    "byt5": (3.0, {"num_beams": 5, "bad_words_ids": True, "no_repeat_ngram_size": 3}),
    "madlad": (2.0, {"num_beams": 5, "bad_words_ids": True, "min_length": 5}),
    "t5gemma": (8.0, {"num_beams": 4, "bad_words_ids": True, "early_stopping": False}),
    "t5gemma 2": (8.0, {"num_beams": 1, "bad_words_ids": True}),
    "plbart": (2.0, {"num_beams": 5, "early_stopping": True, "length_penalty": 1.2}),
    "mvp": (4.0, {"num_beams": 5, "no_repeat_ngram_size": 3, "early_stopping": False}),
    "fsmt": (8.0, {"num_beams": 5, "bad_words_ids": True, "early_stopping": True}),
    "pegasus": (4.0, {"num_beams": 5, "bad_words_ids": True, "length_penalty": 0.6}),
    "blenderbot": (
        6.0,
        {"num_beams": 10, "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 2, "min_length": 4}
        | {"length_penalty": 0.65},
    ),
    "blenderbot small": (
        4.0,
        {"num_beams": 10, "no_repeat_ngram_size": 3, "encoder_no_repeat_ngram_size": 2, "min_length": 4}
        | {"length_penalty": 0.65},
    ),
    "mbart-50": (2.0, {"num_beams": 1, "max_length": None, "min_length": 4, "no_repeat_ngram_size": 3}),
}
QUICK = {"marian", "t5"}
FORCED = {"m2m100": "__de__", "nllb": "deu_Latn", "bart": "<s>", "mbart-50": "de_DE", "mvp": "<s>"}
MAX_LENGTH = 16


def lines() -> list[str]:
    pairs = phrase_book().train[:200]
    return [source for source, _ in pairs]


def saved(name: str, directory: Path, **more: object) -> Any:  # noqa: ANN401
    """A random model, its tokenizer, and its own settings for `generate`."""
    from transformers import AutoTokenizer, T5Tokenizer

    by, search = SEARCHES[name]
    search = search | more
    model = FAMILIES[name].save(directory)
    is_t5 = FAMILIES[name].layout == "t5" and (directory / "spiece.model").is_file()
    kind = T5Tokenizer if is_t5 else AutoTokenizer
    tokenizer = kind.from_pretrained(directory)
    settings = model.generation_config
    settings.update(**{"max_length": MAX_LENGTH, "forced_eos_token_id": settings.eos_token_id} | search)
    if search.get("bad_words_ids"):
        settings.bad_words_ids = [[settings.pad_token_id], *([i] for i in range(7, 180, 3))]
        if FAMILIES[name].layout == "t5":  # sentinels, and rows that no token has
            ends = {"byt5": 259, "madlad": 180}
            settings.bad_words_ids += [[i] for i in range(ends.get(name, 180), model.config.vocab_size)]
    if name in FORCED:
        settings.forced_bos_token_id = tokenizer.convert_tokens_to_ids(FORCED[name])
    if name == "mbart":
        settings.decoder_start_token_id = tokenizer.convert_tokens_to_ids("de_DE")
    end_sooner(model, by)
    model.save_pretrained(directory)
    return model, tokenizer


def generated(model: Any, tokenizer: Any, texts: list[str]) -> tuple[list[list[int]], list[str]]:  # noqa: ANN401
    """The ids that `generate` writes after the start token and before the end, and the text."""
    found = []
    for start in range(0, len(texts), 100):
        batch = tokenizer(texts[start : start + 100], return_tensors="pt", padding=True)
        found += model.generate(**batch).tolist()
    eos = model.generation_config.eos_token_id
    ids = [row[1:][: [*row[1:], eos].index(eos)] for row in found]
    return ids, tokenizer.batch_decode(found, skip_special_tokens=True)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in SEARCHES]
)
def test_beams_ids_and_texts_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    family: Family = FAMILIES[name]
    theirs = saved(name, tmp_path / "model")
    wanted_ids, wanted = generated(*theirs, lines())
    bundle, model = imported(family.layout, tmp_path / "model")
    translator = Translator(Bundle(bundle.config, bundle.tokenizers, model))
    found = translator.translations(lines())
    assert [list(each.hypotheses[0].ids) for each in found] == wanted_ids
    # T5's tokenizer leaves a space at the end, if that is a token.
    assert [each.text for each in found] == [
        text.rstrip(" ") if family.layout == "t5" else text for text in wanted
    ]
    ended = sum(len(ids) < MAX_LENGTH - 2 for ids in wanted_ids)
    assert len(set(wanted)) > 50
    assert 20 < ended < 200
    assert torch.get_default_dtype() is torch.float32


@pytest.mark.representatives(2)
@pytest.mark.parametrize("num_beams", [pytest.param(1, marks=pytest.mark.slow), 5])
@pytest.mark.parametrize("name", ["t5", "t5 1.1", "t5, tied and gated", "t5, untied and scaled"])
def test_t5s_outputs_are_equal_with_and_without_their_factor(
    name: str, num_beams: int, tmp_path: Path
) -> None:
    theirs = saved(
        name, tmp_path / "model", num_beams=num_beams, repetition_penalty=1.0, early_stopping=False
    )
    config = theirs[0].config
    assert config.scale_decoder_outputs is (name in ("t5", "t5, untied and scaled"))
    bundle, model = imported("t5", tmp_path / "model")
    found = Translator(Bundle(bundle.config, bundle.tokenizers, model)).translations(lines()[:50])
    assert [list(each.hypotheses[0].ids) for each in found] == generated(*theirs, lines()[:50])[0]
