import json

from heedful.training.events import EndEvent, StartEvent, StepEvent, ValidationEvent


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
