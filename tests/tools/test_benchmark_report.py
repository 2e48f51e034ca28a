"""The tables of docs/performance.md and docs/results/ are made of the files of results."""

import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).resolve().parent.parent.parent / "benchmarks"
sys.path.append(str(BENCHMARKS))

from report import pages  # noqa: E402
from results import REMEASURE, Result, class_of, full_table, headlines, load, summary  # noqa: E402

ROOT = BENCHMARKS.parent

ROWS: list[dict[str, Any]] = [
    {
        "engine": "heedful",
        "precision": "float32",
        "beam": 1,
        "tokens_per_second": 3000,
        "median_latency_ms": 5.0,
    },
    {
        "engine": "heedful",
        "precision": "int8",
        "beam": 1,
        "tokens_per_second": 9000,
        "median_latency_ms": 2.5,
    },
    {
        "engine": "other",
        "precision": "float32",
        "beam": 1,
        "tokens_per_second": 2000,
        "median_latency_ms": 4.0,
    },
    {
        "engine": "another",
        "precision": "int8",
        "beam": 1,
        "tokens_per_second": 6000,
        "median_latency_ms": 7.0,
    },
    {"engine": "broken", "precision": "int8", "beam": 1, "failure": "no | result"},
]


def result(rows: list[dict[str, Any]]) -> Result:
    return Result(
        name="a", cpu_class="avx2", what="decoding", machine="a CPU", commit="c0ffee", date="2026-01-02",
        commands=["measure"], rows=rows, notes=["on a Friday"],
    )  # fmt: skip


def test_a_summary_compares_the_fastest_of_each_precision() -> None:
    lines = summary([result(ROWS)], "avx2").splitlines()[2:]
    assert lines == [
        "| decoding, beam 1 | float32 | 3,000 | other 2,000 | 1.50 | 5 | other 4 |",
        "| decoding, beam 1 | any | 9,000 (int8) | another (int8) 6,000 | 1.50 | 2.5 | other 4 |",
    ]
    assert summary([result(ROWS)], "amx") == "Nothing was measured."
    assert summary([result(ROWS[2:])], "avx2") == "Nothing was measured."


def test_headlines_are_of_one_run_and_name_the_ratios_of_others() -> None:
    rows = [row | {"batch": 64} for row in ROWS]
    [small, second, alone, larger] = [
        replace(result(rows), name=f"avx2-{name}", what=what)
        for name, what in [
            ("decoding-small", "decoding, 3+3 layers, 300 sentences"),
            ("decoding-other", "decoding, 3+3 layers, 20 sentences"),
            ("decoding-alone", "decoding, 3+3 layers, 10 sentences"),
            ("decoding-base", "decoding, 6+6 layers, 300 sentences"),
        ]
    ]
    slower = [row | {"tokens_per_second": 1500} if row["engine"] == "heedful" else row for row in rows]
    own = [row for row in rows if row["engine"] == "heedful"]
    measured = [replace(second, rows=slower), small, larger, replace(alone, rows=own)]
    assert headlines(measured, "avx2").splitlines()[2:] == [
        "| decoding, beam 1, float32 | 3,000 | other 2,000 | 1.50 | 0.75 | 5 | other 4 |",
        "| decoding, beam 1, int8 | 9,000 | another (int8) 6,000 | 1.50 | 0.25 | 2.5 | another (int8) 7 |",
    ]
    assert headlines([larger], "avx2") == "Nothing was measured."


def test_a_full_table_has_every_row_and_no_unknown_figure() -> None:
    table = full_table(result(ROWS))
    assert table.startswith("Decoding. a CPU, commit c0ffee, 2026-01-02:\n\n```sh\nmeasure\n```")
    assert "| broken | int8 | 1 | – | – | no / result |" in table
    with pytest.raises(ValueError, match="no column for speed"):
        full_table(result([{"engine": "heedful", "speed": 1}]))


def test_results_and_places_belong_together(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- begin avx2-results -->\n<!-- end avx2-results -->\n")
    result(ROWS).save(tmp_path)
    assert load(tmp_path) == [result(ROWS)]
    page.write_text(page.read_text() + "<!-- begin avx2-headlines -->\n<!-- end avx2-headlines -->\n")
    with pytest.raises(ValueError, match=r"has a place for a$"):
        dict(pages(tmp_path, page))
    (tmp_path / "more.md").write_text("before <!-- begin a -->old<!-- end a --> after")
    assert dict(pages(tmp_path, page))[tmp_path / "more.md"].startswith("before <!-- begin a -->\nDecoding")
    page.write_text("<!-- begin b -->\n<!-- end b -->\n")
    with pytest.raises(ValueError, match="no result is called b"):
        dict(pages(tmp_path, page))


@pytest.mark.parametrize(
    ("level", "architecture", "name"),
    [("avx_vnni", "x86_64", "avx2"), ("avx512_vnni", "AMD64", "avx512"), ("baseline", "aarch64", "arm")],
)
def test_the_class_of_a_cpu(level: str, architecture: str, name: str) -> None:
    assert class_of(level, architecture) == name
    with pytest.raises(ValueError, match="no class"):
        class_of("baseline", "x86_64")


def test_every_result_names_its_commit_and_its_class_what_must_be_measured_again() -> None:
    found = load()
    for result in found:
        commit, _, mark = result.commit.partition(" ")
        assert re.fullmatch(r"[0-9a-f]{7,40}", commit) or commit == "unknown"
        assert mark in ({"", REMEASURE} if commit != "unknown" else {REMEASURE})
        assert (f"`{result.name}` {REMEASURE}" in headlines(found, result.cpu_class)) == bool(mark)
