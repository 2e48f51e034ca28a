r"""How well tags are put around the right words: of an element in the source, by position and by attention.

    python benchmarks/serving/tags.py RUN \
        --train-src train.en --train-tgt train.de --src test.en --tgt test.de

Elements are one to four words of test sentences, at random, of which each has a link in IBM Model 1 learned
in both directions on all the text (see benchmarks/alignment.py). The target words of these links, and those
between them, are where the element belongs in the reference translation, which is projected on.
"""

import argparse
import random
import re
import sys
from pathlib import Path

from heedful.data.files import read_parallel
from heedful.decoding.translator import Translator
from heedful.serving.marked_text import MarkedText, Marker, Span
from heedful.serving.projection import Links, project, words
from heedful.storage.bundle import load_bundle, resolve_bundle

sys.path.append(str(Path(__file__).parents[1]))
from alignment import best_links, word_ids  # the sibling benchmark

_ELEMENTS_PER_SENTENCE = 5


def projected(source: str, element: Span, target: str, links: Links | None) -> set[int]:
    """Return the target words that an element around source words is put around."""
    spans = words(source)
    first, last = spans[element[0]], spans[element[1] - 1]
    markers = (Marker(first[0], "\x01", "open", 0), Marker(last[1], "\x02", "close", 0))
    written = project(MarkedText(source, markers), target, str, links)
    before, inside, _ = re.split("[\x01\x02]", written)
    start = len(words(before))
    return set(range(start, start + len(words(inside))))


def main() -> None:
    """Print precision, recall and exact matches of both ways."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    for name in ("train-src", "train-tgt", "src", "tgt"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    training = read_parallel(options.train_src, options.train_tgt)
    tested = read_parallel(options.src, options.tgt)
    tokenised = [
        word_ids([" ".join(text[start:end] for start, end in words(text)) for text in texts])
        for texts in ([*training.src, *tested.src], [*training.tgt, *tested.tgt])
    ]
    forward, backward = best_links(*tokenised, len(tested)), best_links(*tokenised[::-1], len(tested))
    sure = [f & {(i, j) for j, i in b} for f, b in zip(forward, backward, strict=True)]
    translator = Translator(load_bundle(resolve_bundle(options.run)))
    alignments = translator.align(tested.src, tested.tgt, split=words)
    rng = random.Random(1)
    counts = {name: [0, 0, 0] for name in ("by position", "by attention")}  # inside and right, inside, exact
    num_elements = num_right = 0
    for source, target, links, alignment in zip(tested.src, tested.tgt, sure, alignments, strict=True):
        for _ in range(_ELEMENTS_PER_SENTENCE):
            length, total = rng.randint(1, 4), len(words(source))
            first = rng.randrange(max(1, total - length))
            element = (first, min(first + length, total))
            targets = {j for i, j in links if element[0] <= i < element[1]}
            if len({i for i, _ in links if element[0] <= i < element[1]}) < element[1] - element[0]:
                continue
            right = set(range(min(targets), max(targets) + 1))
            num_elements, num_right = num_elements + 1, num_right + len(right)
            for name, known in (("by position", None), ("by attention", alignment.links)):
                inside = projected(source, element, target, known)
                for i, count in enumerate((len(inside & right), len(inside), inside == right)):
                    counts[name][i] += count
    print(f"{num_elements:,} elements, around {num_right:,} target words")
    for name, (hits, num_inside, exact) in counts.items():
        shares = (100 * hits / num_inside, 100 * hits / num_right, 100 * exact / num_elements)
        print("{}: precision {:.1f} %, recall {:.1f} %, exactly right {:.1f} %".format(name, *shares))


if __name__ == "__main__":
    main()
