"""How well cross-attention aligns words: agreement with IBM Model 1, for each decoder layer and step.

    python benchmarks/alignment.py RUN --train-src train.en --train-tgt train.de --src test.en --tgt test.de

There is no gold standard in it: the links counted are those that IBM Model 1, learned in both directions on
all the text, finds in both, which are few and mostly right. Printed is the percentage of them that attention
finds.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

from heedful.data.files import read_parallel
from heedful.data.lexicon import learn_lexicon
from heedful.decoding.alignment import AlignmentMethod, split_words
from heedful.decoding.translator import Translator
from heedful.storage.bundle import load_bundle

Sentences = list[list[int]]


def word_ids(lines: Sequence[str]) -> Sentences:
    """Number the words of lines, without case and the punctuation after them."""
    numbers: dict[str, int] = {}
    return [
        [
            numbers.setdefault(word.casefold().rstrip(".,;:!?") or word, len(numbers))
            for word in split_words(line)
        ]
        for line in lines
    ]


def best_links(src: Sentences, tgt: Sentences, num_tested: int) -> list[set[tuple[int, int]]]:
    """Return, for the last pairs, the links of each target word with its most probable source word."""
    lexicon = learn_lexicon(src, tgt)
    entries = zip(lexicon.src.tolist(), lexicon.tgt.tolist(), strict=True)
    probability = dict(zip(entries, lexicon.probabilities.tolist(), strict=True))
    return [
        {
            (max(range(len(source)), key=lambda i: probability.get((source[i], word), 0.0)), j)
            for j, word in enumerate(target)
        }
        for source, target in zip(src[-num_tested:], tgt[-num_tested:], strict=True)
    ]


def main() -> None:
    """Measure every layer at both steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("run", type=Path)
    for name in ("train-src", "train-tgt", "src", "tgt"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    options = parser.parse_args()
    training = read_parallel(options.train_src, options.train_tgt)
    tested = read_parallel(options.src, options.tgt)
    src, tgt = word_ids([*training.src, *tested.src]), word_ids([*training.tgt, *tested.tgt])
    forward, backward = best_links(src, tgt, len(tested)), best_links(tgt, src, len(tested))
    sure = [f & {(i, j) for j, i in b} for f, b in zip(forward, backward, strict=True)]
    num_sure = sum(map(len, sure))
    print(f"{num_sure:,} links of {len(tested):,} pairs, {sum(map(len, tgt[-len(tested) :])):,} target words")
    translator = Translator(load_bundle(options.run))
    for layer in range(1, translator.bundle.config.model.num_decoder_layers + 1):
        for shift in (False, True):
            method = AlignmentMethod(layer=layer, shift=shift)
            alignments = translator.align(tested.src, tested.tgt, method=method)
            hits = sum(len(links & set(each.links)) for links, each in zip(sure, alignments, strict=True))
            step = "input" if shift else "output"
            print(f"layer {layer}, token as {step}: {100 * hits / num_sure:.1f} %")


if __name__ == "__main__":
    main()
