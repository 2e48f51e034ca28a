"""Sentences of two documents: against all alignments that there are, and on text whose pairs are known."""

from itertools import product

import numpy as np
import pytest

from heedful.data import bitext
from heedful.data.bitext import Bead, Side, find_beads
from heedful.data.phrasebook import phrase_book

PAIRS = phrase_book().train[:900]
SRC, TGT = ([pair[side] for pair in PAIRS] for side in (0, 1))


def side(texts: list[str], *, units: list[int] | None = None) -> Side:
    return Side(texts, units or [*range(len(texts))])


def documents(size: int = 30) -> list[tuple[list[str], list[str]]]:
    """The phrase book as documents of so many sentences."""
    return [(SRC[at : at + size], TGT[at : at + size]) for at in range(0, len(PAIRS), size)]


def found(texts: list[tuple[list[str], list[str]]]) -> list[list[Bead]]:
    return find_beads([(side(src), side(tgt)) for src, tgt in texts])


def right(texts: list[tuple[list[str], list[str]]], beads: list[list[Bead]]) -> tuple[int, int]:
    """Return how many beads of one sentence each are pairs of the phrase book, and how many there are."""
    known = set(PAIRS)
    told = [
        (src[bead.src[0]], tgt[bead.tgt[0]]) in known and len(bead.src) == len(bead.tgt) == 1
        for (src, tgt), own in zip(texts, beads, strict=True)
        for bead in own
    ]
    return sum(told), len(told)


def test_the_probability_of_a_bead_is_its_share_of_all_alignments() -> None:
    generator = np.random.default_rng(1)
    shapes = [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]
    scores = {shape: generator.normal(0, 6, (5, 4)).astype(np.float32) for shape in shapes}
    for (rows, columns), score in scores.items():
        score[:rows], score[:, :columns] = -np.inf, -np.inf

    def ways(row: int, column: int) -> list[tuple[float, list[tuple[int, int, int, int]]]]:
        """All alignments of the sentences from a place on: their scores and beads."""
        if (row, column) == (4, 3):
            return [(0.0, [])]
        steps = [((1, 0), bitext._SKIPPED), ((0, 1), bitext._SKIPPED)]
        steps += [
            (shape, float(scores[shape][row + shape[0], column + shape[1]]))
            for shape in shapes
            if row + shape[0] <= 4 and column + shape[1] <= 3
        ]
        result = []
        for (down, right_by), score in steps:
            if row + down <= 4 and column + right_by <= 3:
                bead = [(row, row + down, column, column + right_by)] if down and right_by else []
                result += [
                    (score + rest, bead + beads) for rest, beads in ways(row + down, column + right_by)
                ]
        return result

    every = ways(0, 0)
    total = sum(np.exp(score) for score, _ in every)
    probable = {bead[:4]: bead[4] for bead in bitext._probable(scores)}
    assert probable
    for bead in {bead for _, beads in every for bead in beads}:
        share = sum(np.exp(score) for score, beads in every if bead in beads) / total
        assert (share > 0.5) == (bead in probable)
        if bead in probable:
            assert probable[bead] == pytest.approx(share, rel=1e-4)


def test_pairs_in_order_are_found() -> None:
    texts = documents()
    good, all_beads = right(texts, found(texts))
    assert good >= 0.97 * len(PAIRS)
    assert good >= 0.99 * all_beads


def test_what_is_missing_on_one_side_is_in_no_bead() -> None:
    texts = [(src, tgt[:10] + tgt[20:]) for src, tgt in documents()]
    good, all_beads = right(texts, found(texts))
    assert good >= 0.9 * (len(PAIRS) - 10 * len(texts))
    assert good >= 0.97 * all_beads


def test_another_order_is_found() -> None:
    texts = documents()
    texts[0] = (texts[0][0], texts[0][1][20:] + texts[0][1][:20])
    good, _ = right(texts[:1], found(texts)[:1])
    assert good >= 27


def test_sentences_that_were_merged_are_a_bead() -> None:
    texts = documents()
    src, tgt = texts[0]
    merged = [*tgt[:4], f"{tgt[4]} {tgt[5]}", *tgt[6:]]
    one_unit = side(src, units=[*range(5), *range(4, len(src) - 1)])
    rest = [(side(src), side(tgt)) for src, tgt in texts[1:]]
    beads = find_beads([(one_unit, side(merged)), *rest])[0]
    assert [bead.tgt for bead in beads if [*bead.src] == [4, 5]] == [[4]]


def test_one_document_is_aligned_by_lengths_numbers_and_names() -> None:
    pairs = [
        ("The treaty of 1815 ended the war.", "Der Vertrag von 1815 beendete den Krieg."),
        ("Anna Berg was born in Basel.", "Anna Berg kam in Basel zur Welt."),
        (
            "She had 3 sisters and 2 brothers, and none of them ever left the town.",
            "Sie hatte 3 Schwestern und 2 Brüder, und keiner von ihnen verließ je die Stadt.",
        ),
        ("See page 27!", "Siehe Seite 27!"),
    ]
    src, tgt = ([pair[side] for pair in pairs] for side in (0, 1))
    assert [(bead.src, bead.tgt) for bead in found([(src, tgt)])[0]] == [([n], [n]) for n in range(4)]


def test_long_documents_are_aligned_in_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bitext, "_WINDOW", 50)
    monkeypatch.setattr(bitext, "_OVERLAP", 20)
    moved = [*TGT[:5], *TGT[6:46], TGT[5], *TGT[46:]]  # beyond the other sentences of its window
    texts = [(SRC, moved)]
    good, all_beads = right(texts, found(texts))
    assert good >= 0.9 * len(PAIRS)
    assert good >= 0.95 * all_beads


@pytest.mark.parametrize(("num_src", "num_tgt"), [*product((0, 1), (0, 1, 3))])
def test_documents_with_few_sentences_are_no_error(num_src: int, num_tgt: int) -> None:
    beads = found([(SRC[:num_src], TGT[:num_tgt])])[0]
    assert len(beads) <= min(num_src, num_tgt)


def test_few_documents_whose_sentences_all_have_a_counterpart_are_aligned_by_their_own_words() -> None:
    few = documents(20)[:4]
    beads = find_beads([(side(src, units=[0] * 20), side(tgt, units=[0] * 20)) for src, tgt in few])
    told, number = right(few, beads)
    assert number == told >= 75
