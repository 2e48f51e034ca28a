r"""How well tags are put around the right words: of an element in the source, by position and by the model.

    python benchmarks/serving/tags.py RUN \
        --train-src train.en --train-tgt train.de --src test.en --tgt test.de

Elements are one to four words of test sentences, at random, of which each has a link in IBM Model 1 learned
in both directions on all the text (see benchmarks/alignment.py). The target words of these links, and those
between them, are where the element belongs in the reference translation, which is projected on. `by the
links` has these links themselves, the ceiling of all others. The alignment error rate (Och and Ney, 2003) is
against them as sure links, and those of either direction as possible ones.

IBM Model 1 knows no positions: where an article comes twice, it often links the wrong one. So its links are
no gold standard: those of eflomal, a good aligner, have 79.8 % exactly right and 83.8 % within one word.
"""

import argparse
import random
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from heedful.data.files import read_parallel
from heedful.decoding.translator import Translator
from heedful.documents.marked_text import MarkedText, Marker, Span
from heedful.documents.projection import Links, project, words
from heedful.storage.bundle import load_bundle, resolve_bundle

sys.path.append(str(Path(__file__).parents[1]))
from alignment import best_links, word_ids  # the sibling benchmark

_ELEMENTS_PER_SENTENCE = 5
Link = tuple[int, int]


def projected(source: str, element: Span, target: str, links: Links | None) -> set[int]:
    """Return the target words that an element around source words is put around."""
    spans = words(source)
    first, last = spans[element[0]], spans[element[1] - 1]
    markers = (Marker(first[0], "\x01", "open", 0), Marker(last[1], "\x02", "close", 0))
    written = project(MarkedText(source, markers), target, str, links)
    before, inside, _ = re.split("[\x01\x02]", written)
    start = len(words(before))
    return set(range(start, start + len(words(inside))))


def is_near(inside: set[int], right: set[int]) -> bool:
    """Return whether the first and the last word are right, or the one beside it is."""
    return bool(inside) and all(abs(edge(inside) - edge(right)) <= 1 for edge in (min, max))


def error_rate(found: Sequence[Links], sure: Sequence[set[Link]], possible: Sequence[set[Link]]) -> float:
    """Return the alignment error rate (Och and Ney, 2003), as a percentage."""
    hits = sum(
        len(s.intersection(links)) + len(p.intersection(links))
        for links, s, p in zip(found, sure, possible, strict=True)
    )
    return 100 * (1 - hits / (sum(map(len, found)) + sum(map(len, sure))))


def main() -> None:
    """Print precision, recall and matches of each way, and the error rate of the model's alignments."""
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
    backward = [{(i, j) for j, i in links} for links in backward]
    sure = [f & b for f, b in zip(forward, backward, strict=True)]
    possible = [f | b for f, b in zip(forward, backward, strict=True)]
    translator = Translator(load_bundle(resolve_bundle(options.run)))
    start = time.perf_counter()
    alignments = [each.links for each in translator.align(tested.src, tested.tgt, split=words)]
    seconds = time.perf_counter() - start
    rng = random.Random(1)
    names = "by position", "by the model", "by the links"
    counts = {name: [0, 0, 0, 0] for name in names}  # inside and right, inside, exact, within one word
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
            for name, known in zip(names, (None, alignment, sorted(links)), strict=True):
                inside = projected(source, element, target, known)
                found = len(inside & right), len(inside), inside == right, is_near(inside, right)
                for i, count in enumerate(found):
                    counts[name][i] += count
    print(f"{num_elements:,} elements, around {num_right:,} target words")
    for name, (hits, num_inside, exact, near) in counts.items():
        shares = hits / num_inside, hits / num_right, exact / num_elements, near / num_elements
        texts = [f"{100 * share:.1f} %" for share in shares]
        print("{}: precision {}, recall {}, exactly right {}, within one word {}".format(name, *texts))
    error = error_rate(alignments, sure, possible)
    print(f"alignment error rate {error:.1f} %, {1000 * seconds / len(tested):.1f} ms a sentence pair")


if __name__ == "__main__":
    main()
