import json
from pathlib import Path

import pytest

from heedful.analysis.curves import Curve, draw_curves, read_curves
from heedful.errors import RunError


def write_log(path: Path, *events: dict[str, object], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(event) + "\n" for event in events) + tail, encoding="utf-8")
    return path


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


def test_what_came_after_the_checkpoint_of_a_resumed_run_does_not_count(tmp_path: Path) -> None:
    start = {"event": "start", "step": 15}
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), step(20, 2.0), step(30, 1.0), start, step(20, 1.9))
    assert read_curves(log).training["loss"] == Curve((10, 20), (3.0, 1.9))


def test_a_last_line_cut_short_by_a_kill_is_left_out(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), tail='{"event": "st')
    assert read_curves(log).training["loss"].steps == (10,)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), tail="nonsense\n[]\n")
    with pytest.raises(RunError, match="line 2 is not a JSON object"):
        read_curves(log)


def test_a_missing_log_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no such file"):
        read_curves(tmp_path / "log.jsonl")


def test_curves_are_drawn_from_one_point_on(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", step(1, 3.0))
    draw_curves(read_curves(log), tmp_path / "curves.png", title="a run")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_a_title_is_no_formula(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", step(1, 3.0))
    draw_curves(read_curves(log), tmp_path / "curves.png", title="a $\\frac$ run")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("value", [10**390, -(10**390), 1e300, float("nan"), float("inf"), -1.0, 0.0])
def test_values_that_cannot_be_drawn_leave_a_gap(tmp_path: Path, value: float) -> None:
    validation = {"event": "validation", "step": 5, "perplexity": value, "bleu": value}
    log = write_log(tmp_path / "log.jsonl", step(10, 3.0), step(20, 2.0) | {"loss": value}, validation)
    draw_curves(read_curves(log), tmp_path / "curves.png", title="a run")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("content", [b"[" * 100_000, b'{"step": 1, "step": 2}', b"\xff"])
def test_a_line_beyond_the_limits_of_json_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"event": "start"}\n' + content + b"\n")
    with pytest.raises(RunError, match="line 2 is not a JSON object"):
        read_curves(tmp_path / "log.jsonl")


def test_steps_that_are_no_whole_numbers_do_not_count(tmp_path: Path) -> None:
    steps = (-1, True, 10**30, 1.5, None, "2")
    log = write_log(tmp_path / "log.jsonl", *({"event": "step", "step": each, "loss": 1.0} for each in steps))
    assert read_curves(log).training["loss"] == Curve()


def test_nothing_to_draw_is_one_clear_line(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log.jsonl", {"event": "start"})
    with pytest.raises(RunError, match="no steps are logged yet"):
        draw_curves(read_curves(log), tmp_path / "curves.png", title="a run")
