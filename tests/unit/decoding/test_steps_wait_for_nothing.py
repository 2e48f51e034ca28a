"""A step reads nothing back from its device: on torch's meta device, without values, reading is an error."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from heedful.decoding.backends.torch import (
    ForcedStep,
    ModelStep,
    RestrictedStep,
    TorchTokens,
    record_cross_attention,
)
from heedful.decoding.scoring import CoverageTracker
from heedful.decoding.steps import EnsembleStep, StepFunction
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig
from heedful.storage.torch_weights import meta_model

META = torch.device("meta")
BATCH, LENGTH, VOCAB_SIZE = 5, 7, 17


def model(**changes: object) -> Transformer:
    sizes = {
        "d_model": 12, "num_heads": 3, "d_ff": 20, "num_encoder_layers": 2, "num_decoder_layers": 2,
        "src_vocab_size": VOCAB_SIZE, "tgt_vocab_size": VOCAB_SIZE,
    }  # fmt: skip
    return meta_model(ModelConfig(**{**sizes, **changes})).to(META).eval()  # type: ignore[arg-type]


def sources() -> Tensor:
    return torch.ones(BATCH, LENGTH, dtype=torch.int64, device=META)


def take_steps(step: StepFunction) -> None:
    """Steps of a beam that stays, moves, grows and shrinks, beyond the first size of the caches."""
    rows = BATCH
    for place in range(40):
        found = step(np.full(rows, 3)).log_probs()
        assert isinstance(found, Tensor)
        assert (found.device, found.shape) == (META, (rows, VOCAB_SIZE))
        if place == 0:
            step.reorder(np.arange(rows).repeat(3))
            rows *= 3
        elif place % 7 == 6 and rows > 2:
            rows -= 2
            step.reorder(np.arange(rows))
        else:
            step.reorder(np.arange(rows)[::-1].copy() if place % 2 else np.arange(rows))


@pytest.mark.representatives(1)
@pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre", "positions": "learned", "max_positions": 50}, {"positions": "rotary"}]
)
def test_a_step_and_a_move_of_rows_read_nothing_back(changes: dict[str, object]) -> None:
    with torch.inference_mode():
        take_steps(ModelStep(model(**changes), sources()))


@pytest.mark.slow
def test_so_it_is_with_several_models_a_shortlist_and_coverage() -> None:
    models = [model(), model()]
    with torch.inference_mode(), record_cross_attention(models) as attention:
        both = EnsembleStep([ModelStep(each, sources()) for each in models])
        allowed = [np.arange(1 + row) for row in range(BATCH)]
        step = RestrictedStep(both, allowed, vocab_size=VOCAB_SIZE, device=META)
        take_steps(CoverageTracker(step, lambda: attention.latest()[:, 0], lengths=[LENGTH] * BATCH))


def test_so_it_is_where_the_outputs_are_given() -> None:
    with torch.inference_mode():
        step = ForcedStep(model(), sources(), [[5] * 9] * BATCH, start_id=2)
        step.reorder(np.array([0, 2, 3]))
        for _ in range(9):
            assert step(np.full(3, 5)).log_probs().shape == (3, VOCAB_SIZE)


class Sorts(TorchDispatchMode):
    """Counts what is sorted in full."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN204
        self.count += func.overloadpacket is torch.ops.aten.sort
        return func(*args, **(kwargs or {}))


def test_logits_that_tie_in_bfloat16_are_told_apart_without_another_look() -> None:
    logits = 2.5 * torch.randn(320, 8000, generator=torch.Generator().manual_seed(1))
    log_probs = logits.bfloat16().float().log_softmax(dim=-1)
    edge = log_probs.topk(9).values
    assert (edge[:, 7] == edge[:, 8]).sum() > 20  # of the best eight, and those that are left out
    with Sorts() as sorts:
        values, ids = TorchTokens(log_probs).top(6, [0, 1])
    assert sorts.count == 0
    log_probs[:, :2] = -torch.inf
    ordered = torch.sort(log_probs, dim=-1, descending=True, stable=True)
    assert ids.tolist() == ordered.indices[:, :6].tolist()
    assert values.tolist() == ordered.values[:, :6].tolist()
