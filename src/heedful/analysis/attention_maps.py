"""Attention maps of one sentence pair: the weights of every head."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.bundle import Bundle
from heedful.durable import put_text_in_place
from heedful.errors import InputError
from heedful.ops.recorder import AttentionMap, record_attention
from heedful.text import Framing

Kind = Literal["encoder", "decoder", "cross"]

_NAME = re.compile(r"(encoder|decoder)\.layers\.(\d+)\.(self|cross)_attention")


@dataclass(frozen=True)
class LayerAttention:
    """One attention of one layer: weights (H, T, S) of query t on key s; `layer` counts from 1."""

    kind: Kind
    layer: int
    weights: NDArray[np.float32]


@dataclass(frozen=True)
class AttentionMaps:
    """All attention of one sentence pair.

    A decoder row is labelled with the token that it predicts, not its input token: it shows where the model
    looked when it chose that token.

    Attributes:
        source: the input text.
        target: the output text.
        source_tokens: the encoder's input, end of sentence included.
        target_in_tokens: the decoder's input, from the start token on.
        target_tokens: the decoder's output, end of sentence included.
        layers: encoder, decoder and cross-attention, each from the first layer to the last.
    """

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_in_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    layers: tuple[LayerAttention, ...]

    def labels(self, kind: Kind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the labels of rows (queries) and columns (keys)."""
        if kind == "encoder":
            return self.source_tokens, self.source_tokens
        return self.target_tokens, self.source_tokens if kind == "cross" else self.target_in_tokens

    def of(self, kind: Kind) -> list[LayerAttention]:
        """Return the layers of one kind, the first first."""
        return [layer for layer in self.layers if layer.kind == kind]

    def as_dict(self) -> dict[str, object]:
        """Return the maps for JSON; weights to four digits, as `weights[head][row][column]`."""
        return {
            "source": self.source,
            "target": self.target,
            "source_pieces": list(self.source_tokens),
            "target_in_pieces": list(self.target_in_tokens),
            "target_pieces": list(self.target_tokens),
            "maps": [
                {
                    "kind": layer.kind,
                    "layer": layer.layer,
                    "weights": [
                        [[round(float(w), 4) for w in row] for row in head] for head in layer.weights
                    ],
                }
                for layer in self.layers
            ],
        }


def attention_maps(bundle: Bundle, source: str, target_ids: Sequence[int]) -> AttentionMaps:
    """Run the model with teacher forcing on target ids, and record every head of every layer.

    Args:
        bundle: the model and its tokenizers.
        source: one sentence.
        target_ids: the target's ids, without start and end of sentence, with the language tag if the model
            generates one.

    Raises:
        InputError: the source is empty.
    """
    tokenizers = bundle.tokenizers
    source_ids = tokenizers.src.encode(source)
    if not source_ids:
        raise InputError("attention: the source sentence is empty; give a sentence")
    framing = Framing.of(bundle.config, tokenizers)
    source_ids = framing.source(source_ids)
    target_in = [framing.start_id, *target_ids]
    model = bundle.model
    device = next(model.parameters()).device
    with torch.inference_mode(), record_attention(model) as recorder:
        model(torch.tensor([source_ids], device=device), torch.tensor([target_in], device=device))
    return AttentionMaps(
        source=source,
        target=tokenizers.tgt.decode(target_ids),
        source_tokens=tuple(tokenizers.src.pieces(source_ids)),
        target_in_tokens=tuple(tokenizers.tgt.pieces(target_in)),
        target_tokens=tuple(tokenizers.tgt.pieces([*target_ids, *framing.tgt_suffix])),
        layers=_in_order(recorder.maps),
    )


def write_attention_json(maps: AttentionMaps, path: Path) -> None:
    """Write the maps as one JSON object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(maps.as_dict(), ensure_ascii=False)
    put_text_in_place(path, text + "\n")


def _in_order(maps: Sequence[AttentionMap]) -> tuple[LayerAttention, ...]:
    layers = []
    for recorded in maps:
        match = _NAME.fullmatch(recorded.name)
        if match is None:
            continue
        stack, number, what = match.groups()
        kind: Kind = "cross" if what == "cross" else "encoder" if stack == "encoder" else "decoder"
        layers.append(LayerAttention(kind, int(number) + 1, recorded.weights[0].float().cpu().numpy()))
    kinds: list[Kind] = ["encoder", "decoder", "cross"]
    return tuple(sorted(layers, key=lambda layer: (kinds.index(layer.kind), layer.layer)))
