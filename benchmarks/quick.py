"""Measure training and translation on this machine in a few minutes, and print two tables: make bench.

Nothing is needed but heedful with its extra `interop`: models have random weights, the text is the embedded
phrase book, and outputs have 20 tokens. Each figure is one short run, disturbed by other programs;
docs/performance.md has longer ones, by decoding.py and training.py.
"""

import os
import sys
import tempfile
from argparse import Namespace
from pathlib import Path

import decoding
import training
from measuring import machine_line, table

VOCABULARY = 4000
SENTENCES = 64


def main() -> int:
    """Measure, and print the tables; return 1 if a row failed."""
    environment = dict(os.environ)
    print(f"{machine_line(environment)}\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="heedful-bench-") as folder:
        bundle, sentences = write_material(Path(folder))
        asked = {"run": bundle, "src": sentences, "ref": None, "sentences": SENTENCES, "untrained": "small"}
        asked |= {"beams": "1,5", "batch_sizes": "64", "threads": os.cpu_count()}
        asked |= {"engines": "heedful,ctranslate2", "precisions": "float32,bf16,int8"}
        decoded = decoding.measured(Namespace(**asked), environment)
        print(f"Translation, preset small:\n\n{table(decoded)}\n", flush=True)
        asked = {"src": None, "tgt": None, "presets": "tiny,small", "engines": "heedful", "seconds": 5.0}
        asked |= {"precisions": "auto", "warm_up": 0.0, "vocab_size": VOCABULARY}
        trained = training.measured(Namespace(**asked), environment)
        print(f"Training:\n\n{table(trained)}")
    return int(any("failure" in row for row in decoded + trained))


def write_material(directory: Path) -> tuple[Path, Path]:
    """Write a bundle with tokenizers of the phrase book, and its sentences to translate; return the paths."""
    from heedful.data.phrasebook import phrase_book
    from heedful.model.transformer import Transformer
    from heedful.settings.presets import preset
    from heedful.settings.run import TokenizerConfig
    from heedful.storage.bundle import Bundle, save_bundle
    from heedful.text import train_tokenizers

    book = phrase_book()
    sides = [[pair[side] for pair in book.train] for side in (0, 1)]
    tokenizers = train_tokenizers(*sides, TokenizerConfig(vocab_size=VOCABULARY), seed=1)
    config = preset("tiny")
    sizes = {"src_vocab_size": tokenizers.src.vocab_size, "tgt_vocab_size": tokenizers.tgt.vocab_size}
    sizes |= {"src_pad_id": tokenizers.src.pad_id, "tgt_pad_id": tokenizers.tgt.pad_id}
    config = config.replace(model=config.model.replace(**sizes))
    model = Transformer.from_config(config.model).eval()
    save_bundle(Bundle(config, tokenizers, model), directory / "bundle", card="For a measurement.\n")
    sentences = directory / "test.src"
    sentences.write_text("".join(f"{pair[0]}\n" for pair in book.test), encoding="utf-8")
    return directory / "bundle", sentences


if __name__ == "__main__":
    sys.exit(main())
