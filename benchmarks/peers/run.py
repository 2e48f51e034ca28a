"""Train heedful and its peers one after the other, and write a table of their speed and memory."""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sizes import DROPOUT, LABEL_SMOOTHING, SIZES

HERE = Path(__file__).resolve().parent


PRECISIONS = ("float32", "bfloat16")


@dataclass(frozen=True)
class Entry:
    """One line of the table: a script, in the environment of a requirements file, at one precision."""

    label: str
    script: str  # without train_ and .py; none for heedful
    environment: str
    precision: str
    options: tuple[str, ...] = ()


def _entries(label: str, script: str, environment: str, *options: str) -> list[Entry]:
    return [Entry(label, script, environment, precision, options) for precision in PRECISIONS]


PEERS = {
    "marian": [
        *_entries("Hugging Face Marian, SDPA", "marian", "huggingface"),
        *_entries("Hugging Face Marian, eager", "marian", "huggingface", "--attention=eager"),
        *_entries("Hugging Face Marian, compiled", "marian", "huggingface", "--attention=eager", "--compile"),
    ],
    "seq2seq-trainer": [
        *_entries("Hugging Face Seq2SeqTrainer, SDPA", "seq2seq_trainer", "huggingface"),
        *_entries(
            "Hugging Face Seq2SeqTrainer, eager", "seq2seq_trainer", "huggingface", "--attention=eager"
        ),
    ],
    "joeynmt": [Entry("JoeyNMT", "joeynmt", "joeynmt", "float32")],
    "eole": [
        *_entries("Eole", "eole", "eole"),
        *_entries("Eole, compiled", "eole", "eole", "--compile"),
    ],
    "torch": [
        *_entries("torch.nn.Transformer", "torch_transformer", "torch"),
        *_entries("torch.nn.Transformer, compiled", "torch_transformer", "torch", "--compile"),
    ],
    "heedful": _entries("heedful", "", ""),
}


@dataclass(frozen=True)
class Measured:
    """What one entry did at one preset; `failure` is a line that says why where it did nothing."""

    entry: Entry
    preset: str
    version: str = ""
    speed: float = 0.0  # real target tokens a second
    memory: float | None = None  # MiB
    steps: int = 0
    seconds: float = 0.0
    settings: str = ""
    failure: str = ""


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--src", type=Path, required=True, help="source side of the training text")
    parser.add_argument("--tgt", type=Path, required=True, help="target side, line by line parallel")
    parser.add_argument("--presets", type=_names(SIZES), default=list(SIZES), help="[default: all]")
    parser.add_argument("--peers", type=_names(PEERS), default=list(PEERS), help="[default: all]")
    parser.add_argument("--precisions", type=_names(PRECISIONS), default=list(PRECISIONS))
    parser.add_argument("--no-compile", action="store_true", help="leave the peers' torch.compile out")
    parser.add_argument("--seconds", type=float, default=60.0, help="measured for each line of the table")
    parser.add_argument("--warm-up", type=float, default=15.0, help="seconds before; at least 10 steps")
    parser.add_argument("--limit", type=float, default=1800.0, help="seconds after which a line is given up")
    parser.add_argument("--vocab-size", type=int, default=8000, help="tokens of the joint vocabulary")
    parser.add_argument("--directory", type=Path, default=Path(".peers"), help="environments, ids, logs")
    parser.add_argument("--output", type=Path, help="file for the table; it is printed all the same")
    parser.add_argument("--json", type=Path, help="file for what was measured, for record.py")
    return parser.parse_args(arguments)


def _names(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    names = list(allowed)

    def split(text: str) -> list[str]:
        given = text.split(",")
        if unknown := [name for name in given if name not in names]:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(names)}")
        return given

    return split


def main() -> int:
    """Run everything that is asked for; 1 if something failed."""
    given = parse_arguments()
    entries = [
        entry
        for name in given.peers
        for entry in PEERS[name]
        if entry.precision in given.precisions and not (given.no_compile and "--compile" in entry.options)
    ]
    directory = given.directory.resolve()
    for name in sorted({entry.environment for entry in entries if entry.script}):
        _say(f"environment {name}")
        make_environment(directory, name)
    _say(f"a joint vocabulary of {given.vocab_size} tokens, and the ids")
    from material import write_material  # heedful is needed from here on, not for --help

    write_material(given.src, given.tgt, directory / "ids", vocab_size=given.vocab_size)
    found = []
    for preset in given.presets:
        for entry in entries:
            measured = (run_peer if entry.script else run_heedful)(entry, preset, given, directory)
            speed = measured.failure or f"{measured.speed:,.0f} target tokens/s"
            _say(f"{preset}: {entry.label}, {entry.precision}: {speed}")
            found.append(measured)
            _write(table(found, given), given.output)
    if given.json is not None:
        given.json.write_text(json.dumps(as_json(found, given), ensure_ascii=False), encoding="utf-8")
    sys.stdout.write(table(found, given))
    return int(any(measured.failure for measured in found))


def make_environment(directory: Path, name: str) -> None:
    """Make the virtual environment of a requirements file, unless it is there and made from this one."""
    environment = directory / name
    requirements = HERE / f"requirements-{name}.txt"
    stamp = environment / "requirements.sha256"
    digest = hashlib.sha256(requirements.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="ascii") == digest:
        return
    venv.create(environment, clear=True, with_pip=True)
    command = [_python(environment), "-m", "pip", "install", "--quiet", "-r", str(requirements)]
    subprocess.run(command, check=True)
    stamp.write_text(digest, encoding="ascii")


def _python(environment: Path) -> str:
    return str(environment / "bin" / "python")


def run_peer(entry: Entry, preset: str, given: argparse.Namespace, directory: Path) -> Measured:
    """Run a peer's script in its environment, with all cores, and read its line."""
    command = [_python(directory / entry.environment), str(HERE / f"train_{entry.script}.py")]
    command += ["--material", str(directory / "ids"), "--preset", preset, "--precision", entry.precision]
    command += ["--seconds", str(given.seconds), "--warm-up", str(given.warm_up)]
    command += entry.options
    line, failure = _last_json(command, directory, _log_name(entry, preset), given.limit)
    if line is None:
        return Measured(entry, preset, failure=failure)
    return Measured(
        entry,
        preset,
        version=f"{line['name']} {line['version']}",
        speed=line["target_tokens_per_second"],
        memory=line["peak_memory_mib"],
        steps=line["steps"],
        seconds=line["seconds"],
        settings=f"{line['settings']}; torch {line['torch']}; "
        f"loss {line['first_loss']} to {line['last_loss']}",
    )


def run_heedful(entry: Entry, preset: str, given: argparse.Namespace, directory: Path) -> Measured:
    """Run `heedful bench train` twice: to hear how long a step takes, and for as long as the peers have."""
    from heedful import __version__

    command = [sys.executable, "-m", "heedful", "bench", "train", "--preset", preset, "--json"]
    command += ["--src", str(given.src), "--tgt", str(given.tgt)]
    for setting in (
        f"model.dropout={DROPOUT}",
        f"train.label_smoothing={LABEL_SMOOTHING}",
        f"tokenizer.vocab_size={given.vocab_size}",
        f"batch.tokens={SIZES[preset].budget}",
        f"train.precision={'float32' if entry.precision == 'float32' else 'bf16'}",
        # Or else some of the text would be held out, and the vocabulary be another than that of the peers.
        f"data.valid_src={directory / 'heedful-valid.src'}",
        f"data.valid_tgt={directory / 'heedful-valid.tgt'}",
    ):
        command += ["--set", setting]
    for side in ("src", "tgt"):
        (directory / f"heedful-valid.{side}").write_text("A sentence.\n", encoding="utf-8")
    log = _log_name(entry, preset)
    line, failure = _last_json([*command, "--steps", "10"], directory, log, given.limit)
    if line is not None:  # which says how long a step takes
        steps = max(10, math.ceil(given.seconds / line["seconds_per_step"]))
        line, failure = _last_json([*command, "--steps", str(steps)], directory, log, given.limit)
    if line is None:
        return Measured(entry, preset, failure=failure)
    return Measured(
        entry,
        preset,
        version=f"heedful {__version__}",
        speed=line["target_tokens_per_second"],
        memory=line["peak_memory_mib"],
        steps=line["steps"],
        seconds=line["steps"] * line["seconds_per_step"],
        settings=f"heedful bench train; {line['processes']} processes of {line['threads']} threads; "
        f"{line['share_of_matmul']:.1%} of the rate of matrix products; memory {line['peak_memory_of']}",
    )


def _last_json(
    command: list[str], directory: Path, log: str, limit: float
) -> tuple[dict[str, float | int | str] | None, str]:
    """Run a command, keep what it says in a log, and return its last JSON object, or None and the reason."""
    logs = directory / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"failed (no result after {limit:g} s)"
    (logs / f"{log}.log").write_text(f"{command}\n{done.stdout}\n{done.stderr}", encoding="utf-8")
    for line in reversed(done.stdout.splitlines() if done.returncode == 0 else []):
        if line.startswith('{"'):
            return json.loads(line), ""
    reason = (done.stderr.strip().splitlines() or ["it printed no result"])[-1]
    return None, f"failed ({reason[:200]})"


def _log_name(entry: Entry, preset: str) -> str:
    options = [option.removeprefix("--").replace("=", "-") for option in entry.options]
    return "-".join([preset, entry.script or "heedful", entry.precision, *options])


def table(found: list[Measured], given: argparse.Namespace) -> str:
    """Return the Markdown: what was run, one table a preset, and the settings of each line."""
    lines = [
        f"Training speed, {os.cpu_count()} cores, {given.seconds:g} s a line after {given.warm_up:g} s of "
        f"warm-up, joint vocabulary of {given.vocab_size} tokens, one run each.",
        "",
    ]
    for preset in dict.fromkeys(measured.preset for measured in found):
        size = SIZES[preset]
        lines += [
            f"**{preset}**: {size.num_layers}+{size.num_layers} layers x {size.d_model}, "
            f"{size.num_heads} heads, feed-forward {size.d_ff}; "
            f"batches of about {size.budget:,} padded target tokens",
            "",
            "| | version | precision | target tokens/s | peak MiB | steps | seconds |",
            "|---|---|---|--:|--:|--:|--:|",
        ]
        lines += [_row(measured) for measured in found if measured.preset == preset]
        lines.append("")
    notes = {m.entry.label + ", " + m.entry.precision: m.settings for m in found if m.settings}
    lines += ["Settings, of the last preset that ran:", ""]
    lines += [f"- {label}: {settings}" for label, settings in notes.items()]
    return "\n".join(lines) + "\n"


def as_json(found: list[Measured], given: argparse.Namespace) -> dict[str, object]:
    """Return what was measured, as `results.Result` names it."""
    rows: list[dict[str, object]] = []
    for each in found:
        row: dict[str, object] = {
            "engine": each.entry.label,
            "preset": each.preset,
            "precision": "bf16" if each.entry.precision == "bfloat16" else each.entry.precision,
        }
        if each.failure:
            rows.append(row | {"failure": each.failure})
            continue
        row |= {"version": each.version, "tokens_per_second": round(each.speed)}
        row |= {} if each.memory is None else {"peak_mib": round(each.memory)}
        rows.append(row | {"steps": each.steps, "seconds": round(each.seconds, 1)})
    last = {f"{m.entry.label}, {m.entry.precision}": m.settings for m in found if m.settings}
    what = (
        f"training beside other packages, {given.seconds:g} s a line after {given.warm_up:g} s of warm-up, "
        f"joint vocabulary of {given.vocab_size} tokens"
    )
    return {"what": what, "rows": rows, "notes": [f"{label}: {text}" for label, text in last.items()]}


def _row(measured: Measured) -> str:
    head = f"| {measured.entry.label} | {measured.version} | {measured.entry.precision} |"
    if measured.failure:
        return f"{head} {measured.failure.replace('|', '/')} | | | |"
    memory = "" if measured.memory is None else f"{measured.memory:,.0f}"
    return f"{head} {measured.speed:,.0f} | {memory} | {measured.steps} | {measured.seconds:.1f} |"


def _write(text: str, output: Path | None) -> None:
    if output is not None:
        output.write_text(text, encoding="utf-8")


def _say(what: str) -> None:
    sys.stderr.write(f"{what}\n")


if __name__ == "__main__":
    sys.exit(main())
