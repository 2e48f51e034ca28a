"""The loss without a head is that of a model whose output projection does not read it."""

from copy import deepcopy

import numpy as np
import pytest
import torch
from small_models import small_config
from tolerances import FLOAT32, FLOAT64, close
from torch.nn.functional import cross_entropy

from heedful.analysis.head_importance import head_importance, importance_figure
from heedful.data.batches import Batch, collate
from heedful.model.transformer import Transformer


@pytest.fixture(scope="module")
def model() -> Transformer:
    torch.manual_seed(3)
    sizes = small_config(d_model=12, num_heads=3, d_k=5, d_v=2, num_encoder_layers=2, num_decoder_layers=1)
    model = Transformer.from_config(sizes).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # larger than at the start, so that heads matter
            parameter.mul_(8.0)
    return model


@pytest.fixture(scope="module")
def batches() -> list[Batch]:
    random = np.random.default_rng(2)
    lengths = [(3, 5), (4, 2), (7, 6), (2, 3)]
    pairs = [tuple(random.integers(3, 11, length).astype(np.int32) for length in pair) for pair in lengths]
    return [collate(some, src_pad_id=0, tgt_pad_id=0, start_id=1) for some in (pairs[:3], pairs[3:])]


def nll(model: Transformer, batches: list[Batch]) -> float:
    total = 0.0
    with torch.inference_mode():
        for batch in batches:
            logits = model(batch.src, batch.tgt_in).flatten(0, 1)
            total += float(cross_entropy(logits, batch.tgt_out.flatten(), ignore_index=0, reduction="sum"))
    return total / sum(batch.num_tgt_tokens for batch in batches)


def test_every_head_has_the_loss_of_a_model_without_it(model: Transformer, batches: list[Batch]) -> None:
    before = deepcopy(model.state_dict())
    shown: list[float] = []
    importance = head_importance(model, batches, on_progress=lambda what, share: shown.append(share))
    assert importance.nll == close(nll(model, batches), FLOAT32.MODEL)
    names = {
        "encoder": ["encoder.layers.0.self_attention", "encoder.layers.1.self_attention"],
        "decoder": ["decoder.layers.0.self_attention"],
        "cross": ["decoder.layers.0.cross_attention"],
    }
    for kind, increases in importance.increases.items():
        assert increases.shape == (len(names[kind]), 3)
        for (layer, head), increase in np.ndenumerate(increases):
            without = deepcopy(model)
            weight = without.get_parameter(f"{names[kind][layer]}.output.weight")
            weight.data[:, 2 * head : 2 * head + 2] = 0.0
            assert increase == close(nll(without, batches) - importance.nll, FLOAT32.MODEL)
    assert max(float(np.abs(each).max()) for each in importance.increases.values()) > 0.01
    assert shown == close(np.arange(1, 13) / 12, FLOAT64.ELEMENT)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert importance.nll == head_importance(model, batches).nll  # no hook is left


def test_the_picture_has_a_cell_for_each_head(model: Transformer, batches: list[Batch]) -> None:
    importance = head_importance(model, batches)
    figure = importance_figure(importance)
    for axes, increases in zip(figure.axes, importance.increases.values(), strict=False):
        np.testing.assert_array_equal(axes.get_images()[0].get_array(), increases)
        assert [text.get_text() for text in axes.texts] == [
            f"{v:.3f}".replace("-0.000", "0.000") for v in increases.flat
        ]
