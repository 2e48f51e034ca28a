"""Write the small Marian models of tests/golden/marian, and let Marian and bergamot translate with them.

The weights are drawn with a seed, of few different values so that files are small. `judged.json` has what the
other systems say: n-best lists with word scores of Marian (pymarian), translations of bergamot.

    python tools/marian_fixtures.py --pymarian PYTHON --bergamot PYTHON

PYTHON are the interpreters of environments with pymarian 1.12.42 and bergamot 0.4.5; without one, what that
system said stays as it is.
"""

import argparse
import io
import json
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import sentencepiece
from numpy.typing import NDArray

OUTPUT = Path(__file__).parent.parent / "tests" / "golden" / "marian"
WIDTH, INNER, HEADS = 32, 32, 4
WORDS = [f"w{i}" for i in range(2, 40)]  # after </s> and <unk>
Tensors = dict[str, NDArray[Any]]

OPTIONS: dict[str, Any] = {
    "type": "transformer",
    "dim-emb": WIDTH,
    "dim-vocabs": [40, 40],
    "enc-depth": 1,
    "dec-depth": 1,
    "transformer-heads": HEADS,
    "transformer-dim-ffn": INNER,
    "transformer-ffn-depth": 2,
    "transformer-ffn-activation": "relu",
    "transformer-preprocess": "",
    "transformer-postprocess": "dan",
    "transformer-postprocess-emb": "d",
    "transformer-postprocess-top": "",
    "transformer-decoder-autoreg": "self-attention",
    "transformer-no-projection": False,
    "transformer-train-position-embeddings": False,
    "dec-cell": "gru",
    "tied-embeddings": False,
    "tied-embeddings-src": False,
    "tied-embeddings-all": True,
    "layer-normalization": False,
    "right-left": False,
    "skip": False,
    "input-types": [],
    "version": "v1.12.3",
}
PRE_NORM = {
    "transformer-preprocess": "n",
    "transformer-postprocess": "da",
    "transformer-postprocess-top": "n",
}
SSRU = {"transformer-decoder-autoreg": "rnn", "dec-cell": "ssru"}


@dataclass(frozen=True)
class Fixture:
    """A model: what differs from `OPTIONS`, and the options of its decoder.yml."""

    options: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)
    is_student: bool = False  # a .bin of 8-bit numbers with a shortlist, for bergamot


FIXTURES = {
    "post": Fixture(),
    "post-separate": Fixture(  # vocabularies; a norm wherever there may be one; an option that Marian ignores
        {
            "dim-vocabs": [40, 36],
            "transformer-ffn-activation": "swish",
            "transformer-postprocess-emb": "nd",
            "transformer-postprocess-top": "n",
            "transformer-train-position-embeddings": True,
            "tied-embeddings-all": False,
        },
        {"normalize": 0.6, "beam-size": 4},
    ),
    "pre": Fixture(
        PRE_NORM
        | {"transformer-ffn-activation": "gelu", "tied-embeddings": True, "tied-embeddings-all": False}
    ),
    "rms": Fixture(
        {
            "dec-depth": 2,
            "transformer-tied-layers": [1, 1],
            "transformer-postprocess": "dar",
            "tied-embeddings-src": True,
            "tied-embeddings-all": False,
        }
    ),
    "ssru": Fixture(SSRU | {"dec-depth": 3, "transformer-tied-layers": [1, 1, 1]}),
    "ssru-pre": Fixture(SSRU | PRE_NORM | {"dim-vocabs": [40, 36], "tied-embeddings-all": False}),
    "student": Fixture(SSRU | {"dim-emb": 64, "transformer-dim-ffn": 64}, {"beam-size": 1}, is_student=True),
}


class Weights:
    """Weights by Marian's names, drawn from a few numbers."""

    def __init__(self, options: dict[str, Any], seed: int) -> None:
        self.tensors: Tensors = {}
        self._random = np.random.default_rng(seed)
        self._width, self._inner = options["dim-emb"], options["transformer-dim-ffn"]
        self._before = options["transformer-preprocess"]
        self._after = options["transformer-postprocess"]

    def matrix(self, name: str, rows: int, columns: int, *, scale: float = 1 / 16) -> None:
        """Draw a matrix."""
        self.tensors[name] = (self._random.integers(-8, 9, (rows, columns)) * scale).astype(np.float32)

    def vector(self, name: str, width: int, *, around: float = 0.0) -> None:
        """Draw a bias or a gain."""
        self.tensors[name] = (around + self._random.integers(-8, 9, (1, width)) / 16).astype(np.float32)

    def linear(self, name: str, rows: int, columns: int) -> None:
        """Draw `layer_W1` and its bias."""
        self.matrix(name, rows, columns)
        layer, _, part = name.rpartition("_W")
        self.vector(f"{layer}_b{part}", columns)

    def norm(self, name: str, letters: str, suffix: str = "") -> None:
        """Draw the norms that the letters of an option ask for."""
        if "r" in letters:
            self.vector(f"{name}_rms_scale{suffix}", self._width, around=1)
        if "n" in letters:
            self.vector(f"{name}_ln_scale{suffix}", self._width, around=1)
            self.vector(f"{name}_ln_bias{suffix}", self._width)

    def norms(self, before: str, after: str) -> None:
        """Draw the norms around a sub-layer."""
        self.norm(before, self._before, "_pre")
        self.norm(after, self._after)

    def attention(self, name: str) -> None:
        """Draw an attention."""
        for part in "qkvo":
            self.linear(f"{name}_W{part}", self._width, self._width)
        self.norms(f"{name}_Wo", f"{name}_Wo")

    def feed_forward(self, name: str) -> None:
        """Draw a feed-forward layer."""
        self.linear(f"{name}_W1", self._width, self._inner)
        self.linear(f"{name}_W2", self._inner, self._width)
        self.norms(f"{name}_ffn", f"{name}_ffn")

    def cell(self, name: str) -> None:
        """Draw an SSRU."""
        self.matrix(f"{name}_W", self._width, self._width)
        self.linear(f"{name}_Wf", self._width, self._width)
        self.norms(name, f"{name}_ffn")


def tensors_of(options: dict[str, Any], seed: int) -> Tensors:
    """Draw the weights of a model."""
    weights = Weights(options, seed)
    src_size, tgt_size = options["dim-vocabs"]
    is_tied_src = options["tied-embeddings-all"] or options["tied-embeddings-src"]
    sizes = {"Wemb": src_size} if is_tied_src else {"encoder_Wemb": src_size, "decoder_Wemb": tgt_size}
    for name, size in sizes.items():
        weights.matrix(
            name, size, options["dim-emb"], scale=1 / 48 if options["dim-emb"] == WIDTH else 1 / 16
        )
    for stack in ("encoder", "decoder"):
        weights.norm(f"{stack}_emb", options["transformer-postprocess-emb"], "_pre")
        weights.norm(f"{stack}_top", options["transformer-postprocess-top"])
    for i in range(1, options["enc-depth"] + 1):
        weights.attention(f"encoder_l{i}_self")
        weights.feed_forward(f"encoder_l{i}_ffn")
    for i in sorted(set(options.get("transformer-tied-layers") or range(1, options["dec-depth"] + 1))):
        is_recurrent = options["transformer-decoder-autoreg"] == "rnn"
        (weights.cell if is_recurrent else weights.attention)(
            f"decoder_l{i}_{'rnn' if is_recurrent else 'self'}"
        )
        weights.attention(f"decoder_l{i}_context")
        weights.feed_forward(f"decoder_l{i}_ffn")
    if options["tied-embeddings-src"]:
        weights.matrix("decoder_ff_logit_out_Wt", tgt_size, WIDTH, scale=1 / 48)
    elif not (options["tied-embeddings"] or options["tied-embeddings-all"]):  # as older versions have it
        weights.matrix("decoder_ff_logit_out_W", WIDTH, tgt_size, scale=1 / 48)
    weights.vector("decoder_ff_logit_out_b", tgt_size)
    # Sentences end.
    weights.tensors["decoder_ff_logit_out_b"][0, 0] = 2 if options["dim-emb"] == WIDTH else 3
    return weights.tensors


def yaml(options: dict[str, Any]) -> str:
    """Return options as Marian writes them."""
    lines = []
    for key, value in options.items():
        if isinstance(value, list) and value:
            lines += [f"{key}:", *(f"  - {each}" for each in value)]
        else:
            text = json.dumps(value) if isinstance(value, bool | list) or value == "" else str(value)
            lines.append(f"{key}: {text}")
    return "\n".join(lines) + "\n"


def sentences(count: int) -> list[str]:
    """Return random sources, some of them long and one with an unknown word."""
    random = np.random.default_rng(7)
    lengths = [1, 2, 5, 9, 14, 25, *random.integers(3, 20, count)][:count]
    return ["unknown w3", *(" ".join(random.choice(WORDS, length)) for length in lengths)]


FLOAT32, INT8, INTGEMM8 = 0x0404, 0x0101, 0x4101


def write_bin(file: Path, tensors: Tensors) -> None:
    """Write a binary file: matrices in 8 bits, those of layers transposed."""
    items = []
    for name, tensor in tensors.items():
        kind, content = (INT8 if name.startswith("special:") else FLOAT32), tensor.tobytes()
        if re.search("_W[a-z0-9]*$", name) or name == "Wemb":
            multiplier = np.float32(127) / np.abs(tensor).max()
            numbers = np.rint(tensor * multiplier).astype(np.int8)
            # 256 bytes: Marian reads whole lines of the cache.
            content = (numbers if name == "Wemb" else numbers.T).tobytes() + multiplier.tobytes() + bytes(252)
            kind = INTGEMM8
        items.append((name.encode() + b"\0", kind, tensor.shape, content))
    header = struct.pack("<2Q", 1, len(items))
    for coded, kind, shape, content in items:
        header += struct.pack("<4Q", len(coded), kind, len(shape), len(content))
    header += b"".join(coded for coded, *_ in items)
    header += b"".join(struct.pack(f"<{len(shape)}i", *shape) for _, _, shape, _ in items)
    padding = -(len(header) + 8) % 256
    header += struct.pack("<Q", padding) + bytes(padding)
    file.write_bytes(header + b"".join(content for *_, content in items))


def write_shortlist(file: Path, size: int, *, frequent: int = 4, best: int = 3) -> None:
    """Write a binary shortlist: the first tokens, and a few drawn ones for each."""
    random = np.random.default_rng(11)
    entries = [sorted(random.choice(size, best, replace=False).tolist()) for _ in range(size)]
    content = struct.pack("<6Q", 0xF11A48D5013417F5, 0, frequent, best, size + 1, best * size)
    content += np.arange(0, best * size + 1, best, dtype="<u8").tobytes()
    file.write_bytes(content + np.asarray(entries, "<u4").tobytes())


def random_words(count: int, longest: int = 5) -> list[str]:
    """Return words of random letters."""
    random = np.random.default_rng(13)
    return [
        "".join(random.choice(list("abdeiklmnorstu"), random.integers(2, longest + 1))) for _ in range(count)
    ]


def write_student(directory: Path, tensors: Tensors, words: list[str], size: int) -> dict[str, Any]:
    """Write the files of a student whose vocabulary is learned of words; return what its decoder.yml says."""
    write_bin(directory / "model.bin", tensors)
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(words * 3), model_writer=model, vocab_size=size, model_type="bpe", bos_id=-1,
        eos_id=0, unk_id=1, normalization_rule_name="identity", minloglevel=2,
    )  # fmt: skip
    (directory / "vocab.spm").write_bytes(model.getvalue())
    return {"models": ["model.bin"], "vocabs": ["vocab.spm"] * 2, "shortlist": ["lex.s2t.bin", 0]}


def write(name: str, fixture: Fixture) -> Path:
    """Write a fixture's directory."""
    directory = OUTPUT / name
    directory.mkdir(parents=True, exist_ok=True)
    options = OPTIONS | fixture.options
    tensors = tensors_of(options, seed=len(name))
    text = yaml(options).encode() + b"\0"
    tensors["special:model.yml"] = np.frombuffer(text, np.int8)
    if fixture.is_student:
        size = options["dim-vocabs"][0]
        decoder = write_student(directory, tensors, random_words(300), size)
        write_shortlist(directory / "lex.s2t.bin", size)
        decoder |= {"relative-paths": True, "normalize": 1, "word-penalty": 0} | fixture.search
        (directory / "decoder.yml").write_text(yaml(decoder), encoding="utf-8")
        return directory
    np.savez(directory / "model.npz", **tensors)  # type: ignore[arg-type]
    vocabularies = ["vocab.yml", "vocab.yml"]
    if options["dim-vocabs"][0] != options["dim-vocabs"][1]:
        vocabularies = ["vocab.src.yml", "vocab.trg.txt"]
    for file, size in zip(vocabularies, options["dim-vocabs"], strict=True):
        words = ["</s>", "<unk>", *WORDS][:size]
        lines = words if file.endswith(".txt") else [f'"{word}": {i}' for i, word in enumerate(words)]
        (directory / file).write_text("\n".join(lines) + "\n", encoding="utf-8")
    decoder = {"models": ["model.npz"], "vocabs": vocabularies, "relative-paths": True}
    decoder |= {"beam-size": 6, "normalize": 1, "word-penalty": 0} | fixture.search
    (directory / "decoder.yml").write_text(yaml(decoder), encoding="utf-8")
    return directory


def run(command: list[Any], text: str) -> tuple[str, str]:
    """Run a command with an input, and return what it wrote to stdout and stderr."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout, done.stderr


_MARIAN = """
import json, sys
from pymarian import Translator
directory, lines = sys.argv[1], json.loads(sys.stdin.read())
options = "--cpu-threads 1 --n-best --word-scores --quiet --quiet-translation --mini-batch 1 --workspace 64"
translator = Translator(f"-c {directory}/decoder.yml {options}")
print(json.dumps([translator.translate(line) for line in lines]))
"""


def judged_by_marian(python: Path, directory: Path, lines: list[str]) -> list[list[dict[str, Any]]]:
    """Return Marian's n-best list of each source."""
    output, _ = run([python, "-c", _MARIAN, directory], json.dumps(lines))
    lists = []
    for text in json.loads(output.splitlines()[-1]):
        hypotheses = []
        for line in text.splitlines():
            _, words, scores, _, score = (part.strip() for part in line.split("|||"))
            numbers = [float(each) for each in scores.removeprefix("WordScores=").split()]
            hypotheses.append({"text": words, "words": numbers, "score": float(score)})
        lists.append(hypotheses)
    return lists


START_OF_BERGAMOT = """
import json, pathlib, sys
import importlib.util
packages = [path for path in sys.path if path.endswith("site-packages")]
sys.path.insert(0, packages[0] + "/bergamot")  # whose own module downloads a list of models
import _bergamot as bergamot
task = json.loads(sys.stdin.read())
service = bergamot.Service(bergamot.ServiceConfig(numWorkers=1, cacheSize=0, logLevel="off"))
"""
_BERGAMOT = f"""{START_OF_BERGAMOT}
found = []
for config in task["configs"]:
    model = service.modelFromConfig(config)
    lines = bergamot.VectorString(task["lines"])
    found.append([each.target.text for each in service.translate(model, lines, bergamot.ResponseOptions())])
print(json.dumps(found))
"""


def configs_of_bergamot(directory: Path, *, max_length_factor: float = 3.0) -> list[str]:
    """Return bergamot's options for a student, without and with its shortlist."""
    options = {
        "models": [directory / "model.bin"], "vocabs": [directory / "vocab.spm"] * 2, "beam-size": 1,
        "normalize": 1, "word-penalty": 0, "mini-batch-words": 1024, "workspace": 64, "max-length-break": 128,
        "max-length-factor": max_length_factor, "skip-cost": True, "gemm-precision": "int8shift",
        "cpu-threads": 0,
    }  # fmt: skip
    return [yaml(options), yaml(options | {"shortlist": [directory / "lex.s2t.bin", 0]})]


def judged_by_bergamot(python: Path, directory: Path, lines: list[str]) -> dict[str, list[str]]:
    """Return bergamot's translations, without and with the shortlist."""
    configs = configs_of_bergamot(directory)
    found = [
        json.loads(run([python, "-c", _BERGAMOT], json.dumps({"configs": configs, "lines": [line]}))[0])
        for line in lines
    ]  # each by itself: the lines of a batch share a shortlist
    return {"plain": [plain for [plain], _ in found], "shortlist": [short for _, [short] in found]}


_TRAINER = """
import json, sys
from pymarian import Trainer
directory = sys.argv[1]
for name, lines in json.loads(sys.stdin.read()).items():
    open(f"{directory}/{name}", "w").write("".join(line + "\\n" for line in lines))
Trainer(f"-c {directory}/train.yml").train()
"""


def costs_of_marian(python: Path, directory: Path, pairs: list[tuple[str, str]]) -> list[float]:
    """Return the cost that Marian's training gives each pair, its mean cross-entropy of a word.

    The weights stay: the learning rate is 0.
    """
    options = OPTIONS | FIXTURES[directory.name].options | {
        "model": "model.npz", "vocabs": ["vocab.yml"] * 2, "train-sets": ["src", "tgt"],
        "relative-paths": True,
        "learn-rate": 0, "label-smoothing": 0, "transformer-dropout": 0, "cpu-threads": 1, "mini-batch": 1,
        "maxi-batch": 1, "workspace": 100, "no-shuffle": True, "disp-freq": "1u", "after": f"{len(pairs)}u",
        "overwrite": True,
    }  # fmt: skip
    del options["version"]
    with TemporaryDirectory() as folder:
        copy = Path(shutil.copytree(directory, Path(folder, "copy")))
        (copy / "train.yml").write_text(yaml(options), encoding="utf-8")
        text = json.dumps({"src": [src for src, _ in pairs], "tgt": [tgt for _, tgt in pairs]})
        _, log = run([python, "-c", _TRAINER, copy], text)
    return [float(cost) for cost in re.findall(r"Cost ([0-9.]+) ", log)]


def main() -> None:
    """Write all fixtures, and what the other systems say."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pymarian", type=Path)
    parser.add_argument("--bergamot", type=Path)
    task = parser.parse_args()
    for name, fixture in FIXTURES.items():
        directory = write(name, fixture)
        file = directory / "judged.json"
        judged = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
        if fixture.is_student and task.bergamot:
            random = np.random.default_rng(17)
            letters = list("abdeiklmnorstu    ")
            sources = [" ".join("".join(random.choice(letters, n)).split()) for n in (4, 7, 9, 12, 15, 20)]
            judged = {"sources": sources, "bergamot": judged_by_bergamot(task.bergamot, directory, sources)}
        if task.pymarian and not fixture.is_student:
            sources = sentences(6)
            judged = {"sources": sources, "marian": judged_by_marian(task.pymarian, directory, sources)}
            if name == "pre":  # see tests/interop/test_marian_native.py
                pairs = list(zip(sources[:-1], reversed(sources[1:]), strict=True))
                costs = costs_of_marian(task.pymarian, directory, pairs)
                judged["costs"] = [[*pair, cost] for pair, cost in zip(pairs, costs, strict=True)]
        if judged:
            file.write_text(json.dumps(judged, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
