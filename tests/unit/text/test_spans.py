"""Where in a text each piece comes from, and how texts for unknown pieces are put in."""

from pathlib import Path

import pytest
from small_tokenizers import marian_pair, nllb_pair, phrases, tagged_pair

from heedful.errors import InputError
from heedful.settings.run import TokenizerConfig
from heedful.text import SentencePieceTokenizer, Tokenizer, train_tokenizers
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

WORDS = tokenizer_from_words(["<unk>", "<s>", "</s>", "<pad>", "the", "cat", "sleeps"])


def trained(kind: str) -> Tokenizer:
    lines = phrases()[0]
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": 60, "byte_fallback": False})
    return train_tokenizers(lines, lines, config, seed=1).src


def parts(tokenizer: Tokenizer, text: str) -> list[str]:
    return [text[start:end] for start, end in tokenizer.spans(text)]


def test_a_word_has_the_spaces_before_it_known_or_not() -> None:
    text = "the  日本 cat schläft"
    assert parts(WORDS, text) == ["the", "  日本", " cat", " schläft"]
    assert len(WORDS.encode(text)) == 4


def test_normalised_text_is_found_where_it_stood() -> None:
    tokenizer = trained("char")
    text = "the ｃat ½ 日本"
    assert "".join(parts(tokenizer, text)) == text
    ids = tokenizer.encode(text)
    places = [place for place, i in enumerate(ids) if i == tokenizer.unk_id]
    assert [parts(tokenizer, text)[place] for place in places][-1] == "日本"
    assert parts(tokenizer, text)[tokenizer.tokens(ids).index("c")] == "ｃ"


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_every_id_of_a_text_has_a_span(kind: str) -> None:
    tokenizer = trained(kind)
    for text in (*phrases()[0][:20], "日本 the 日本", " ☃ cat.", ""):
        spans = tokenizer.spans(text)
        assert len(spans) == len(tokenizer.encode(text))
        assert "".join(text[start:end] for start, end in spans).split() == text.split()


def test_so_it_has_in_tokenizers_of_other_libraries(tmp_path: Path) -> None:
    marian, m2m100, nllb = marian_pair(tmp_path).src, tagged_pair().src, nllb_pair().src
    for tokenizer, text in (
        (marian, ">>deu<< the house ☃"),
        (marian, ">>xyz<<the house"),
        (m2m100, "the house</s>the __de__ cat ☃☃"),
        (nllb, "the housefra_Latn ☃ cat"),
    ):
        assert len(tokenizer.spans(text)) == len(tokenizer.encode(text))
        assert "".join(parts(tokenizer, text)).replace(" ", "") == text.replace(" ", "")
    assert parts(marian, ">>deu<< the")[0] == ">>deu<<"
    assert [part for part in parts(m2m100, "the cat__de__ ☃") if "☃" in part or "d" in part] == [
        "__de__",
        "☃",
    ]


def test_texts_for_unknown_pieces_stand_where_these_were(tmp_path: Path) -> None:
    the, cat = WORDS.encode("the cat")
    ids = [0, the, 0, cat, 0, WORDS.eos_id]
    assert WORDS.decode(ids) == "⁇ the ⁇ cat ⁇"
    assert WORDS.decode(ids, unknown=[" Ærø", " big", " !"]) == "Ærø the big cat !"
    chars = trained("char")
    assert chars.decode(chars.encode("the c☃t"), unknown=["a"]) == "the cat"
    for tokenizer in (marian_pair(tmp_path).tgt, tagged_pair().tgt, nllb_pair().tgt):
        ids = [*tokenizer.encode("das"), tokenizer.unk_id, tokenizer.eos_id, *tokenizer.encode("Haus")]
        assert tokenizer.decode(ids, unknown=[" ☃"]).replace("  ", " ") == "das ☃ Haus"
        assert "☃" not in tokenizer.decode(ids)


def test_half_a_surrogate_pair_is_one_line(tmp_path: Path) -> None:
    tokenizers: list[Tokenizer] = [WORDS, marian_pair(tmp_path).src, nllb_pair().src]
    for tokenizer in tokenizers:
        with pytest.raises(InputError, match="half of a surrogate pair"):
            tokenizer.spans("cat \udcff")
    assert isinstance(WORDS, SentencePieceTokenizer)
