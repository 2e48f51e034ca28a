"""What must not change the model's output, and what must."""

from typing import Any

import pytest
import torch

from heedful.errors import InputError
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

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


@KINDS
@pytest.mark.parametrize("t", range(T))
def test_changing_a_target_token_changes_nothing_before_it(changes: dict[str, Any], t: int) -> None:
    model = build(**changes)
    src, tgt_in = inputs()
    other = tgt_in.clone()
    other[:, t] = 5 + (tgt_in[:, t] - 4) % 18
    before, after = model(src, tgt_in), model(src, other)
    torch.testing.assert_close(before[:, :t], after[:, :t], rtol=0.0, atol=1e-14)
    assert (before[:, t:] - after[:, t:]).abs().amax(dim=(0, 2)).min() > 1e-6


@KINDS
def test_padding_does_not_change_the_logits(changes: dict[str, Any]) -> None:
    """More padding, less padding, no padding: a sentence alone gives what it gives among others."""
    model = build(**changes)
    src, tgt_in = inputs()
    together = model(src, tgt_in)
    longer = model(torch.cat([src, torch.full((B, 6), SRC_PAD)], dim=1), tgt_in)
    torch.testing.assert_close(longer, together, rtol=0.0, atol=1e-12)
    for row, length in enumerate(LENGTHS):
        alone = model(src[row : row + 1, :length], tgt_in[row : row + 1])
        torch.testing.assert_close(alone[0], together[row], rtol=0.0, atol=1e-12)


@KINDS
def test_target_padding_changes_no_logit_of_a_real_token(changes: dict[str, Any]) -> None:
    model = build(**changes)
    src, tgt_in = inputs()
    whole = model(src, tgt_in)
    for filler in (TGT_PAD, 9):
        padded = tgt_in.clone()
        padded[:, 3:] = filler
        torch.testing.assert_close(model(src, padded)[:, :3], whole[:, :3], rtol=0.0, atol=1e-14)


def test_what_stands_in_the_padding_changes_nothing() -> None:
    """The embedding of padding may be anything: no attention looks there, no gradient comes from there."""
    model = build()
    src, tgt_in = inputs()
    before = model(src, tgt_in)
    with torch.no_grad():
        model.encoder.embedding.tokens.weight[SRC_PAD] = 1e3 * torch.randn(22)
    after = model(src, tgt_in)
    torch.testing.assert_close(before, after, rtol=0.0, atol=1e-12)
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
    whole = model.project(model.decode(tgt_in, memory))
    other = src.clone()
    other[0, 2] = 7
    assert (model(other, tgt_in) - whole)[0].abs().max() > 1e-6  # it was seen
    other = tgt_in.clone()
    other[0, 2] = 7
    assert (model(src, other) - whole)[0, 4].abs().max() > 1e-6


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
    assert not torch.allclose(model(src, tgt_in), model(src, tgt_in))


def test_a_source_of_padding_alone_gives_numbers() -> None:
    model = build()
    src, tgt_in = inputs()
    src[1] = SRC_PAD
    logits = model(src, tgt_in)
    assert bool(logits.isfinite().all())
    logits.sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_half_precision_is_near_the_one_in_float64(dtype: torch.dtype) -> None:
    model = build()
    src, tgt_in = inputs()
    wanted = model(src, tgt_in)
    found = model.to(dtype)(src, tgt_in)
    assert found.dtype == dtype
    assert (found.double() - wanted).norm() / wanted.norm() < 4 * torch.finfo(dtype).eps


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
