"""Translate with heedful and others, one after the other, and write a table of speed, quality and memory."""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from material import Material

HERE = Path(__file__).resolve().parent
PEERS = HERE.parent / "peers"

HEADINGS = (
    "", "precision", "beam", "batch", "output tokens/s", "BLEU", "same outputs", "latency, median ms", "99 %",
    "peak MiB",
)  # fmt: skip


@dataclass(frozen=True)
class Entry:
    """One line of the table: an engine at one precision, in each of its layouts."""

    label: str
    engine: str  # translate_ENGINE.py
    precision: str
    layouts: tuple[str, ...] = ("",)
    model: str = ""  # the format that it reads; see material.py
    environment: str = ""  # of benchmarks/peers; that of this process where it is empty


def _entries(label: str, engine: str, *precisions: str, **rest: Any) -> list[Entry]:  # noqa: ANN401
    return [Entry(label, engine, precision, **rest) for precision in precisions]


ENTRIES = {
    "heedful": _entries("heedful", "heedful", "float32", "bf16", "int8", layouts=("native",)),
    "heedful-torch": _entries("heedful, torch", "heedful", "float32", "bf16", layouts=("torch",)),
    "ctranslate2": _entries(
        "CTranslate2", "ctranslate2", "float32", "int8", layouts=("workers", "threads"), model="ctranslate2"
    ),
    "transformers": _entries("transformers", "transformers", "float32", "bf16", model="marian"),
    "joeynmt": _entries("JoeyNMT", "joeynmt", "float32", model="joeynmt", environment="joeynmt"),
    "eole": _entries("Eole", "eole", "float32", "bf16", model="eole", environment="eole"),
}


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a trained run or bundle of heedful's")
    parser.add_argument("--src", type=Path, required=True, help="sentences")
    parser.add_argument("--ref", type=Path, required=True, help="their translations, for BLEU")
    parser.add_argument("--sentences", type=int, help="only so many of them")
    parser.add_argument("--beams", type=_numbers, default=[1, 5])
    parser.add_argument("--batch-sizes", type=_numbers, default=[64])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--engines", default=",".join(ENTRIES), help="only these, with commas")
    parser.add_argument("--precisions", help="only these, with commas")
    parser.add_argument(
        "--untrained", default="", help="measure this preset with random weights, not the run's model"
    )
    parser.add_argument("--length", type=int, default=20, help="of every output of an untrained model")
    parser.add_argument("--directory", type=Path, default=Path(".peers"), help="environments of the peers")
    parser.add_argument("--output", type=Path, help="file for the table; it is printed all the same")
    parser.add_argument("--json", type=Path, help="file for what was measured, for record.py")
    given = parser.parse_args()
    given.engines = given.engines.split(",")
    if unknown := [name for name in given.engines if name not in ENTRIES]:
        parser.error(f"--engines: {unknown[0]!r} is none of {', '.join(ENTRIES)}")
    return given


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> int:
    """Run everything; 1 if something failed."""
    given = parse_arguments()
    entries = [entry for name in given.engines for entry in ENTRIES[name]]
    if given.precisions:
        entries = [entry for entry in entries if entry.precision in given.precisions.split(",")]
    directory = given.directory.resolve()
    from material import write_material  # heedful is needed from here on, not for --help

    sources, references = (
        path.read_text(encoding="utf-8").splitlines()[: given.sentences] for path in (given.src, given.ref)
    )
    with tempfile.TemporaryDirectory(prefix="heedful-decoding-") as temporary:
        material = write_material(
            given.run,
            sources,
            references,
            Path(temporary),
            untrained=given.untrained,
            exact_length=given.length if given.untrained else 0,
        )
        table = Table(_title(given, material, len(sources)), given.output)
        for beam in given.beams:
            for batch_size in given.batch_sizes:
                for entry in entries:
                    head = (entry.label, entry.precision, str(beam), str(batch_size))
                    if refusal := material.refusal(entry.model):
                        table.add(*head, f"not possible ({refusal})")
                        continue
                    command = [
                        _python(entry.environment, directory),
                        str(HERE / f"translate_{entry.engine}.py"),
                    ]
                    command += ["--beam", str(beam), "--batch-size", str(batch_size)]
                    command += ["--threads", str(given.threads)]
                    table.measure(head, entry, command, material)
    table.write()
    if given.json:
        given.json.write_text(json.dumps(table.as_json(), ensure_ascii=False), encoding="utf-8")
    sys.stdout.write(table.text())
    return int(table.has_failures)


def _title(given: argparse.Namespace, material: "Material", num_sentences: int) -> str:
    config = material.bundle.config.model
    model = (
        f"{given.untrained}, untrained, outputs of {given.length} tokens" if given.untrained else "trained"
    )
    return (
        f"Decoding, {config.num_encoder_layers}+{config.num_decoder_layers} layers of {config.d_model}, "
        f"{config.norm}-norm, {model}; {given.threads} threads, {num_sentences:,} sentences of "
        f"{given.src.name}."
    )


class Table:
    """The lines, as they come; the file holds what there is so far."""

    def __init__(self, title: str, output: Path | None) -> None:
        aligned = ["---", "---", *["--:"] * (len(HEADINGS) - 2)]
        self._lines = [title, "", f"| {' | '.join(HEADINGS)} |", f"|{'|'.join(aligned)}|"]
        self._title = title
        self._rows: list[dict[str, Any]] = []
        self._output = output
        self._expected: dict[str, list[list[int]]] = {}  # of each beam: the outputs of its first line
        self.has_failures = False

    def add(self, *cells: str) -> None:
        """Add a line; cells that are missing stay empty."""
        texts = [cell.replace("|", "/").replace("\n", " ") for cell in cells]
        line = f"| {' | '.join(texts + [''] * (len(HEADINGS) - len(texts)))} |"
        sys.stderr.write(line + "\n")
        self._lines.append(line)
        self.write()

    def measure(self, head: tuple[str, ...], entry: Entry, command: list[str], material: "Material") -> None:
        """Run an engine in its layouts, and add the best throughput and the best latency of them."""
        found, reason = [], ""
        outputs_file = material.directory / "outputs.json"
        for layout in entry.layouts:
            settings = ["--material", str(material.directory), "--outputs", str(outputs_file)]
            settings += ["--precision", entry.precision, "--layout", layout]
            done = subprocess.run([*command, *settings], capture_output=True, text=True, check=False)
            if done.returncode == 0:
                outputs = json.loads(outputs_file.read_text(encoding="ascii"))
                found.append((json.loads(done.stdout.splitlines()[-1]), outputs))
            else:
                reason = (done.stderr.strip().splitlines() or ["no result"])[-1][:200]
        if not found:
            self.has_failures = True
            self.add(*head, f"failed ({reason})")
            self._rows.append({**_named(head), "failure": reason})
            return
        fastest, outputs = max(found, key=lambda each: each[0]["output_tokens_per_second"])
        soonest = min((line for line, _ in found), key=lambda line: line["median_latency_ms"])
        bleu = material.bleu(outputs)
        expected = self._expected.setdefault(head[2], outputs)
        same = sum(one == other for one, other in zip(outputs, expected, strict=True))
        row = {
            **_named(head),
            "tokens_per_second": round(fastest["output_tokens_per_second"]),
            "bleu": None if bleu is None else round(bleu, 2),
            "same_outputs": round(100 * same / len(outputs), 1),
            "median_latency_ms": round(soonest["median_latency_ms"], 2),
            "p99_latency_ms": round(soonest["p99_latency_ms"], 2),
            "peak_mib": round(fastest["peak_memory_mib"]),
        }
        self._rows.append({name: value for name, value in row.items() if value is not None})
        self.add(
            *head,
            f"{fastest['output_tokens_per_second']:,.0f}",
            "–" if bleu is None else f"{bleu:.2f}",
            f"{100 * same / len(outputs):.1f} %",
            f"{soonest['median_latency_ms']:.2f}",
            f"{soonest['p99_latency_ms']:.2f}",
            f"{fastest['peak_memory_mib']:,.0f}",
        )

    def as_json(self) -> dict[str, Any]:
        """Return what was measured, as `results.Result` names it."""
        return {"what": self._title.rstrip("."), "rows": self._rows, "notes": []}

    def text(self) -> str:
        """All of it."""
        return "\n".join(self._lines) + "\n"

    def write(self) -> None:
        """Write what there is to the file."""
        if self._output:
            self._output.write_text(self.text(), encoding="utf-8")


def _named(head: tuple[str, ...]) -> dict[str, Any]:
    engine, precision, beam, batch = head
    return {"engine": engine, "precision": precision, "beam": int(beam), "batch": int(batch)}


@cache
def _python(environment: str, directory: Path) -> str:
    """The Python of an environment; benchmarks/peers makes those that are not there."""
    if not environment:
        return sys.executable
    _peers().make_environment(directory, environment)
    return str(directory / environment / "bin" / "python")


def _peers() -> ModuleType:
    """benchmarks/peers/run.py, under a name that is not taken."""
    if str(PEERS) not in sys.path:
        sys.path.append(str(PEERS))  # for what it imports
    spec = importlib.util.spec_from_file_location("peers_run", PEERS / "run.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


if __name__ == "__main__":
    sys.exit(main())
