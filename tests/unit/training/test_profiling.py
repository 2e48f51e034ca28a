"""Operations counted by hand, and the rate of products."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from process_groups import settings, small_source
from small_models import prepared, small_config
from torch.overrides import TorchFunctionMode

from heedful.data.batches import Batch, BatchSource
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config
from heedful.tasks.training_speed import write_synthetic_text
from heedful.training.parallel.process_group import PlannedBatches, Rank, StepPlan
from heedful.training.profiling import MatmulRate, count_flops

CPU = torch.device("cpu")
ORDER = StepPlan(1, ((0, 0), (0, 1)), 0.01)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> BatchSource:
    return small_source(tmp_path_factory.mktemp("store"))


def ranks_of(source: BatchSource, config: Config, *, size: int = 1) -> list[Rank]:
    torch.manual_seed(1)
    model = Transformer.from_config(config.model)
    return [
        Rank(model, source, config, prepared(model, config), index=index, size=size) for index in range(size)
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
    by_hand = sum(flops_by_hand(sizes, batch) for rank in ranks for batch in PlannedBatches(rank, ORDER))
    assert count_flops(ranks, ORDER) == by_hand


class Threads(TorchFunctionMode):
    """Notes the number of threads of each product."""

    def __init__(self) -> None:
        super().__init__()
        self.of_products: list[int] = []

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: Sequence[type],
        args: Sequence[object] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        if "matmul" in func.__name__:
            self.of_products.append(torch.get_num_threads())
        return func(*args, **(kwargs or {}))


@pytest.mark.slow
@pytest.mark.parametrize("threads", [1, 2])
def test_products_are_measured_on_the_threads_that_are_asked_for(threads: int) -> None:
    before = torch.get_num_threads()
    products = MatmulRate("float32", CPU, threads=threads)
    with Threads() as seen:
        products.measure(0.0)
    assert len(seen.of_products) == 4  # of two sizes, a warm-up and one that counts
    assert set(seen.of_products) == {threads}
    assert torch.get_num_threads() == before


def test_made_up_sentences_are_as_long_as_those_of_multi30k(tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    write_synthetic_text(src, tgt, num_pairs=4000, num_words=500, seed=1)
    sides = [[len(line.split()) + 1 for line in path.read_text().splitlines()] for path in (src, tgt)]
    assert len(sides[0]) == len(sides[1]) == 4000
    for lengths, mean, deviation in zip(sides, (15.3, 15.8), (4.7, 5.4), strict=True):
        assert abs(np.mean(lengths) - mean) < 0.4
        assert abs(np.std(lengths) - deviation) < 0.4
    assert abs(np.corrcoef(sides)[0, 1] - 0.86) < 0.04  # the same of Multi30k is 0.86 between logarithms


def test_every_made_up_word_occurs_on_both_sides(tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    write_synthetic_text(src, tgt, num_pairs=100, num_words=500, seed=1)
    assert len(set(src.read_text().split())) == len(set(tgt.read_text().split())) == 500
