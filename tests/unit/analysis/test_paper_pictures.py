"""Pictures show the numbers of the paper's formulas, written down here once more."""

from collections import Counter
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from tolerances import FLOAT32, FLOAT64, assert_close, close

from heedful.analysis.paper_pictures import (
    lengths_figure,
    masks_figure,
    positions_figure,
    schedule_figure,
    smoothed_target,
    smoothing_figure,
)
from heedful.errors import InputError
from heedful.settings.model import ModelConfig
from heedful.settings.run import Config


def line(figure: Figure, axes: int, number: int = 0) -> tuple[np.ndarray, np.ndarray]:
    drawn = figure.axes[axes].get_lines()[number]
    return np.asarray(drawn.get_xdata(), dtype=float), np.asarray(drawn.get_ydata(), dtype=float)


@pytest.mark.parametrize("positions", ["sinusoidal", "concatenated"])
def test_positions_are_the_sinusoids_of_3_5(positions: str) -> None:
    figure = positions_figure(
        ModelConfig.model_validate({"d_model": 16, "num_heads": 2, "positions": positions})
    )
    angles = np.arange(100)[:, None] / 10_000 ** (2 * np.arange(8) / 16)
    for axes, expected in ((0, np.sin(angles)), (1, np.cos(angles))):
        assert_close(figure.axes[axes].get_images()[0].get_array(), expected, FLOAT32.ELEMENT)
    # sin a sin b + cos a cos b = cos(a - b): it depends on the distance alone.
    _, products = line(figure, 2)
    assert_close(products, np.cos(angles - angles[50]).sum(axis=1), FLOAT32.ROW)


def test_positions_with_an_offset_are_drawn_from_there() -> None:
    config = ModelConfig.model_validate({"d_model": 16, "num_heads": 2, "positions": "opennmt-tf"})
    angles = np.arange(1, 101)[:, None] / 10_000 ** (np.arange(8) / 7)
    for axes, expected in ((0, np.sin(angles)), (1, np.cos(angles))):
        drawn = positions_figure(config).axes[axes].get_images()[0].get_array()
        assert_close(drawn, expected, FLOAT32.ELEMENT.at(100))


@pytest.mark.parametrize("positions", ["learned", "rotary", "alibi", "relative"])
def test_positions_that_are_no_sinusoids_are_refused(positions: str) -> None:
    with pytest.raises(InputError, match=f"'{positions}': only sinusoids"):
        positions_figure(ModelConfig.model_validate({"positions": positions}))


def test_masks_hide_padding_and_later_tokens() -> None:
    figure = masks_figure([("a </s>", "<s> b c"), ("d e f </s>", "<s> g")])
    shown = [axes.collections[0].get_array()[::-1].astype(int).tolist() for axes in figure.axes]
    causal = [[1, 0, 0], [1, 1, 0], [1, 1, 1]]
    assert shown == [
        [[1, 1, 0, 0]] * 4, causal, [[1, 1, 0, 0]] * 3,
        [[1, 1, 1, 1]] * 4, causal, [[1, 1, 1, 1]] * 3,
    ]  # fmt: skip
    assert [label.get_text() for label in figure.axes[2].get_xticklabels()] == ["a", "</s>", "<pad>", "<pad>"]
    assert [label.get_text() for label in figure.axes[4].get_yticklabels()] == ["<pad>", "g", "<s>"]


def test_the_papers_schedule_is_equation_3() -> None:
    steps, rates = line(schedule_figure(Config()), 0)
    assert (steps[0], steps[-1]) == (1, 100_000)
    assert steps[rates.argmax()] == 4000
    assert_close(rates, 512**-0.5 * np.minimum(steps**-0.5, steps * 4000**-1.5), FLOAT64.ROW)


def test_a_schedule_ends_where_training_does() -> None:
    schedule = {"name": "cosine", "peak": 0.5, "warmup_steps": 10, "floor": 0.2}
    steps, rates = line(schedule_figure(Config(schedule=schedule, train={"max_steps": 50})), 0)
    np.testing.assert_array_equal(steps, np.arange(1, 51))
    expected = np.where(steps < 10, steps / 20, 0.5 * (0.2 + 0.8 * (0.5 + 0.5 * np.cos(np.pi * steps / 50))))
    assert_close(rates, expected, FLOAT64.ROW)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_target_of_label_smoothing_is_spread_over_all_but_padding(smoothing: float) -> None:
    target = smoothed_target(smoothing, 2, 6)
    share = smoothing / 5
    assert_close(target, [0, share, 1 - smoothing + share, share, share, share], FLOAT64.ELEMENT.printed(12))
    bars: Any = smoothing_figure(smoothing).axes[0].containers[0]
    heights = [bar.get_height() for bar in bars]
    assert_close(heights, smoothed_target(smoothing, 4, 8), FLOAT64.ELEMENT)
    assert sum(heights) == close(1.0, FLOAT64.ELEMENT.printed(12, terms=len(heights)))


def test_the_smoothed_loss_is_least_at_its_own_target() -> None:
    figure = smoothing_figure(0.1)
    p, plain = line(figure, 1, 0)
    _, smoothed = line(figure, 1, 1)
    bound = FLOAT64.ELEMENT.at(36_998)  # equal terms: their roundings are not independent
    assert_close(plain, -np.log(p), bound)
    others = np.log((1 - p) / 36_998)
    share = 0.1 / 36_999
    assert_close(smoothed, -(0.9 + share) * np.log(p) - 36_998 * share * others, bound)
    assert abs(p[smoothed.argmin()] - 0.9) < 0.01  # the points of the curve


def test_histograms_count_every_length() -> None:
    random = np.random.default_rng(1)
    src = random.integers(1, 30, 500).tolist()
    tgt = [length + int(random.integers(0, 3)) for length in src]
    figure = lengths_figure(src, tgt)
    for patch, lengths in zip(figure.axes[0].patches, (src, tgt), strict=True):
        values, edges, _ = patch.get_data()
        counted = {int(edge + 0.5): int(value) for edge, value in zip(edges, values, strict=False) if value}
        assert counted == Counter(lengths)
    logarithms = np.ma.filled(figure.axes[1].collections[0].get_array(), np.nan)
    shown = np.nan_to_num(10**logarithms, nan=0.0).round().astype(int)
    assert {(s, t): n for (t, s), n in np.ndenumerate(shown) if n} == Counter(zip(src, tgt, strict=True))


def test_one_very_long_sentence_does_not_press_the_others_together() -> None:
    figure = lengths_figure([5] * 999 + [4000], [6] * 1000)
    assert figure.axes[0].get_xlim()[1] < 10
    labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
    assert labels == ["source: mean 9.0, longest 4,000", "target: mean 6.0, longest 6"]


def test_a_single_pair_has_a_histogram_too() -> None:
    for src, tgt in (([1], [1]), ([0], [0]), ([300], [1])):
        figure = lengths_figure(src, tgt)
        assert [patch.get_data().values.sum() for patch in figure.axes[0].patches] == [1, 1]
