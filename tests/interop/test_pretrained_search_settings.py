"""What generation_config.json says is followed, or refused by name."""

import json
from pathlib import Path
from typing import Any

import pytest

from heedful.errors import InteropError
from heedful.interop.huggingface.generation import read_search
from heedful.interop.huggingface.pretrained import read_pretrained
from heedful.settings.run import DecodeConfig


def search_of(directory: Path, settings: dict[str, Any], *, in_config: bool = False) -> dict[str, Any]:
    config = settings if in_config else {"num_beams": 9, "penalty_alpha": 3.0}
    (directory / "config.json").write_text(json.dumps(config))
    (directory / "generation_config.json").unlink(missing_ok=True)
    if not in_config:
        (directory / "generation_config.json").write_text(json.dumps(settings))
    return read_search(read_pretrained(directory))


# What an opus-mt model, an NLLB model and a summarising BART have there.
OPUS = {
    "bad_words_ids": [[58100]], "bos_token_id": 0, "decoder_start_token_id": 58100, "eos_token_id": 0,
    "forced_eos_token_id": 0, "max_length": 512, "num_beams": 4, "pad_token_id": 58100,
    "renormalize_logits": True, "transformers_version": "4.32.0",
}  # fmt: skip
NLLB = {
    "_from_model_config": True, "bos_token_id": 0, "decoder_start_token_id": 2, "eos_token_id": 2,
    "max_length": 200, "pad_token_id": 1, "transformers_version": "4.27.0.dev0",
}  # fmt: skip
CNN = {
    "early_stopping": True, "forced_bos_token_id": 0, "length_penalty": 2.0, "max_length": 142,
    "num_beams": 4, "min_length": 56, "no_repeat_ngram_size": 3, "repetition_penalty": 1.2,
}  # fmt: skip
# Of Blenderbot 400M, distilled.
CHAT = {
    "encoder_no_repeat_ngram_size": 3, "forced_eos_token_id": 2, "length_penalty": 0.65, "max_length": 60,
    "min_length": 20, "no_repeat_ngram_size": 3, "num_beams": 10,
}  # fmt: skip


def test_settings_of_published_models(tmp_path: Path) -> None:
    opus = DecodeConfig(**search_of(tmp_path, OPUS))
    assert opus == DecodeConfig(
        beam_size=4, length_penalty=1.0, length_normalization="power", early_stopping="estimate",
        max_length=511, max_length_offset=1024, forced_last_id=0, suppressed_ids=(58100,), renormalize=True,
    )  # fmt: skip
    nllb = DecodeConfig(**search_of(tmp_path, NLLB))
    assert (nllb.beam_size, nllb.max_length, nllb.suppressed_ids, nllb.forced_last_id) == (1, 199, (), None)
    cnn = DecodeConfig(**search_of(tmp_path, CNN))
    assert (cnn.max_length, cnn.min_length, cnn.no_repeat_ngram_size) == (141, 55, 3)
    assert (cnn.beam_size, cnn.length_penalty, cnn.early_stopping) == (4, 2.0, "first")
    assert cnn.repetition_penalty == 1.2
    chat = DecodeConfig(**search_of(tmp_path, CHAT))
    assert (chat.encoder_no_repeat_ngram_size, chat.no_repeat_ngram_size, chat.beam_size) == (3, 3, 10)
    assert (chat.min_length, chat.max_length, chat.length_penalty) == (19, 59, 0.65)


def test_older_models_have_their_settings_in_config_json(tmp_path: Path) -> None:
    assert search_of(tmp_path, OPUS, in_config=True) == search_of(tmp_path, OPUS)
    with pytest.raises(InteropError, match=r"penalty_alpha=1\.5"):
        search_of(tmp_path, {"num_beams": 2, "penalty_alpha": 1.5}, in_config=True)


def test_the_least_length_counts_the_start_token_or_new_tokens_alone(tmp_path: Path) -> None:
    assert search_of(tmp_path, {"min_length": 5})["min_length"] == 4
    assert search_of(tmp_path, {"min_length": 5, "min_new_tokens": 7})["min_length"] == 7
    assert search_of(tmp_path, {"min_length": 0, "min_new_tokens": None})["min_length"] == 0


def test_a_limit_counts_the_start_token_or_new_tokens_alone(tmp_path: Path) -> None:
    assert search_of(tmp_path, {"max_length": 20})["max_length"] == 19
    assert search_of(tmp_path, {"max_length": 20, "max_new_tokens": 30})["max_length"] == 30
    assert search_of(tmp_path, {})["max_length"] == 20
    for settings in ({}, {"max_length": 20}, {"max_new_tokens": 20}):
        found = search_of(tmp_path, settings)
        assert found["max_length_offset"] == 1024 > found["max_length"]
    short = {"max_position_embeddings": 12}
    assert search_of(tmp_path, short, in_config=True)["max_length"] == 11


def test_texts_are_split_at_the_length_that_the_published_model_was_made_for(tmp_path: Path) -> None:
    assert search_of(tmp_path, {"max_position_embeddings": 700}, in_config=True)["max_source_tokens"] == 700


@pytest.mark.parametrize(
    "settings",
    [
        {"no_repeat_ngram_size": 1}, {"do_sample": True}, {"num_beam_groups": 2, "diversity_penalty": 1.0},
        {"repetition_penalty": 1.2}, {"sequence_bias": [[[4], 1.0]]}, {"bad_words_ids": [[4, 5]]},
        {"forced_eos_token_id": [2, 3], "eos_token_id": 2}, {"length_penalty": -1.0},
        {"early_stopping": "soon"}, {"mirostat": 2},
    ],
)  # fmt: skip
def test_a_search_that_cannot_be_followed_is_named(settings: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(InteropError, match=rf"generation_config\.json: '?{next(iter(settings))}"):
        search_of(tmp_path, settings)


def test_neutral_settings_of_every_kind_are_taken(tmp_path: Path) -> None:
    """All defaults that transformers itself writes down."""
    from transformers import GenerationConfig

    neutral = GenerationConfig._get_default_generation_params()
    found = search_of(tmp_path, neutral)
    assert (found["beam_size"], found["max_length"]) == (1, 19)
    assert search_of(tmp_path, GenerationConfig().to_dict())["beam_size"] == 1


def test_no_setting_of_todays_transformers_is_unknown(tmp_path: Path) -> None:
    from transformers import GenerationConfig

    from heedful.interop.huggingface.generation import GENERATION_KEYS

    assert {key for key in vars(GenerationConfig()) if not key.startswith("_")} <= GENERATION_KEYS
