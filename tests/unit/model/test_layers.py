"""Norms that the paper does not have, off by default: on the embedded input, and after post-norm stacks."""

import pytest
import torch
from small_models import small_config, small_model
from tolerances import FLOAT32, FLOAT64, assert_close, close, sampled
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from heedful.model.layers import InputEmbedding
from heedful.model.positions import SinusoidalPositions
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

SRC, TGT_IN = torch.tensor([[4, 5, 6, 0], [7, 8, 9, 10]]), torch.tensor([[2, 5, 6], [2, 7, 0]])


def test_the_embedded_input_is_normalised_after_dropout_where_asked_for() -> None:
    torch.manual_seed(3)
    tokens = nn.Embedding(11, 6)
    plain = InputEmbedding(tokens, SinusoidalPositions(6), dropout=0.0)
    normed = InputEmbedding(tokens, SinusoidalPositions(6), dropout=0.0, norm=nn.LayerNorm(6, 1e-3))
    nn.init.normal_(normed.norm.weight)
    nn.init.normal_(normed.norm.bias)
    wanted = layer_norm(plain(SRC), (6,), normed.norm.weight, normed.norm.bias, 1e-3)
    assert_close(normed(SRC), wanted, FLOAT32.ROW)
    dropped = InputEmbedding(tokens, SinusoidalPositions(6), dropout=0.5, norm=nn.LayerNorm(6, 1e-3)).train()(
        SRC
    )
    assert_close(dropped.mean(-1), torch.zeros(2, 4), FLOAT32.ROW)


def test_a_final_norm_normalises_what_each_post_norm_stack_gives() -> None:
    model = small_model(final_norm=True).eval()
    plain = Transformer.from_config(small_config()).eval()
    plain.load_state_dict({n: w for n, w in model.state_dict().items() if "final_norm" not in n})
    for stack in (model.encoder, model.decoder):
        nn.init.normal_(stack.final_norm.weight)

    def normed(states: Tensor, norm: nn.Module) -> Tensor:
        return layer_norm(states, (8,), norm.weight, norm.bias)

    memory, plain_memory = model.encode(SRC), plain.encode(SRC)
    assert_close(memory.states, normed(plain_memory.states, model.encoder.final_norm), FLOAT32.MODEL)
    wanted = normed(plain.decoder(TGT_IN, memory), model.decoder.final_norm)
    assert_close(model.decoder(TGT_IN, memory), wanted, FLOAT32.MODEL)


@pytest.mark.parametrize("option", ["embedding_norm", "final_norm"])
def test_an_option_is_off_by_default_and_adds_its_norms_alone(option: str) -> None:
    names = {name for name, _ in small_model().named_parameters()}
    more = {name for name, _ in small_model(**{option: True}).named_parameters()}
    part = {"embedding_norm": "embedding.norm", "final_norm": "final_norm"}[option]
    assert more - names == {f"{s}.{part}.{k}" for s in ("encoder", "decoder") for k in ("weight", "bias")}
    assert names < more


def test_the_encoders_input_alone_may_be_normalised() -> None:
    names, more = (
        {name for name, _ in small_model(embedding_norm=option).named_parameters()}
        for option in (False, "encoder")
    )
    assert more - names == {f"encoder.embedding.norm.{kind}" for kind in ("weight", "bias")}


def test_pre_norm_stacks_have_their_final_norm_either_way() -> None:
    one = dict(small_model(norm="pre").named_parameters())
    other = dict(small_model(norm="pre", final_norm=True).named_parameters())
    assert one.keys() == other.keys()


B, L, D, V, P = 300, 7, 6, 11, 0.3


def embedding(word_dropout: float, dropout: float = 0.0) -> InputEmbedding:
    torch.manual_seed(3)
    tokens, positions = nn.Embedding(V, D), SinusoidalPositions(D)
    return InputEmbedding(tokens, positions, dropout=dropout, word_dropout=word_dropout).double()


def some_ids() -> Tensor:
    torch.manual_seed(5)
    return torch.randint(V, (B, L))


def words(layer: InputEmbedding, ids: Tensor) -> Tensor:
    """What is left of the embedded words when their positions are taken away."""
    return layer(ids) - layer.positions(0, L)


def test_whole_words_fall_and_the_others_make_up_for_them() -> None:
    layer, ids = embedding(P), some_ids()
    found, wanted = words(layer, ids), words(layer.eval(), ids) / (1 - P)
    fallen = found.abs().amax(dim=-1) < 1e-12
    assert_close(found, torch.where(fallen[..., None], 0.0, wanted), FLOAT64.MODEL)
    assert fallen.double().mean().item() == close(P, sampled((P * (1 - P)) ** 0.5, B * L))


def test_each_occurrence_of_a_word_falls_for_itself() -> None:
    fallen = words(embedding(0.5), torch.full((B, L), 4)).abs().amax(dim=-1) < 1e-12
    correlations = torch.corrcoef(fallen.double().T)
    assert float((correlations - torch.eye(L)).abs().max()) < 5 / B**0.5
    assert len(fallen.unique(dim=0)) > 50


def test_a_word_that_fell_gets_no_gradient() -> None:
    layer, ids = embedding(0.5), torch.arange(L)[None]
    found = words(layer, ids)
    found.sum().backward()
    fallen = found[0].detach().abs().amax(dim=-1) < 1e-12
    assert bool(fallen.any()) and not bool(fallen.all())
    assert layer.tokens.weight.grad is not None
    assert torch.equal(layer.tokens.weight.grad[:L].abs().sum(dim=1) == 0, fallen)


def test_where_no_word_falls_nothing_is_drawn_or_computed() -> None:
    ids = some_ids()
    torch.manual_seed(7)
    off = embedding(0.0, dropout=0.2)
    found = off(ids)
    torch.manual_seed(7)
    by_hand = embedding(0.0, dropout=0.2)
    by_hand.word_dropout = nn.Identity()  # type: ignore[assignment]
    assert torch.equal(found, by_hand(ids))
    assert torch.equal(embedding(P).eval()(ids), off.eval()(ids))


def test_both_stacks_lose_words() -> None:
    config = ModelConfig(
        d_model=D, num_heads=2, d_ff=5, num_encoder_layers=1, num_decoder_layers=1, dropout=0.0,
        word_dropout=0.9, src_vocab_size=V, tgt_vocab_size=V,
    )  # fmt: skip
    model = Transformer.from_config(config)
    ids = some_ids().clamp(min=1)
    for stack in (model.encoder, model.decoder):
        assert int((words(stack.embedding, ids).abs().amax(dim=-1) < 1e-5).sum()) > 0.8 * B * L
