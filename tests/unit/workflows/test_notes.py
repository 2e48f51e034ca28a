"""What is shown while text is read and vocabularies are trained."""

import threading

from heedful.training import Event, NoticeEvent
from heedful.workflows.material import Notes


def test_long_work_is_not_silent_and_its_reminders_are_not_logged() -> None:
    shown: list[str] = []
    second = threading.Event()

    def listen(event: Event) -> None:
        assert isinstance(event, NoticeEvent)
        shown.append(event.message)
        if len(shown) == 3:
            second.set()

    notes = Notes([listen])
    notes.add("training a bpe vocabulary on 3 pairs")
    with notes.during("training the vocabulary", silence=0.01):
        assert second.wait(60)
    assert shown[0] == "training a bpe vocabulary on 3 pairs"
    assert all(
        line.startswith("training the vocabulary: ") and line.endswith(" s so far") for line in shown[1:]
    )
    assert [event.message for event in notes.events if isinstance(event, NoticeEvent)] == shown[:1]


def test_short_work_is_silent() -> None:
    shown: list[Event] = []
    with Notes([shown.append]).during("reading the text"):
        pass
    assert shown == []
