from pathlib import Path

import pytest
from small_tokenizers import marian_pair, nllb_pair, tagged_pair

from heedful.errors import TokenizerError
from heedful.text.vocabulary_tokenizer import tokenizer_from_words


def refusal(tokenizer: object, tag: str) -> str:
    with pytest.raises(TokenizerError) as error:
        tokenizer.tag_id(tag)  # type: ignore[attr-defined]
    return str(error.value)


def test_a_tag_is_found_as_models_write_it_and_bare(tmp_path: Path) -> None:
    assert nllb_pair().src.tokens([nllb_pair().src.tag_id("deu_Latn")]) == ["deu_Latn"]
    tagged, marian = tagged_pair().src, marian_pair(tmp_path).src
    assert tagged.tag_id("de") == tagged.tag_id("__de__")
    assert marian.tag_id("deu") == marian.tag_id(">>deu<<")
    assert marian.tokens([marian.tag_id("deu")]) == [">>deu<<"]


def test_the_begin_of_a_sentence_may_serve_as_a_tag() -> None:
    assert nllb_pair().src.tag_id("<s>") == 0


def test_an_ordinary_piece_is_no_tag() -> None:
    tagged = tagged_pair().src
    (piece,) = tagged.tokens(tagged.encode("a")[-1:])
    assert "is not a tag of this model" in refusal(tagged, piece)


def test_an_unknown_tag_names_close_ones() -> None:
    assert refusal(nllb_pair().src, "fra") == (
        "'fra' is not a tag of this model; did you mean 'fra_Arab' or 'fra_Latn'?"
    )
    assert "did you mean 'deu_Latn' or" in refusal(nllb_pair().src, "deu_latin")
    assert "did you mean '__de__'?" in refusal(tagged_pair().src, "deu")
    assert "there are 3, such as '__de__', '__en__', '__fr__'" in refusal(tagged_pair().src, "xx")
    words = tokenizer_from_words(["<pad>", "<unk>", "<s>", "</s>", "a"])
    assert refusal(words, "de") == "'de' is not a tag of this model; it has none"
