"""Translate with heedful and others, one after the other, and write a table of speed, quality and memory."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Entry:
    """One line of the table: an engine at one precision, in each of its layouts."""

    label: str
    engine: str
    precision: str
    layouts: tuple[str, ...] = ("",)


ENTRIES = (
    *(Entry("heedful", "heedful", precision) for precision in ("float32", "bf16", "int8")),
    *(Entry("heedful, torch", "heedful-torch", precision) for precision in ("float32", "bf16")),
    *(
        Entry("CTranslate2", "ctranslate2", precision, ("workers", "threads"))
        for precision in ("float32", "int8")
    ),
    *(Entry("transformers", "transformers", precision) for precision in ("float32", "bf16")),
)


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
    parser.add_argument("--engines", default="", help="only these, with commas")
    parser.add_argument("--output", type=Path, help="file for the table; it is printed all the same")
    return parser.parse_args()


def _numbers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def main() -> int:
    """Run everything; 1 if something failed."""
    given = parse_arguments()
    wanted = given.engines.split(",") if given.engines else [entry.engine for entry in ENTRIES]
    lines = [
        f"Decoding speed, {given.threads} threads, {given.src.name}.",
        "",
        "| | precision | beam | batch | output tokens/s | BLEU | latency, median ms | 99 % | peak MiB |",
        "|---|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    failed = False
    with tempfile.TemporaryDirectory(prefix="heedful-decoding-") as temporary:
        material = Path(temporary)
        _export(given.run, material)
        for beam in given.beams:
            for batch_size in given.batch_sizes:
                for entry in ENTRIES:
                    if entry.engine in wanted:
                        line = _measure(entry, beam, batch_size, given, material)
                        failed |= "failed" in line
                        sys.stderr.write(line + "\n")
                        lines.append(line)
    text = "\n".join(lines) + "\n"
    if given.output:
        given.output.write_text(text, encoding="utf-8")
    sys.stdout.write(text)
    return int(failed)


def _export(run: Path, material: Path) -> None:
    for kind in ("ctranslate2", "marian"):
        command = [sys.executable, "-m", "heedful", "export", str(run), "--to", kind]
        subprocess.run([*command, "--output", str(material / kind)], check=True, capture_output=True)


def _measure(entry: Entry, beam: int, batch_size: int, given: argparse.Namespace, material: Path) -> str:
    """One line: the best throughput and the best latency of the entry's layouts."""
    found, reason = [], ""
    for layout in entry.layouts:
        command = [sys.executable, str(HERE / "translate_all.py"), "--run", str(given.run)]
        command += ["--material", str(material), "--engine", entry.engine, "--precision", entry.precision]
        command += ["--layout", layout, "--src", str(given.src), "--ref", str(given.ref)]
        command += ["--beam", str(beam), "--batch-size", str(batch_size), "--threads", str(given.threads)]
        command += ["--sentences", str(given.sentences or 0)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode == 0:
            found.append(json.loads(done.stdout.splitlines()[-1]))
        else:
            reason = (done.stderr.strip().splitlines() or ["no result"])[-1][:120].replace("|", "/")
    head = f"| {entry.label} | {entry.precision} | {beam} | {batch_size} |"
    if not found:
        return f"{head} failed ({reason}) | | | | |"
    fastest = max(found, key=lambda each: each["output_tokens_per_second"])
    soonest = min(found, key=lambda each: each["median_latency_ms"])
    return (
        f"{head} {fastest['output_tokens_per_second']:,.0f} | {fastest['bleu']:.2f} | "
        f"{soonest['median_latency_ms']:.2f} | {soonest['p99_latency_ms']:.2f} | "
        f"{fastest['peak_memory_mib']:,.0f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
