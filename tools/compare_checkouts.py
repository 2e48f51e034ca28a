"""Compare what two checkouts of heedful write, byte for byte: translations, scores, exports, checkpoints.

    python tools/compare_checkouts.py OLD NEW --model RUN --src test.en --tgt test.de

Each checkout is a directory with its own .venv (`make venv`). Both run the same commands, on copies of the
model and of the first lines of the text; a Marian model is made by exporting and importing that model.
One line is printed for each command, and the exit code is 1 where anything differs or a command fails.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

SRC, TGT, MODEL, MARIAN = "text.src", "text.tgt", "model", "marian"
# Of a run's log and of the progress in a checkpoint: times and speeds, which no two runs share.
TIMES = {"seconds", "tokens_per_second", "validated_at"}
CHECKSUMS = "checksums.json"  # of files that hold such times
SEARCHES = {
    "beam 1": "--json --beam-size 1",
    "beam 4, 4-best": "--json --beam-size 4 --n-best 4",
    "sampled": "--json --sample --seed 7 --n-best 2",
}
BACKENDS = [("torch", "float32"), ("auto", "float32"), ("auto", "int8")]
TRAINING = (
    "--preset tiny --set train.max_steps={steps} --set batch.tokens=512 --set tokenizer.vocab_size=400 "
    "--set schedule.warmup_steps=4 --set train.average_checkpoints=2 --set train.checkpoint_every_steps=4 "
    "--set train.checkpoint_every_minutes=false --set valid.every_steps=4 --set train.ema_decay=0.9 "
    "--set valid.metric=bleu --set valid.decode_sentences=8 --set data.allow_overlap=true "
    "--set train.device=cpu"
)


@dataclass(frozen=True)
class Case:
    """A command, and the directory that it writes.

    Attributes:
        name: in the table.
        arguments: of `heedful`.
        writes: a directory whose files are compared too; None: the command only prints.
    """

    name: str
    arguments: list[str]
    writes: str | None = None


@dataclass(frozen=True)
class Result:
    """The result of a command in one checkout."""

    code: int
    out: bytes
    err: str
    seconds: float


def cases(steps: int) -> Iterator[Case]:
    """Yield every command, in the order in which they are run."""
    for to in (MARIAN, "ctranslate2", "onnx"):
        yield Case(f"export, {to}", f"export {MODEL} --to {to} -o exported-{to}".split(), f"exported-{to}")
    yield Case("import, marian", f"import exported-{MARIAN} --layout marian -o {MARIAN}".split(), MARIAN)
    for model in (MODEL, MARIAN):
        for (engine, precision), (search, options) in product(BACKENDS, SEARCHES.items()):
            name = f"translate, {model}, {engine}, {precision}, {search}"
            arguments = f"translate {model} -i {SRC} --engine {engine} --precision {precision} {options}"
            yield Case(name, arguments.split())
        for engine in ("torch", "auto"):
            arguments = f"score {model} --src {SRC} --tgt {TGT} --engine {engine} --json"
            yield Case(f"score, {model}, {engine}", arguments.split())
    for form in ("", "--scores", "--n-best 4"):
        yield Case(f"translate, lines {form}".rstrip(), f"translate {MODEL} -i {SRC} {form}".split())
    text = f"--src {SRC} --tgt {TGT} --valid-src {SRC} --valid-tgt {TGT}"
    for name, settings in {
        "one process, torch": "train.processes=1 --set train.kernels=torch",
        "two processes": "train.processes=2 --set train.threads=2",
    }.items():
        run = f"run-{name.replace(', ', '-').replace(' ', '-')}"
        options = f"{text} {TRAINING.format(steps=steps)} --set {settings}"
        yield Case(f"train, {name}", f"train {options} -o {run}".split(), run)


def run(checkout: Path, case: Case, workspace: Path) -> Result:
    """Run a command of a checkout in its workspace."""
    command = [str(checkout / ".venv" / "bin" / "python"), "-m", "heedful", *case.arguments]
    environment = os.environ | {"OMP_WAIT_POLICY": "PASSIVE"}
    started = time.monotonic()
    done = subprocess.run(command, cwd=workspace, env=environment, capture_output=True, check=False)
    seconds = time.monotonic() - started
    return Result(done.returncode, done.stdout, done.stderr.decode(errors="replace").strip(), seconds)


def difference_of_results(old: Result, new: Result) -> str | None:
    """Return how two results differ, or which command failed; None: they are equal."""
    failed = [name for name, result in (("old", old), ("new", new)) if result.code]
    if failed:
        last = (old if old.code else new).err.splitlines()[-1:]
        return f"{' and '.join(failed)} failed: {' '.join(last)}"
    if old.out == new.out:
        return None
    lines = [result.out.decode(errors="replace").splitlines() for result in (old, new)]
    pairs = enumerate(zip(*lines, strict=False), 1)
    first = next((number for number, (a, b) in pairs if a != b), min(map(len, lines)) + 1)
    return f"output differs from line {first}"


def differences_of_directories(old: Path, new: Path) -> Iterator[str]:
    """Yield the name of each file that differs, or that one directory alone has; times do not count."""
    names = [{str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()} for root in (old, new)]
    for name in sorted(names[0] | names[1]):
        if name not in names[0] or name not in names[1]:
            yield f"{name}: only in the {'old' if name in names[0] else 'new'} one"
        elif not are_equal_files(old / name, new / name):
            yield f"{name} differs"


def are_equal_files(old: Path, new: Path) -> bool:
    """Return whether two files hold the same: bytes, or of logs and checkpoints everything but times."""
    if old.name == CHECKSUMS:
        return True
    if old.name == "log.jsonl":
        return _events(old) == _events(new)
    if old.suffix == ".pt":
        import torch

        states = [torch.load(path, map_location="cpu", weights_only=True) for path in (old, new)]
        return are_equal_values(*states)
    return old.read_bytes() == new.read_bytes()


def _events(log: Path) -> list[dict[str, Any]]:
    lines = log.read_text(encoding="utf-8").splitlines()
    return [{key: value for key, value in json.loads(line).items() if key not in TIMES} for line in lines]


def are_equal_values(old: Any, new: Any) -> bool:  # noqa: ANN401
    """Return whether two nested values are equal, tensors bit for bit; times in dictionaries do not count."""
    import torch

    if type(old) is not type(new):
        return False
    if isinstance(old, torch.Tensor):
        return old.dtype == new.dtype and old.shape == new.shape and _bytes(old) == _bytes(new)
    if isinstance(old, dict):
        compared = old.keys() - TIMES
        return old.keys() == new.keys() and all(are_equal_values(old[key], new[key]) for key in compared)
    if isinstance(old, list | tuple):
        return len(old) == len(new) and all(map(are_equal_values, old, new))
    return bool(old == new)


def _bytes(tensor: "Tensor") -> bytes:
    import torch

    return tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes()


def prepare(workspace: Path, options: argparse.Namespace) -> None:
    """Put the model and the text where the commands expect them."""
    best = options.model / "best"
    shutil.copytree(best if best.is_dir() else options.model, workspace / MODEL)
    for name, file in ((SRC, options.src), (TGT, options.tgt or options.src)):
        with file.open(encoding="utf-8") as lines:
            (workspace / name).write_text("".join(islice(lines, options.lines)), encoding="utf-8")


def compare(case: Case, checkouts: list[Path], workspaces: list[Path]) -> tuple[list[str], list[float]]:
    """Run a command in both checkouts, one beside the other; return the differences and the seconds."""
    with ThreadPoolExecutor() as threads:
        old, new = threads.map(run, checkouts, [case, case], workspaces)
    difference = difference_of_results(old, new)
    found = [] if difference is None else [difference]
    if case.writes is not None and not (old.code or new.code):
        found += differences_of_directories(*(workspace / case.writes for workspace in workspaces))
    return found, [old.seconds, new.seconds]


def main() -> int:
    """Compare; print one line for each command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, help="a checkout")
    parser.add_argument("new", type=Path, help="another one")
    parser.add_argument("--model", type=Path, required=True, help="a run directory or a bundle")
    parser.add_argument("--src", type=Path, required=True, help="text in the model's source language")
    parser.add_argument("--tgt", type=Path, help="its translations [default: the text itself]")
    parser.add_argument("--lines", type=int, default=60, help="of the text [default: 60]")
    parser.add_argument("--steps", type=int, default=8, help="of training [default: 8]")
    parser.add_argument("--only", default="", help="commands whose name has this in it, exports always")
    options = parser.parse_args()
    checkouts = [options.old.resolve(), options.new.resolve()]
    for checkout in checkouts:
        if not (checkout / ".venv" / "bin" / "python").exists():
            parser.error(f"{checkout} has no .venv; make venv there")
    chosen = [
        c for c in cases(options.steps) if options.only in c.name or c.writes in (MARIAN, "exported-marian")
    ]
    differing = 0
    with tempfile.TemporaryDirectory() as folder:
        workspaces = [Path(folder) / "old", Path(folder) / "new"]
        for workspace in workspaces:
            workspace.mkdir()
            prepare(workspace, options)
        width = max(len(case.name) for case in chosen)
        for case in chosen:
            found, seconds = compare(case, checkouts, workspaces)
            differing += bool(found)
            times = " ".join(f"{each:6.1f}" for each in seconds)
            print(f"{case.name:<{width}} {times} s  {'; '.join(found) or 'OK'}", flush=True)
    print(f"{len(chosen) - differing} of {len(chosen)} commands are equal")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
