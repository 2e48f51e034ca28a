from pathlib import Path

import pytest
from small_tokenizers import marian_pair, nllb_pair, phrases, tagged_pair

from heedful.errors import InputError
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, LanguageConfig, TokenizerConfig
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers
from heedful.text.pair import choose_languages

NLLB = Config(
    model=ModelConfig(decoder_start_id=2), languages=LanguageConfig(src_tag="eng_Latn", tgt_tag="deu_Latn")
)


def frame(config: Config, pair: TokenizerPair, **languages: str) -> SpecialTokens:
    return SpecialTokens.of(choose_languages(config, pair, **languages), pair)


def refusal(config: Config, pair: TokenizerPair, **languages: str) -> str:
    with pytest.raises(InputError) as error:
        choose_languages(config, pair, **languages)
    return str(error.value)


def test_without_a_choice_the_model_decides() -> None:
    assert choose_languages(NLLB, nllb_pair()) is NLLB


def test_nllb_reads_the_one_and_writes_the_other() -> None:
    pair = nllb_pair()
    chosen = choose_languages(NLLB, pair, src_lang="fra_Latn", tgt_lang="eng_Latn")
    assert chosen.languages == LanguageConfig(src_tag="fra_Latn", tgt_tag="eng_Latn")
    template = frame(NLLB, pair, tgt_lang="fra_Latn")
    assert template.src_prefix == (pair.src.tag_id("eng_Latn"),)
    assert template.tgt_prefix == (pair.tgt.tag_id("fra_Latn"),)


def test_a_bare_language_becomes_the_tag_of_the_vocabulary() -> None:
    m2m100 = NLLB.replace(languages={"src_tag": "__en__", "tgt_tag": "__de__"})
    chosen = choose_languages(m2m100, tagged_pair(), src_lang="de", tgt_lang="__fr__")
    assert chosen.languages == LanguageConfig(src_tag="__de__", tgt_tag="__fr__")


def test_mbart_starts_with_the_target_language() -> None:
    pair = tagged_pair()
    mbart = Config(
        model=ModelConfig(decoder_start_id=pair.tgt.tag_id("de")),
        languages=LanguageConfig(src_tag="__en__", src_tag_position="last"),
    )
    template = frame(mbart, pair, src_lang="fr", tgt_lang="en")
    assert template.start_id == pair.tgt.tag_id("en")
    assert template.src_suffix == (pair.src.eos_id, pair.src.tag_id("fr"))
    assert template.tgt_prefix == ()


@pytest.mark.parametrize("tag", [None, ">>deu<<"])
def test_marian_reads_the_tag_of_the_target_language(tmp_path: Path, tag: str | None) -> None:
    pair = marian_pair(tmp_path)
    marian = Config(model=ModelConfig(decoder_start_id=pair.tgt.pad_id), languages={"src_tag": tag})
    template = frame(marian, pair, tgt_lang="fra")
    assert template.src_prefix == (pair.src.tag_id(">>fra<<"),)
    assert template.tgt_prefix == ()
    assert "has no tag for its source language" in refusal(marian, pair, src_lang="deu")


def test_an_unknown_language_names_close_ones() -> None:
    assert refusal(NLLB, nllb_pair(), tgt_lang="deu") == (
        "tgt_lang: 'deu' is not a tag of this model; did you mean 'deu_Latn'?"
    )
    assert refusal(NLLB, nllb_pair(), src_lang="<pad>") == "src_lang: '<pad>' is not a language"


def test_a_model_of_one_pair_of_languages_has_no_choice() -> None:
    english, german = phrases()
    ours = train_tokenizers(english, german, TokenizerConfig(vocab_size=200), seed=1)
    assert "translates into one language only" in refusal(Config(), ours, tgt_lang="de")
    assert "has no tag for its source language" in refusal(Config(), ours, src_lang="de")
    bart = Config(languages=LanguageConfig(src_tag="<s>", tgt_tag="<s>"))
    assert "translates into one language only" in refusal(bart, nllb_pair(), tgt_lang="deu_Latn")
    assert "has no tag for its source language" in refusal(bart, nllb_pair(), src_lang="deu_Latn")
