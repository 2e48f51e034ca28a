"""Measure the memory of imports: a random model of each family, imported in a process of its own.

    python benchmarks/imports.py [FAMILY ...]

Needs the extra `dev`, and Linux. A row has the size of the files, the peak of resident memory beyond what
`import torch` takes, and the limit: 1.5 times the size and 100 MiB. Mapped pages of the files count.
"""

import argparse
import json
import multiprocessing
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import ctranslate2_files
import numpy as np
import torch
import transformers
from argos_packages import make_package, packed
from safetensors.torch import load_file, save_file

import marian_fixtures as marian
from heedful.storage.torch_weights import read_pickled

OPENNMT = Path(__file__).resolve().parents[1] / "tests" / "golden" / "opennmt"
MIB = 2**20
FACTOR, MORE = 1.5, 100
CHILD = """
import sys
from pathlib import Path
import torch

def mib(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1]) / 1024

before = mib("VmRSS:")
from heedful.runs.exchange import import_model
import_model(Path(sys.argv[1]), layout=sys.argv[2], output=Path(sys.argv[3]))
print(mib("VmHWM:") - before)
"""
SIZES: dict[str, Any] = {
    "d_model": 512, "encoder_layers": 6, "decoder_layers": 6, "encoder_attention_heads": 8,
    "decoder_attention_heads": 8, "encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048, "vocab_size": 58_101,
    "pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2, "decoder_start_token_id": 2,
}  # fmt: skip
LARGER = {"d_model": 768, "encoder_ffn_dim": 3072, "decoder_ffn_dim": 3072}
T5 = {"d_model": 768, "d_ff": 2048, "d_kv": 64, "num_heads": 12, "num_layers": 8, "vocab_size": 32_128}
MARIAN = {"dim-emb": 512, "transformer-dim-ffn": 2048, "transformer-heads": 8, "enc-depth": 6, "dec-depth": 6}
PIECES = [f"▁p{i}" for i in range(50_000)]


def of_transformers(name: str, settings: dict[str, Any], dtype: torch.dtype) -> Callable[[Path], Path]:
    """Return what writes a directory of transformers."""

    def write(folder: Path) -> Path:
        config = getattr(transformers, f"{name}Config")(**settings)
        kind = {"Marian": "MarianMTModel"}.get(name, f"{name}ForConditionalGeneration")
        getattr(transformers, kind)(config).to(dtype).save_pretrained(folder / "model")
        return folder / "model"

    return write


def of_fairseq(dtype: torch.dtype) -> Callable[[Path], Path]:
    """Return what writes a checkpoint of fairseq; FSMT has its names."""

    def write(folder: Path) -> Path:
        sizes = {"src_vocab_size": 40_000, "tgt_vocab_size": 40_000, "langs": ["en", "de"]}
        config = transformers.FSMTConfig(**SIZES | sizes)
        weights = transformers.FSMTForConditionalGeneration(config).to(dtype).state_dict()
        named = {
            key.removeprefix("model."): value for key, value in weights.items() if "positions" not in key
        }
        arguments = argparse.Namespace(arch="transformer", encoder_attention_heads=8)
        torch.save({"model": named, "args": arguments}, folder / "model.pt")
        return folder / "model.pt"

    return write


def of_marian(form: str) -> Callable[[Path], Path]:
    """Return what writes a model of Marian: .npz, .zip, or .bin of 8-bit numbers."""

    def write(folder: Path) -> Path:
        more = {"enc-depth": 12} if form == "bin" else {}
        size = 120_000 if form == "bin" else 58_100
        options = marian.OPTIONS | MARIAN | more | {"dim-vocabs": [size, size]}
        options |= marian.SSRU if form == "bin" else {}
        tensors = marian.tensors_of(options, seed=0)
        tensors["special:model.yml"] = np.frombuffer(marian.yaml(options).encode() + b"\0", np.int8)
        if form == "bin":
            marian.write_bin(folder / "model.bin", tensors)
            return folder / "model.bin"
        np.savez(folder / "model.npz", **tensors)  # type: ignore[arg-type]
        if form == "npz":
            return folder / "model.npz"
        with zipfile.ZipFile(folder / "opus.zip", "w") as archive:
            archive.write(folder / "model.npz", "model.npz")
        (folder / "model.npz").unlink()
        return folder / "opus.zip"

    return write


def of_ctranslate2(quantization: str | None, *, is_package: bool = False) -> Callable[[Path], Path]:
    """Return what writes a directory of CTranslate2, or a package of Argos."""

    def write(folder: Path) -> Path:
        ctranslate2_files.D_MODEL, ctranslate2_files.D_FF, ctranslate2_files.HEADS = 512, 2048, 8
        if is_package:
            return packed(make_package(folder, "en", "de", num_layers=(6, 6), pieces=PIECES))
        spec = ctranslate2_files.random_spec(src_words=["<unk>", "<s>", "</s>", *PIECES], num_layers=(6, 6))
        return ctranslate2_files.save(spec, folder / "model", quantization)

    return write


def of_opennmt(dtype: torch.dtype) -> Callable[[Path], Path]:
    """Return what writes a checkpoint of OpenNMT-py: the fixture of the tests with larger tensors."""

    def write(folder: Path) -> Path:
        saved: Any = read_pickled(OPENNMT / "opennmt-py" / "interleaved" / "model_step_7.pt")
        sizes = larger_vocabularies(saved["vocab"])
        saved |= {key: enlarged(saved[key], sizes, dtype) for key in ("model", "generator")}
        torch.save(saved, folder / "model.pt")
        return folder / "model.pt"

    return write


def of_eole(dtype: torch.dtype) -> Callable[[Path], Path]:
    """Return what writes a directory of Eole."""

    def write(folder: Path) -> Path:
        directory = shutil.copytree(OPENNMT / "eole" / "interleaved", folder / "model")
        vocabularies = json.loads((directory / "vocab.json").read_text(encoding="utf-8"))
        sizes = larger_vocabularies(vocabularies)
        (directory / "vocab.json").write_text(json.dumps(vocabularies), encoding="utf-8")
        tensors = enlarged(load_file(directory / "model.00.safetensors"), sizes, dtype)
        (directory / "model.00.safetensors").unlink()  # it is mapped
        save_file(tensors, directory / "model.00.safetensors")
        return directory

    return write


def larger_vocabularies(vocabularies: dict[str, Any]) -> dict[int, int]:
    """Add tokens to both lists; return the new sizes of tensors by the old ones."""
    sizes = {16: 1024, 20: 4096}
    for language in ("src", "tgt"):
        tokens = vocabularies[language]
        sizes[len(tokens)] = len(tokens) + len(PIECES)
        tokens += PIECES
    return sizes


def enlarged(tensors: dict[str, torch.Tensor], sizes: dict[int, int], dtype: torch.dtype) -> dict[str, Any]:
    """Return random tensors of the new sizes."""
    return {
        name: torch.randn([sizes.get(size, size) for size in each.shape], dtype=dtype)
        if each.numel() > 1
        else each
        for name, each in tensors.items()
    }


FLOAT, HALF, BRAIN = torch.float32, torch.float16, torch.bfloat16
FSMT = {"src_vocab_size": 40_000, "tgt_vocab_size": 40_000, "langs": ["en", "de"]}
T5_IDS = {"pad_token_id": 0, "eos_token_id": 1, "decoder_start_token_id": 0}
FAMILIES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "marian": ("marian", of_transformers("Marian", SIZES, FLOAT)),
    "marian, float16": ("marian", of_transformers("Marian", SIZES | LARGER, HALF)),
    "m2m100, float16": ("m2m100", of_transformers("M2M100", SIZES | LARGER, HALF)),
    "bart": ("bart", of_transformers("Bart", SIZES, FLOAT)),
    "fsmt": ("fsmt", of_transformers("FSMT", SIZES | FSMT, FLOAT)),
    "pegasus": ("pegasus", of_transformers("Pegasus", SIZES, FLOAT)),
    "blenderbot, float16": ("blenderbot", of_transformers("Blenderbot", SIZES | LARGER, HALF)),
    "t5": ("t5", of_transformers("T5", T5 | T5_IDS, FLOAT)),
    "mt5, bfloat16": ("t5", of_transformers("MT5", T5 | T5_IDS | {"feed_forward_proj": "gated-gelu"}, BRAIN)),
    "fairseq": ("fairseq", of_fairseq(FLOAT)),
    "fairseq, float16": ("fairseq", of_fairseq(HALF)),
    "marian-native, .npz": ("marian-native", of_marian("npz")),
    "marian-native, .zip": ("marian-native", of_marian("zip")),
    "marian-native, .bin of intgemm8": ("marian-native", of_marian("bin")),
    "ctranslate2": ("ctranslate2", of_ctranslate2(None)),
    "ctranslate2, int8": ("ctranslate2", of_ctranslate2("int8")),
    "argos": ("argos", of_ctranslate2("int8", is_package=True)),
    "opennmt-py": ("opennmt-py", of_opennmt(FLOAT)),
    "opennmt-py, float16": ("opennmt-py", of_opennmt(HALF)),
    "eole, float16": ("eole", of_eole(HALF)),
}


def size_of(path: Path) -> float:
    """Return the MiB of a file, or of the files in a directory."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.is_file()]
    return sum(each.stat().st_size for each in files) / MIB


def main() -> None:
    """Print a row for each family."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", metavar="FAMILY")
    print(f"{'family':32} {'files, MiB':>11} {'peak, MiB':>10} {'peak / files':>13} {'limit, MiB':>11}")
    for name in parser.parse_args().families or FAMILIES:
        layout, write = FAMILIES[name]
        with TemporaryDirectory() as folder:
            maker = multiprocessing.get_context("fork").Process(target=write, args=(Path(folder),))
            maker.start()  # its memory is not that of the next model
            maker.join()
            beside = ("en_de", "vocab.spm")
            model = next(each for each in sorted(Path(folder).iterdir()) if each.name not in beside)
            command = [sys.executable, "-c", CHILD, str(model), layout, str(Path(folder) / "bundle")]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            size, peak = size_of(model), float(done.stdout)
            limit = FACTOR * size + MORE
            verdict = "" if peak <= limit else "  above it"
            print(
                f"{name:32} {size:11.0f} {peak:10.0f} {peak / size:13.2f} {limit:11.0f}{verdict}", flush=True
            )


if __name__ == "__main__":
    main()
