"""Texts that are too long: split at the best boundaries, with nothing lost, into segments that fit."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_bundle import PAIRS, memorised

from heedful.decoding.texts import split_text
from heedful.decoding.translator import Translator
from heedful.settings.run import TokenizerConfig
from heedful.text import train_tokenizers
from heedful.text.tokenizer import Tokenizer


@cache
def words() -> Tokenizer:
    return memorised().tokenizers.src


@cache
def single_bytes() -> Tokenizer:
    settings = TokenizerConfig(vocab_size=290, byte_fallback=True)
    return train_tokenizers(["the dog", "le chat"], ["a", "b"], settings, seed=1).src


def segments(text: str, limit: int, tokenizer: Tokenizer | None = None) -> list[str]:
    return split_text(text, tokenizer or words(), limit)[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The cat sleeps. The dog sees it! Really?", ["The cat sleeps.", "The dog sees it!", "Really?"]),
        ("the cat sleeps . the dog sees it ?", ["the cat sleeps .", "the dog sees it ?"]),
        ('He said: "The cat." The dog sleeps.', ['He said: "The cat."', "The dog sleeps."]),
        ("Mr. Dog sees Dr. Cat. The cat sees J. Dog.", ["Mr. Dog sees Dr. Cat.", "The cat sees J. Dog."]),
        ("The dog etc. sleeps. The cat", ["The dog etc. sleeps.", "The cat"]),
        ("猫が寝る。犬が見る！「本当？」はい。", ["猫が寝る。", "犬が見る！", "「本当？」", "はい。"]),
    ],
)
def test_sentences_are_split_at_their_ends(text: str, expected: list[str]) -> None:
    limit = max(len(ids) for ids in single_bytes().encode_batch(expected))
    assert segments(text, limit, single_bytes()) == expected


def test_a_long_sentence_is_split_at_punctuation_into_about_equal_segments() -> None:
    text = "the dog, the cat, the dog, the cat, the dog, the cat"
    limit = len(words().encode("the dog, the cat, the dog, the cat,"))
    assert segments(text, limit) == ["the dog, the cat, the dog,", "the cat, the dog, the cat"]


def test_without_punctuation_spaces_are_the_boundaries_and_without_spaces_tokens() -> None:
    text = "the cat sees the dog " * 9
    for segment in segments(text, 12):
        assert set(segment.split()) <= set(text.split())
    word = "sleep" * 30
    found = segments(word, 12)
    assert "".join(found) == word
    ends = {end for _, end in words().spans(word)}
    assert {len("".join(found[: i + 1])) for i in range(len(found))} <= ends


@given(
    st.text(alphabet="ab .,!?。、猫é\t👩\u200d\u0301()\"'", max_size=400)
    | st.lists(st.sampled_from([source for source, _ in PAIRS]), max_size=30).map(" ".join),
    st.integers(8, 60),
)
def test_nothing_is_lost_and_no_segment_is_too_long(text: str, limit: int) -> None:
    for tokenizer in (words(), single_bytes()):
        found, gaps = split_text(text, tokenizer, limit)
        assert len(found) == len(gaps)
        assert set(gaps) <= {"", " "}
        joined = "".join(gap + segment for gap, segment in zip(gaps, found, strict=True))
        assert joined.split() == text.split()
        assert all(len(ids) <= limit for ids in tokenizer.encode_batch(found))


def test_a_text_without_tokens_has_no_translation_however_long_it_is() -> None:
    [translation] = Translator(memorised()).translations([" " * 5000])
    assert (translation.text, translation.hypotheses) == ("", ())
