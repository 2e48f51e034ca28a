from pathlib import Path

import pytest
import torch
from small_tokenizers import tagged_pair

from heedful.data.batches import Batch, BatchSource
from heedful.data.files import ParallelText
from heedful.data.store import ParallelStore, build_store
from heedful.errors import TokenizerError
from heedful.settings.run import TokenizerConfig
from heedful.text import SpecialTokens, TokenizerPair, train_tokenizers

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


def equal(first: Batch, second: Batch) -> bool:
    return all(
        torch.equal(getattr(first, name), getattr(second, name)) for name in ("src", "tgt_in", "tgt_out")
    )


def test_a_ramp_doubles_the_budget_with_each_epoch_until_it_is_full(
    store: ParallelStore, tokenizers: TokenizerPair
) -> None:
    ramp = BatchSource(store, tokenizers, tokens=220, seed=1, ramp_from=48)
    for epoch, budget in enumerate((48, 96, 192, 220, 220)):
        plain = BatchSource(store, tokenizers, tokens=budget, seed=1)
        assert [each.tolist() for each in ramp.plan(epoch)] == [each.tolist() for each in plain.plan(epoch)]
    assert len(ramp.plan(0)) > len(ramp.plan(1)) > len(ramp.plan(2))
    assert ramp.budget(10_000) == 220


@pytest.mark.parametrize("sampling", [0.0, 0.3])
def test_starting_at_a_later_batch_goes_on_as_if_never_interrupted(
    store: ParallelStore, tokenizers: TokenizerPair, sampling: float
) -> None:
    whole = list(BatchSource(store, tokenizers, tokens=100, seed=1, sampling=sampling).batches(3))
    later = BatchSource(store, tokenizers, tokens=100, seed=1, sampling=sampling)
    rest = [later.batch(indices, 3) for indices in later.plan(3)[5:]]
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


def test_sampled_pairs_keep_their_frame(tmp_path: Path, tokenizers: TokenizerPair) -> None:
    template = SpecialTokens(
        src_prefix=(50,), src_suffix=(3, 51), tgt_prefix=(52,), tgt_suffix=(3,), start_id=53
    )
    text = ParallelText(SRC, TGT)
    store = build_store(
        text, tokenizers, max_length=60, template=template, cache_dir=tmp_path, keep_text=True
    )
    source = BatchSource(store, tokenizers, tokens=200, seed=1, sampling=0.5, template=template)
    for batch in source.batches(0):
        for row in batch.src.tolist():
            ids = [i for i in row if i != 0]
            assert (ids[0], *ids[-2:]) == (50, 3, 51)
        for tgt_in, tgt_out in zip(batch.tgt_in.tolist(), batch.tgt_out.tolist(), strict=True):
            assert tgt_in[:2] == [53, 52]
            assert tgt_out[0] == 52
            assert tgt_out[len([i for i in tgt_out if i != 0]) - 1] == 3


def test_an_imported_tokenizer_cannot_be_sampled_from(tmp_path: Path) -> None:
    pair = tagged_pair()
    store = build_store(ParallelText(SRC, TGT), pair, max_length=99, cache_dir=tmp_path, keep_text=True)
    with pytest.raises(TokenizerError, match=r"tokenizer\.sampling=0\.1"):
        BatchSource(store, pair, tokens=200, seed=1, sampling=0.1)
