import json
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from heedful.analysis.curves import Curve, draw_curves, read_curves
from heedful.errors import RunError


def write_log(path: Path, *events: dict[str, object], tail: str = "") -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail, encoding="utf-8")
    return path.parent


def step(number: int, loss: float) -> dict[str, object]:
    return {"event": "step", "step": number, "loss": loss, "nll": loss / 2, "tokens_per_second": 10}


def test_curves_hold_what_was_logged(tmp_path: Path) -> None:
    log = write_log(
        tmp_path / "log.jsonl",
        {"event": "start"},
        step(10, 3.0),
        {"event": "validation", "step": 15, "nll": 2.5, "perplexity": 12.2},
        step(20, 2.0),
        {"event": "end"},
    )
    curves = read_curves(log)
    assert curves.training["loss"] == Curve((10, 20), (3.0, 2.0))
    assert curves.validation["nll"] == Curve((15,), (2.5,))
    assert curves.validation["bleu"] == Curve()


def test_steps_that_a_resumed_run_repeats_count_once(tmp_path: Path) -> None:
    start = {"event": "start", "step": 15}
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), step(20, 2.0), step(30, 1.0), start, step(20, 1.9))
    assert read_curves(log).training["loss"] == Curve((10, 20), (3.0, 1.9))


def test_a_last_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), tail='{"event": "st')
    assert read_curves(log).training["loss"].steps == (10,)


@pytest.mark.parametrize("content", [b"nonsense\n[]", b"[" * 100_000, b'{"step": 1, "step": 2}', b"\xff"])
def test_a_broken_line_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"event": "start"}\n' + content + b"\n")
    with pytest.raises(RunError, match="line 2"):
        read_curves(tmp_path)
    with pytest.raises(RunError, match="none"):
        read_curves(tmp_path / "none")


@pytest.mark.representatives(1)
@pytest.mark.parametrize("value", [10**390, -(10**390), 1e300, float("nan"), float("inf"), -1.0, 0.0])
def test_values_that_cannot_be_drawn_leave_a_gap(tmp_path: Path, value: float) -> None:
    validation = {"event": "validation", "step": 5, "perplexity": value, "bleu": value}
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), step(20, 2.0) | {"loss": value}, validation)
    draw_curves({"a run": read_curves(log)}, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_steps_that_are_no_whole_numbers_do_not_count(tmp_path: Path) -> None:
    steps = (-1, True, 10**30, 1.5, None, "2")
    log = write_log(tmp_path / "log.jsonl", *({"event": "step", "step": each, "loss": 1.0} for each in steps))
    assert read_curves(log).training["loss"] == Curve()


def drawn_texts(path: Path) -> list[str]:
    svg = "{http://www.w3.org/2000/svg}"
    return ["".join(each.itertext()).strip() for each in ET.parse(path).iter(f"{svg}text")]


def test_several_runs_share_the_axes_and_differ_in_colour_or_style(tmp_path: Path) -> None:
    runs = {}
    for number in range(9):
        validation = {"event": "validation", "step": 15, "nll": 2.5, "bleu": 30.0 + number}
        log = write_log(tmp_path / "log.jsonl", step(10, 3.0), step(20, 2.0), validation)
        runs[f"run {number}"] = read_curves(log)
    draw_curves(runs, tmp_path / "curves.svg")
    texts = drawn_texts(tmp_path / "curves.svg")
    assert [text for text in texts if text.startswith("run ")] == list(runs)
    titles = {"training loss, nats per target token", "validation loss, nats per target token"}
    assert titles | {"validation BLEU", "target tokens per second", "Learning curves of 9 runs"} <= set(texts)
    assert "validation chrF" not in texts  # which no run has
    styles = set(
        re.findall(r'style="(fill: none; stroke[^"]*)"', (tmp_path / "curves.svg").read_text("utf-8"))
    )
    assert (
        len([style for style in styles if "stroke-width: 1.6" in style or "stroke-width: 1.5" in style]) >= 9
    )


def test_runs_with_other_quantities_and_any_names_can_be_compared(tmp_path: Path) -> None:
    one = read_curves(write_log(tmp_path / "one" / "log.jsonl", step(10, 3.0)))
    other = read_curves(
        write_log(tmp_path / "other" / "log.jsonl", {"event": "validation", "step": 9, "chrf": 40.0})
    )
    empty = read_curves(write_log(tmp_path / "empty" / "log.jsonl", {"event": "start"}))
    names = ["_hidden", "a $\\frac$ <b>&", "漢字\x07"]
    draw_curves(dict(zip(names, (one, other, empty), strict=True)), tmp_path / "curves.svg")
    assert {"_hidden", "a $\\frac$ <b>&", "漢字\ufffd", "validation chrF"} <= set(
        drawn_texts(tmp_path / "curves.svg")
    )
    with pytest.raises(RunError, match="steps"):
        draw_curves({"a": empty, "b": empty}, tmp_path / "curves.svg")
