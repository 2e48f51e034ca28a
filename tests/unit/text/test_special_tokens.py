from pathlib import Path

import pytest
from small_tokenizers import marian_pair, nllb_pair, phrases, tagged_pair

from heedful.errors import InputError, TokenizerError
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, LanguageConfig, TokenizerConfig
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers
from heedful.text.pair import choose_languages
from heedful.text.vocabulary_tokenizer import tokenizer_from_words


def config(*, start_id: int | None = None, **languages: str) -> Config:
    return Config(
        model=ModelConfig(decoder_start_id=start_id), languages=LanguageConfig.model_validate(languages)
    )


def test_the_papers_model_reads_and_writes_a_text_and_its_end(tmp_path: Path) -> None:
    pair = marian_pair(tmp_path)
    template = SpecialTokens.of(config(), pair)
    assert template == SpecialTokens.plain(pair)
    assert template.source([7, 8]) == template.target([7, 8]) == [7, 8, pair.src.eos_id]
    assert template.start_id == pair.tgt.bos_id


def test_opennmt_ends_no_source() -> None:
    pair = tagged_pair()
    without = config().replace(tokenizer={"source_eos": False})
    assert SpecialTokens.of(without, pair).source([7, 8]) == [7, 8]
    assert SpecialTokens.of(without, pair).target([7, 8]) == [7, 8, pair.tgt.eos_id]
    tag = {"src_tag": "__en__", "src_tag_position": "last"}
    tagged = without.replace(languages=tag)
    assert SpecialTokens.of(tagged, pair).source([7]) == [7, pair.src.tag_id("en")]


def test_marian_reads_the_tag_of_the_target_language(tmp_path: Path) -> None:
    pair = marian_pair(tmp_path)
    template = SpecialTokens.of(config(src_tag=">>deu<<"), pair)
    text = pair.src.encode("the house")
    assert template.source(text) == [*pair.src.encode(">>deu<<the house"), pair.src.eos_id]


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(TokenizerError, match=r"^languages\.src_tag: 'deu'.*'__de__'"):
        SpecialTokens.of(config(src_tag="deu"), tagged_pair())
    assert SpecialTokens.of(config(start_id=0), tagged_pair()).start_id == 0


NLLB = Config(
    model=ModelConfig(decoder_start_id=2), languages=LanguageConfig(src_tag="eng_Latn", tgt_tag="deu_Latn")
)


def frame(config: Config, pair: TokenizerPair, **languages: str) -> SpecialTokens:
    return SpecialTokens.of(choose_languages(config, pair, **languages), pair)


def refusal(config: Config, pair: TokenizerPair, **languages: str) -> str:
    with pytest.raises(InputError) as error:
        choose_languages(config, pair, **languages)
    return str(error.value)


def test_nllb_reads_the_one_and_writes_the_other() -> None:
    pair = nllb_pair()
    assert choose_languages(NLLB, pair) is NLLB
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
def test_marian_reads_a_tag_that_is_chosen_in_a_text(tmp_path: Path, tag: str | None) -> None:
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


def test_a_tag_is_found_as_models_write_it_and_bare(tmp_path: Path) -> None:
    tagged, marian, nllb = tagged_pair().src, marian_pair(tmp_path).src, nllb_pair().src
    assert nllb.tokens([nllb.tag_id("deu_Latn")]) == ["deu_Latn"]
    assert nllb.tag_id("<s>") == 0  # which may serve as one
    assert tagged.tag_id("de") == tagged.tag_id("__de__")
    assert marian.tag_id("deu") == marian.tag_id(">>deu<<")
    assert marian.tokens([marian.tag_id("deu")]) == [">>deu<<"]


def test_what_is_no_tag_is_answered_with_close_ones() -> None:
    nllb, tagged = nllb_pair().src, tagged_pair().src
    words = tokenizer_from_words(["<pad>", "<unk>", "<s>", "</s>", "a"])
    (piece,) = tagged.tokens(tagged.encode("a")[-1:])
    for tokenizer, tag, named in (
        (nllb, "fra", "'fra_Arab' or 'fra_Latn'"),
        (nllb, "deu_latin", "'deu_Latn'"),
        (tagged, "deu", "'__de__'"),
        (tagged, "xx", "3, such as '__de__', '__en__', '__fr__'"),
        (tagged, piece, f"'{piece}'"),
        (words, "de", "it has none"),
    ):
        with pytest.raises(TokenizerError, match=named):
            tokenizer.tag_id(tag)
