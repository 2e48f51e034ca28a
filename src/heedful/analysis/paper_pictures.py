"""Pictures of parts of the paper that need no trained model: positions, masks, schedule, label smoothing.

What they show is computed by the modules that a model is built from. Each function returns a matplotlib
figure, for a notebook or for `save_figure`, and raises MissingExtraError if matplotlib is not installed.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray

from heedful.analysis.plotting import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    new_figure,
    signed_colours,
    style_axes,
    style_bar,
    title_axes,
    weight_colours,
)
from heedful.data.files import read_parallel
from heedful.errors import InputError
from heedful.model.attention import causal_mask, padding_mask
from heedful.model.transformer import SINUSOIDS
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config
from heedful.training.loss import smoothed_cross_entropy
from heedful.training.schedule import learning_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PAPER_STEPS = 100_000  # of the base model (5.2)
_PAPER_VOCABULARY = 37_000  # tokens, about (5.1)
_PAD = "<pad>"
_SENTENCES = (("she sleeps </s>", "<s> sie schläft"), ("she reads a book </s>", "<s> sie liest ein Buch"))


def positions_figure(config: ModelConfig, *, length: int = 100) -> "Figure":
    """Draw the sinusoids of positions 0 to length - 1 (3.5) and their dot products; InputError for others."""
    if config.positions not in SINUSOIDS:
        raise InputError(
            f"model.positions={config.positions!r}: only sinusoids can be drawn without a trained model; "
            f"there are {', '.join(SINUSOIDS)}"
        )
    table = SINUSOIDS[config.positions](length, config.d_model).numpy()
    half = config.d_model // 2
    interleaved = config.positions == "sinusoidal"
    sines, cosines = (table[:, ::2], table[:, 1::2]) if interleaved else (table[:, :half], table[:, half:])
    figure = new_figure(12.5, 4.2, title=f"Positional encoding, {config.positions}, d_model {config.d_model}")
    left, middle, right = figure.subplots(1, 3, width_ratios=[3, 3, 2])
    for axes, name, values in ((left, "sine", sines), (middle, "cosine", cosines)):
        image = axes.imshow(
            values, cmap=signed_colours(), vmin=-1.0, vmax=1.0, aspect="auto", interpolation="none"
        )
        axes.tick_params(colors=FAINT, labelcolor=INK, labelsize=8, length=3)
        title_axes(axes, f"{name} of frequency i", x="i", y="position")
    bar = figure.colorbar(image, ax=[left, middle], aspect=32, pad=0.02)
    style_bar(bar)
    style_axes(right)
    right.plot(range(length), table @ table[length // 2], color=BLUE, linewidth=1.6)
    title_axes(right, f"dot product with position {length // 2}", x="position")
    return figure


def masks_figure(pairs: Sequence[tuple[str, str]] = _SENTENCES) -> "Figure":
    """Draw which tokens may attend to which, in a batch of pairs: the masks of padding and of later tokens.

    Target padding stands on the right, so the causal mask alone hides it from every real position.

    Args:
        pairs: encoder and decoder input of each, as tokens between spaces.
    """
    src, tgt = (_padded([pair[i].split() for pair in pairs]) for i in (0, 1))
    src_mask = padding_mask(torch.tensor([[token != _PAD for token in row] for row in src]), pad_id=0)[:, 0]
    num_src, num_tgt = len(src[0]), len(tgt[0])
    allowed = [
        ("encoder", src_mask.expand(-1, num_src, -1), src, src),
        ("decoder", causal_mask(num_tgt)[0].expand(len(pairs), -1, -1), tgt, tgt),
        ("decoder on encoder", src_mask.expand(-1, num_tgt, -1), tgt, src),
    ]
    figure = new_figure(9.6, 3.0 * len(pairs) + 0.8, title="Masks: who may attend to whom (blue: may)")
    grid = figure.subplots(len(pairs), 3, squeeze=False)
    for line, number in zip(grid, range(len(pairs)), strict=True):
        for axes, (name, mask, rows, columns) in zip(line, allowed, strict=True):
            _draw_mask(axes, mask[number].numpy(), rows[number], columns[number])
            title_axes(axes, f"{name}, sentence {number + 1}")
    note = "Target padding needs no mask: no real position looks there, and its own rows are not used."
    figure.supxlabel(note, fontsize=9, color=FAINT)
    return figure


def schedule_figure(config: Config) -> "Figure":
    """Draw the learning rate over the steps (5.3), up to `train.max_steps`, or else the paper's 100,000."""
    num_steps = config.train.max_steps or PAPER_STEPS
    schedule, d_model = config.schedule, config.model.d_model
    warmup, said = min(schedule.warmup_steps, num_steps), f" {schedule.warmup_steps:,} warm-up steps"
    if schedule.warmup_fraction is not None:
        warmup = round(schedule.warmup_fraction * num_steps)
        said = f" warm-up: the first {schedule.warmup_fraction:.0%}"
    steps = sorted({1, *np.linspace(1, num_steps, 1000).round().astype(int).tolist(), warmup or 1})
    rates = [learning_rate(schedule, step, d_model=d_model, progress=step / num_steps) for step in steps]
    figure = new_figure(7.0, 3.8, title=f"Learning rate, schedule {schedule.name}")
    axes = figure.subplots()
    style_axes(axes)
    axes.plot(steps, rates, color=BLUE, linewidth=1.8)
    axes.axvline(warmup, color=FAINT, linewidth=0.9, linestyle=":")
    axes.annotate(said, (warmup, 0.02), xycoords=("data", "axes fraction"), fontsize=8, color=FAINT)
    axes.set_ylim(bottom=0)
    axes.set_xlim(0, num_steps)
    axes.xaxis.set_major_formatter("{x:,.0f}")
    title_axes(
        axes, f"d_model {d_model}" if schedule.name == "paper" else f"peak {schedule.peak:g}", x="step"
    )
    return figure


def smoothing_figure(smoothing: float = 0.1, *, num_tokens: int = 8) -> "Figure":
    """Draw the target of a smoothed cross-entropy (5.4), and the loss over the correct token's probability.

    Args:
        smoothing: ε.
        num_tokens: the size of the vocabulary of the target, with padding; the loss is for the paper's.
    """
    figure = new_figure(9.5, 3.8, title=f"Label smoothing, ε = {smoothing:g}")
    left, right = figure.subplots(1, 2)
    style_axes(left)
    correct = num_tokens // 2
    names = [_PAD, *(f"token {i}" for i in range(1, num_tokens))]
    target = smoothed_target(smoothing, correct, num_tokens)
    left.bar(names, target, color=[ORANGE if i == correct else BLUE for i in range(num_tokens)], width=0.7)
    left.bar_label(left.containers[0], fmt="{:.3g}", fontsize=7, color=INK)
    left.tick_params(axis="x", rotation=40)
    left.set_ylim(0, 1.08)
    title_axes(left, f"target, {num_tokens} tokens, of which token {correct} is correct")
    style_axes(right)
    probabilities = np.concatenate([np.linspace(0.2, 0.99, 200), 1 - np.logspace(-2, -7, 100)])
    for value, colour in ((0.0, FAINT), (smoothing, BLUE)):
        losses = [_loss(float(p), value) for p in probabilities]
        right.plot(probabilities, losses, color=colour, linewidth=1.8, label=f"ε = {value:g}")
    right.set_xlim(probabilities[0], 1.0)
    right.set_ylim(bottom=0)
    right.legend(frameon=False, fontsize=8, labelcolor=INK)
    title_axes(
        right, f"loss in nats, {_PAPER_VOCABULARY:,} tokens", x="predicted probability of the correct token"
    )
    return figure


def smoothed_target(smoothing: float, correct: int, num_tokens: int) -> NDArray[np.float64]:
    """Return the distribution (V,) that `smoothed_cross_entropy` compares predictions with.

    It is softmax(logits) less the gradient of the loss by the logits. Token 0 is padding.
    """
    logits = torch.zeros(1, num_tokens, dtype=torch.float64, requires_grad=True)
    loss = smoothed_cross_entropy(logits, torch.tensor([correct]), smoothing=smoothing, pad_id=0)
    [gradient] = torch.autograd.grad(loss.smoothed, [logits])
    target: NDArray[np.float64] = (logits.detach().softmax(-1) - gradient)[0].numpy()
    return np.abs(target.round(12))  # padding has 0 but for rounding


def _loss(probability: float, smoothing: float) -> float:
    """Return the loss where all tokens but the correct one, and padding, have the same probability."""
    others = (1.0 - probability) / (_PAPER_VOCABULARY - 2)
    logits = torch.full((1, _PAPER_VOCABULARY), others, dtype=torch.float64).log()
    logits[0, 0], logits[0, 1] = -1e3, np.log(probability)
    loss = smoothed_cross_entropy(logits, torch.tensor([1]), smoothing=smoothing, pad_id=0)
    return float(loss.smoothed)


def _padded(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    longest = max(map(len, rows))
    return [[*row, *[_PAD] * (longest - len(row))] for row in rows]


def _draw_mask(axes: "Axes", mask: NDArray[np.bool_], rows: Sequence[str], columns: Sequence[str]) -> None:
    axes.pcolormesh(mask[::-1], cmap=weight_colours(), vmin=0.0, vmax=1.6, edgecolors="white", linewidth=2)
    axes.set_aspect("equal")
    axes.set_xticks(np.arange(len(columns)) + 0.5, columns, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(np.arange(len(rows)) + 0.5, rows[::-1])
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    for spine in axes.spines.values():
        spine.set_color(FAINT)
        spine.set_linewidth(0.6)


def lengths_of(src: Path, tgt: Path) -> tuple[list[int], list[int]]:
    """Return the lengths of the lines of parallel text, in words separated by spaces."""
    text = read_parallel(src, tgt)
    return [len(line.split()) for line in text.src], [len(line.split()) for line in text.tgt]


_SHOWN = 99.5  # per cent of the sentences, at least; the longest would press the others together


def lengths_figure(src: Sequence[int], tgt: Sequence[int], *, unit: str = "words") -> "Figure":
    """Draw how many sentences have which length, and the lengths of source and target against each other.

    The axes end where at least 99.5 % of the sentences do; the title of each says how long the longest is.

    Args:
        src: the length of each source sentence, at least one.
        tgt: the length of each target sentence.
        unit: the unit that is counted.
    """
    top = max(1, *(int(np.ceil(np.percentile(lengths, _SHOWN))) for lengths in (src, tgt)))
    width = max(1, -(-top // 60))  # of a bin
    edges = np.arange(0, top + width + 1, width) - 0.5
    figure = new_figure(10.0, 4.2, title=f"Lengths of {len(src):,} sentence pairs, in {unit}")
    left, right = figure.subplots(1, 2)
    style_axes(left)
    for lengths, name, colour in ((src, "source", BLUE), (tgt, "target", ORANGE)):
        label = f"{name}: mean {np.mean(lengths):.1f}, longest {max(lengths):,}"
        counts, _ = np.histogram(lengths, bins=edges)
        left.stairs(counts, edges, color=colour, linewidth=1.8, label=label)
    left.set_xlim(0, edges[-1])
    left.set_ylim(bottom=0)
    left.yaxis.set_major_formatter("{x:,.0f}")
    left.legend(frameon=False, fontsize=8, labelcolor=INK)
    title_axes(left, "sentences", x=f"{unit} of a sentence")
    style_axes(right)
    counts, _, _ = np.histogram2d(src, tgt, bins=[edges, edges])
    # Rare lengths are seen by the logarithm; no sentence at all stays white.
    powers, highest = (
        np.log10(np.where(counts, counts, np.nan)).T,
        max(0.3, float(np.log10(counts.max() or 1))),
    )
    image = right.pcolormesh(edges, edges, powers, cmap=weight_colours(), vmin=-0.5, vmax=highest)
    right.set_aspect("equal")
    title_axes(right, "pairs", x=f"{unit} of the source", y=f"{unit} of the target")
    bar = figure.colorbar(image, ax=right, aspect=32, pad=0.02, format=lambda power, _: f"{10**power:,.0f}")
    bar.ax.set_ylim(0, highest)
    bar.set_ticks([power for power in range(9) if 10**power <= counts.max()])
    style_bar(bar)
    return figure
