"""Where sentences end; long texts, split into parts that fit; what stands between translations."""

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_bundle import PAIRS, memorised

from heedful.settings.run import TokenizerConfig
from heedful.text import train_tokenizers
from heedful.text.sentences import Sentence, joint, split_sentences, split_text
from heedful.text.tokenizer import Tokenizer

TEXTS = st.text(alphabet=st.sampled_from("aB .!?。\n\r\t\u2028\u200b'\"(1"), max_size=60) | st.text(
    max_size=40
)


@cache
def words() -> Tokenizer:
    return memorised().tokenizers.src


@cache
def single_bytes() -> Tokenizer:
    settings = TokenizerConfig(vocab_size=290, byte_fallback=True)
    return train_tokenizers(["the dog", "le chat"], ["a", "b"], settings, seed=1).src


def texts(sentences: list[Sentence]) -> list[str]:
    return [each.text for each in sentences if each.text]


@given(TEXTS, st.booleans())
def test_sentences_and_what_is_between_them_are_the_text(text: str, within_lines: bool) -> None:
    found = split_sentences(text, within_lines=within_lines)
    assert "".join(each.space + each.text for each in found) == text
    assert all(each.text == each.text.strip() and not each.space.strip() for each in found)
    assert all(each.text for each in found[:-1])


@pytest.mark.parametrize(
    "sentences",
    [
        ["A dog runs.", "A cat sleeps."],
        ["კატა ხედავს სახლს.", "ძაღლი ყიდულობს წიგნს!", "ბავშვი მიდის?", "„კატა“ აქ არის."],
        ["იხ. სახლი, მაგ. კატა, ე. ი. ძაღლი.", "კატა"],
        ["ΕΙΝΑΙ ΕΔΩ.", "החתול רואה.", "الكلب هنا.", "ᏣᎳᎩ"],
        ["The end. of it."],
        ["The cat sleeps.", "The dog sees it!", "Really?"],
        ["the cat sleeps .", "the dog sees it ?"],
        ['He said: "Stop!"', "She did."],
        ['He said: "The cat."', "The dog sleeps."],
        ["He said ``The cat.''", "``No.''", "The dog sleeps."],
        ["It is good. :)"],
        ["Extras – Optionen… Ansicht.", "Ein Punkt (.) Und dann... Nichts."],
        ["Dr. Smith lives here.", "He is old."],
        ["Mr. Dog sees Dr. Cat.", "The cat sees J. Dog."],
        ["They run AOL.", "It is large."],
        ["It costs 3.50 euros, e.g. here."],
        ["The dog etc. sleeps.", "The cat"],
        ["See item No. 3 of Ch. 4 here.", "Then go on."],
        ["It began on Sept. 11 (p. 7).", "He came."],
        ["a person in section 5; (importateur)"],
        ["Weihnachten ist am 25. Dezember.", "Ja."],
        ["Das Hotel ist im 6. Stock, z. B. Zimmer 61, d.h. oben.", "Es kostet ca. 70 Euro."],
        ["O art. 38 da lei nº. 8.880 vale.", "Veja a pág. 6."],
        ["C’est au Ve siècle av. J.-C. que tout commence.", "Voilà !", "« Bon. »"],
        ["Это дом В. Илюхина.", "Он большой."],
        ["你好。", "我很好！", "你呢？"],
        ["猫が寝る。", "犬が見る！"],
        ["他说「你好。」我走了。", "再见。"],
        ["他问：“谁？”。", "没有人。"],
        ["クラス Ver. 2.0 です。", "はい。"],
        ["क्या हाल है।", "ठीक।"],
        ["كيف حالك؟", "بخير."],
        ["یہ گھر ہے۔", "وہ آیا۔"],
        ["ฉันชอบแมว เธอชอบหมา"],
        ["ខ្ញុំស្រលាញ់ឆ្មា។", "អ្នកស្រលាញ់ឆ្កែ។"],
    ],
)
def test_sentences_are_found(sentences: list[str]) -> None:
    assert texts(split_sentences(" ".join(sentences))) == sentences
    if all(each[-1] in "。！？।؟۔។" for each in sentences[:-1]):  # these scripts need no space
        assert texts(split_sentences("".join(sentences))) == sentences


def test_lines_end_sentences_and_stay_whole_where_that_is_asked_for() -> None:
    assert texts(split_sentences("one line\nanother line")) == ["one line", "another line"]
    assert texts(split_sentences("A dog. A cat.\nA cow.", within_lines=False)) == ["A dog. A cat.", "A cow."]
    assert texts(split_sentences("")) == []


@pytest.mark.parametrize("at_line_ends", [True, False])
def test_what_is_too_long_is_cut_at_a_space_or_anywhere(at_line_ends: bool) -> None:
    text = "word " * 500 + "b" * 2500
    sentences = split_sentences(text, at_line_ends=at_line_ends)
    assert "".join(each.space + each.text for each in sentences) == text
    assert max(len(each.text) for each in sentences) <= 1000
    assert {each.text[-4:] for each in sentences} == {"word", "bbbb"}
    assert [len(each.text) for each in sentences if "b" in each.text] == [1000, 1000, 500]


def test_a_long_sentence_is_split_at_punctuation_into_about_equal_parts() -> None:
    text = "the dog, the cat, the dog, the cat, the dog, the cat"
    limit = len(words().encode("the dog, the cat, the dog, the cat,"))
    assert texts(split_text(text, words(), limit)) == [
        "the dog, the cat, the dog,",
        "the cat, the dog, the cat",
    ]


def test_without_punctuation_spaces_are_the_boundaries_and_without_spaces_tokens() -> None:
    text = "the cat sees the dog " * 9
    for part in split_text(text, words(), 12):
        assert set(part.text.split()) <= set(text.split())
    word = "sleep" * 30
    found = texts(split_text(word, words(), 12))
    assert "".join(found) == word
    ends = {end for _, end in words().spans(word)}
    assert {len("".join(found[: i + 1])) for i in range(len(found))} <= ends


@given(
    st.text(alphabet="ab .,!?。、猫é\t👩\u200d\u0301()\"'", max_size=400)
    | st.lists(st.sampled_from([source for source, _ in PAIRS]), max_size=30).map(" ".join),
    st.integers(8, 60),
)
def test_nothing_is_lost_and_no_part_is_too_long(text: str, limit: int) -> None:
    for tokenizer in (words(), single_bytes(), None):
        found = split_text(text, tokenizer, limit)
        assert "".join(each.space + each.text for each in found) == text
        lengths = map(len, tokenizer.encode_batch(texts(found)) if tokenizer else texts(found))
        assert max(lengths, default=0) <= limit


def test_a_text_that_fits_is_left_whole() -> None:
    text = "The cat sleeps. The dog sees it!"
    assert split_text(text, words(), len(words().encode(text))) == [Sentence("", text)]
    assert len(split_text(text, words(), len(words().encode(text)) - 1)) == 2


@pytest.mark.parametrize(
    ("space", "source", "before", "after", "between"),
    [
        (" ", "Hello.", "Hallo.", "Danke.", " "),
        (" ", "Hello.", "你好。", "谢谢。", ""),
        (" ", "Hello.", "使用 Windows", "谢谢。", ""),
        (" ", "Hello.", "Hallo.", "猫 heißt Katze.", " "),
        (" ", "Hello.", "สวัสดี", "ขอบคุณ", " "),
        ("", "你好。", "Hello.", "Thanks.", " "),
        ("", "你好。", "こんにちは。", "はい。", ""),
        ("", "है।", "It is.", "No.", " "),
        ("", "sleep", "schlaf", "schlaf", ""),
        ("\n", "Hello.", "你好。", "谢谢。", "\n"),
        ("  ", "Hello.", "你好。", "谢谢。", "  "),
    ],
)
def test_translations_are_joined_as_their_script_does(
    space: str, source: str, before: str, after: str, between: str
) -> None:
    assert joint(space, source, before, after) == between


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("the cat, sees it. the dog, sees it.", 20, ["the cat, sees it.", "the dog, sees it."]),
        ("a b. c d. e f. g h.", 10, ["a b. c d.", "e f. g h."]),
        ("we saw it, e.g. in the old town.", 25, ["we saw it,", "e.g. in the old town."]),
        ("we saw dr. smith, and went.", 20, ["we saw dr. smith,", "and went."]),
        ("the cat, the dog... and a bird.", 22, ["the cat,", "the dog... and a bird."]),
    ],
)
def test_a_long_text_in_small_letters_is_split_at_its_full_stops_first(
    text: str, limit: int, expected: list[str]
) -> None:
    assert texts(split_text(text, None, limit)) == expected
