"""What must not change a model's output, and what must, with each option that the paper does not have."""

from collections.abc import Iterator

import pytest
import torch
from option_models import (
    LENGTHS,
    OPTIONS,
    RELATIVE,
    SRC_PAD,
    TGT_PAD,
    TGT_VOCAB,
    B,
    S,
    T,
    option_config,
    option_inputs,
    option_model,
)
from torch import nn
from torch.nn.functional import cross_entropy

from heedful.model.attention import causal_mask
from heedful.model.transformer import Transformer
from heedful.ops.recorder import record_attention
from heedful.storage.model_files import load_weights, unique_weights
from heedful.training.execution import autocast

EACH = pytest.mark.parametrize("name", OPTIONS)


@EACH
def test_no_position_sees_a_later_one(name: str) -> None:
    model, (src, tgt_in) = option_model(**OPTIONS[name]), option_inputs()
    before = model(src, tgt_in)
    for t in range(T):
        other = tgt_in.clone()
        other[:, t] = 5 + (tgt_in[:, t] - 4) % (TGT_VOCAB - 5)
        after = model(src, other)
        torch.testing.assert_close(before[:, :t], after[:, :t], rtol=0.0, atol=1e-12)
        assert (before[:, t:] - after[:, t:]).abs().amax(dim=(0, 2)).min() > 1e-6


@EACH
def test_longer_neighbours_and_padding_change_no_logit(name: str) -> None:
    model, (src, tgt_in) = option_model(**OPTIONS[name]), option_inputs()
    together = model(src, tgt_in)
    longer = model(torch.cat([src, torch.full((B, 6), SRC_PAD)], dim=1), tgt_in)
    torch.testing.assert_close(longer, together, rtol=0.0, atol=1e-11)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], tgt_in[row : row + 1, : 3 + row])
        torch.testing.assert_close(alone[0], together[row, : 3 + row], rtol=0.0, atol=1e-11)
    padded = tgt_in.clone()
    padded[:, 3:] = TGT_PAD
    torch.testing.assert_close(model(src, padded)[:, :3], together[:, :3], rtol=0.0, atol=1e-12)


@EACH
def test_the_order_of_words_matters(name: str) -> None:
    """No option leaves a stack without positions."""
    model, (src, tgt_in) = option_model(**OPTIONS[name]), option_inputs()
    before = model(src, tgt_in)
    assert (model(src.roll(2, dims=1)[:1], tgt_in[:1]) - before[:1]).abs().max() > 1e-3
    other = tgt_in.clone()
    other[:, [1, 5]] = tgt_in[:, [5, 1]]
    assert (model(src, other)[:, 6:] - before[:, 6:]).abs().max() > 1e-3


@EACH
def test_a_source_of_padding_alone_gives_numbers_and_gradients(name: str) -> None:
    model, (src, tgt_in) = option_model(**OPTIONS[name]), option_inputs()
    src[1] = SRC_PAD
    logits = model(src, tgt_in)
    assert bool(logits.isfinite().all())
    logits.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@EACH
def test_maps_are_recorded_as_with_the_papers_attention(name: str) -> None:
    """One row for each query of each head, of which every row sums to one over what it may see."""
    model, (src, tgt_in) = option_model(**OPTIONS[name]), option_inputs()
    before = model(src, tgt_in)
    with record_attention(model) as recorder:
        during = model(src, tgt_in)
    assert torch.equal(before, during)
    assert len(recorder.maps) == 2 + 2 * 2
    for each in recorder.maps:
        num_queries = T if each.name.startswith("decoder") else S
        causal = num_queries == T and each.name.endswith("self_attention")
        mask = causal_mask(T) if causal else (src != SRC_PAD)[:, None, None, :]
        shape = (B, 4, num_queries, T if causal else S)
        assert each.weights.shape == shape
        assert float(each.weights.masked_fill(mask, 0.0).abs().max()) == 0.0
        torch.testing.assert_close(each.weights.sum(-1), torch.ones(shape[:3], dtype=torch.float64))


@EACH
def test_under_autocast_the_logits_are_near_and_the_gradients_are_float32(name: str) -> None:
    torch.manual_seed(137)
    model, (src, tgt_in) = Transformer.from_config(option_config(**OPTIONS[name])), option_inputs()
    for key, weight in model.named_parameters():
        if "positions" in key:  # relative biases of a size that matters
            nn.init.normal_(weight)

    def gradients() -> Iterator[torch.Tensor]:
        for parameter in model.parameters():
            assert parameter.grad is not None
            assert parameter.grad.dtype == torch.float32
            assert bool(parameter.grad.isfinite().all())
            yield parameter.grad.flatten().clone()
            parameter.grad = None

    found = {}
    for precision in ("float32", "bf16"):
        with autocast(precision, src.device):
            logits = model(src, tgt_in)
        cross_entropy(logits.float().transpose(1, 2), tgt_in).backward()
        found[precision] = logits.detach().float(), torch.cat(list(gradients()))
    assert logits.dtype == torch.bfloat16
    for one, other in zip(found["bf16"], found["float32"], strict=True):
        assert (one - other).norm() < 0.02 * other.norm()


@EACH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_near_the_one_in_float64(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(139)
    model, (src, tgt_in) = Transformer.from_config(option_config(**OPTIONS[name])).double(), option_inputs()
    wanted = model(src, tgt_in)
    found = model.to(dtype)(src, tgt_in)
    assert found.dtype == dtype
    assert (found.double() - wanted).norm() < 6 * torch.finfo(dtype).eps * wanted.norm()


def test_relative_biases_are_drawn_like_every_matrix_and_shared_by_the_layers_of_a_stack() -> None:
    torch.manual_seed(149)
    changes = RELATIVE | {"relative_buckets": 320, "num_heads": 4, "relative_max_distance": 999}
    model = Transformer.from_config(option_config(**changes))
    names = {name for name, _ in model.named_parameters() if "positions" in name}
    assert names == {f"{stack}.layers.0.self_attention.positions.weight" for stack in ("encoder", "decoder")}
    tables = [model.get_parameter(name) for name in sorted(names)]
    assert not torch.equal(*tables)
    for table in tables:
        assert table.shape == (320, 4)
        assert table.std().item() == pytest.approx(0.02, rel=0.1)


@EACH
def test_weights_leave_and_enter_by_their_names(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model, (src, tgt_in) = option_model(**OPTIONS[name]).float(), option_inputs()
    other = Transformer.from_config(model.config).eval()
    assert not torch.equal(other(src, tgt_in), model(src, tgt_in))
    load_weights(other, unique_weights(model), tmp_path_factory.getbasetemp())
    assert torch.equal(other(src, tgt_in), model(src, tgt_in))


@EACH
def test_a_few_steps_of_training_lower_the_loss_and_move_every_weight(name: str) -> None:
    torch.manual_seed(151)
    model = Transformer.from_config(option_config(**OPTIONS[name])).train()
    src, tgt_in = option_inputs()
    before = {key: weight.detach().clone() for key, weight in model.named_parameters()}
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    losses = []
    for _ in range(12):
        loss = cross_entropy(model(src, tgt_in)[:, :-1].transpose(1, 2), tgt_in[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.8 * losses[0]
    assert [key for key, weight in model.named_parameters() if torch.equal(weight, before[key])] == []
