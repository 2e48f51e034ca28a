from collections import Counter

import numpy as np

from heedful.analysis.paper_pictures import lengths_figure


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
