import os
import signal
from contextlib import closing
from dataclasses import replace
from itertools import islice

import pytest
import torch
from process_groups import settings
from small_models import prepared, small_model

from heedful.data.batches import Batch, BatchSource
from heedful.data.files import ParallelText
from heedful.data.phrasebook import phrase_book
from heedful.data.store import build_store
from heedful.errors import TrainingError
from heedful.text import train_tokenizers
from heedful.training.parallel.data_loader import InlineLoader, PrefetchingLoader, num_workers
from heedful.training.parallel.process_group import PlannedBatches, Rank, StepPlan


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BatchSource:
    """Of batches so small that some have no row for the second of two ranks."""
    book = phrase_book().train[:80]
    text = ParallelText([src for src, _ in book], [tgt for _, tgt in book], ("phrase book",), 0)
    config = settings(tokenizer={"kind": "bpe", "vocab_size": 150}).tokenizer
    tokenizers = train_tokenizers(text.src, text.tgt, config, seed=1)
    cache = str(tmp_path_factory.mktemp("store"))
    store = build_store(text, tokenizers, max_length=100, cache_dir=cache, keep_text=True)
    return BatchSource(store, tokenizers, tokens=90, seed=1, sampling=0.2)


def same(one: Batch, other: Batch) -> bool:
    tensors = zip((one.src, one.tgt_in, one.tgt_out), (other.src, other.tgt_in, other.tgt_out), strict=True)
    return all(torch.equal(*pair) for pair in tensors) and one.num_tgt_tokens == other.num_tgt_tokens


@pytest.mark.slow
def test_batches_made_ahead_are_those_made_in_line(source: BatchSource) -> None:
    """From the middle of an epoch into the next, sampled anew in each, and dropout stays the same.

    Another place than the next starts anew from there.
    """
    lengths = [len(source.plan(epoch)) for epoch in (0, 1)]
    places = [(0, n) for n in range(lengths[0] - 9, lengths[0])] + [(1, n) for n in range(lengths[1])]
    plans = [StepPlan(n, tuple(places[start : start + 3]), 0.1) for n, start in enumerate(range(0, 30, 3))]
    model, config = small_model(), settings()
    execution = prepared(model, config)
    in_line, ahead = (Rank(model, source, config, execution, index=1, size=2) for _ in range(2))
    ahead.prefetch(2)
    num_tokens = []
    with closing(ahead):
        for plan in plans:
            found, state = list(PlannedBatches(ahead, plan)), torch.get_rng_state()
            wanted = list(PlannedBatches(in_line, plan))
            assert len(found) == len(wanted)
            assert all(map(same, found, wanted))
            assert torch.equal(torch.get_rng_state(), state)
            num_tokens += [batch.num_tgt_tokens for batch in found]
        assert isinstance(ahead.loader, PrefetchingLoader)
        makers = list(ahead.loader._makers)  # a step that memory was too small for reads its batches again
        assert all(map(same, PlannedBatches(ahead, plans[-1]), wanted))
        assert ahead.loader._makers == makers
        elsewhere = StepPlan(11, ((2, 1), (2, 2)), 0.1)
        assert all(map(same, PlannedBatches(ahead, elsewhere), PlannedBatches(in_line, elsewhere)))
    assert 10 < sum(number > 0 for number in num_tokens) < 30  # in some this rank had no row


@pytest.mark.slow
def test_makers_survive_an_interrupt_and_end_with_their_trainer(source: BatchSource) -> None:
    with closing(PrefetchingLoader(InlineLoader(source), workers=2)) as ahead:
        ahead.batch(0, 0)
        ahead.batch(0, 1)
        (first, pipe), (second, _) = ahead._makers
        for process in (first, second):
            assert process.pid is not None
            os.kill(process.pid, signal.SIGINT)  # as Ctrl-C, which all processes of a terminal get
        assert ahead.batch(0, 2) is not None
        assert ahead.batch(0, 3) is not None
        second.kill()
        second.join()
        ahead.batch(0, 4)
        with pytest.raises(TrainingError, match="makes batches ended unexpectedly"):
            for at in islice(InlineLoader(source).positions(0, 5), 10_000):  # what it had sent is still taken
                ahead.batch(*at)
        pipe.close()  # as where the trainer is killed
        first.join(timeout=30)
        assert first.exitcode == 0


@pytest.mark.slow
def test_the_error_of_a_maker_is_the_trainers(source: BatchSource) -> None:
    broken = InlineLoader(replace(source, seed=-1))
    with (
        closing(PrefetchingLoader(broken, workers=1)) as ahead,
        pytest.raises(ValueError, match="non-negative"),
    ):
        ahead.batch(0, 0)
    assert ahead._makers == []


def test_only_a_gpu_has_its_batches_made_ahead(source: BatchSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(12)), raising=False)
    assert num_workers(source, torch.device("cpu")) == 0
    assert num_workers(source, torch.device("cuda")) == 8
    assert num_workers(replace(source, sampling=0.0), torch.device("cuda")) == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert num_workers(source, torch.device("cuda")) == 2
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "12")
    assert num_workers(source, torch.device("cuda")) == 1
