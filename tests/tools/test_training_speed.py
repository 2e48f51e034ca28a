"""benchmarks/training_speed.py: operations counted by hand."""

import sys
from pathlib import Path

import pytest
import torch
from process_groups import settings, small_source
from small_models import prepared, small_config

from heedful.data.batches import Batch, BatchSource
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config
from heedful.training.parallel.process_group import PlannedBatches, Rank, StepPlan

sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))

from profiling import count_flops

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
