"""Measure training and translation on this machine in a few minutes, and print one table: make bench.

Nothing is needed but heedful with its extra `interop`: models have random weights, the text is the embedded
phrase book, and every output has 20 tokens. Each figure is of one short run, and what else the machine does
shows in it; docs/performance.md has longer ones.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from record import facts_of, machine_summary
from results import CLASSES, ROOT, Result, Row, summary

HERE = Path(__file__).resolve().parent
VOCABULARY = 4000
TRAINED = {"tiny": 20, "small": 10}  # presets, and steps that are timed
DECODED = {"small": 64}  # presets, and sentences
BUSY = 0.5  # load average from which on other programs disturb


def main() -> int:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--engines", default="heedful,ctranslate2", help="see benchmarks/decoding/run.py")
    given = parser.parse_args()
    machine = machine_summary(dict(os.environ))
    facts = facts_of(machine)
    print(f"Class of CPU: {CLASSES[facts['cpu_class']]}. {facts['machine']}, commit {facts['commit']}.\n")
    if (busy := os.getloadavg()[0]) > BUSY:
        print(f"Other programs are running (load {busy:.1f}): figures are too low, ratios uncertain.\n")
    options = ["--engines", given.engines, "--precisions", ",".join(machine["decoding"])]
    with tempfile.TemporaryDirectory(prefix="heedful-bench-") as folder:
        directory = Path(folder)
        write_material(directory)
        results = [decoding(directory, preset, options) for preset in DECODED]
        results.append({"what": "training, batches of 2,048 tokens", "rows": [*map(training, TRAINED)]})
    measured = [Result(name="", commands=[], notes=[], **facts, **each) for each in results]
    print(summary(measured, facts["cpu_class"]))
    return 0


def write_material(directory: Path) -> None:
    """Write sentences, their translations, and a bundle with tokenizers of the phrase book."""
    from heedful.data.phrasebook import phrase_book
    from heedful.model.transformer import Transformer
    from heedful.settings.presets import preset
    from heedful.settings.run import TokenizerConfig
    from heedful.storage.bundle import Bundle, save_bundle
    from heedful.text import train_tokenizers

    book = phrase_book()
    for name, pairs in (("train", book.train), ("test", book.test)):
        for side, suffix in enumerate(("src", "tgt")):
            lines = [f"{pair[side]}\n" for pair in pairs]
            (directory / f"{name}.{suffix}").write_text("".join(lines), encoding="utf-8")
    sides = [[pair[side] for pair in book.train] for side in (0, 1)]
    tokenizers = train_tokenizers(*sides, TokenizerConfig(vocab_size=VOCABULARY), seed=1)
    config = preset("tiny")
    sizes: dict[str, Any] = {"src_vocab_size": tokenizers.src.vocab_size}
    sizes |= {"tgt_vocab_size": tokenizers.tgt.vocab_size, "src_pad_id": tokenizers.src.pad_id}
    sizes |= {"tgt_pad_id": tokenizers.tgt.pad_id}
    config = config.replace(model=config.model.replace(**sizes))
    model = Transformer.from_config(config.model).eval()
    save_bundle(Bundle(config, tokenizers, model), directory / "bundle", card="For a measurement.\n")


def decoding(directory: Path, preset: str, options: list[str]) -> dict[str, Any]:
    """Translate with a preset of random weights, beside other engines; what fails is said on stderr."""
    print(f"decoding, {preset}", file=sys.stderr)
    file = directory / f"{preset}.json"
    command = [sys.executable, str(HERE / "decoding" / "run.py"), str(directory / "bundle")]
    command += ["--src", str(directory / "test.src"), "--ref", str(directory / "test.tgt")]
    command += ["--sentences", str(DECODED[preset]), "--untrained", preset, *options]
    subprocess.run([*command, "--json", str(file)], cwd=ROOT, stdout=subprocess.DEVNULL, check=False)
    return {"what": f"decoding, {preset}", "rows": json.loads(file.read_text(encoding="utf-8"))["rows"]}


def training(preset: str) -> Row:
    """Train a preset for a few steps on made-up sentences, in the precision that is chosen here."""
    print(f"training, {preset}", file=sys.stderr)
    command = [sys.executable, "-m", "heedful", "bench", "train", "--preset", preset]
    command += ["--steps", str(TRAINED[preset]), "--set", "batch.tokens=2048", "--json"]
    command += ["--set", f"tokenizer.vocab_size={VOCABULARY}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    measured = json.loads(done.stdout)
    speed = round(measured["target_tokens_per_second"])
    return {
        "engine": "heedful",
        "preset": preset,
        "precision": measured["precision"],
        "tokens_per_second": speed,
    }


if __name__ == "__main__":
    sys.exit(main())
