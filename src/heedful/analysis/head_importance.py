"""The importance of each attention head: the loss of a model without it (Michel et al., 2019).

Michel, Levy and Neubig ("Are Sixteen Heads Really Better than One?") mask one head at a time and measure the
change of BLEU; here it is the change of the negative log-likelihood, which needs no decoding.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from heedful.analysis import AttentionKind
from heedful.analysis.attention_maps import KINDS
from heedful.analysis.plotting import INK, new_figure, signed_colours, style_bar, title_axes
from heedful.data.batches import Batch, collate
from heedful.data.files import ParallelText
from heedful.decoding.generator import plan_batches
from heedful.decoding.translator import Translator
from heedful.errors import CorpusError
from heedful.model.attention import MultiHeadAttention
from heedful.model.transformer import Transformer
from heedful.storage.bundle import Bundle
from heedful.text import SpecialTokens
from heedful.training.step import measure_nll

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_TITLES: dict[AttentionKind, str] = {
    "encoder": "encoder",
    "decoder": "decoder",
    "cross": "decoder on encoder",
}


@dataclass(frozen=True)
class HeadImportance:
    """How much the loss of a model rises without each of its heads.

    Attributes:
        nll: the loss of the whole model, in nats per target token.
        increases: for each kind of attention, (layers, H): the nll without that head, minus `nll`.
    """

    nll: float
    increases: dict[AttentionKind, NDArray[np.float64]]


def head_importance(
    model: Transformer,
    batches: Sequence[Batch],
    *,
    on_progress: Callable[[str, float], None] = lambda what, share: None,
) -> HeadImportance:
    """Measure the loss of a model on batches, and its loss without each head.

    Args:
        model: the model in evaluation mode; it is as before afterwards.
        batches: the text, on any device; it is read once for each head.
        on_progress: called with what is measured and the share (0 to 1) that is done.
    """
    attentions = {kind: _attentions(model, kind) for kind in KINDS}
    increases: dict[AttentionKind, NDArray[np.float64]] = {}
    todo: list[tuple[AttentionKind, int, int]] = []
    for kind, layers in attentions.items():
        heads = [attention.num_heads for attention in layers]
        increases[kind] = np.zeros((len(layers), max(heads, default=0)))
        for layer, num_heads in enumerate(heads):
            todo += [(kind, layer, head) for head in range(num_heads)]
    nll = measure_nll(model, batches, precision="float32")["nll"]
    for number, (kind, layer, head) in enumerate(todo, start=1):
        with head_masked(attentions[kind][layer], head):
            without = measure_nll(model, batches, precision="float32")["nll"]
        increases[kind][layer, head] = without - nll
        on_progress(f"{number:,} of {len(todo):,} heads", number / len(todo))
    return HeadImportance(nll, increases)


def importance_on_text(
    translator: Translator,
    text: ParallelText,
    *,
    pairs: int = 200,
    on_progress: Callable[[str, float], None] = lambda what, done: None,
) -> HeadImportance:
    """Measure how much the loss of a model on parallel text rises without each of its heads.

    Args:
        translator: the model.
        text: the text to measure on.
        pairs: the number of its pairs that count, from the first on.
        on_progress: called with the current phase and the share (0 to 1) that is done.

    Raises:
        CorpusError: no pair that the model can take.
    """
    batches = list(_batches(translator.bundle, text, pairs, translator.batch_tokens))
    return head_importance(translator.bundle.model, batches, on_progress=on_progress)


def _batches(bundle: Bundle, text: ParallelText, num_pairs: int, batch_tokens: int) -> Iterator[Batch]:
    """Yield batches of the first pairs that are no longer than learned positions allow, by length."""
    tokenizers, sizes = bundle.tokenizers, bundle.config.model
    special_tokens = SpecialTokens.of(bundle.config, tokenizers)
    encoded = zip(
        tokenizers.src.encode_batch(text.src[:num_pairs]),
        tokenizers.tgt.encode_batch(text.tgt[:num_pairs]),
        strict=True,
    )
    pairs = [
        (special_tokens.source(source), special_tokens.target(target))
        for source, target in encoded
        if source and target
    ]
    longest = sizes.max_positions if sizes.positions == "learned" else None
    pairs = [pair for pair in pairs if longest is None or max(map(len, pair)) <= longest]
    if not pairs:
        raise CorpusError(f"{text.name}: no pair that the model can take; check the files")
    arrays = [(np.array(src, dtype=np.int32), np.array(tgt, dtype=np.int32)) for src, tgt in pairs]
    for batch in plan_batches([max(map(len, pair)) for pair in pairs], tokens=batch_tokens):
        yield collate(
            [arrays[i] for i in batch],
            src_pad_id=sizes.src_pad_id,
            tgt_pad_id=sizes.tgt_pad_id,
            start_id=special_tokens.start_id,
        )


@contextmanager
def head_masked(attention: MultiHeadAttention, head: int) -> Iterator[None]:
    """Set the output of a head, counted from 0, to zero inside the `with` block."""

    def mask(_: nn.Module, inputs: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor]:
        heads = inputs[0].reshape(*inputs[0].shape[:-1], attention.num_heads, -1).clone()
        heads[..., head, :] = 0.0
        return (heads.flatten(-2),)

    hook = attention.output.register_forward_pre_hook(mask)
    try:
        yield
    finally:
        hook.remove()


def importance_figure(importance: HeadImportance) -> "Figure":
    """Draw a row for each layer and a column for each head, of each kind of attention."""
    present = {kind: values for kind, values in importance.increases.items() if values.size}
    top = max(float(np.abs(values).max()) for values in present.values()) or 1.0
    num_layers = max(len(values) for values in present.values())
    num_heads = max(values.shape[1] for values in present.values())
    title = f"Loss without each head, over {importance.nll:.3f} nats per token"
    figure = new_figure(len(present) * max(2.4, 0.55 * num_heads) + 1.4, 0.42 * num_layers + 1.9, title=title)
    all_axes = figure.subplots(1, len(present), squeeze=False)[0]
    for axes, (kind, values) in zip(all_axes, present.items(), strict=True):
        image = axes.imshow(values, cmap=signed_colours(), vmin=-top, vmax=top, interpolation="none")
        axes.set_xticks(range(values.shape[1]), [str(i + 1) for i in range(values.shape[1])])
        axes.set_yticks(range(len(values)), [str(i + 1) for i in range(len(values))])
        axes.tick_params(length=0, labelsize=8, labelcolor=INK)
        axes.set_aspect("auto")
        for (layer, head), value in np.ndenumerate(values):
            ink = "white" if abs(value) > 0.6 * top else INK
            axes.text(
                head, layer, f"{round(value, 3) + 0.0:.3f}", ha="center", va="center", fontsize=6.5, color=ink
            )
        for spine in axes.spines.values():
            spine.set_visible(False)
        title_axes(axes, _TITLES[kind], x="head", y="layer")
    bar = figure.colorbar(image, ax=list(all_axes), aspect=32, pad=0.02)
    style_bar(bar)
    return figure


def _attentions(model: Transformer, kind: AttentionKind) -> list[MultiHeadAttention]:
    layers = model.encoder.layers if kind == "encoder" else model.decoder.layers
    parts = [
        layer.get_submodule("cross_attention" if kind == "cross" else "self_attention") for layer in layers
    ]
    return [part for part in parts if isinstance(part, MultiHeadAttention)]
