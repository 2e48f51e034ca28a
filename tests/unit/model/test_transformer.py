"""What must not change the model's output, and what must."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any

import option_models
import pytest
import torch
from option_models import EVERY, GEMMA, RELATIVE, TGT_VOCAB, option_config, option_inputs, option_model
from tolerances import BF16, FLOAT32, FLOAT64, assert_apart, assert_close, close, format_of, largest, sampled
from torch import nn
from torch.nn.functional import cross_entropy

from heedful.errors import InputError
from heedful.model.attention import causal_mask
from heedful.model.transformer import Transformer
from heedful.ops.attention import record_attention
from heedful.settings.model import ModelConfig
from heedful.storage.torch_weights import load_weights, unique_weights
from heedful.training.execution import autocast

B, S, T = 3, 7, 5
SRC_PAD, TGT_PAD = 4, 1
LENGTHS = (7, 2, 4)
KINDS = pytest.mark.parametrize(
    "changes", [{}, {"norm": "pre"}, {"positions": "learned", "max_positions": 13}, {"d_k": 3, "d_v": 5}]
)


def build(**changes: Any) -> Transformer:  # noqa: ANN401
    torch.manual_seed(61)
    config = ModelConfig(
        d_model=22, num_heads=2, d_ff=17, num_encoder_layers=2, num_decoder_layers=2, dropout=0.1,
        src_vocab_size=19, tgt_vocab_size=23, tied="target", src_pad_id=SRC_PAD, tgt_pad_id=TGT_PAD,
    ).replace(**changes)  # fmt: skip
    return Transformer.from_config(config).double().eval()


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(67)
    src, tgt_in = torch.randint(5, 19, (B, S)), torch.randint(5, 23, (B, T))
    for row, length in enumerate(LENGTHS):
        src[row, length:] = SRC_PAD
    return src, tgt_in


def test_a_copy_generates_the_same() -> None:
    """The search is no part of a model: it need not be copied or pickled, and no weight is its own."""
    model = build().float()
    src, _ = inputs()
    wanted = model.generate(src, max_length=5)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other.generate(src, max_length=5), wanted)
        assert list(other.state_dict()) == list(model.state_dict())


def test_what_stands_in_the_padding_changes_nothing() -> None:
    """The embedding of padding may be anything: no attention looks there, no gradient comes from there."""
    model = build()
    src, tgt_in = inputs()
    before = model(src, tgt_in)
    with torch.no_grad():
        model.encoder.embedding.tokens.weight[SRC_PAD] = 1e3 * torch.randn(22)
    after = model(src, tgt_in)
    assert_close(before, after, FLOAT64.MODEL)
    after.sum().backward()
    gradient = model.encoder.embedding.tokens.weight.grad
    assert gradient is not None
    assert float(gradient[SRC_PAD].abs().max()) == 0.0
    assert float(gradient[5:].abs().max()) > 0.0


def test_each_side_has_a_padding_id_of_its_own() -> None:
    """The source's pad id is a word of the target, and the other way round."""
    model = build()
    src, tgt_in = inputs()
    src[0, 2], tgt_in[0, 2] = TGT_PAD, SRC_PAD
    memory = model.encode(src)
    assert memory.mask[0, 0, 0].all()
    whole = model.decode(tgt_in, memory)
    other = src.clone()
    other[0, 2] = 7
    assert_apart(model(other, tgt_in)[0], whole[0], FLOAT64.MODEL)  # it was seen
    other = tgt_in.clone()
    other[0, 2] = 7
    assert_apart(model(src, other)[0, 4], whole[0, 4], FLOAT64.MODEL)


@KINDS
def test_without_dropout_training_and_use_agree(changes: dict[str, Any]) -> None:
    model = build(dropout=0.0, **changes)
    src, tgt_in = inputs()
    assert torch.equal(model.train()(src, tgt_in), model.eval()(src, tgt_in))


@pytest.mark.parametrize("name", ["dropout", "attention_dropout", "activation_dropout", "word_dropout"])
def test_each_kind_of_dropout_acts_in_training_alone(name: str) -> None:
    model = build(**{"dropout": 0.0, name: 0.3})
    src, tgt_in = inputs()
    assert torch.equal(model(src, tgt_in), model(src, tgt_in))
    model.train()
    assert_apart(model(src, tgt_in), model(src, tgt_in), FLOAT32.MODEL)


def test_a_sequence_beyond_learned_positions_is_refused_on_either_side() -> None:
    model = build(positions="learned", max_positions=S)
    src, tgt_in = inputs()
    model(src, torch.cat([tgt_in, tgt_in[:, :2]], dim=1))
    for too_long in ((torch.cat([src, src], dim=1), tgt_in), (src, torch.cat([tgt_in, tgt_in], dim=1))):
        with pytest.raises(InputError, match="learned positions"):
            model(*too_long)


def test_a_seed_gives_the_weights() -> None:
    one, two = build(), build()
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), two.parameters(), strict=True))


def test_the_number_of_parameters_counts_a_shared_matrix_once() -> None:
    separate = build(tied="none").num_parameters
    assert separate - build(tied="target").num_parameters == 23 * 22
    same = {"src_vocab_size": 23, "tgt_vocab_size": 23, "src_pad_id": 1}
    assert build(tied="none", **same).num_parameters - build(tied="all", **same).num_parameters == 2 * 23 * 22


EACH = pytest.mark.parametrize("name", EVERY)


@EACH
def test_changing_a_target_token_changes_nothing_before_it(name: str) -> None:
    model, (src, tgt_in) = option_model(**EVERY[name]), option_inputs()
    before = model(src, tgt_in)
    for t in range(option_models.T):
        other = tgt_in.clone()
        other[:, t] = 5 + (tgt_in[:, t] - 4) % (TGT_VOCAB - 5)
        after = model(src, other)
        assert_close(before[:, :t], after[:, :t], FLOAT64.MODEL)
        assert (before[:, t:] - after[:, t:]).abs().amax(dim=(0, 2)).min() > 1e-6


@EACH
def test_padding_does_not_change_the_logits(name: str) -> None:
    model, (src, tgt_in) = option_model(**EVERY[name]), option_inputs()
    together = model(src, tgt_in)
    longer = model(torch.cat([src, torch.full((option_models.B, 6), option_models.SRC_PAD)], dim=1), tgt_in)
    assert_close(longer, together, FLOAT64.MODEL.at(largest(together)))
    for row, length in enumerate(option_models.LENGTHS):
        alone = model(src[row : row + 1, :length], tgt_in[row : row + 1, : 3 + row])
        assert_close(alone[0], together[row, : 3 + row], FLOAT64.MODEL.at(largest(together)))
    padded = tgt_in.clone()
    padded[:, 3:] = option_models.TGT_PAD
    assert_close(model(src, padded)[:, :3], together[:, :3], FLOAT64.MODEL)


@EACH
def test_the_order_of_words_matters(name: str) -> None:
    """No option leaves a stack without positions."""
    model, (src, tgt_in) = option_model(**EVERY[name]), option_inputs()
    before = model(src, tgt_in)
    assert_apart(model(src.roll(2, dims=1)[:1], tgt_in[:1]), before[:1], FLOAT64.MODEL)
    other = tgt_in.clone()
    other[:, [1, 5]] = tgt_in[:, [5, 1]]
    assert_apart(model(src, other)[:, 6:], before[:, 6:], FLOAT64.MODEL)


@EACH
def test_a_source_of_padding_alone_gives_numbers(name: str) -> None:
    model, (src, tgt_in) = option_model(**EVERY[name]), option_inputs()
    src[1] = option_models.SRC_PAD
    logits = model(src, tgt_in)
    assert bool(logits.isfinite().all())
    logits.sum().backward()
    assert all(p.grad is not None and bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("name", [name for name in EVERY if name not in GEMMA])
def test_maps_are_recorded_as_with_the_papers_attention(name: str) -> None:
    """One row for each query of each head, of which every row sums to one over what it may see."""
    model, (src, tgt_in) = option_model(**EVERY[name]), option_inputs()
    before = model(src, tgt_in)
    with record_attention(model) as recorder:
        during = model(src, tgt_in)
    assert torch.equal(before, during)
    assert len(recorder.maps) == 2 + 2 * 2
    for each in recorder.maps:
        num_queries = option_models.T if each.name.startswith("decoder") else option_models.S
        causal = num_queries == option_models.T and each.name.endswith("self_attention")
        mask = causal_mask(option_models.T) if causal else (src != option_models.SRC_PAD)[:, None, None, :]
        shape = (option_models.B, 4, num_queries, option_models.T if causal else option_models.S)
        assert each.weights.shape == shape
        assert float(each.weights.masked_fill(mask, 0.0).abs().max()) == 0.0
        assert_close(each.weights.sum(-1), torch.ones(shape[:3], dtype=torch.float64), FLOAT64.ROW)


@EACH
def test_under_autocast_the_logits_are_near_and_the_gradients_are_float32(name: str) -> None:
    torch.manual_seed(137)
    model, (src, tgt_in) = Transformer.from_config(option_config(**EVERY[name])), option_inputs()
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
        assert_close((one - other).norm() / other.norm(), 0.0, BF16.ROW)


@EACH
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_near_the_one_in_float64(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(139)
    model, (src, tgt_in) = Transformer.from_config(option_config(**EVERY[name])).double(), option_inputs()
    wanted = model(src, tgt_in)
    found = model.to(dtype)(src, tgt_in)
    assert found.dtype == dtype
    assert_close((found.double() - wanted).norm() / wanted.norm(), 0.0, format_of(dtype).MODEL)


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
        assert table.std().item() == close(0.02, sampled(0.02 / 2**0.5, table.numel()))


@EACH
def test_weights_leave_and_enter_by_their_names(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    model, (src, tgt_in) = option_model(**EVERY[name]).float(), option_inputs()
    other = Transformer.from_config(model.config).eval()
    assert not torch.equal(other(src, tgt_in), model(src, tgt_in))
    load_weights(other, unique_weights(model), tmp_path_factory.getbasetemp())
    assert torch.equal(other(src, tgt_in), model(src, tgt_in))


@EACH
def test_a_few_steps_of_training_lower_the_loss_and_move_every_weight(name: str) -> None:
    torch.manual_seed(151)
    model = Transformer.from_config(option_config(**EVERY[name])).train()
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


def test_decode_returns_the_logits_of_the_whole_model() -> None:
    model, (src, tgt_in) = build(), inputs()
    assert_close(model.decode(tgt_in, model.encode(src)), model(src, tgt_in), FLOAT64.MODEL)


def test_one_number_is_the_size_of_both_vocabularies() -> None:
    model = Transformer(23, d_model=8, num_heads=2, d_ff=8)
    assert (model.config.src_vocab_size, model.config.tgt_vocab_size) == (23, 23)
