from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from fake_gpu import fake_gpu
from numpy.typing import NDArray
from small_tokenizers import LANGUAGES, nllb_pair, phrases
from torch.overrides import TorchFunctionMode

from heedful.data.batches import Batch, BatchSource, collate, plan_epoch
from heedful.data.files import ParallelText
from heedful.data.store import build_store
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config, LanguageConfig
from heedful.text import SpecialTokens, TokenizerPair

PAIRS = [
    (np.array([5, 6, 3], dtype=np.int32), np.array([7, 3], dtype=np.int32)),
    (np.array([8, 3], dtype=np.int32), np.array([9, 10, 11, 12, 3], dtype=np.int32)),
]


def test_a_batch_is_padded_on_the_right_with_each_sides_own_pad_id() -> None:
    batch = collate(PAIRS, src_pad_id=90, tgt_pad_id=91, start_id=2)
    assert batch.src.tolist() == [[5, 6, 3], [8, 3, 90]]
    assert batch.tgt_in.tolist() == [[2, 7, 91, 91, 91], [2, 9, 10, 11, 12]]
    assert batch.tgt_out.tolist() == [[7, 3, 91, 91, 91], [9, 10, 11, 12, 3]]
    assert {t.dtype for t in (batch.src, batch.tgt_in, batch.tgt_out)} == {torch.int64}
    assert batch.num_tgt_tokens == 7
    assert len(batch) == 2


@pytest.mark.parametrize(("multiple", "shape"), [(1, (3, 5)), (2, (4, 6)), (4, (4, 8)), (8, (8, 8))])
def test_lengths_are_rounded_up_to_the_multiple(multiple: int, shape: tuple[int, int]) -> None:
    batch = collate(PAIRS, src_pad_id=0, tgt_pad_id=0, start_id=2, length_multiple=multiple)
    assert (batch.src.shape[1], batch.tgt_in.shape[1]) == shape
    assert batch.tgt_out.shape == batch.tgt_in.shape
    assert batch.num_tgt_tokens == int((batch.tgt_out != 0).sum()) == int((batch.tgt_in != 0).sum())


def test_a_batch_moves_to_a_device_whole() -> None:
    moved = collate(PAIRS, src_pad_id=0, tgt_pad_id=0, start_id=2).to("meta")
    assert isinstance(moved, Batch)
    assert {t.device.type for t in (moved.src, moved.tgt_in, moved.tgt_out)} == {"meta"}
    assert moved.num_tgt_tokens == 7


RNG = np.random.default_rng(1)
SRC = RNG.gamma(6.0, 2.5, 20_000).astype(np.int32) + 1
TGT = np.maximum(1, SRC + RNG.normal(0, 3, 20_000).astype(np.int32))


def plan(seed: int = 1, epoch: int = 0, tokens: int = 4096, width: int = 4) -> list[NDArray[np.int64]]:
    return plan_epoch(SRC, TGT, tokens=tokens, seed=seed, epoch=epoch, bucket_width=width)


def test_epochs_and_seeds_differ_in_order_and_in_company() -> None:
    plans = [plan(), plan(epoch=1), plan(seed=2)]
    contents = [{frozenset(batch.tolist()) for batch in batches} for batches in plans]
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert len(contents[first] & contents[second]) < 0.1 * len(contents[first])


def test_the_order_of_batches_is_not_by_length() -> None:
    mean_lengths = [float(np.maximum(SRC, TGT)[batch].mean()) for batch in plan()]
    correlation = np.corrcoef(mean_lengths, np.arange(len(mean_lengths)))[0, 1]
    assert abs(correlation) < 0.3


@pytest.mark.parametrize(("width", "most"), [(1, 0.10), (4, 0.18)])
def test_little_of_a_batch_is_padding(width: int, most: float) -> None:
    batches = plan(width=width)
    for lengths in (SRC, TGT):
        cells = sum(len(batch) * (-(-int(lengths[batch].max()) // width) * width) for batch in batches)
        assert 1 - int(lengths.sum()) / cells < most


def test_a_plan_is_the_same_on_every_machine() -> None:
    lengths = np.array([3, 9, 4, 4, 12, 1, 7, 5])
    batches = plan_epoch(lengths, lengths[::-1], tokens=30, seed=7, epoch=2, bucket_width=2)
    assert [batch.tolist() for batch in batches] == [[5], [1, 6], [3, 4], [2, 7, 0]]


ENGLISH, GERMAN = phrases()


@pytest.fixture(scope="module")
def pair() -> TokenizerPair:
    return nllb_pair()


@pytest.fixture(scope="module")
def template(pair: TokenizerPair) -> SpecialTokens:
    """As `heedful train --init` has it from the bundle of an NLLB model."""
    languages = LanguageConfig(src_tag="eng_Latn", tgt_tag="deu_Latn")
    model = ModelConfig(decoder_start_id=pair.tgt.eos_id, src_pad_id=1, tgt_pad_id=1)
    return SpecialTokens.of(Config(model=model, languages=languages), pair)


def test_the_tags_are_learned_in_their_places(
    tmp_path: Path, pair: TokenizerPair, template: SpecialTokens
) -> None:
    text = ParallelText(list(ENGLISH[:2]), list(GERMAN[:2]))
    store = build_store(text, pair, max_length=200, template=template, cache_dir=tmp_path)
    batch = BatchSource(store, pair, tokens=4000, seed=1, template=template).batch(np.array([0, 1]), epoch=0)
    english, german = pair.src.tag_id("eng_Latn"), pair.tgt.tag_id("deu_Latn")
    start, eos, pad = pair.tgt.eos_id, pair.tgt.eos_id, pair.tgt.pad_id
    for row in (0, 1):
        src, tgt = pair.src.encode(ENGLISH[row]), pair.tgt.encode(GERMAN[row])
        assert _unpadded(batch.src[row].tolist(), pad) == [english, *src, eos]
        assert _unpadded(batch.tgt_in[row].tolist(), pad) == [start, german, *tgt]
        assert _unpadded(batch.tgt_out[row].tolist(), pad) == [german, *tgt, eos]
    assert batch.num_tgt_tokens == sum(len(pair.tgt.encode(line)) + 2 for line in GERMAN[:2])


def test_lengths_count_tags(tmp_path: Path, pair: TokenizerPair, template: SpecialTokens) -> None:
    text = ParallelText([ENGLISH[0]], [GERMAN[0]])
    store = build_store(text, pair, max_length=200, template=template, cache_dir=tmp_path)
    src, tgt = len(pair.src.encode(ENGLISH[0])) + 2, len(pair.tgt.encode(GERMAN[0])) + 2
    assert (store.src_lengths[0], store.tgt_lengths[0]) == (src, tgt)
    assert (store.report.longest_src, store.report.longest_tgt) == (src, tgt)
    both = ParallelText([ENGLISH[0], "a"], [GERMAN[0], "b"])
    shorter = build_store(both, pair, max_length=max(src, tgt) - 1, template=template, cache_dir=tmp_path)
    assert (shorter.report.num_kept, shorter.report.num_too_long) == (1, 1)


def test_each_template_has_its_own_store(
    tmp_path: Path, pair: TokenizerPair, template: SpecialTokens
) -> None:
    text = ParallelText(list(ENGLISH), list(GERMAN))
    plain = SpecialTokens.plain(pair)
    paths = {
        build_store(text, pair, max_length=200, template=each, cache_dir=tmp_path).path
        for each in (template, plain, _swapped(pair))
    }
    assert len(paths) == 3
    bare = build_store(text, pair, max_length=200, cache_dir=tmp_path).path
    started = SpecialTokens(src_suffix=(2,), tgt_suffix=(2,), start_id=2)
    same = build_store(text, pair, max_length=200, template=started, cache_dir=tmp_path).path
    assert bare == same  # what the decoder starts with is no part of a store
    assert bare in paths


def _swapped(pair: TokenizerPair) -> SpecialTokens:
    languages = LanguageConfig(src_tag=LANGUAGES[2], tgt_tag=LANGUAGES[0])
    return SpecialTokens.of(Config(languages=languages), pair)


def _unpadded(ids: list[int], pad_id: int) -> list[int]:
    while ids[-1] == pad_id:
        ids.pop()
    return ids


class Moves(TorchFunctionMode):
    """Notes of each tensor that goes to a GPU whether the CPU waits for it."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: list[bool] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401
        if func is torch.Tensor.to:
            self.waits.append(not (args[0].is_pinned() and kwargs["non_blocking"]))
        return func(*args, **kwargs or {})


def test_the_cpu_does_not_wait_while_a_batch_goes_to_a_gpu() -> None:
    ids = torch.arange(6).view(2, 3)
    batch = Batch(ids, ids + 1, ids + 2, num_tgt_tokens=6)
    with fake_gpu(), Moves() as moves:
        there = batch.to("cuda")
        assert moves.waits == [False] * 3
        assert [each.is_cuda for each in (there.src, there.tgt_in, there.tgt_out)] == [True] * 3
        assert there.tgt_out.cpu().equal(ids + 2)
        assert there.to("cuda").src is there.src
    assert batch.to("cpu").src is ids
