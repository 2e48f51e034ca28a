"""What is shown while text is read and vocabularies are trained."""

import shlex
import threading
from pathlib import Path

import pytest
from command_line import heedful

from heedful.errors import TokenizerError
from heedful.settings.run import Config
from heedful.tasks.directory import RunDirectory
from heedful.tasks.notices import Notices
from heedful.tasks.setup import set_up_training
from heedful.training.events import Event, NoticeEvent, WarningEvent


def test_long_work_is_not_silent_and_its_reminders_are_not_logged() -> None:
    shown: list[str] = []
    second = threading.Event()

    def listen(event: Event) -> None:
        assert isinstance(event, NoticeEvent)
        shown.append(event.message)
        if len(shown) == 3:
            second.set()

    notes = Notices([listen])
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
    with Notices([shown.append]).during("reading the text"):
        pass
    assert shown == []


def test_shared_sources_are_named_with_the_command_that_leaves_them_out(tmp_path: Path) -> None:
    texts = {
        "a.en": ["one", "two", "three"],
        "a.de": ["eins", "zwei", "drei"],
        "v.en": ["two"],
        "v.de": ["zwo"],
    }
    for name, lines in texts.items():
        (tmp_path / name).write_text("\n".join([*lines, ""]), encoding="utf-8")
    files = {name: str(tmp_path / name) for name in texts}
    data = {
        "src": files["a.en"],
        "tgt": files["a.de"],
        "valid_src": files["v.en"],
        "valid_tgt": files["v.de"],
    }
    shown: list[Event] = []
    config = Config.model_validate({"data": data, "tokenizer": {"vocab_size": 8000}})
    with pytest.raises(TokenizerError):  # three pairs are too few
        set_up_training(config, RunDirectory(tmp_path / "run"), Notices([shown.append]), resume=False)
    [warning] = [event.message for event in shown if isinstance(event, WarningEvent)]
    before, _, command = warning.partition("; heedful ")
    assert before == "1 of 1 validation sources occur in training, which raises scores"
    fixed = tmp_path / "fixed"
    command = command.removesuffix(" writes the training text without them").replace("DIR", str(fixed))
    assert heedful(*shlex.split(command)).code == 0
    assert (fixed / "train.en").read_text(encoding="utf-8").splitlines() == ["one", "three"]
