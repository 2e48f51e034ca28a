"""The Transformer as loops over numbers, written down from the formulas of the paper, sentence by sentence.

Weights are nested lists of numbers under the names that the weight file gives them; a matrix is a list of the
rows that make one output each. There is no batch and no padding: what is masked is not in the loop.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from scalars import (
    Number,
    Vector,
    differentiate,
    divide,
    dot,
    exp,
    gelu,
    minus,
    relu,
    square_root,
    swish,
    total,
)
from scalars import times as scaled
from torch import Tensor, nn

ACTIVATIONS: dict[str, Callable[[Number], Number]] = {"relu": relu, "gelu": gelu, "swish": swish}
States = Sequence[Vector]
Allowed = Callable[[int, int], bool]  # may position t look at position s?


def numbers(tensor: Tensor) -> Any:  # noqa: ANN401
    """A tensor as nested lists of fresh numbers."""
    nested = tensor.tolist() if isinstance(tensor, Tensor) else tensor
    return [numbers(part) for part in nested] if isinstance(nested, list) else Number(nested)


def values(nested: Any) -> Tensor:  # noqa: ANN401
    def read(part: Any) -> Any:  # noqa: ANN401
        return part.value if isinstance(part, Number) else [read(inner) for inner in part]

    return torch.tensor(read(nested), dtype=torch.float64)


def gradients(nested: Any) -> Tensor:  # noqa: ANN401
    def read(part: Any) -> Any:  # noqa: ANN401
        return part.gradient if isinstance(part, Number) else [read(inner) for inner in part]

    return torch.tensor(read(nested), dtype=torch.float64)


def weights_of(module: nn.Module) -> dict[str, Any]:
    """All weights as numbers, by name; a shared one once."""
    return {name: numbers(parameter.detach()) for name, parameter in module.named_parameters()}


def weigh_and_differentiate(outputs: Any, coefficients: Tensor) -> None:  # noqa: ANN401
    """Differentiate the sum of all outputs, each times its coefficient."""
    terms: list[Number] = []

    def collect(part: Any, factors: Any) -> None:  # noqa: ANN401
        if isinstance(part, Number):
            terms.append(scaled(part, factors))
        else:
            for inner, factor in zip(part, factors, strict=True):
                collect(inner, factor)

    collect(outputs, coefficients.tolist())
    differentiate(total(terms))


@dataclass(frozen=True)
class Naive:
    """The formulas of section 3, over one model's weights."""

    weights: Mapping[str, Any]
    num_heads: int
    activation: str = "relu"
    norm_first: bool = False
    eps: float = 1e-5
    num_kv_heads: int | None = None

    def linear(self, x: Vector, name: str) -> list[Number]:
        bias = self.weights.get(f"{name}.bias")
        products = [dot(x, row) for row in self.weights[f"{name}.weight"]]
        return products if bias is None else [total(pair) for pair in zip(products, bias, strict=True)]

    def attention(self, x: States, context: States, name: str, allowed: Allowed) -> list[Vector]:
        """3.2: heads one after the other, queries one after the other."""
        queries = [self.linear(row, f"{name}.query") for row in x]
        keys = [self.linear(row, f"{name}.key") for row in context]
        rows = [self.linear(row, f"{name}.value") for row in context]
        num_kv_heads = self.num_kv_heads or self.num_heads
        d_k, d_v = len(keys[0]) // num_kv_heads, len(rows[0]) // num_kv_heads
        results: list[Vector] = []
        for t, query in enumerate(queries):
            concatenated: list[Number] = []
            for head in range(self.num_heads):
                shared = head * num_kv_heads // self.num_heads  # the head of keys and values
                q, k = slice(head * d_k, head * d_k + d_k), slice(shared * d_k, shared * d_k + d_k)
                v = slice(shared * d_v, shared * d_v + d_v)
                looked_at = [s for s in range(len(context)) if allowed(t, s)]
                scores = [self.score(query[q], keys[s][k], (name, head, t, s)) for s in looked_at]
                powers = [exp(score) for score in scores]
                for column in range(d_v):
                    if not looked_at:
                        concatenated.append(Number(0.0))
                        continue
                    above = dot(powers, [rows[s][v][column] for s in looked_at])
                    concatenated.append(divide(above, total(powers)))
            results.append(self.linear(concatenated, f"{name}.output"))
        return results

    def score(self, query: Vector, key: Vector, place: tuple[str, int, int, int]) -> Number:
        """3.2.1; `place` is the attention's name, the head, and the positions of query and key."""
        return scaled(dot(query, key), 1 / math.sqrt(len(query)))

    def feed_forward(self, x: States, name: str) -> list[Vector]:
        """3.3."""
        activation = ACTIVATIONS[self.activation]
        return [
            self.linear([activation(inner) for inner in self.linear(row, f"{name}.inner")], f"{name}.outer")
            for row in x
        ]

    def norm(self, x: States, name: str) -> list[Vector]:
        """Layer normalisation, with the variance over all D numbers and eps inside the root."""
        gain, bias = self.weights[f"{name}.weight"], self.weights[f"{name}.bias"]
        results: list[Vector] = []
        for row in x:
            mean = scaled(total(row), 1 / len(row))
            centred = [minus(number, mean) for number in row]
            variance = scaled(dot(centred, centred), 1 / len(row))
            deviation = square_root(total([variance, Number(self.eps)]))
            normal = [divide(number, deviation) for number in centred]
            results.append([total([dot([n], [g]), b]) for n, g, b in zip(normal, gain, bias, strict=True)])
        return results

    def sublayer(self, x: States, norm: str, function: Callable[[States], States]) -> list[Vector]:
        """3.1: LayerNorm(x + Sublayer(x)); or, with `norm_first`, x + Sublayer(LayerNorm(x))."""
        if self.norm_first:
            return added(x, function(self.norm(x, norm)))
        return self.norm(added(x, function(x)), norm)

    def encoder_layer(self, x: States, prefix: str, allowed: Allowed) -> States:
        x = self.sublayer(
            x,
            f"{prefix}self_attention_norm",
            lambda x: self.attention(x, x, f"{prefix}self_attention", allowed),
        )
        return self.sublayer(
            x, f"{prefix}feed_forward_norm", lambda x: self.feed_forward(x, f"{prefix}feed_forward")
        )

    def decoder_layer(self, x: States, memory: States, prefix: str, memory_allowed: Allowed) -> States:
        x = self.sublayer(
            x,
            f"{prefix}self_attention_norm",
            lambda x: self.attention(x, x, f"{prefix}self_attention", lambda t, s: s <= t),
        )
        x = self.sublayer(
            x,
            f"{prefix}cross_attention_norm",
            lambda x: self.attention(x, memory, f"{prefix}cross_attention", memory_allowed),
        )
        return self.sublayer(
            x, f"{prefix}feed_forward_norm", lambda x: self.feed_forward(x, f"{prefix}feed_forward")
        )

    def embed(self, ids: Sequence[int], matrix: Sequence[Vector], table: Sequence[Vector] | None) -> States:
        """3.4 and 3.5."""
        d_model = len(matrix[0])
        positions = table or [[Number(value) for value in encoding(t, d_model)] for t in range(len(ids))]
        return added([[scaled(n, math.sqrt(d_model)) for n in matrix[i]] for i in ids], positions[: len(ids)])

    def transformer(self, src: Sequence[int], tgt_in: Sequence[int], num_layers: int) -> list[Vector]:
        """Logits for one sentence without padding; a shared matrix is looked up where it is."""
        weights = self.weights
        src_matrix = weights["encoder.embedding.tokens.weight"]
        tgt_matrix = weights.get("decoder.embedding.tokens.weight", src_matrix)
        memory = self.embed(src, src_matrix, weights.get("encoder.embedding.positions.weight"))
        for layer in range(num_layers):
            memory = self.encoder_layer(memory, f"encoder.layers.{layer}.", lambda t, s: True)
        if self.norm_first:
            memory = self.norm(memory, "encoder.final_norm")
        x = self.embed(tgt_in, tgt_matrix, weights.get("decoder.embedding.positions.weight"))
        for layer in range(num_layers):
            x = self.decoder_layer(x, memory, f"decoder.layers.{layer}.", lambda t, s: True)
        if self.norm_first:
            x = self.norm(x, "decoder.final_norm")
        output = weights.get("output.weight", tgt_matrix)
        bias = weights.get("output.bias") or [Number(0.0)] * len(output)
        return [[total([dot(row, out), b]) for out, b in zip(output, bias, strict=True)] for row in x]


def added(left: States, right: States) -> list[Vector]:
    return [[total(pair) for pair in zip(x, y, strict=True)] for x, y in zip(left, right, strict=True)]


def encoding(position: int, d_model: int) -> list[float]:
    """3.5, dimension by dimension."""
    row = []
    for dimension in range(d_model):
        i = dimension // 2
        angle = position / 10_000 ** (2 * i / d_model)
        row.append(math.sin(angle) if dimension % 2 == 0 else math.cos(angle))
    return row
