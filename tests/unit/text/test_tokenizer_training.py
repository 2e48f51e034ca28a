import re
from pathlib import Path

import pytest

from heedful.errors import TokenizerError
from heedful.settings.run import TokenizerConfig
from heedful.text import train_tokenizers, training

ENGLISH = ["the cat sat on the mat", "a dog ate my homework"] * 3
GERMAN = ["die Katze saß auf der Matte", "ein Hund fraß meine Hausaufgaben"] * 3


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_training_is_deterministic(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": 34})
    first, second = (train_tokenizers(ENGLISH, GERMAN, config, seed=1) for _ in range(2))
    assert first.src.model == second.src.model


def test_joint_is_one_tokenizer_and_separate_knows_only_its_side() -> None:
    config = TokenizerConfig(kind="char")
    joint = train_tokenizers(ENGLISH, GERMAN, config, seed=1)
    apart = train_tokenizers(ENGLISH, GERMAN, config.replace(joint=False), seed=1)
    assert joint.src is joint.tgt
    assert joint.src.unk_id not in joint.src.encode("ß")
    assert apart.src.unk_id in apart.src.encode("ß")
    assert apart.tgt.unk_id not in apart.tgt.encode("ß")


def test_bytes_need_no_training_and_are_the_same_for_any_text() -> None:
    config = TokenizerConfig(kind="byte", vocab_size=1)
    joint = train_tokenizers(ENGLISH, GERMAN, config, seed=1)
    apart = train_tokenizers([], [], config.replace(joint=False), seed=2)
    assert (joint.joint, apart.joint) == (True, False)
    assert joint.src.encode("Aß") == apart.tgt.encode("Aß") == [68, 0xC3 + 3, 0x9F + 3]


def test_training_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    train_tokenizers(ENGLISH, GERMAN, TokenizerConfig(vocab_size=40), seed=1)
    with pytest.raises(TokenizerError):
        train_tokenizers(ENGLISH, GERMAN, TokenizerConfig(vocab_size=5000), seed=1)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
@pytest.mark.parametrize("joint", [True, False])
def test_a_vocabulary_beyond_the_text_names_the_largest_and_that_one_trains(kind: str, joint: bool) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": 8000, "joint": joint})
    with pytest.raises(
        TokenizerError, match=r"tokenizer\.vocab_size=8000 .*largest possible is \d+"
    ) as caught:
        train_tokenizers(ENGLISH, GERMAN, config, seed=1)
    found = re.search(r"largest possible is (\d+)", str(caught.value))
    assert found is not None
    largest = int(found[1])
    tokenizers = train_tokenizers(ENGLISH, GERMAN, config.replace(vocab_size=largest), seed=1)
    assert max(tokenizers.src.vocab_size, tokenizers.tgt.vocab_size) == largest
    with pytest.raises(TokenizerError):
        train_tokenizers(ENGLISH, GERMAN, config.replace(vocab_size=largest + 1), seed=1)


@pytest.mark.parametrize("joint", [True, False])
def test_a_small_text_gets_the_largest_vocabulary_if_no_size_is_set(joint: bool) -> None:
    lines: list[str] = []
    config = TokenizerConfig(joint=joint)
    tokenizers = train_tokenizers(ENGLISH, GERMAN, config, seed=1, notify=lines.append)
    largest = tokenizers.src.vocab_size
    assert [f"{largest:,}" in line for line in lines] == [True]
    asked = train_tokenizers(ENGLISH, GERMAN, config.replace(vocab_size=largest), seed=1)
    assert asked.src.to_files() == tokenizers.src.to_files()
    with pytest.raises(TokenizerError):
        train_tokenizers(ENGLISH, GERMAN, config.replace(vocab_size=largest + 1), seed=1)


@pytest.mark.parametrize("kind", ["char", "word"])
def test_for_characters_and_words_the_size_is_an_upper_limit(kind: str) -> None:
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": 8000})
    all_there_is = train_tokenizers(ENGLISH, GERMAN, config, seed=1).src.vocab_size
    assert all_there_is < 100
    fewer = train_tokenizers(ENGLISH, GERMAN, config.replace(vocab_size=10), seed=1)
    assert fewer.src.vocab_size == 10


@pytest.mark.parametrize("size", [1, 4, 5, 10])
def test_a_vocabulary_too_small_for_the_characters_names_the_smallest(size: int) -> None:
    config = TokenizerConfig(vocab_size=size)
    with pytest.raises(TokenizerError, match=rf"tokenizer\.vocab_size={size} .*smallest possible is \d+"):
        train_tokenizers(ENGLISH, GERMAN, config, seed=1)


@pytest.mark.parametrize("lines", [[], ["", "  "]])
def test_empty_text_is_refused(lines: list[str]) -> None:
    with pytest.raises(TokenizerError, match="the source and target training text is empty"):
        train_tokenizers(lines, lines, TokenizerConfig(), seed=1)


def test_a_very_long_line_is_not_skipped() -> None:
    long = " ".join(["zebra"] * 20_000)
    tokenizer = train_tokenizers(ENGLISH, [long], TokenizerConfig(vocab_size=40), seed=1).src
    assert tokenizer.unk_id not in tokenizer.encode("zebra")


def test_much_text_is_sampled_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training, "MAX_LINES", 4)
    lines = [f"line {'abcdefghij'[i]}" for i in range(10)]
    config = TokenizerConfig(kind="char")
    models = [train_tokenizers(lines, lines, config, seed=seed).src for seed in (1, 1, 2, 3)]
    assert models[0].model == models[1].model
    assert len({model.model for model in models}) > 1
    letters = [set(model.token_scores()) & set("abcdfghj") for model in models]
    assert all(len(found) <= 4 for found in letters)


def test_the_training_text_alone_makes_the_vocabulary(real_data: Path) -> None:
    lines = (real_data / "multi30k" / "train.en").read_text(encoding="utf-8").splitlines()[:500]
    tokenizer = train_tokenizers(lines, lines, TokenizerConfig(vocab_size=500), seed=1).src
    assert tokenizer.vocab_size == 500
    assert [tokenizer.decode(tokenizer.encode(line)) for line in lines] == [
        " ".join(x.split()) for x in lines
    ]


@pytest.mark.parametrize("word", ["x" * 20_000, "漢字文" * 9_000])
def test_a_word_of_a_book_is_unknown(word: str) -> None:
    config = TokenizerConfig(kind="word", vocab_size=60)
    tokenizer = train_tokenizers(["the cat sleeps", f"the {word} cat"], ["die Katze"] * 2, config, seed=1).src
    ids = tokenizer.encode(f"the {word} cat")
    assert [ids[0], ids[2]] == tokenizer.encode("the cat")
    assert (len(ids), ids[1]) == (3, tokenizer.unk_id)
