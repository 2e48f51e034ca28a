import math
import random
from collections import Counter
from pathlib import Path

import pytest

from heedful.settings.run import TokenizerConfig
from heedful.text import SegmentationSampler, SentencePieceTokenizer, train_tokenizers

LINES = ["the cat sat on the mat", "a dog ate my homework", "my cat ate the mat that the dog sat on"] * 3
ODD = [
    "",
    "  a   cat ",
    "☃ cat ☃☃dog",
    "▁▁the▁cat▁",
    "日本 cat",
    "a" * 200,
    "x\u200bcat",
    "\tthe\tcat",
    "ﬁ ½ …",
]


def train(kind: str, **options: object) -> SentencePieceTokenizer:
    size = {"bpe": 60, "unigram": 26}.get(kind, 100)
    config = TokenizerConfig.model_validate({"kind": kind, "vocab_size": size, **options})
    return train_tokenizers(LINES, [], config, seed=1).src


@pytest.mark.parametrize("kind", ["bpe", "unigram", "char", "word"])
def test_rate_0_is_the_tokenizers_own_segmentation(kind: str) -> None:
    tokenizer = train(kind)
    sampler = SegmentationSampler(tokenizer, 0.0)
    rng = random.Random(1)
    for line in LINES + ODD:
        assert sampler(line, rng) == tokenizer.encode(line)


@pytest.mark.representatives(1)
@pytest.mark.parametrize("normalization", ["nmt_nfkc", "identity"])
def test_our_merging_equals_sentencepieces_on_real_text(real_data: Path, normalization: str) -> None:
    folder = real_data / "multi30k"
    english, german = (
        (folder / name).read_text("utf-8").split("\n")[:4000] for name in ("train.en", "train.de")
    )
    config = TokenizerConfig.model_validate({"vocab_size": 3000, "normalization": normalization})
    tokenizer = train_tokenizers(english, german, config, seed=1).src
    sampler = SegmentationSampler(tokenizer, 1e-300)
    lines = english + german + ODD
    rng = random.Random(1)
    for line, ids in zip(lines, tokenizer.encode_batch(lines), strict=True):
        assert sampler(line, rng) == ids


def test_rate_1_leaves_single_characters() -> None:
    tokenizer = train("bpe")
    ids = SegmentationSampler(tokenizer, 1.0)("the cat", random.Random(1))
    assert tokenizer.tokens(ids) == list("▁the▁cat")


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_sampling_is_a_pure_function_of_the_generator(kind: str) -> None:
    tokenizer = train(kind)
    rng = random.Random(7)
    first = SegmentationSampler(tokenizer, 0.4)
    drawn = [first(line, rng) for line in LINES * 5]
    random.seed(99)
    second = SegmentationSampler(SentencePieceTokenizer(tokenizer.model), 0.4)
    second("the dog", random.Random(3))  # what it has seen before must not matter
    rng = random.Random(7)
    assert [second(line, rng) for line in LINES * 5] == drawn
    assert len({tuple(ids) for ids in drawn[:: len(LINES)]}) > 1


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_every_segmentation_decodes_to_the_same_text(kind: str) -> None:
    tokenizer = train(kind)
    sampler = SegmentationSampler(tokenizer, 0.5)
    rng = random.Random(1)
    for line in LINES + ODD:
        expected = tokenizer.decode(tokenizer.encode(line))
        assert tokenizer.decode(sampler(line, rng)) == expected


def merge_dropout(word: str, ranks: dict[str, int], rate: float, rng: random.Random) -> tuple[str, ...]:
    """Algorithm 1 of Provilkov et al. as it is printed: drop each merge, apply the best of the rest."""
    symbols = list(word)
    while True:
        candidates = [
            (ranks[symbols[i] + symbols[i + 1]], i)
            for i in range(len(symbols) - 1)
            if symbols[i] + symbols[i + 1] in ranks and rng.random() >= rate
        ]
        if not candidates:
            return tuple(symbols)
        _, i = min(candidates)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


def total_variation(first: Counter[tuple[str, ...]], second: Counter[tuple[str, ...]], draws: int) -> float:
    return sum(abs(first[key] - second[key]) for key in first | second) / (2 * draws)


def test_bpe_dropout_has_the_distribution_of_the_published_algorithm() -> None:
    tokenizer = train("bpe")
    sampler = SegmentationSampler(tokenizer, 0.3)
    ranks = {piece: round(-score) for piece, (_, score) in tokenizer.token_scores().items() if len(piece) > 1}
    draws, rng = 4000, random.Random(1)
    ours = Counter(tuple(tokenizer.tokens(sampler("homework", rng))) for _ in range(draws))
    printed = Counter(merge_dropout("▁homework", ranks, 0.3, rng) for _ in range(draws))
    assert len(printed) > 5
    assert total_variation(ours, printed, draws) < 0.06


def segmentations(word: str, scores: dict[str, float]) -> dict[tuple[str, ...], float]:
    """Every way to cut a word into pieces, with the sum of the pieces' scores."""
    if not word:
        return {(): 0.0}
    found = {}
    for end in range(1, len(word) + 1):
        if word[:end] in scores:
            for rest, score in segmentations(word[end:], scores).items():
                found[(word[:end], *rest)] = scores[word[:end]] + score
    return found


@pytest.mark.parametrize("rate", [0.2, 1.0])
def test_unigram_sampling_has_the_smoothed_distribution_over_all_segmentations(rate: float) -> None:
    tokenizer = train("unigram")
    sampler = SegmentationSampler(tokenizer, rate)
    scores = {piece: score for piece, (_, score) in tokenizer.token_scores().items()}
    every = segmentations("▁that", scores)
    weights = {pieces: math.exp(rate * score) for pieces, score in every.items()}
    draws, rng = 4000, random.Random(1)
    ours = Counter(tuple(tokenizer.tokens(sampler("that", rng))) for _ in range(draws))
    total = sum(weights.values())
    assert len(every) > 2
    assert set(ours) <= set(every)
    assert sum(abs(ours[p] / draws - w / total) for p, w in weights.items()) / 2 < 0.04
