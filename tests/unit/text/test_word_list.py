import pytest

from heedful.errors import TokenizerError
from heedful.text.vocabulary_tokenizer import tokenizer_from_words

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
    again = type(tokenizer).from_bytes(tokenizer.to_bytes())
    assert again.encode_batch(["wörd7", "x"]) == [[11], [1]]


def test_a_list_without_a_token_for_unknown_words_gets_one_at_its_end() -> None:
    tokenizer = tokenizer_from_words(["<pad>", "<sos>", "<eos>", "a", "b"])
    assert (tokenizer.vocab_size, tokenizer.unk_id) == (6, 5)
    assert tokenizer.encode("b c a") == [4, 5, 3]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["<pad>", "<s>", "a"], "there is no token such as '</s>'"),
        (["<unk>", "<s>", "</s>", "a"], "there is no token such as '<pad>'"),
        ([*WORDS, "cat"], "'cat', of id 7, is repeated"),
        ([*WORDS, "two words"], "'two words', of id 7, is empty or contains a space"),
        ([*WORDS, ""], "'', of id 7, is empty or contains a space"),
    ],
)
def test_lists_that_cannot_be_are_one_line(words: list[str], message: str) -> None:
    with pytest.raises(TokenizerError) as caught:
        tokenizer_from_words(words, name="v.txt")
    assert str(caught.value).startswith("v.txt: ")
    assert message in str(caught.value)
