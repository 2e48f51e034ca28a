from pathlib import Path

import pytest
import torch

from heedful.config import TokenizerConfig
from heedful.data import Batch, BatchSource, ParallelStore, ParallelText, build_store
from heedful.text import TokenizerPair, train_tokenizers

WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
SRC = [" ".join(WORDS[i % 5 : i % 5 + 1 + i % 7]) for i in range(120)]
TGT = [" ".join(reversed(line.split())) for line in SRC]


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerPair:
    return train_tokenizers(SRC, TGT, TokenizerConfig(vocab_size=60), seed=1)


@pytest.fixture(scope="module")
def store(tokenizers: TokenizerPair, tmp_path_factory: pytest.TempPathFactory) -> ParallelStore:
    text = ParallelText(SRC, TGT)
    return build_store(
        text, tokenizers, max_length=48, cache_dir=tmp_path_factory.mktemp("store"), keep_text=True
    )


def texts(batch: Batch, tokenizers: TokenizerPair) -> list[tuple[str, str]]:
    return [
        (tokenizers.src.decode(src), tokenizers.tgt.decode(tgt))
        for src, tgt in zip(batch.src.tolist(), batch.tgt_out.tolist(), strict=True)
    ]


def equal(first: Batch, second: Batch) -> bool:
    return all(
        torch.equal(getattr(first, name), getattr(second, name)) for name in ("src", "tgt_in", "tgt_out")
    )


@pytest.mark.parametrize("sampling", [0.0, 0.1, 0.5])
def test_an_epoch_has_every_pair_once(
    store: ParallelStore, tokenizers: TokenizerPair, sampling: float
) -> None:
    source = BatchSource(store, tokenizers, tokens=100, seed=1, sampling=sampling)
    seen = [pair for batch in source.batches(0) for pair in texts(batch, tokenizers)]
    assert sorted(seen) == sorted(zip(SRC, TGT, strict=True))


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_starting_at_a_later_batch_goes_on_as_if_never_interrupted(
    store: ParallelStore, tokenizers: TokenizerPair, sampling: float
) -> None:
    whole = list(BatchSource(store, tokenizers, tokens=100, seed=1, sampling=sampling).batches(3))
    rest = list(BatchSource(store, tokenizers, tokens=100, seed=1, sampling=sampling).batches(3, start=5))
    assert len(rest) == len(whole) - 5 > 0
    assert all(equal(a, b) for a, b in zip(whole[5:], rest, strict=True))


@pytest.mark.parametrize("sampling", [0.0, 0.3, 1.0])
def test_the_token_budget_and_the_length_limit_hold_with_sampling_too(
    store: ParallelStore, tokenizers: TokenizerPair, sampling: float
) -> None:
    source = BatchSource(store, tokenizers, tokens=100, seed=1, sampling=sampling)
    for batch in source.batches(0):
        longer = max(batch.src.shape[1], batch.tgt_in.shape[1])
        assert len(batch) * longer <= 100 or len(batch) == 1
        assert longer <= 48
        assert longer % 4 == 0


def test_sampling_draws_other_segmentations_in_each_epoch(
    store: ParallelStore, tokenizers: TokenizerPair
) -> None:
    source = BatchSource(store, tokenizers, tokens=10_000, seed=1, sampling=0.3)
    rows = [{tuple(row) for batch in source.batches(epoch) for row in batch.src.tolist()} for epoch in (0, 1)]
    plain = BatchSource(store, tokenizers, tokens=10_000, seed=1)
    unsampled = {tuple(row) for batch in plain.batches(0) for row in batch.src.tolist()}
    assert rows[0] != rows[1]
    assert len(rows[0]) > len(unsampled)


def test_most_sentences_are_sampled_though_they_must_fit(
    store: ParallelStore, tokenizers: TokenizerPair
) -> None:
    source = BatchSource(store, tokenizers, tokens=100, seed=1, sampling=1.0)
    characters = sum(len(line) + 1 for line in SRC + TGT)
    pieces = sum(int((side > 3).sum()) for batch in source.batches(0) for side in (batch.src, batch.tgt_out))
    assert pieces > 0.9 * characters


def test_sampling_needs_the_texts(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    bare = build_store(ParallelText(SRC, TGT), tokenizers, max_length=48, cache_dir=tmp_path)
    with pytest.raises(ValueError, match="keep_text"):
        BatchSource(bare, tokenizers, tokens=100, seed=1, sampling=0.1)
