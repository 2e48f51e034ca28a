"""IBM Model 1 against a textbook's numbers and against its formulas, written out."""

import math
from collections import defaultdict

import numpy as np
import pytest
from tolerances import FLOAT32, FLOAT64, close

from heedful.data import lexicon
from heedful.data.lexicon import learn_lexicon, mutual_links

DAS, HAUS, BUCH, EIN = range(4)
THE, HOUSE, BOOK, A = range(4)
SRC = [[DAS, HAUS], [DAS, BUCH], [EIN, BUCH]]
TGT = [[THE, HOUSE], [THE, BOOK], [A, BOOK]]


def table(src: list[list[int]], tgt: list[list[int]], iterations: int) -> dict[tuple[int, int], float]:
    found = learn_lexicon(src, tgt, iterations=iterations)
    return dict(
        zip(zip(found.src.tolist(), found.tgt.tolist(), strict=True), found.probabilities, strict=True)
    )


@pytest.mark.parametrize(
    ("iterations", "the_das", "book_das", "house_das"),
    [(1, 0.5, 0.25, 0.25), (2, 0.6364, 0.1818, 0.1818), (3, 0.7479, 0.1208, 0.1313)],
)
def test_iterations_are_those_of_the_textbook(
    iterations: int, the_das: float, book_das: float, house_das: float
) -> None:
    # Koehn (2010), Statistical Machine Translation, figure 4.4
    found = table(SRC, TGT, iterations)
    wanted = (the_das, book_das, house_das)
    assert [found[DAS, e] for e in (THE, BOOK, HOUSE)] == close(wanted, FLOAT64.ROW.printed(4))


def random_pairs(count: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    rng = np.random.default_rng(seed)
    src = [rng.integers(0, 11, rng.integers(1, 7)).tolist() for _ in range(count)]
    tgt = [rng.integers(0, 13, rng.integers(1, 8)).tolist() for _ in range(count)]
    return src, tgt


def by_hand(src: list[list[int]], tgt: list[list[int]], iterations: int) -> dict[tuple[int, int], float]:
    t: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(iterations):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in zip(src, tgt, strict=True):
            for f in target:
                total = sum(t[e, f] for e in source)
                for e in source:
                    counts[e, f] += t[e, f] / total
        totals = defaultdict(float)
        for (e, _), count in counts.items():
            totals[e] += count
        t = defaultdict(float, {(e, f): count / totals[e] for (e, f), count in counts.items()})
    return dict(t)


def test_it_is_its_formulas_however_the_text_is_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    src, tgt = random_pairs(40, seed=1)
    wanted = by_hand(src, tgt, 4)
    for links_at_once in (1, 50, 10_000):
        monkeypatch.setattr(lexicon, "_CHUNK_LINKS", links_at_once)
        assert table(src, tgt, 4) == close(wanted, FLOAT64.MODEL)


def test_the_best_are_the_most_probable_of_those_that_are_left() -> None:
    found = learn_lexicon(*random_pairs(30, seed=2))
    best = found.best(3, without=[4, 5])
    for token in np.unique(found.src):
        here = found.src == token
        order = sorted(zip(-found.probabilities[here], found.tgt[here], strict=True))
        wanted = [int(f) for _, f in order if f not in (4, 5)][:3]
        assert best.tgt[best.src == token].tolist() == sorted(wanted)
    assert len(found.best(0).tgt) == 0


def test_text_without_targets_has_an_empty_lexicon() -> None:
    found = learn_lexicon([[1, 2]], [[]])
    assert len(found.src) == len(found.tgt) == len(found.probabilities) == 0


def test_links_near_the_diagonal_are_more_probable_as_dyer_says() -> None:
    src, tgt = random_pairs(30, seed=5)
    t: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(3):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        for source, target in zip(src, tgt, strict=True):
            for j, f in enumerate(target):
                near = [
                    t[e, f] * math.exp(-3.0 * abs((i + 0.5) / len(source) - (j + 0.5) / len(target)))
                    for i, e in enumerate(source)
                ]
                for e, weight in zip(source, near, strict=True):
                    counts[e, f] += weight / sum(near)
        totals = defaultdict(float)
        for (e, _), count in counts.items():
            totals[e] += count
        t = defaultdict(float, {(e, f): count / totals[e] for (e, f), count in counts.items()})
    found = learn_lexicon(src, tgt, iterations=3, diagonal=3.0)
    entries = zip(found.src.tolist(), found.tgt.tolist(), strict=True)
    assert dict(zip(entries, found.probabilities, strict=True)) == close(dict(t), FLOAT32.ELEMENT)


def test_links_are_those_of_both_directions_and_of_the_nearer_of_two_equal_words() -> None:
    words = [[[EIN], [HAUS], [BUCH], [DAS]] * 3, [[A], [HOUSE], [BOOK], [THE]] * 3]
    src = [*words[0], [DAS, HAUS], [EIN, HAUS, DAS, BUCH, EIN]]
    tgt = [*words[1], [HOUSE, THE], [A, HOUSE, THE, BOOK, A]]
    assert mutual_links(src, tgt)[-2:] == [{(0, 1), (1, 0)}, {(i, i) for i in range(5)}]
