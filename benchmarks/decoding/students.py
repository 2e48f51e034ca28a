"""Translate with a student of random weights, of the shape of Firefox's, by heedful and by bergamot.

    python benchmarks/decoding/students.py [--bergamot PYTHON]

PYTHON is the interpreter of an environment with bergamot 0.4.5; without it only heedful is measured. The
model has 6 encoder layers, 2 decoder layers with SSRU, a width of 256 and 32,000 tokens. No output ends by
itself, so both systems take 31 steps for each line of 30 tokens. Both are given text, search greedily and use
one thread and 8-bit weights. A figure is CPU seconds, the least of five calls, for 1 and for 64 lines, with
and without a shortlist of at most 100 tokens and 50 for each token of the source.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

os.environ["OMP_NUM_THREADS"] = "1"
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

import numpy as np
import sentencepiece
import torch

import marian_fixtures as marian
from heedful.decoding.options import SearchOptions
from heedful.decoding.shortlist import Shortlist
from heedful.decoding.translator import Translator
from heedful.runtime.native import native
from heedful.storage.bundle import load_bundle

SIZE, LENGTH, LINES, CALLS = 32_000, 30, 64, 5
SHAPE = {
    "dim-emb": 256,
    "dim-vocabs": [SIZE, SIZE],
    "enc-depth": 6,
    "dec-depth": 2,
    "transformer-heads": 8,
    "transformer-dim-ffn": 1536,
}
COUNTS = (1, LINES)

BERGAMOT = """
import time
seconds = []
for config in task["configs"]:
    model = service.modelFromConfig(config)
    for count in task["counts"]:
        times = []
        for _ in range(task["calls"]):
            lines = bergamot.VectorString(task["lines"][:count])
            start = time.process_time()
            service.translate(model, lines, bergamot.ResponseOptions())
            times.append(time.process_time() - start)
        seconds.append(min(times))
print(json.dumps(seconds))
"""


def write_model(directory: Path) -> list[str]:
    """Write the student, and return lines of `LENGTH` tokens."""
    options = marian.OPTIONS | marian.SSRU | SHAPE
    tensors = marian.tensors_of(options, seed=0)
    tensors["decoder_ff_logit_out_b"][0, 0] = -1000  # no output ends
    tensors["special:model.yml"] = np.frombuffer(marian.yaml(options).encode() + b"\0", np.int8)
    words = marian.random_words(60_000, longest=9)
    decoder = marian.write_student(directory, tensors, words, SIZE)
    marian.write_shortlist(directory / "lex.s2t.bin", SIZE, frequent=100, best=50)
    (directory / "decoder.yml").write_text(marian.yaml(decoder | {"beam-size": 1}), encoding="utf-8")
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(directory / "vocab.spm"))
    random = np.random.default_rng(1)
    drawn = (" ".join(random.choice(words, random.integers(8, 24))) for _ in range(100_000))
    return list(islice((line for line in drawn if len(tokenizer.encode(line)) == LENGTH), LINES))


def seconds_of_heedful(bundle: Path, lines: list[str]) -> list[float]:
    """Return the CPU time of each setting: without and with the shortlist, for each count of lines."""
    steps = LENGTH + 1  # with the end of the sentence
    default = SearchOptions.from_config(load_bundle(bundle).config.decode)
    options = replace(default, min_length=steps, max_length=steps)
    seconds = []
    for shortlist in (None, Shortlist.load(bundle / "shortlist.safetensors")):
        translator = Translator(load_bundle(bundle), precision="int8", engine="native", shortlist=shortlist)
        for count in COUNTS:
            times = []
            for _ in range(CALLS):
                start = time.process_time()
                translator.translate(lines[:count], options=options)
                times.append(time.process_time() - start)
            seconds.append(min(times))
    return seconds


def seconds_of_bergamot(python: Path, directory: Path, lines: list[str]) -> list[float]:
    """Return the same of bergamot."""
    configs = marian.configs_of_bergamot(directory, max_length_factor=1.0)
    task = {"configs": configs, "lines": lines, "counts": COUNTS, "calls": CALLS}
    code = marian.START_OF_BERGAMOT + BERGAMOT
    done = subprocess.run(
        [python, "-c", code], input=json.dumps(task), capture_output=True, text=True, check=True
    )
    return list(json.loads(done.stdout))


def main() -> None:
    """Measure, and print a line for each setting."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bergamot", type=Path)
    python = parser.parse_args().bergamot
    torch.set_num_threads(1)
    print(native().describe())
    with TemporaryDirectory() as folder:
        directory, bundle = Path(folder, "student"), Path(folder, "bundle")
        directory.mkdir()
        lines = write_model(directory)
        import_ = ["import", directory, "--layout", "marian-native", "--output", bundle]
        subprocess.run([sys.executable, "-m", "heedful", *import_], check=True)
        found = {"heedful": seconds_of_heedful(bundle, lines)}
        if python:
            found["bergamot"] = seconds_of_bergamot(python, directory, lines)
    settings = [f"{count} lines, {which} shortlist" for which in ("without", "with") for count in COUNTS]
    for name, seconds in found.items():
        for setting, each in zip(settings, seconds, strict=True):
            print(f"{name}, {setting}: {each:.4f} s")


if __name__ == "__main__":
    main()
