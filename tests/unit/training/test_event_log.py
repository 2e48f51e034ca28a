"""A log that a killed run has left behind, what becomes of it when the run goes on, and its curves."""

import json
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tolerances import FLOAT32, FLOAT64, close

from heedful.training.events import (
    EndEvent,
    EventLog,
    NoticeEvent,
    ProgressEvent,
    StartEvent,
    StepEvent,
    TensorBoardLog,
    ValidationEvent,
)


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
        "event": "validation", "step": 7, "seconds": 2.0, "is_best": True, "cut_outputs": 0, "nll": 1.5,
        "bleu": 30.0,
    }  # fmt: skip


def test_kinds_differ() -> None:
    assert {kind.kind for kind in (StartEvent, StepEvent, ValidationEvent, EndEvent)} == {
        "start", "step", "validation", "end",
    }  # fmt: skip


def means(step: int, kind: type[StepEvent] = StepEvent) -> StepEvent:
    numbers = {"loss": 5.0 - step, "nll": 4.0, "learning_rate": 2e-3, "gradient_norm": 0.5}
    return kind(step, 10.0 * step, epoch=0, tokens_per_second=900.0, progress=0.1, **numbers)


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    """What TensorBoard reads in a folder: the steps and values of each curve."""
    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    return {name: [(each.step, each.value) for each in read.Scalars(name)] for name in read.Tags()["scalars"]}


def test_tensorboard_shows_the_log_and_what_comes_after_it(tmp_path: Path) -> None:
    log = log_of(tmp_path, b'{"event": "step", "step": "five"}\n{"event": "step", "step": 1, "loss": 9.0}\n')
    log(means(1))
    log(ValidationEvent(1, 11.0, {"nll": 3.5, "bleu": 12.5}, is_best=True))
    tracked = TensorBoardLog(tmp_path / "tensorboard", log.path, 11.0)
    for event in (means(2, ProgressEvent), means(2), NoticeEvent(2, 20.0, "saved"), means(3)):
        tracked(event)
    assert curves(tmp_path / "tensorboard")["train/loss"] == [(1, 4.0), (2, 3.0), (3, 2.0)]  # at once
    tracked.close()
    assert curves(tmp_path / "tensorboard") == {
        "train/loss": [(1, 4.0), (2, 3.0), (3, 2.0)],
        "train/nll": [(1, 4.0), (2, 4.0), (3, 4.0)],
        "train/learning_rate": [(step, close(2e-3, FLOAT32.ELEMENT.at(2e-3))) for step in (1, 2, 3)],
        "train/gradient_norm": [(1, 0.5), (2, 0.5), (3, 0.5)],
        "train/tokens_per_second": [(1, 900.0), (2, 900.0), (3, 900.0)],
        "validation/nll": [(1, 3.5)],
        "validation/bleu": [(1, 12.5)],
    }


def test_the_times_of_curves_are_those_of_training(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log.jsonl")
    log(means(1))
    tracked = TensorBoardLog(tmp_path / "tensorboard", log.path, 25.0)
    tracked(means(3))
    tracked.close()
    read = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    first, second = (each.wall_time for each in read.Scalars("train/loss"))
    assert second - first == close(20.0, FLOAT64.ELEMENT.at(2e9))


def test_steps_that_are_taken_again_are_shown_once_and_other_files_stay(tmp_path: Path) -> None:
    folder, log = tmp_path / "tensorboard", EventLog(tmp_path / "log.jsonl")
    folder.mkdir()
    (folder / "events.out.tfevents.1.theirs").touch()
    for after in (0, 2):
        log.drop_after(after)
        tracked = TensorBoardLog(folder, log.path, 10.0 * after)
        for step in range(after + 1, 5):
            log(means(step))
            tracked(means(step))
        tracked.close()
    assert [step for step, _ in curves(folder)["train/loss"]] == [1, 2, 3, 4]
    assert (folder / "events.out.tfevents.1.theirs").exists()
    assert len(list(folder.iterdir())) == 2
