"""Attention, both layers and the whole model equal torch's own, forward and backward, with weights copied.

torch has d_k = d_v = d_model / h only; other sizes are compared with loops in test_naive_equals_heedful.py.
"""

from collections.abc import Iterable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from tolerances import FLOAT64, assert_close, largest
from torch import Tensor, nn

from heedful.model.attention import MultiHeadAttention, attention_weights, causal_mask
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward, Residual
from heedful.model.transformer import Transformer
from heedful.settings.model import ModelConfig

B, H, T, S = 2, 3, 5, 7
D, D_FF = 3 * 11, 13
LENGTHS = torch.tensor([7, 4])
HIDDEN = torch.arange(S) >= LENGTHS[:, None]  # torch's padding masks: True = may not attend
FUTURE = torch.ones(T, T, dtype=torch.bool).triu(1)

Pairs = Iterable[tuple[Tensor, Tensor]]


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(13)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def perturb(module: nn.Module) -> None:
    module.double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn_like(parameter)


def attention_pairs(ours: MultiHeadAttention, theirs: nn.MultiheadAttention, gradient: bool) -> Pairs:
    """Their tensors beside ours; torch stacks the three input projections."""

    def of(parameter: Tensor) -> Tensor:
        return parameter.grad if gradient else parameter  # type: ignore[return-value]

    parts = (ours.query, ours.key, ours.value)
    yield of(theirs.in_proj_weight), torch.cat([of(part.weight) for part in parts])
    yield of(theirs.in_proj_bias), torch.cat([of(part.bias) for part in parts])
    yield of(theirs.out_proj.weight), of(ours.output.weight)
    yield of(theirs.out_proj.bias), of(ours.output.bias)


def pairs(ours: nn.Module, theirs: nn.Module, gradient: bool = False) -> Pairs:
    """Each tensor of a torch module beside its equal here."""
    if isinstance(ours, MultiHeadAttention):
        yield from attention_pairs(ours, theirs, gradient)  # type: ignore[arg-type]
        return
    matches = {"linear1": "feed_forward.inner", "linear2": "feed_forward.outer"}
    if isinstance(ours, EncoderLayer):
        matches |= {"self_attn": "self_attention"}
        matches |= {"norm1": "self_attention_norm", "norm2": "feed_forward_norm"}
    elif isinstance(ours, DecoderLayer):
        matches |= {"self_attn": "self_attention", "multihead_attn": "cross_attention"}
        matches |= {"norm1": "self_attention_norm", "norm2": "cross_attention_norm"}
        matches |= {"norm3": "feed_forward_norm"}
    else:
        for one, other in zip(ours.parameters(), theirs.parameters(), strict=True):
            yield (other.grad, one.grad) if gradient else (other, one)  # type: ignore[misc]
        return
    for their_name, our_name in matches.items():
        yield from pairs(ours.get_submodule(our_name), theirs.get_submodule(their_name), gradient)


def copy_weights(ours: nn.Module, theirs: nn.Module) -> None:
    perturb(ours)
    theirs.double()
    with torch.no_grad():
        for other, one in pairs(ours, theirs):
            other.copy_(one)


def assert_same(found: Tensor | None, wanted: Tensor | None) -> None:
    assert found is not None
    assert wanted is not None
    assert_close(found, wanted, FLOAT64.MODEL.at(largest(wanted)))


def assert_same_with_gradients(
    found: Tensor,
    wanted: Tensor,
    *inputs: tuple[Tensor, Tensor],
    modules: tuple[nn.Module, nn.Module] | None = None,
) -> None:
    """The outputs are equal, and the gradients of both inputs of each pair and of both modules' weights."""
    assert_same(found, wanted)
    backward_both(found, wanted)
    for one, other in inputs:
        assert_same(one.grad, other.grad)
    if modules is not None:
        compared = [assert_same(one, other) for other, one in pairs(*modules, gradient=True)]
        assert len(compared) >= 2


def backward_both(found: Tensor, wanted: Tensor) -> None:
    coefficients = torch.randn_like(found)
    (found * coefficients).sum().backward()
    (wanted * coefficients).sum().backward()


def twins(*shape: int) -> tuple[Tensor, Tensor]:
    x = random(*shape)
    return x, x.detach().clone().requires_grad_()


@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_products_equal_torchs(masked: bool) -> None:
    """d_k = 11 and d_v = 13, so that a division by any other root shows."""
    q, their_q = twins(B, H, T, 11)
    k, their_k = twins(B, H, S, 11)
    v, their_v = twins(B, H, S, 13)
    mask = ~HIDDEN[:, None, None, :] if masked else None
    found = attention_weights(q, k, mask) @ v
    wanted = F.scaled_dot_product_attention(their_q, their_k, their_v, attn_mask=mask)
    assert_same_with_gradients(found, wanted, (q, their_q), (k, their_k), (v, their_v))


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_equals_torchs(causal: bool) -> None:
    ours, theirs = MultiHeadAttention(D, H), nn.MultiheadAttention(D, H, batch_first=True)
    copy_weights(ours, theirs)
    x, their_x = twins(B, T, D)
    if causal:
        found = ours(x, x, causal_mask(T))
        wanted, _ = theirs(their_x, their_x, their_x, attn_mask=FUTURE)
    else:
        context = random(B, S, D)
        found = ours(x, context, ~HIDDEN[:, None, None, :])
        wanted, _ = theirs(their_x, context, context, key_padding_mask=HIDDEN)
    assert_same_with_gradients(found, wanted, (x, their_x), modules=(ours, theirs))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_an_encoder_layer_equals_torchs(norm_first: bool, activation: str) -> None:
    ours = EncoderLayer(
        MultiHeadAttention(D, H), FeedForward(D, D_FF, activation=activation),
        norm=lambda: nn.LayerNorm(D, 0.01), residual=partial(Residual, 0.0, norm_first=norm_first),
    )  # fmt: skip
    theirs = nn.TransformerEncoderLayer(
        D, H, D_FF, dropout=0.0, activation=activation, layer_norm_eps=0.01, batch_first=True,
        norm_first=norm_first,
    )  # fmt: skip
    copy_weights(ours, theirs)
    x, their_x = twins(B, S, D)
    found = ours(x, ~HIDDEN[:, None, None, :])
    wanted = theirs(their_x, src_key_padding_mask=HIDDEN)
    assert_same_with_gradients(found, wanted, (x, their_x), modules=(ours, theirs))


@pytest.mark.parametrize("norm_first", [False, True])
def test_a_decoder_layer_equals_torchs(norm_first: bool) -> None:
    parts = MultiHeadAttention(D, H), MultiHeadAttention(D, H), FeedForward(D, D_FF)
    ours = DecoderLayer(
        *parts, norm=lambda: nn.LayerNorm(D), residual=partial(Residual, 0.0, norm_first=norm_first)
    )
    theirs = nn.TransformerDecoderLayer(D, H, D_FF, dropout=0.0, batch_first=True, norm_first=norm_first)
    copy_weights(ours, theirs)
    x, their_x = twins(B, T, D)
    memory, their_memory = twins(B, S, D)
    found = ours(x, memory, ~HIDDEN[:, None, None, :])
    wanted = theirs(their_x, their_memory, tgt_mask=FUTURE, memory_key_padding_mask=HIDDEN)
    both = (x, their_x), (memory, their_memory)
    assert_same_with_gradients(found, wanted, *both, modules=(ours, theirs))


def torch_transformer(config: ModelConfig) -> nn.Transformer:
    """torch's own assembly; its stacks have a final norm even after post-norm layers unless built by hand."""
    pre = config.norm == "pre"
    sizes = {"dropout": 0.0, "batch_first": True, "norm_first": pre}
    norms = [nn.LayerNorm(config.d_model) if pre else None for _ in range(2)]
    encoder_layer = nn.TransformerEncoderLayer(config.d_model, config.num_heads, config.d_ff, **sizes)
    decoder_layer = nn.TransformerDecoderLayer(config.d_model, config.num_heads, config.d_ff, **sizes)
    encoder = nn.TransformerEncoder(
        encoder_layer, config.num_encoder_layers, norms[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(decoder_layer, config.num_decoder_layers, norms[1])
    return nn.Transformer(
        config.d_model, config.num_heads, custom_encoder=encoder, custom_decoder=decoder, batch_first=True
    )


@pytest.mark.parametrize("norm", ["post", "pre"])
@pytest.mark.parametrize("training", [False, True])
def test_the_stacks_equal_torchs(norm: str, training: bool) -> None:
    """Dropout is 0, so that training and use must agree too: torch takes another path for each."""
    config = ModelConfig(
        d_model=22, num_heads=2, d_ff=13, num_encoder_layers=3, num_decoder_layers=2, dropout=0.0, norm=norm,
        src_vocab_size=17, tgt_vocab_size=19, tied="target", src_pad_id=3,
    )  # fmt: skip
    ours, theirs = Transformer.from_config(config), torch_transformer(config).double()
    perturb(ours)
    stacks = ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder))
    layers = [both for one, other in stacks for both in zip(one.layers, other.layers, strict=True)] + (
        [(one.final_norm, other.norm) for one, other in stacks] if norm == "pre" else []
    )
    with torch.no_grad():
        for one, other in layers:
            for target, source in pairs(one, other):
                target.copy_(source)
    ours.train(training)
    theirs.train(training)
    src, tgt_in = torch.randint(4, 17, (B, S)), torch.randint(4, 19, (B, T))
    src[HIDDEN] = config.src_pad_id
    found = ours(src, tgt_in)
    with torch.no_grad():
        embedded, tgt_embedded = ours.encoder.embedding(src), ours.decoder.embedding(tgt_in)
    states = theirs(
        embedded, tgt_embedded, tgt_mask=FUTURE, src_key_padding_mask=HIDDEN, memory_key_padding_mask=HIDDEN
    )
    wanted = states @ ours.output.weight.detach().T
    assert_same(found, wanted)
    backward_both(found, wanted)
    for one, other in layers:
        compared = [assert_same(mine, torchs) for torchs, mine in pairs(one, other, gradient=True)]
        assert len(compared) >= 2
