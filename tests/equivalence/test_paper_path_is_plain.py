"""Where no option is given, a model is the paper's parts and computes nothing else, bit for bit."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from heedful.model.attention import MultiHeadAttention
from heedful.model.layers import DecoderLayer, EncoderLayer, FeedForward, InputEmbedding, Residual
from heedful.model.positions import SinusoidalPositions, sinusoids
from heedful.model.transformer import Decoder, Encoder, Transformer
from heedful.settings.model import ModelConfig

D, H, D_FF, V, LAYERS = 22, 2, 13, 19, 2
CONFIG = ModelConfig(
    d_model=D, num_heads=H, d_ff=D_FF, num_encoder_layers=LAYERS, num_decoder_layers=LAYERS,
    src_vocab_size=V, tgt_vocab_size=V,
)  # fmt: skip


def inputs() -> tuple[Tensor, Tensor]:
    torch.manual_seed(157)
    src, tgt_in = torch.randint(1, V, (3, 7)), torch.randint(1, V, (3, 5))
    src[1, 3:] = 0
    return src, tgt_in


def built_by_hand() -> Transformer:
    tokens, norm = nn.Embedding(V, D), partial(nn.LayerNorm, D)
    encoder_layers = [
        EncoderLayer(
            MultiHeadAttention(D, H), FeedForward(D, D_FF), norm=norm, residual=partial(Residual, 0.1)
        )
        for _ in range(LAYERS)
    ]
    decoder_layers = [
        DecoderLayer(
            MultiHeadAttention(D, H),
            MultiHeadAttention(D, H),
            FeedForward(D, D_FF),
            norm=norm,
            residual=partial(Residual, 0.1),
        )
        for _ in range(LAYERS)
    ]
    encoder, decoder = (
        kind(InputEmbedding(tokens, SinusoidalPositions(D), dropout=0.1), layers, nn.Identity())  # type: ignore[operator]
        for kind, layers in ((Encoder, encoder_layers), (Decoder, decoder_layers))
    )
    output = nn.Linear(D, V, bias=False)
    output.weight = tokens.weight
    model = Transformer(CONFIG)
    model.encoder, model.decoder, model.output = encoder, decoder, output
    return model


class PlainModel:
    """Section 3 in torch's own functions, over the weights of a model, in evaluation."""

    def __init__(self, model: Transformer) -> None:
        self.weights = dict(model.named_parameters())

    def linear(self, x: Tensor, name: str) -> Tensor:
        return nn.functional.linear(x, self.weights[f"{name}.weight"], self.weights[f"{name}.bias"])

    def norm(self, x: Tensor, name: str) -> Tensor:
        return nn.functional.layer_norm(
            x, (D,), self.weights[f"{name}.weight"], self.weights[f"{name}.bias"], 1e-5
        )

    def attention(self, x: Tensor, context: Tensor, mask: Tensor, name: str) -> Tensor:
        queries, keys, values = (
            self.linear(states, f"{name}.{part}").unflatten(2, (H, D // H)).transpose(1, 2)
            for states, part in ((x, "query"), (context, "key"), (context, "value"))
        )
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(D // H)
        heads = scores.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ values
        return self.linear(heads.transpose(1, 2).flatten(2), f"{name}.output")

    def layer(self, x: Tensor, name: str, mask: Tensor, *memory: Tensor) -> Tensor:
        attended = x + self.attention(x, x, mask, f"{name}.self_attention")
        x = self.norm(attended, f"{name}.self_attention_norm")
        if memory:
            attended = x + self.attention(x, *memory, f"{name}.cross_attention")
            x = self.norm(attended, f"{name}.cross_attention_norm")
        inner = torch.relu(self.linear(x, f"{name}.feed_forward.inner"))
        return self.norm(x + self.linear(inner, f"{name}.feed_forward.outer"), f"{name}.feed_forward_norm")

    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        tokens = self.weights["encoder.embedding.tokens.weight"]
        mask = (src != 0)[:, None, None, :]
        memory = tokens[src] * math.sqrt(D) + sinusoids(src.shape[1], D)
        for i in range(LAYERS):
            memory = self.layer(memory, f"encoder.layers.{i}", mask)
        x = tokens[tgt_in] * math.sqrt(D) + sinusoids(tgt_in.shape[1], D)
        past = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
        for i in range(LAYERS):
            x = self.layer(x, f"decoder.layers.{i}", past, memory, mask)
        return x @ tokens.T


@pytest.mark.parametrize("training", [False, True])
def test_a_model_from_its_configuration_is_the_papers_parts_bit_for_bit(training: bool) -> None:
    torch.manual_seed(163)
    model, by_hand = Transformer.from_config(CONFIG).train(training), built_by_hand().train(training)
    assert model.state_dict().keys() == by_hand.state_dict().keys()
    by_hand.load_state_dict(model.state_dict())
    found = []
    for each in (model, by_hand):
        src, tgt_in = inputs()  # and the seed of dropout
        logits = each(src, tgt_in)
        logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in each.parameters())])
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


def test_the_papers_model_computes_the_papers_formulas_and_nothing_else_bit_for_bit() -> None:
    torch.manual_seed(167)
    model = Transformer.from_config(CONFIG).eval()
    src, tgt_in = inputs()
    assert torch.equal(model(src, tgt_in), PlainModel(model).logits(src, tgt_in))
