from pathlib import Path

import numpy as np

from heedful.verbs.bench import write_synthetic_text


def test_made_up_sentences_are_as_long_as_those_of_multi30k(tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    write_synthetic_text(src, tgt, num_pairs=4000, num_words=500, seed=1)
    sides = [[len(line.split()) + 1 for line in path.read_text().splitlines()] for path in (src, tgt)]
    assert len(sides[0]) == len(sides[1]) == 4000
    for lengths, mean, deviation in zip(sides, (15.3, 15.8), (4.7, 5.4), strict=True):
        assert abs(np.mean(lengths) - mean) < 0.4
        assert abs(np.std(lengths) - deviation) < 0.4
    assert abs(np.corrcoef(sides)[0, 1] - 0.86) < 0.04  # the same of Multi30k is 0.86 between logarithms


def test_every_made_up_word_occurs_on_both_sides(tmp_path: Path) -> None:
    src, tgt = tmp_path / "src", tmp_path / "tgt"
    write_synthetic_text(src, tgt, num_pairs=100, num_words=500, seed=1)
    assert len(set(src.read_text().split())) == len(set(tgt.read_text().split())) == 500
