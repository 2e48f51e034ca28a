"""The lengths of parallel text, as a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from heedful.analysis.plotting import (
    BLUE,
    FAINT,
    INK,
    ORANGE,
    new_figure,
    style_axes,
    title_axes,
    weight_colours,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHOWN = 99.5  # per cent of the sentences, at least; the longest would press the others together


def lengths_figure(src: Sequence[int], tgt: Sequence[int], *, unit: str = "words") -> "Figure":
    """Draw how many sentences have which length, and the lengths of source and target against each other.

    The axes end where at least 99.5 % of the sentences do; the title of each says how long the longest is.

    Args:
        src: the length of each source sentence, at least one.
        tgt: of each target sentence.
        unit: that is counted.

    Raises:
        MissingExtraError: matplotlib is not installed.
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
    bar.ax.tick_params(labelsize=7, colors=FAINT, length=2)
    bar.outline.set_visible(False)
    return figure
