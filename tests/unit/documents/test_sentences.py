import pytest
from hypothesis import given
from hypothesis import strategies as st

from heedful.documents.segments import split_long_sentence, split_sentences

TEXTS = st.text(alphabet=st.sampled_from("aB .!?。\n\r\t\u2028\u200b'\"(1"), max_size=60) | st.text(
    max_size=40
)


@given(TEXTS, st.booleans())
def test_sentences_and_what_is_between_them_are_the_text(text: str, within_lines: bool) -> None:
    found = split_sentences(text, within_lines=within_lines)
    assert "".join(each.space + each.text for each in found) == text
    assert all(each.text == each.text.strip() and not each.space.strip() for each in found)
    assert all(each.text for each in found[:-1])


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("A dog runs. A cat sleeps.", ["A dog runs.", "A cat sleeps."]),
        ("Dr. Smith lives here. He is old.", ["Dr. Smith lives here.", "He is old."]),
        ("It costs 3.50 euros, e.g. here.", ["It costs 3.50 euros, e.g. here."]),
        ("one line\nanother line", ["one line", "another line"]),
        ("你好。我很好！你呢？", ["你好。", "我很好！", "你呢？"]),
        ("他说「你好。」我走了。", ["他说「你好。」我走了。"]),
        ("क्या हाल है। ठीक।", ["क्या हाल है।", "ठीक।"]),
        ("Weihnachten ist am 25. Dezember. Ja.", ["Weihnachten ist am 25. Dezember.", "Ja."]),
        ("See item No. 3 of Ch. 4 here. Then go on.", ["See item No. 3 of Ch. 4 here.", "Then go on."]),
        ("a person in section 5; (importateur)", ["a person in section 5; (importateur)"]),
        ('He said: "Stop!" She did.', ['He said: "Stop!"', "She did."]),
        ("", []),
    ],
)
def test_sentences_are_found(text: str, sentences: list[str]) -> None:
    assert [each.text for each in split_sentences(text) if each.text] == sentences


def test_lines_stay_whole_where_that_is_asked_for() -> None:
    found = split_sentences("A dog. A cat.\nA cow.", within_lines=False)
    assert [each.text for each in found] == ["A dog. A cat.", "A cow."]


@pytest.mark.parametrize("at_line_ends", [True, False])
def test_what_is_too_long_is_cut_at_a_blank_or_anywhere(at_line_ends: bool) -> None:
    text = "word " * 500 + "b" * 2500
    sentences = split_sentences(text, at_line_ends=at_line_ends)
    assert "".join(each.space + each.text for each in sentences) == text
    assert max(len(each.text) for each in sentences) <= 1000
    assert {each.text[-4:] for each in sentences} == {"word", "bbbb"}
    assert [len(each.text) for each in sentences if "b" in each.text] == [999, 1000, 501]


@pytest.mark.parametrize("text", ["a dog sees a cat", "c" * 4999, "x " * 300, "漢字" * 400, "a " + " " * 90])
def test_a_sentence_of_too_many_tokens_is_split_at_blanks_and_nothing_is_lost(text: str) -> None:
    parts = split_long_sentence(text, len, 10)
    assert "".join(each.space + each.text for each in parts) == text
    assert all(len(each.text) <= 10 for each in parts)
    if " " in text.strip():
        assert all(each.space for each in parts[1:])
    assert split_long_sentence(text, lambda _: 10, 10) == split_long_sentence(text, len, len(text))
