import json
from pathlib import Path

import pytest
from small_tokenizers import FAIRSEQ_IDS, m2m100_model, marian_pair, phrases, tagged_pair

from heedful.errors import TokenizerError
from heedful.text import SpecialIds, TokenizerPair, VocabularyTokenizer
from heedful.text.vocabulary_tokenizer import tokenizer_from_words


def test_ids_are_places_in_the_list_not_those_of_the_model() -> None:
    model, pieces = m2m100_model()
    tokenizer = VocabularyTokenizer(model, pieces, FAIRSEQ_IDS)
    moved = VocabularyTokenizer(model, [*pieces[:4], "<new>", *pieces[4:]], FAIRSEQ_IDS)
    line = phrases()[0][0]
    assert [i + 1 for i in tokenizer.encode(line)] == moved.encode(line)
    assert "".join(tokenizer.tokens(tokenizer.encode(line))) == "▁" + line.replace(" ", "▁")
    assert tokenizer.vocab_size == len(pieces)
    assert tokenizer.kind == "bpe"


def test_decoding_returns_the_text_without_special_tokens() -> None:
    tokenizer = tagged_pair().src
    for line in phrases()[0]:
        ids = [tokenizer.eos_id, tokenizer.tag_id("de"), *tokenizer.encode(line), tokenizer.eos_id, 1, 1]
        assert tokenizer.decode(ids) == line
    assert tokenizer.decode([]) == ""


def test_underscores_become_spaces_where_they_are_to() -> None:
    model, pieces = m2m100_model()
    tokens = [*pieces, "▁a_b"]
    for is_space, text in ((True, "a b"), (False, "a_b")):
        tokenizer = VocabularyTokenizer(model, tokens, FAIRSEQ_IDS, underscores=is_space)
        again = VocabularyTokenizer.from_files(tokenizer.to_files())
        assert [each.decode([len(pieces)]) for each in (tokenizer, again)] == [text, text]


def test_what_the_list_does_not_have_is_unknown(tmp_path: Path) -> None:
    model, pieces = m2m100_model()
    ids = VocabularyTokenizer(model, pieces, FAIRSEQ_IDS).encode("the cat")
    missing = pieces[ids[0]]
    tokenizer = VocabularyTokenizer(model, [piece for piece in pieces if piece != missing], FAIRSEQ_IDS)
    assert tokenizer.encode("the cat")[0] == tokenizer.unk_id
    assert tokenizer.encode("☃")[-1] == tokenizer.unk_id
    assert marian_pair(tmp_path).src.encode(">>xyz<<") == [1]


def test_a_tag_at_the_start_is_one_piece_where_the_model_is_marians(tmp_path: Path) -> None:
    marian = marian_pair(tmp_path).src
    tagged = marian.encode(">>deu<< the house")
    assert tagged == [marian.tag_id("deu"), *marian.encode(" the house")]
    assert marian.tag_id("deu") not in marian.encode("the >>deu<< house")
    assert len(tagged_pair().src.encode(">>en<< the house")) > len(tagged)


def test_special_tokens_are_matched_in_a_text_the_longest_first() -> None:
    model, pieces = m2m100_model()
    tokenizer = VocabularyTokenizer(model, [*pieces, "<a>", "<a><b>"], FAIRSEQ_IDS, special=["<a>", "<a><b>"])
    first, both = len(pieces), len(pieces) + 1
    the = tokenizer.encode("the")
    assert tokenizer.encode("the<a>the<a><b></s>") == [*the, first, *the, both, tokenizer.eos_id]


def test_ids_beyond_the_list_vanish_and_have_a_name() -> None:
    tokenizer = tagged_pair().src
    assert tokenizer.decode([*tokenizer.encode("the cat"), 9999]) == "the cat"
    assert tokenizer.tokens([9999]) == ["<9999>"]


def test_fingerprints_differ_when_any_setting_does() -> None:
    model, pieces = m2m100_model()

    def fingerprint(tokenizer: VocabularyTokenizer) -> str:
        return TokenizerPair(tokenizer, tokenizer).fingerprint()

    swapped = [*pieces[:-2], pieces[-1], pieces[-2]]
    other_ids = SpecialIds(bos=2, pad=1, eos=2, unk=3)
    tokenizers = [
        VocabularyTokenizer(model, pieces, FAIRSEQ_IDS),
        VocabularyTokenizer(model, swapped, FAIRSEQ_IDS),
        VocabularyTokenizer(model, pieces, other_ids),
        VocabularyTokenizer(model, pieces, FAIRSEQ_IDS, special=[pieces[9]]),
        VocabularyTokenizer(model, pieces, FAIRSEQ_IDS, leading_tags=True),
        VocabularyTokenizer(model, pieces, FAIRSEQ_IDS, clean_up_spaces=True),
        VocabularyTokenizer(marian_like_model(), pieces, FAIRSEQ_IDS),
    ]
    assert len({fingerprint(tokenizer) for tokenizer in tokenizers}) == len(tokenizers)


def marian_like_model() -> bytes:
    from small_tokenizers import sentencepiece_model

    return sentencepiece_model(phrases()[0], "unigram", 150)


@pytest.mark.parametrize(
    ("more", "ids", "special", "named"),
    [
        (["<pad>"], FAIRSEQ_IDS, [], "'<pad>'"),
        ([], SpecialIds(pad=0, unk=1, bos=2, eos=999), [], r"eos has id 999.* 2\d\d"),
        ([], FAIRSEQ_IDS, ["__xx__"], "'__xx__'"),
    ],
    ids=["repeated", "an id without a token", "a special token that is none"],
)
def test_lists_that_cannot_be_are_named(
    more: list[str], ids: SpecialIds, special: list[str], named: str
) -> None:
    model, pieces = m2m100_model()
    with pytest.raises(TokenizerError, match=named):
        VocabularyTokenizer(model, [*pieces, *more], ids, special=special)
    with pytest.raises(TokenizerError, match=r"source\.spm"):
        VocabularyTokenizer(b"abc", pieces, FAIRSEQ_IDS, name="source")


@pytest.mark.parametrize(
    "damage", [b"", b"[]", b"{}", b"\xff", json.dumps({"pieces": 3, "ids": {}}).encode()]
)
def test_a_damaged_list_is_named(tmp_path: Path, damage: bytes) -> None:
    tagged_pair().save(tmp_path)
    (tmp_path / "tokenizer.pieces.json").write_bytes(damage)
    with pytest.raises(TokenizerError, match=r"tokenizer\.pieces\.json"):
        TokenizerPair.load(tmp_path)
    (tmp_path / "tokenizer.pieces.json").unlink()
    with pytest.raises(TokenizerError, match=r"tokenizer\.pieces\.json"):
        TokenizerPair.load(tmp_path)


WORDS = ["[SOS]", "the", "[UNK]", "cat", "[PAD]", "Katze", "[EOS]"]


def test_ids_are_places_in_the_list_and_specials_are_found_by_their_names() -> None:
    tokenizer = tokenizer_from_words(WORDS)
    assert tokenizer.vocab_size == 7
    specials = (tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id)
    assert specials == (4, 2, 0, 6)
    assert tokenizer.kind == "word"
    assert tokenizer.encode("the  cat Katze Cat") == [1, 3, 5, 2]
    assert tokenizer.decode([0, 1, 3, 6, 4]) == "the cat"
    assert tokenizer.decode([1, 2, 3]) == "the ⁇ cat"


def test_a_large_list_keeps_its_order_and_survives_its_bytes() -> None:
    words = ["<blank>", "<unk>", "<bos>", "<eos>", *(f"wörd{i}" for i in range(3000))]
    tokenizer = tokenizer_from_words(words)
    assert tokenizer.encode("wörd0 wörd2999") == [4, 3003]
    again = type(tokenizer)(tokenizer.model)
    assert again.encode_batch(["wörd7", "x"]) == [[11], [1]]


def test_a_list_without_a_token_for_unknown_words_gets_one_at_its_end() -> None:
    tokenizer = tokenizer_from_words(["<pad>", "<sos>", "<eos>", "a", "b"])
    assert (tokenizer.vocab_size, tokenizer.unk_id) == (6, 5)
    assert tokenizer.encode("b c a") == [4, 5, 3]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["<pad>", "<s>", "a"], "'</s>'"),
        (["<unk>", "<s>", "</s>", "a"], "'<pad>'"),
        ([*WORDS, "cat"], "'cat', of id 7"),
        ([*WORDS, "two words"], "'two words', of id 7"),
        ([*WORDS, ""], "'', of id 7"),
    ],
)
def test_words_that_cannot_be_are_named(words: list[str], named: str) -> None:
    with pytest.raises(TokenizerError, match=rf"^v\.txt: .*{named}"):
        tokenizer_from_words(words, name="v.txt")
