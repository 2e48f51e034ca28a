"""Attention maps of one sentence pair: the weights of every head."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import numpy as np
from numpy.typing import NDArray

from heedful.analysis.plotting import readable_tokens
from heedful.decoding.backends.choice import choose_backend
from heedful.decoding.options import SearchOptions
from heedful.decoding.translator import Translator
from heedful.errors import InputError, suggestion
from heedful.notebook_html import weight_table
from heedful.runtime.durable import write_atomically
from heedful.settings.arguments import checked
from heedful.storage.bundle import Bundle
from heedful.text import SpecialTokens

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from heedful.decoding.backends.protocol import Backend

AttentionKind = Literal["cross", "encoder", "decoder"]
KINDS: tuple[AttentionKind, ...] = ("encoder", "decoder", "cross")
Head = int | Literal["mean"]  # counts from 1
MEAN: Literal["mean"] = "mean"
ALL = "all"
MERGED = "one attention on source and target: a row of both maps adds up to 1"


@dataclass(frozen=True)
class LayerAttention:
    """One attention of one layer: weights (H, T, S) of query t on key s; `layer` counts from 1."""

    kind: AttentionKind
    layer: int
    weights: NDArray[np.float32]

    def __repr__(self) -> str:
        heads, queries, keys = self.weights.shape
        return f"LayerAttention({self.kind}, layer {self.layer}: {heads} heads, {queries} x {keys} tokens)"

    def of_head(self, head: Head) -> NDArray[np.float32]:
        """Return the weights (T, S) of one head, or the mean of all."""
        weights: NDArray[np.float32] = self.weights.mean(axis=0) if head == MEAN else self.weights[head - 1]
        return weights


@dataclass(frozen=True, kw_only=True)
class MapChoice:
    """The maps to be shown, of all that a model has.

    Attributes:
        kinds: the kinds of attention.
        layers: the layers of each kind, from 1; None: all; empty: the last.
        heads: the heads of each layer; None: their mean, and each.
    """

    kinds: tuple[AttentionKind, ...] = ("cross",)
    layers: tuple[int, ...] | None = ()
    heads: tuple[Head, ...] | None = None

    @classmethod
    def of(cls, kind: AttentionKind, layer: int | None, head: Head | None) -> Self:
        """Choose one layer, None the last, and one head, None their mean and each."""
        return cls(
            kinds=(kind,),
            layers=() if layer is None else (layer,),
            heads=None if head is None else (head,),
        )

    @classmethod
    def parse(cls, kinds: str = "cross", *, layers: str | None = None, heads: str | None = None) -> Self:
        """Read a choice as the command line has it: names or numbers with commas, or `all`.

        >>> MapChoice.parse("encoder,cross", layers="1,2", heads="mean,3")
        MapChoice(kinds=('encoder', 'cross'), layers=(1, 2), heads=('mean', 3))

        Raises:
            InputError: a kind that does not exist, or what is no number from 1 on.
        """
        chosen = KINDS if kinds == ALL else _listed(kinds)
        for name in chosen:
            if name not in KINDS:
                raise InputError(f"attention {name!r} does not exist{suggestion(name, [*KINDS, ALL])}")
        of_layers = tuple(_numbers("layer", layers)) if layers not in (None, ALL) else ()
        return cls(
            kinds=cast(tuple[AttentionKind, ...], tuple(chosen)),
            layers=None if layers == ALL else of_layers,
            heads=None if heads in (None, ALL) else tuple(_heads(heads)),
        )


LAST_CROSS = MapChoice()  # the cross-attention of the last layer


@dataclass(frozen=True)
class AttentionMaps:
    """All attention of one sentence pair.

    >>> maps = heedful.attention_of("runs/demo", "The house is small.")
    >>> maps
    AttentionMaps('The house is small.' -> 'Das Haus ist klein.': 2 encoder, 2 decoder, 2 cross layers)
    >>> maps.save("attention.png")

    A decoder row is labelled with the token that it predicts, not its input token: it shows where the model
    looked when it chose that token.

    Attributes:
        source: the input text.
        target: the output text.
        source_tokens: the encoder's input, end of sentence included.
        target_in_tokens: the decoder's input, from the start token on.
        target_tokens: the decoder's output, end of sentence included.
        layers: encoder, decoder and cross-attention, each from the first layer to the last.
        is_merged: whether the decoder has one attention over the source and the target so far (T5Gemma 2).
            Then the cross map is the part on the source, and the decoder map the part on the target, as in
            transformers: a row of both adds up to 1.
    """

    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_in_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    layers: tuple[LayerAttention, ...]
    is_merged: bool = False

    def __repr__(self) -> str:
        layers = ", ".join(f"{len(self.of(kind))} {kind}" for kind in KINDS)
        return f"AttentionMaps({self.source!r} -> {self.target!r}: {layers} layers)"

    def labels(self, kind: AttentionKind) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the labels of rows (queries) and columns (keys)."""
        if kind == "encoder":
            return self.source_tokens, self.source_tokens
        return self.target_tokens, self.source_tokens if kind == "cross" else self.target_in_tokens

    @checked
    def of(self, kind: AttentionKind) -> list[LayerAttention]:
        """Return the layers of one kind, the first first; InputError for a kind that does not exist."""
        return [layer for layer in self.layers if layer.kind == kind]

    @checked
    def plot(
        self, kind: AttentionKind = "cross", *, layer: int | None = None, head: Head | None = None
    ) -> "Figure":
        """Draw one layer as a figure of matplotlib, which a notebook shows.

        >>> figure = maps.plot("encoder", layer=1, head=2)

        Args:
            kind: the kind of attention.
            layer: the layer, from 1; None: the last.
            head: the head, from 1, or "mean"; None: the mean of the heads, and each of them.

        Raises:
            InputError: a kind, layer or head that the model does not have.
            MissingExtraError: matplotlib is not installed.
        """
        figure: Figure = _pictures().attention_figure(self, choice=MapChoice.of(kind, layer, head))
        return figure

    @checked
    def save(
        self,
        path: Path | str,
        kind: AttentionKind = "cross",
        *,
        layer: int | None = None,
        head: Head | None = None,
    ) -> None:
        """Write `plot` as .png or .svg, all maps as .json, or all as a page to look through, .html.

        >>> maps.save("attention.png", layer=2)

        Raises:
            InputError: another ending, or a kind, layer or head that the model does not have.
            MissingExtraError: matplotlib is not installed.
        """
        pictures = _pictures()
        pictures.check_attention_file(Path(path))
        pictures.write_attention(self, Path(path), choice=MapChoice.of(kind, layer, head))

    def select(self, choice: MapChoice) -> list[tuple[LayerAttention, tuple[Head, ...]]]:
        """Return the chosen layers, each with the chosen heads; InputError if the model lacks one of them."""
        selected = []
        for kind in choice.kinds:
            layers, stack = self.of(kind), "encoder" if kind == "encoder" else "decoder"
            every = range(1, len(layers) + 1)
            for number in every if choice.layers is None else choice.layers or every[-1:]:
                if number not in every:
                    raise InputError(
                        f"attention: layer {number} does not exist; the {stack} has layers 1 to {len(layers)}"
                    )
                layer = layers[number - 1]
                num_heads = len(layer.weights)
                heads = (MEAN, *range(1, num_heads + 1)) if choice.heads is None else choice.heads
                for head in heads:
                    if head != MEAN and not 1 <= head <= num_heads:
                        raise InputError(
                            f"attention: head {head} does not exist; a layer has heads 1 to {num_heads}"
                        )
                selected.append((layer, heads))
        return selected

    def _repr_html_(self) -> str:
        """Return the mean cross-attention of the last layer as a table, for notebooks."""
        layer = self.of("cross")[-1]
        rows, columns = (readable_tokens(labels) for labels in self.labels("cross"))
        caption = f"cross-attention, layer {layer.layer}, mean of {len(layer.weights)} heads"
        caption += f"; {MERGED}" * self.is_merged
        return weight_table(caption, rows, columns, layer.of_head(MEAN).tolist())

    def as_dict(self) -> dict[str, object]:
        """Return the maps for JSON; weights to four digits, as `weights[head][row][column]`."""
        return {
            "source": self.source,
            "target": self.target,
            "source_pieces": list(self.source_tokens),
            "target_in_pieces": list(self.target_in_tokens),
            "target_pieces": list(self.target_tokens),
            "merged": self.is_merged,
            "maps": [
                {
                    "kind": layer.kind,
                    "layer": layer.layer,
                    "weights": layer.weights.astype(float).round(4).tolist(),
                }
                for layer in self.layers
            ],
        }


def _pictures() -> Any:  # noqa: ANN401
    return import_module("heedful.analysis.attention_pictures")  # which draws the classes of this module


def attention_maps(
    bundle: Bundle, source: str, target_ids: Sequence[int], *, backend: "Backend | None" = None
) -> AttentionMaps:
    """Run the model with teacher forcing on target ids, and record every head of every layer.

    Args:
        bundle: the model and its tokenizers.
        source: one sentence; InputError if it is empty.
        target_ids: the target's ids, with the language tag if the model generates one, without start and end.
        backend: the backend of the model; None: the native one, or torch if it does not support the model.
    """
    tokenizers = bundle.tokenizers
    source_ids = tokenizers.src.encode(source)
    if not source_ids:
        raise InputError("attention: the source sentence is empty; give a sentence")
    template = SpecialTokens.of(bundle.config, tokenizers)
    source_ids = template.source(source_ids)
    target_in = [template.start_id, *target_ids]
    backend = backend or choose_backend([bundle.network], precision="float32")
    weights = backend.head_weights(source_ids, target_in)
    return AttentionMaps(
        source=source,
        target=tokenizers.tgt.decode(target_ids),
        source_tokens=tuple(tokenizers.src.tokens(source_ids)),
        target_in_tokens=tuple(tokenizers.tgt.tokens(target_in)),
        target_tokens=tuple(tokenizers.tgt.tokens([*target_ids, *template.tgt_suffix])),
        layers=tuple(
            LayerAttention(kind, layer, of_layer)
            for kind in KINDS
            for layer, of_layer in enumerate(getattr(weights, kind), start=1)
        ),
        is_merged=bundle.config.model.decoder_unit == "merged",
    )


@checked
def attention_of(
    model: Translator | str | Path,
    source: str,
    *,
    target: str | None = None,
    options: SearchOptions | None = None,
) -> AttentionMaps:
    """Record the attention of a model for one sentence, and its translation or a given one.

    >>> maps = attention_of(translator, "The house is small.")
    >>> maps.target
    'Das Haus ist klein.'
    >>> [(each.kind, each.layer) for each in maps.layers]
    [('encoder', 1), ('encoder', 2), ('decoder', 1), ('decoder', 2), ('cross', 1), ('cross', 2)]
    >>> maps.of("cross")[0].weights.shape  # (H, T, S)
    (4, 13, 14)

    `maps.source_tokens` and `maps.target_tokens` label the columns and rows; `maps.plot()` draws them, and
    `maps.save("attention.png")` writes the picture. `model` is a translator, or the path of a run or bundle.

    Raises:
        BundleError: no usable bundle.
        InputError: no sentence, or a text that is too long.
    """
    translator = model if isinstance(model, Translator) else Translator.load(model)
    bundle = translator.bundle
    special_tokens = SpecialTokens.of(bundle.config, bundle.tokenizers)
    options = options or SearchOptions.from_config(bundle.config.decode)
    limit = options.source_limit(bundle.config)
    read = special_tokens.source(bundle.tokenizers.src.encode(source))
    written: Sequence[int] = ()
    if target is not None:
        written = [*special_tokens.tgt_prefix, *bundle.tokenizers.tgt.encode(target)]
    for name, ids in (("TEXT", read), ("--target", written)):
        if len(ids) > limit:
            raise InputError(
                f"attention: {name}: {len(ids):,} tokens, above max_source_tokens={limit:,}; give a shorter "
                "one, or raise it"
            )
    if target is None:
        [translation] = translator.translations([source], options=options)
        if not translation.hypotheses:
            raise InputError("attention: the sentence is empty; give one")
        written = translation.hypotheses[0].ids
    return attention_maps(bundle, source, written, backend=translator.generator.backend)


def write_attention_json(maps: AttentionMaps, path: Path) -> None:
    """Write the maps as one JSON object."""
    path.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(maps.as_dict(), ensure_ascii=False)
    write_atomically(path, text + "\n")


def _listed(text: str) -> list[str]:
    return list(dict.fromkeys(each.strip() for each in text.split(",")))


def _numbers(name: str, text: str) -> Iterator[int]:
    for word in _listed(text):
        if not re.fullmatch("0*[1-9][0-9]*", word):
            raise InputError(
                f"{name} {word!r}: not a number from 1 on; give one, several with commas, or all"
            )
        yield int(word)


def _heads(text: str) -> Iterator[Head]:
    for word in _listed(text):
        yield from (MEAN,) if word == MEAN else _numbers("head", word)
