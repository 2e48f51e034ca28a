"""What a model can write of its training text."""

import gzip
import random
from pathlib import Path

import pytest

from heedful.settings.run import TokenizerConfig
from heedful.text import SegmentationSampler, train_tokenizers
from heedful.text.round_trip import RoundTrip, nmt_nfkc

LINES = [
    "auf 10 m², 10⁵ Mal",
    "今天，天气（很）好：ＡＢＣ",
    "گربه می\u200cبیند",  # a joiner within a Persian verb
    "ភាសា\u200bខ្មែរ",  # a space of no width between Khmer words
    "Prix\u00a0: 5\u202f€ « ici »",
    "rows and rows of \u3000 and\ttabs",
    "the <unk> of <s> and </s>, as in PTB",
]
SIZES = {"char": 200, "bpe": 140, "unigram": 80, "word": 200}


def config(kind: str, **options: object) -> TokenizerConfig:
    return TokenizerConfig.model_validate({"kind": kind, "vocab_size": SIZES.get(kind, 384), **options})


@pytest.mark.parametrize("joint", [True, False])
@pytest.mark.parametrize("kind", SIZES)
def test_what_the_training_text_has_can_be_written(kind: str, joint: bool) -> None:
    tokenizer = train_tokenizers(LINES * 3, LINES * 3, config(kind, joint=joint), seed=1).tgt
    assert [tokenizer.decode(ids) for ids in tokenizer.encode_batch(LINES)] == LINES
    assert RoundTrip.of(LINES, tokenizer) == RoundTrip(len(LINES), 0, ())


@pytest.mark.parametrize("kind", ["char", "bpe", "unigram"])
def test_a_line_with_sentencepieces_own_sign_is_learned(kind: str) -> None:
    lines = ["load ▁▂▃▄▅▆▇█ Qoz", "load of the day"]
    tokenizer = train_tokenizers(
        lines * 3, lines * 3, config(kind, vocab_size=24 if kind == "unigram" else 34), seed=1
    ).tgt
    assert tokenizer.decode(tokenizer.encode("Qoz ▅ ▄▅▆")) == "Qoz ▅ ▄▅▆"


@pytest.mark.parametrize("kind", [*SIZES, "byte"])
def test_runs_of_spaces_are_kept_if_so_set(kind: str) -> None:
    lines = ["    for i in  x:", "  return  ", "for i in x:"]
    size = {"bpe": 24, "unigram": 16}.get(kind, 300)
    tokenizer = train_tokenizers(
        lines * 3, lines * 3, config(kind, vocab_size=size, keep_spaces=True), seed=1
    ).tgt
    assert [tokenizer.decode(tokenizer.encode(line)) for line in lines] == lines
    if kind in ("bpe", "unigram"):  # in training, too
        sample, rng = SegmentationSampler(tokenizer, 0.3), random.Random(1)
        assert [tokenizer.decode(sample(line, rng)) for line in lines] == lines


def test_the_lines_that_a_setting_rewrites_are_counted_with_their_characters() -> None:
    lines = ["ten m²", "ten m² and 5²", "a，b", "plain", "two  spaces "]
    tokenizer = train_tokenizers(lines, lines, config("char", normalization="nmt_nfkc"), seed=1).tgt
    found = RoundTrip.of(lines, tokenizer)
    assert found == RoundTrip(5, 3, ("²", "，"))
    assert found == RoundTrip.between((line, nmt_nfkc(line)) for line in lines)
    assert "60.00%" in str(found)


def test_a_character_that_cannot_be_seen_is_shown_by_its_number() -> None:
    assert "U+200C" in str(RoundTrip.between([("می\u200cبیند", "می بیند")]))


@pytest.mark.parametrize("language", ["de", "pt", "ja", "zh"])
def test_real_text_can_be_written(real_data: Path, language: str) -> None:
    texts = []
    for name in ("en", language):
        with gzip.open(
            real_data / f"libreoffice-help-en-{language}" / f"valid.{name}.gz", "rt", encoding="utf-8"
        ) as file:
            texts.append(file.read().split("\n")[:-1])
    settings = TokenizerConfig(vocab_size=3000)
    tokenizer = train_tokenizers(*texts, settings, seed=1).tgt
    assert RoundTrip.of(texts[1], tokenizer).num_changed == 0
    assert RoundTrip.between((line, nmt_nfkc(line)) for line in texts[1]).num_changed > 0
