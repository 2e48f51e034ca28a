"""The results of benchmarks: JSON files in docs/results/, and tables of them."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "docs" / "results"

# Classes of CPU, each with a table of its own. A level of the native library says which, but for `zen4`.
CLASSES = {
    "avx2": "AVX2",
    "avx512": "AVX-512",
    "avx512_bf16": "AVX-512 with bfloat16",
    "zen4": "AVX-512 with bfloat16, at half width",
    "amx": "AMX",
    "arm": "ARM",
}
# The newest instructions of a level say its class; levels below avx2 have none.
_CLASS_OF_LEVEL = {
    "avx2": "avx2",
    "avx_vnni": "avx2",
    "avx512": "avx512",
    "avx512_vnni": "avx512",
    "avx512_bf16": "avx512_bf16",
    "amx": "amx",
}
OWN = "heedful"
Row = dict[str, Any]


def class_of(level: str | None, architecture: str) -> str:
    """Return the class of a CPU, a key of `CLASSES`, from the native library's level and the architecture.

    Raises:
        ValueError: nothing of these is measured here: without the library, or on older CPUs.
    """
    if level is not None and architecture.lower() in ("aarch64", "arm64"):
        return "arm"
    if level not in _CLASS_OF_LEVEL:
        raise ValueError(f"level {level} on {architecture} is of no class of CPU that has a table")
    return _CLASS_OF_LEVEL[level]


REMEASURE = "(not in this history; to be measured again)"


@dataclass(frozen=True, kw_only=True)
class Result:
    """A benchmark that was run once, with everything that was measured.

    Attributes:
        name: of the file, and of the table's place in a page.
        cpu_class: a key of `CLASSES`.
        what: in the words of a table: "decoding, 3+3 layers of 256, 300 sentences".
        machine: CPU, cores, level of the native library, version of torch.
        commit: of heedful; one that is no ancestor of HEAD, or "unknown", is followed by `REMEASURE`.
        date: as YYYY-MM-DD.
        commands: that were run; none where they were not written down.
        rows: of the table, by the names in `COLUMNS`.
        notes: what else is to be said, one line each.
    """

    name: str
    cpu_class: str
    what: str
    machine: str
    commit: str
    date: str
    commands: list[str]
    rows: list[Row]
    notes: list[str]

    def save(self, directory: Path = RESULTS) -> None:
        """Write the file."""
        text = json.dumps(asdict(self), ensure_ascii=False, indent=1)
        # A row on a line, so that changes can be read.
        for row in self.rows:
            spread = json.dumps(row, ensure_ascii=False, indent=1).replace("\n", "\n  ")
            text = text.replace(spread, json.dumps(row, ensure_ascii=False))
        (directory / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")


def load(directory: Path = RESULTS) -> list[Result]:
    """Return all results, by name."""
    return [
        Result(**json.loads(path.read_text(encoding="utf-8"))) for path in sorted(directory.glob("*.json"))
    ]


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


# Name in a row, heading, how a value is shown. A table has those that any of its rows has.
COLUMNS: list[tuple[str, str, Callable[[Any], str]]] = [
    ("engine", "", str),
    ("version", "version", str),
    ("preset", "preset", str),
    ("precision", "precision", str),
    ("kernels", "kernels", str),
    ("beam", "beam", str),
    ("batch", "batch", str),
    ("batch_tokens", "tokens of a batch", _count),
    ("tokens_per_second", "target tokens/s", _count),
    ("bleu", "BLEU", "{:.2f}".format),
    ("same_outputs", "same outputs", "{:.1f} %".format),
    ("median_latency_ms", "latency, median ms", _plain),
    ("p99_latency_ms", "99 %", _plain),
    ("matmul_gflops", "machine's matrix multiplications, GFLOP/s", _count),
    ("share_of_matmul", "share", "{:.0f} %".format),
    ("peak_mib", "peak MiB", _count),
    ("steps", "steps", str),
    ("seconds", "seconds", _plain),
    ("failure", "failure", str),
]


def full_table(result: Result) -> str:
    """Return every row, under a line that says where, when and how they were measured."""
    known = {name for name, _, _ in COLUMNS}
    if unknown := {name for row in result.rows for name in row} - known:
        raise ValueError(f"{result.name}: no column for {', '.join(sorted(unknown))}")
    shown = [column for column in COLUMNS if any(column[0] in row for row in result.rows)]
    lines = [[heading for _, heading, _ in shown], ["---"] * len(shown)]
    lines += [[_cell(row, name, write) for name, _, write in shown] for row in result.rows]
    where = f"{result.machine}, commit {result.commit}, {result.date}"
    parts = [f"{result.what[0].upper()}{result.what[1:]}. {where}:"]
    if result.commands:
        parts.append("\n".join(["```sh", *result.commands, "```"]))
    parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines))
    if result.notes:
        parts.append("\n".join(f"- {note}" for note in result.notes))
    return "\n\n".join(parts)


def _cell(row: Row, name: str, write: Callable[[Any], str]) -> str:
    return write(row[name]).replace("|", "/") if row.get(name) is not None else "–"


SUMMARY = (
    "measurement",
    "precision",
    "target tokens/s",
    "fastest other",
    "ratio",
    "latency, ms",
    "shortest other",
)


def summary(results: list[Result], cpu_class: str) -> str:
    """Return the table of a class of CPU: heedful beside the fastest other."""
    lines = [list(SUMMARY), ["---", "---", *["--:"] * (len(SUMMARY) - 2)]]
    for result in (each for each in results if each.cpu_class == cpu_class):
        for setting, group in groupby(_measured(result), key=_setting):
            rows = list(group)
            label = ", ".join([result.what, *setting])
            own = [row["precision"] for row in rows if row["engine"] == OWN]
            # Of one precision there is one line; of several one for float32, and one for the fastest.
            for precision in own if len(own) == 1 else ("float32", "any"):
                chosen = [row for row in rows if precision in (row["precision"], "any")]
                if any(row["engine"] == OWN for row in chosen):
                    lines.append([label, precision, *_compared(chosen)])
    if len(lines) == 2:
        return "Nothing was measured."
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


# What is asked first of a class of CPU: the setting of its rows, and their precision (None: the fastest)
QUESTIONS: list[tuple[str, Row, str | None]] = [
    ("training, tiny", {"preset": "tiny"}, None),
    ("training, small", {"preset": "small"}, None),
    *(
        (f"decoding, beam {beam}", {"beam": beam, "batch": 64}, precision)
        for beam in (1, 5)
        for precision in ("float32", "int8")
    ),
]
# The results that answer; others with the same model say how much a second run differed.
_ANSWERS = re.compile(r".*-(training|training-peers|decoding-small)")
HEADLINES = (
    "task",
    "heedful, target tokens/s",
    "fastest other",
    "ratio",
    "ratio in other runs",
    "one sentence, ms",
    "shortest other, ms",
)


def headlines(results: list[Result], cpu_class: str) -> str:
    """Return the six lines of a class of CPU, and which results are of a lost commit."""
    lines = [list(HEADLINES), ["---", *["--:"] * (len(HEADLINES) - 1)]]
    of_class = [each for each in results if each.cpu_class == cpu_class]
    for label, setting, precision in QUESTIONS:
        runs = [(each, rows) for each in of_class if (rows := _rows_that_answer(each, setting, precision))]
        for result, rows in [run for run in runs if _ANSWERS.fullmatch(run[0].name)][:1]:
            own = max((row for row in rows if row["engine"] == OWN), key=_speed)
            others = [each for each in runs if each[0] != result and _model(each[0]) == _model(result)]
            more = ", ".join(_compared(rows)[2] for _, rows in others) or "–"
            _, other, ratio, *latencies = _compared(rows)
            task = f"{label}, {own['precision']}"
            lines.append([task, _count(_speed(own)), other, ratio, more, *latencies])
    if len(lines) == 2:
        return "Nothing was measured."
    table = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    lost = [f"- `{each.name}` {REMEASURE}" for each in of_class if each.commit.endswith(REMEASURE)]
    return "\n".join([table, "", *lost]) if lost else table


def _rows_that_answer(result: Result, setting: Row, precision: str | None) -> list[Row]:
    """Return the rows of a setting, if they compare heedful with another package."""
    rows = [
        row
        for row in _measured(result)
        if setting.items() <= row.items() and precision in (None, row["precision"])
    ]
    return rows if len({row["engine"] == OWN for row in rows}) == 2 else []


def _model(result: Result) -> str:
    return "training" if result.what.startswith("training") else re.sub(r", \d+ sentences", "", result.what)


def _measured(result: Result) -> Iterator[Row]:
    """Yield the rows with a figure, those of one setting together."""
    rows = [row for row in result.rows if row.get("tokens_per_second") is not None]
    settings = list(dict.fromkeys(_setting(row) for row in rows))
    yield from sorted(rows, key=lambda row: settings.index(_setting(row)))


def _setting(row: Row) -> tuple[str, ...]:
    names = {"preset": "{}", "beam": "beam {}", "batch": "batches of {}", "kernels": "{} kernels"}
    return tuple(words.format(row[name]) for name, words in names.items() if name in row)


def _compared(rows: list[Row]) -> list[str]:
    """Return speeds and latencies of the best, and by how much heedful's speed is higher."""
    own = [row for row in rows if row["engine"] == OWN]
    others = [row for row in rows if row["engine"] != OWN]
    fastest = max(own, key=_speed)
    cells = [f"{_count(_speed(fastest))}{_in(fastest, own)}", "–", "–", "–", "–"]
    if others:
        other = max(others, key=_speed)
        cells[1:3] = [f"{_named(other)} {_count(_speed(other))}", f"{_speed(fastest) / _speed(other):.2f}"]
    for place, candidates in ((3, own), (4, others)):
        timed = [row for row in candidates if row.get("median_latency_ms") is not None]
        if timed:
            best = min(timed, key=lambda row: row["median_latency_ms"])
            name = f"{_named(best)} " if place == 4 else ""
            cells[place] = f"{name}{_plain(best['median_latency_ms'])}"
    return cells


def _speed(row: Row) -> float:
    return float(row["tokens_per_second"])


def _in(row: Row, rows: list[Row]) -> str:
    return f" ({row['precision']})" if len(rows) > 1 else ""


def _named(row: Mapping[str, Any]) -> str:
    return f"{row['engine']} ({row['precision']})" if row["precision"] != "float32" else str(row["engine"])
