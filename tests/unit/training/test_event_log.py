"""A log that a killed run has left behind, and what becomes of it when the run goes on."""

import json
from pathlib import Path

import pytest

from heedful.training.events import EndEvent, EventLog, NoticeEvent, StartEvent, StepEvent, ValidationEvent


def line(step: int) -> str:
    return json.dumps({"event": "notice", "step": step, "seconds": 1.0, "message": f"step {step}"})


def steps(path: Path) -> list[int]:
    return [json.loads(text)["step"] for text in path.read_text(encoding="utf-8").splitlines()]


def log_of(folder: Path, content: bytes) -> EventLog:
    (folder / "log.jsonl").write_bytes(content)
    return EventLog(folder / "log.jsonl")


@pytest.mark.parametrize(
    "damage",
    [
        line(5)[:20].encode(),  # was being written
        b"[]",
        b"3",
        b"null",
        b"{}",
        b'{"event": "step", "step": "five"}',
        b"\x00\x00\x00\x00",  # as a file system leaves it without power
        b"\xff\xfe",
        b"",
    ],
)
def test_only_events_until_the_checkpoint_stay(tmp_path: Path, damage: bytes) -> None:
    content = b"\n".join([line(0).encode(), damage, line(4).encode(), line(5).encode(), damage])
    log = log_of(tmp_path, content)
    log.drop_after(4)
    log(NoticeEvent(5, 1.0, "again"))
    assert steps(log.path) == [0, 4, 5]


@pytest.mark.parametrize(
    ("validated_step", "retained"), [(4, ["one"]), (8, ["one", "other"]), (-1, ["one", "other"])]
)
def test_a_validation_that_the_checkpoint_does_not_know_of_is_dropped(
    tmp_path: Path, validated_step: int, retained: list[str]
) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    for step, name in ((4, "one"), (8, "other")):
        log(ValidationEvent(step, 1.0, {name: 1.0}, is_best=True))
        log(NoticeEvent(step, 1.0, "saved"))
    log.drop_after(8, validated_step=validated_step)
    text = log.path.read_text(encoding="utf-8")
    assert [name for name in ("one", "other") if name in text] == retained
    assert text.count("saved") == 2


def test_an_event_that_lost_its_line_break_gets_it_back(tmp_path: Path) -> None:
    log = log_of(tmp_path, f"{line(1)}\n{line(2)}".encode())
    log.drop_after(2)
    log(NoticeEvent(3, 1.0, "next"))
    assert steps(log.path) == [1, 2, 3]


def test_a_log_that_is_older_than_the_checkpoint_stays_as_it_is(tmp_path: Path) -> None:
    log = log_of(tmp_path, f"{line(1)}\n{line(2)}\n".encode())
    log.drop_after(40)
    assert steps(log.path) == [1, 2]


def test_a_log_that_is_gone_begins_anew(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    log.drop_after(4)
    assert not log.path.exists()
    log(NoticeEvent(5, 1.0, "first"))
    assert steps(log.path) == [5]


def test_a_log_that_cannot_be_rewritten_stays_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(tmp_path, f"{line(1)}\n{line(2)}\n".encode())

    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        log.drop_after(1)
    assert steps(log.path) == [1, 2]


def test_an_event_is_one_flat_object_with_its_kind_first() -> None:
    event = StepEvent(
        step=50, seconds=1.5, epoch=0, loss=3.0, nll=2.5, learning_rate=1e-4, gradient_norm=0.5,
        tokens_per_second=1e4, progress=0.1,
    )  # fmt: skip
    found = event.to_json()
    assert list(found)[:3] == ["event", "step", "seconds"]
    assert found["event"] == "step"
    assert (found["loss"], found["nll"]) == (3.0, 2.5)  # the smoothed loss is not the likelihood
    assert json.loads(json.dumps(found)) == found


def test_scores_stand_beside_the_other_fields() -> None:
    found = ValidationEvent(step=7, seconds=2.0, scores={"nll": 1.5, "bleu": 30.0}, is_best=True).to_json()
    assert found == {
        "event": "validation", "step": 7, "seconds": 2.0, "is_best": True, "nll": 1.5, "bleu": 30.0,
    }  # fmt: skip


def test_kinds_differ() -> None:
    assert {kind.kind for kind in (StartEvent, StepEvent, ValidationEvent, EndEvent)} == {
        "start", "step", "validation", "end",
    }  # fmt: skip
