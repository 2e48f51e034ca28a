"""Norms that the paper does not have, off by default: on the embedded input, and after post-norm stacks."""

import pytest
import torch
from small_models import small_config, small_model
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from heedful.model.layers import InputEmbedding
from heedful.model.positions import SinusoidalPositions
from heedful.model.transformer import Transformer

SRC, TGT_IN = torch.tensor([[4, 5, 6, 0], [7, 8, 9, 10]]), torch.tensor([[2, 5, 6], [2, 7, 0]])


def test_the_embedded_input_is_normalised_after_dropout_where_asked_for() -> None:
    torch.manual_seed(3)
    tokens = nn.Embedding(11, 6)
    plain = InputEmbedding(tokens, SinusoidalPositions(6), dropout=0.0)
    normed = InputEmbedding(tokens, SinusoidalPositions(6), dropout=0.0, norm=nn.LayerNorm(6, 1e-3))
    nn.init.normal_(normed.norm.weight)
    nn.init.normal_(normed.norm.bias)
    wanted = layer_norm(plain(SRC), (6,), normed.norm.weight, normed.norm.bias, 1e-3)
    torch.testing.assert_close(normed(SRC), wanted)
    dropped = InputEmbedding(tokens, SinusoidalPositions(6), dropout=0.5, norm=nn.LayerNorm(6, 1e-3)).train()(
        SRC
    )
    torch.testing.assert_close(dropped.mean(-1), torch.zeros(2, 4), rtol=0.0, atol=1e-5)


def test_a_final_norm_normalises_what_each_post_norm_stack_gives() -> None:
    model = small_model(final_norm=True).eval()
    plain = Transformer.from_config(small_config()).eval()
    plain.load_state_dict({n: w for n, w in model.state_dict().items() if "final_norm" not in n})
    for stack in (model.encoder, model.decoder):
        nn.init.normal_(stack.final_norm.weight)

    def normed(states: Tensor, norm: nn.Module) -> Tensor:
        return layer_norm(states, (8,), norm.weight, norm.bias)

    memory, plain_memory = model.encode(SRC), plain.encode(SRC)
    torch.testing.assert_close(memory.states, normed(plain_memory.states, model.encoder.final_norm))
    wanted = normed(plain.decode(TGT_IN, memory), model.decoder.final_norm)
    torch.testing.assert_close(model.decode(TGT_IN, memory), wanted)


@pytest.mark.parametrize("option", ["embedding_norm", "final_norm"])
def test_an_option_is_off_by_default_and_adds_its_norms_alone(option: str) -> None:
    names = {name for name, _ in small_model().named_parameters()}
    more = {name for name, _ in small_model(**{option: True}).named_parameters()}
    part = {"embedding_norm": "embedding.norm", "final_norm": "final_norm"}[option]
    assert more - names == {f"{s}.{part}.{k}" for s in ("encoder", "decoder") for k in ("weight", "bias")}
    assert names < more


@pytest.mark.parametrize("option", ["embedding_norm", "final_norm"])
def test_cached_decoding_equals_full_decoding_with_each_option(option: str) -> None:
    model = small_model(**{option: True}).double().eval()
    whole = model(SRC, TGT_IN)
    cache = model.start_cache(model.encode(SRC))
    for t in range(TGT_IN.shape[1]):
        torch.testing.assert_close(model.decode_step(TGT_IN[:, t], cache), whole[:, t])


def test_pre_norm_stacks_have_their_final_norm_either_way() -> None:
    one = dict(small_model(norm="pre").named_parameters())
    other = dict(small_model(norm="pre", final_norm=True).named_parameters())
    assert one.keys() == other.keys()
