"""Count the sentences whose translation or score depends on their neighbours, the order, or the threads."""

import argparse
import itertools
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import torch

from heedful import Translator
from heedful.decoding.backends.choice import EngineChoice
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.translation import Translation
from heedful.settings.options import Precision
from heedful.storage.bundle import Bundle, load_bundle, resolve_bundle


@dataclass(frozen=True)
class Way:
    """How the sentences are handed to the translator.

    Attributes:
        label: in the table.
        threads: of the processor.
        batch_size: sentences that are searched together, at most.
        seed: of the order; None keeps it.
        at_once: sentences of one call, so that each batch has sentences of all lengths; None: all of them,
            which the translator sorts by length.
    """

    label: str
    threads: int
    batch_size: int
    seed: int | None = None
    at_once: int | None = None


ALONE = Way("one at a time, 1 thread", threads=1, batch_size=1, at_once=1)
WAYS = (
    Way("one at a time, 2 threads", threads=2, batch_size=1, at_once=1),
    Way("sorted batches of 64, 1 thread", threads=1, batch_size=64),
    Way("sorted batches of 64, 2 threads", threads=2, batch_size=64),
    Way("shuffled batches of 64, 1 thread", threads=1, batch_size=64, seed=1, at_once=64),
    Way("shuffled batches of 64, 2 threads", threads=2, batch_size=64, seed=2, at_once=64),
    Way("shuffled batches of 7, 2 threads", threads=2, batch_size=7, seed=3, at_once=7),
)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a trained run or bundle of heedful's")
    parser.add_argument("--src", type=Path, required=True, help="sentences")
    parser.add_argument("--sentences", type=int, default=2000, help="the first so many of them")
    parser.add_argument("--precisions", default="float32,bf16,int8")
    parser.add_argument("--beams", default="1,5")
    parser.add_argument("--engine", choices=["native", "torch"], default="native")
    parser.add_argument("--output", type=Path, help="file for the table; it is printed all the same")
    return parser.parse_args()


def main() -> int:
    """Translate in every way; 1 if a text of float32 differs."""
    given = parse_arguments()
    bundle = load_bundle(resolve_bundle(given.run))
    texts = given.src.read_text(encoding="utf-8").splitlines()[: given.sentences]
    lines = [
        f"heedful, {given.engine}, {len(texts):,} sentences of {given.src.name}, against one at a time.",
        "",
        "| precision | beam | | texts that differ | scores that differ | largest difference of scores |",
        "|---|--:|---|--:|--:|--:|",
    ]
    texts_of_float32 = 0
    for precision, beam in itertools.product(given.precisions.split(","), map(int, given.beams.split(","))):
        own = bundle.config.decode
        strategy = BeamSearch(beam_size=beam, early_stopping=own.early_stopping)
        options = replace(SearchOptions.from_config(own), strategy=strategy, n_best=1)
        alone = _translate(bundle, texts, ALONE, precision, given.engine, options)
        for way in WAYS:
            found = _translate(bundle, texts, way, precision, given.engine, options)
            pairs = list(zip(alone, found, strict=True))
            differ = sum(one.text != other.text for one, other in pairs)
            # A text that differs has another score for another reason.
            gaps = [abs(one.score - other.score) for one, other in pairs if one.text == other.text]
            scores, largest = sum(gap > 0 for gap in gaps), max(gaps, default=0.0)
            line = f"| {precision} | {beam} | {way.label} | {differ:,} | {scores:,} | {largest:.1e} |"
            sys.stderr.write(line + "\n")
            lines.append(line)
            texts_of_float32 += differ if precision == "float32" else 0
    table = "\n".join(lines) + "\n"
    if given.output:
        given.output.write_text(table, encoding="utf-8")
    sys.stdout.write(table)
    return int(texts_of_float32 > 0)


def _translate(
    bundle: Bundle, texts: Sequence[str], way: Way, precision: str, engine: str, options: SearchOptions
) -> list[Translation]:
    torch.set_num_threads(way.threads)
    translator = Translator(
        bundle,
        precision=cast(Precision, precision),
        batch_size=way.batch_size,
        batch_tokens=1 << 30,
        engine=cast(EngineChoice, engine),
    )
    order = list(range(len(texts)))
    if way.seed is not None:
        random.Random(way.seed).shuffle(order)
    found: dict[int, Translation] = {}
    for part in _parts(order, way.at_once or len(order)):
        translations = translator.translations([texts[i] for i in part], options=options)
        found.update(zip(part, translations, strict=True))
    return [found[i] for i in range(len(texts))]


def _parts(order: list[int], size: int) -> Iterator[list[int]]:
    return (order[start : start + size] for start in range(0, len(order), size))


if __name__ == "__main__":
    sys.exit(main())
