"""What a glossary costs, and what it gives: terms placed, BLEU and CPU time, with and without it.

    python benchmarks/decoding/glossary.py RUN SOURCE REFERENCE [--engine torch] [--beam 5] [--terms 3]

The terms of a sentence are words of its reference, each with the source word that the model aligns it to:
half of them words that the output without a glossary lacks, and half words that both have.
"""

import argparse
import json
import random
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import sacrebleu

from heedful.decoding.alignment import split_words
from heedful.decoding.glossary import Entry, TermText, term_of, words_of
from heedful.decoding.options import SearchOptions
from heedful.decoding.strategies.beam import BeamSearch
from heedful.decoding.texts import EncodedLines
from heedful.decoding.translation import Translation
from heedful.decoding.translator import Translator
from heedful.runtime.threads import set_threads
from heedful.storage.bundle import load_bundle, resolve_bundle

_LETTERS = 4  # of a term at least


def drawn_terms(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    outputs: Sequence[str],
    most: int,
) -> list[list[Entry]]:
    """Return the terms of each sentence: at most so many, missing and present ones in turn."""
    generator = random.Random(1)
    alignments = translator.align(sources, references)
    terms = []
    for source, reference, output, alignment in zip(sources, references, outputs, alignments, strict=True):
        src, tgt, written = split_words(source), split_words(reference), set(words_of(output))
        linked: dict[int, list[int]] = {}
        for i, j in alignment.links:
            linked.setdefault(i, []).append(j)
        pairs = [(src[i], tgt[js[0]]) for i, js in linked.items() if len(js) == 1]
        pairs = [pair for pair in pairs if all(word.isalpha() and len(word) >= _LETTERS for word in pair)]
        pairs = [(a, b) for a, b in pairs if src.count(a) == 1]
        generator.shuffle(pairs)
        missing = [pair for pair in pairs if pair[1] not in written]
        present = [pair for pair in pairs if pair[1] in written]
        turns = [pair for both in zip(missing, present, strict=False) for pair in both]
        turns += missing[len(present) :] + present[len(missing) :]
        chosen = list(dict(turns).items())[: generator.randint(0, most)]
        terms.append([Entry(TermText(a), (TermText(b),)) for a, b in chosen])
    return terms


def measured(
    translator: Translator,
    lines: EncodedLines,
    options: SearchOptions,
    references: Sequence[str],
    rounds: int,
) -> tuple[list[Translation], dict[str, float]]:
    """Return translations, and their figures: BLEU, terms, and the least CPU seconds of some rounds."""
    seconds = []
    for _ in range(rounds):
        started = time.process_time()
        n_best = translator.generator.search(lines.sources, options)
        seconds.append(time.process_time() - started)
    found = translator.codec.decode(lines, n_best, options, attention_of=translator.generator.attention)
    placed = [term.target is not None for each in found for term in each.terms]
    return found, {
        "bleu": sacrebleu.corpus_bleu([each.text for each in found], [list(references)]).score,
        "seconds": min(seconds),
        "terms": len(placed),
        "placed": sum(placed),
        "sentences": sum(bool(each.terms) for each in found),
        "tokens": sum(each.num_tokens for each in found),
    }


def main() -> None:
    """Measure, and print a line of JSON for each setting."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("run", type=Path)
    parser.add_argument("source", type=Path)
    parser.add_argument("reference", type=Path)
    parser.add_argument("--engine", default="native", choices=["native", "torch"])
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--terms", type=int, default=3, help="of a sentence at most")
    parser.add_argument("--lines", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--outputs", type=Path, help="directory for the outputs of each setting")
    asked = parser.parse_args()
    set_threads("threads", 1)
    sources, references = (
        path.read_text(encoding="utf-8").splitlines()[: asked.lines]
        for path in (asked.source, asked.reference)
    )
    translator = Translator(load_bundle(resolve_bundle(asked.run)), engine=asked.engine)
    codec, tgt = translator.codec, translator.bundle.tokenizers.tgt
    options = codec.resolved(SearchOptions(strategy=BeamSearch(beam_size=asked.beam)))
    lines = codec.encode(sources, None, options, first_line=1)
    without, result = measured(translator, lines, options, references, asked.rounds)
    results = {"without": (without, result)}
    terms = drawn_terms(translator, sources, references, [each.text for each in without], asked.terms)
    for i, entries in enumerate(terms):  # a glossary for each line
        of_line = [term for each in entries if (term := term_of(each, tgt)) is not None]
        lines.sources[i], lines.entries[i] = replace(lines.sources[i], terms=of_line), entries
    found, result = measured(translator, lines, options, references, asked.rounds)
    of_plain = (
        entry.form_in(each.text) for entries, each in zip(terms, without, strict=True) for entry in entries
    )
    results["own"] = found, result | {"placed without": sum(form is not None for form in of_plain)}
    for name, (found, result) in results.items():
        print(json.dumps({"setting": name, "engine": asked.engine, "beam": asked.beam} | result), flush=True)
        if asked.outputs is not None:
            asked.outputs.mkdir(parents=True, exist_ok=True)
            texts = "".join(f"{each.text}\n" for each in found)
            (asked.outputs / f"{name}.{asked.engine}.txt").write_text(texts, encoding="utf-8")


if __name__ == "__main__":
    main()
