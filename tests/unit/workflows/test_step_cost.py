"""Operations counted by hand, parts of a step, memory, and the rate of products."""

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from process_groups import settings, small_source
from small_models import prepared, small_config

from heedful.data.batches import Batch, BatchSource
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config
from heedful.training.averaging import MovingAverage
from heedful.training.memory import PeakMemory, peak_memory
from heedful.training.optimizer import build_optimizer
from heedful.training.parallel.process_group import Rank, SingleProcess, StepPlan
from heedful.workflows.step_cost import MatmulRate, count_flops, time_parts

CPU = torch.device("cpu")
TOLD = Path("/proc/self/smaps_rollup").exists()
ORDER = StepPlan(1, ((0, 0), (0, 1)), 0.01)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BatchSource:
    return small_source(tmp_path_factory.mktemp("store"))


def ranks_of(source: BatchSource, config: Config, *, size: int = 1) -> list[Rank]:
    torch.manual_seed(1)
    model = Transformer.from_config(config.model)
    return [
        Rank(model, source, config, prepared(model, config), number=number, size=size)
        for number in range(size)
    ]


def flops_by_hand(model: ModelConfig, batch: Batch) -> int:
    """2 M K N for each product of the paper's layers, forward, and twice that backward."""
    (rows, src), tgt = batch.src.shape, batch.tgt_in.shape[1]
    d, ff, layers = model.d_model, model.d_ff, model.num_encoder_layers
    assert layers == model.num_decoder_layers

    def projections(positions: int, number: int) -> int:
        return number * 2 * rows * positions * d * d

    def attention(queries: int, keys: int) -> int:  # scores, and the sum of the values: all heads together
        return 2 * 2 * rows * queries * keys * d

    def feed_forward(positions: int) -> int:
        return 2 * 2 * rows * positions * d * ff

    encoder = projections(src, 4) + attention(src, src) + feed_forward(src)
    own = projections(tgt, 4) + attention(tgt, tgt)
    cross = projections(tgt, 2) + projections(src, 2) + attention(tgt, src)
    decoder = own + cross + feed_forward(tgt)
    # The vocabulary's matrix meets real tokens only, filled up to a multiple of 64: once forward and twice
    # backward. What the smoothing adds is one row more.
    tokens = -(-batch.num_tgt_tokens // 64) * 64
    return 3 * layers * (encoder + decoder) + 2 * (3 * tokens + 1) * d * model.tgt_vocab_size


@pytest.mark.parametrize(("layers", "size"), [(1, 1), (2, 2)])
def test_operations_are_those_counted_by_hand(source: BatchSource, layers: int, size: int) -> None:
    sizes = small_config(
        d_model=12, d_ff=20, src_vocab_size=60, tgt_vocab_size=60,
        num_encoder_layers=layers, num_decoder_layers=layers,
    )  # fmt: skip
    ranks = ranks_of(source, settings(model=sizes.model_dump()), size=size)
    by_hand = sum(flops_by_hand(sizes, batch) for rank in ranks for batch in rank.batches(ORDER))
    assert count_flops(ranks, ORDER) == by_hand


def test_timing_the_parts_of_a_step_takes_the_step(source: BatchSource) -> None:
    config = settings()
    outcomes = []
    for parts_are_timed in (False, True):
        (rank,) = ranks_of(source, config)
        optimizer, average = (
            build_optimizer(rank.model, config.optimizer, precision="float32"),
            MovingAverage(rank.model, 0.9),
        )
        group = SingleProcess(rank, optimizer, average)
        group.step(ORDER)
        following = StepPlan(2, ((0, 2),), 0.02)
        if parts_are_timed:
            (parts,) = time_parts(rank, [following], optimizer, average, threads=1)
            assert min(parts.data, parts.forward, parts.backward, parts.optimizer) > 0.0
        else:
            group.step(following)
        outcomes.append([*rank.model.parameters(), *average.weights.values()])
    for one, other in zip(*outcomes, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)  # the norm is summed in another order


def watched(work: Callable[[PeakMemory], object]) -> float:
    with peak_memory(CPU) as peak:
        kept = work(peak)
    del kept
    assert peak.mib is not None
    return peak.mib


def assert_seen(mib: int, work: Callable[[PeakMemory, float], object]) -> None:
    """Watch some work, which takes so much memory more than nothing; again where others changed that.

    A page counts in part where other programs have it too: if one starts or ends meanwhile, all counts
    change.
    """
    for _ in range(20):
        nothing = watched(lambda _: None)
        some = watched(lambda peak: work(peak, nothing))  # noqa: B023
        if not TOLD or abs(watched(lambda _: None) - nothing) < 0.05 * mib:
            break
    assert 0.9 * mib < some - nothing < 1.5 * mib


def test_memory_taken_while_it_is_watched_is_seen() -> None:
    """What is there at the end is, even if the thread that watches had no turn before."""
    assert_seen(200, lambda *_: torch.ones(200 << 20, dtype=torch.uint8))


@pytest.mark.skipif(not TOLD, reason="needs Linux")
def test_memory_that_is_given_back_before_the_end_is_seen() -> None:
    def take_and_give_back(peak: PeakMemory, nothing: float) -> None:
        block = torch.ones(200 << 20, dtype=torch.uint8)
        end = time.monotonic() + 20
        while (peak.mib or 0.0) - nothing < 0.9 * 200 and time.monotonic() < end:
            time.sleep(0.01)
        del block

    assert_seen(200, take_and_give_back)


@pytest.mark.skipif(not TOLD, reason="needs Linux")
def test_memory_of_other_processes_counts() -> None:
    with peak_memory(CPU) as alone:
        pass
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,), daemon=True)
    process.start()
    try:
        with peak_memory(CPU) as together:
            time.sleep(1.0)
    finally:
        process.terminate()
        process.join()
    assert together.counted == "resident in 2 processes"
    assert alone.mib is not None
    assert together.mib is not None
    assert together.mib > alone.mib


def test_products_are_measured_on_the_threads_that_are_asked_for() -> None:
    before = torch.get_num_threads()
    products = MatmulRate("float32", CPU, threads=1)
    products.measure(0.01)
    once = products.flops_per_second
    products.measure(0.01)
    assert once > 0.0
    assert products.flops_per_second > 0.0
    assert torch.get_num_threads() == before
