from pathlib import Path

import pytest
from small_tokenizers import marian_pair, nllb_pair, tagged_pair

from heedful.errors import TokenizerError
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, LanguageConfig
from heedful.text import SpecialTokens


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


def test_nllb_reads_one_tag_first_and_writes_the_other_first() -> None:
    pair = nllb_pair()
    template = SpecialTokens.of(config(src_tag="eng_Latn", tgt_tag="deu_Latn", start_id=2), pair)
    english, german = pair.src.tag_id("eng_Latn"), pair.tgt.tag_id("deu_Latn")
    assert template.source([7, 8]) == [english, 7, 8, 2]
    assert template.target([7, 8]) == [german, 7, 8, 2]
    assert template.start_id == 2


def test_the_tag_after_the_end_is_mbarts() -> None:
    pair = tagged_pair()
    german = pair.tgt.tag_id("de")
    template = SpecialTokens.of(config(src_tag="en", src_tag_position="last", start_id=german), pair)
    assert template.source([7]) == [7, 2, pair.src.tag_id("en")]
    assert template.target([7]) == [7, 2]
    assert template.start_id == german


def test_marian_reads_the_tag_of_the_target_language(tmp_path: Path) -> None:
    pair = marian_pair(tmp_path)
    template = SpecialTokens.of(config(src_tag=">>deu<<"), pair)
    text = pair.src.encode("the house")
    assert template.source(text) == [*pair.src.encode(">>deu<<the house"), pair.src.eos_id]


def test_a_decoder_may_start_with_the_piece_of_id_0() -> None:
    assert SpecialTokens.of(config(start_id=0), tagged_pair()).start_id == 0


def test_an_unknown_tag_is_refused() -> None:
    with pytest.raises(
        TokenizerError, match=r"^languages\.src_tag: 'deu' is not a tag of this model; did you mean '__de__'"
    ):
        SpecialTokens.of(config(src_tag="deu"), tagged_pair())
