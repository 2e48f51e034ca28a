"""Decoding steps that are recorded once and replayed give the numbers of steps that are computed each time.

CUDA graphs need a GPU. Here torch traces a step into its operations on the same static tensors, and these are
replayed: they, too, know nothing of the position and the rows but what is in these tensors.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from option_models import TGT_VOCAB, option_inputs, option_model
from tolerances import assert_close, format_of
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx

import heedful.decoding.backends.cuda_graphs as cuda_graphs
import heedful.decoding.backends.torch as backend
from heedful.decoding.backends.cuda_graphs import (
    GraphDecoder,
)
from heedful.decoding.backends.torch import ModelStep
from heedful.errors import InputError
from heedful.model.attention import Memory
from heedful.model.transformer import Transformer
from heedful.ops.attention import has_plain_self_attention
from heedful.ops.fused import use_fused_ops
from heedful.ops.graphs import Record

CAPACITY, STEPS = 6, 26  # beyond twice the first capacity


class Traced(GraphDecoder):
    """Records by tracing, which computes nothing; each replay computes all of it, as a CUDA graph does."""

    replays: ClassVar[list[int]] = []  # of each recording

    def __init__(self, model: Transformer, memory: Memory, *, record: Record) -> None:
        super().__init__(model, memory, record=self._trace)

    def _trace(self, compute: Callable[[], Tensor]) -> Callable[[], Tensor]:
        position = self._cache.length
        assert isinstance(position, Tensor)
        before = position.clone()
        traced = make_fx(compute, tracing_mode="fake", _allow_non_fake_inputs=True)()
        self._cache.length = position.copy_(before)  # tracing changes small tensors after all
        number = len(self.replays)
        self.replays.append(0)

        def replay() -> Tensor:
            self.replays[number] += 1
            return traced()  # type: ignore[no-any-return]

        return replay


@pytest.fixture
def replays(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How often each recording is replayed."""
    monkeypatch.setattr(cuda_graphs, "_POSITIONS", CAPACITY)
    monkeypatch.setattr(Traced, "replays", [])
    monkeypatch.setattr(backend, "GraphDecoder", Traced)
    return Traced.replays


def moves(num_rows: int, steps: int) -> Iterator[np.ndarray | None]:
    """Rows that become three each, change places within a sentence, lose sentences, and end as one."""
    rows, rng = num_rows, np.random.default_rng(1)
    for number in range(steps):
        if number == 0:
            yield np.arange(rows).repeat(3)
            rows *= 3
        elif number % 8 == 7 and rows > 3:  # the first sentence has ended
            yield np.arange(3, rows)
            rows -= 3
        elif number == 20:
            yield np.arange(1)
            rows = 1
        else:
            yield None if number % 4 == 3 else np.arange(rows) // 3 * 3 + rng.integers(0, min(3, rows), rows)


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "positions": "learned", "max_positions": STEPS},
        {
            "num_kv_heads": 1,
            "d_k": 6,
            "d_v": 10,
            "gated": True,
            "positions": "fairseq",
            "embedding_norm": True,
        },
    ],
    ids=["paper", "learned positions", "grouped queries"],
)
@pytest.mark.parametrize("precision", [torch.float64, pytest.param(torch.bfloat16, marks=pytest.mark.slow)])
def test_replayed_steps_are_those_that_are_computed(
    changes: dict[str, Any], precision: torch.dtype, replays: list[int]
) -> None:
    model = option_model(**changes).eval()
    use_fused_ops(model, kernels=False)
    src, _ = option_inputs()
    casts = torch.autocast("cpu", torch.bfloat16) if precision == torch.bfloat16 else nullcontext()
    model = model.float() if precision == torch.bfloat16 else model.double()
    rng = np.random.default_rng(2)
    with torch.inference_mode(), casts:
        step, graphs = ModelStep(model, src), ModelStep(model, src, record=lambda compute: compute)
        rows = len(src)
        for order in moves(rows, STEPS):
            ids = rng.integers(4, TGT_VOCAB, rows)
            wanted, found = (each(ids).log_probs() for each in (step, graphs))
            assert_close(found, wanted, format_of(precision).MODEL)
            if order is not None:
                rows = len(order)
                step.reorder(order)
                graphs.reorder(order)
    assert 4 < len(replays) < 16  # two for each size: three capacities, some numbers of rows
    assert sum(replays) > STEPS


def test_positions_that_were_not_learned_are_refused(replays: list[int]) -> None:
    model = option_model(positions="learned", max_positions=20).eval()
    src, _ = option_inputs()
    with torch.inference_mode():
        step = ModelStep(model, src, record=lambda compute: compute)
        for _ in range(20):
            step(np.full(len(src), 5))
        with pytest.raises(InputError, match="longer than the 20 learned positions"):
            step(np.full(len(src), 5))


@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary", "d_k": 6},
        {"positions": "alibi"},
        {"positions": "relative"},
        {"decoder_unit": "ssru"},
    ],
)
def test_models_whose_attention_sees_positions_are_computed_step_by_step(
    changes: dict[str, Any], replays: list[int]
) -> None:
    model = option_model(**changes).eval()
    assert not has_plain_self_attention(model.decoder)
    src, _ = option_inputs()
    with torch.inference_mode():
        step = ModelStep(model, src, record=lambda compute: compute)
        for _ in range(4):
            step(np.full(len(src), 5))
    assert replays == []
