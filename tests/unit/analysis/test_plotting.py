"""One style, which colour-blind people can read."""

import numpy as np
import pytest
from matplotlib.colors import to_rgb

from heedful.analysis.plotting import (
    FAINT,
    INK,
    LINE_COLOURS,
    printable,
    signed_colours,
    weight_colours,
)

# Okabe and Ito, 2008, but yellow: blue, vermillion, bluish green, reddish purple, orange, sky blue, black.
PUBLISHED = [
    (0, 114, 178),
    (213, 94, 0),
    (0, 158, 115),
    (204, 121, 167),
    (230, 159, 0),
    (86, 180, 233),
    (0, 0, 0),
]


def luminance(colours: np.ndarray) -> np.ndarray:
    """The relative luminance of sRGB colours (..., 3), as WCAG 2 defines it."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    return linear @ np.array([0.2126, 0.7152, 0.0722])


def test_lines_have_the_published_colours() -> None:
    assert [tuple(round(255 * part) for part in to_rgb(colour)) for colour in LINE_COLOURS] == PUBLISHED


def test_weights_only_become_darker_and_signs_have_white_between_them() -> None:
    weights = luminance(weight_colours()(np.linspace(0, 1, 101))[:, :3])
    assert weights[0] == 1.0
    assert (np.diff(weights) < 0).all()
    signed = luminance(signed_colours()(np.linspace(0, 1, 101))[:, :3])
    assert signed[50] > 0.99
    assert (np.diff(signed[:51]) > 0).all()
    assert (np.diff(signed[50:]) < 0).all()


def test_text_is_dark_enough_on_white() -> None:
    """WCAG 2 asks for a contrast of 4.5."""
    for colour in (INK, FAINT):
        assert 1.05 / (luminance(np.array(to_rgb(colour))) + 0.05) >= 4.5


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("für 漢字 🙂", "für 漢字 🙂"),
        ("a\tb\x00", "a\ufffdb\ufffd"),
        ("\ud800\uffff", "\ufffd\ufffd"),
        ("", ""),
    ],
)
def test_what_nothing_can_show_is_marked(text: str, shown: str) -> None:
    assert printable(text) == shown
