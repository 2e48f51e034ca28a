"""The lines of training on a stderr that is no terminal."""

import io

import pytest
from rich.console import Console

from heedful.tasks.display import PlainDisplay
from heedful.training.events import EndEvent, Event, ProgressEvent, SkippedEvent, StepEvent, ValidationEvent

STEP = {
    "epoch": 0, "loss": 5.0, "nll": 4.0, "learning_rate": 1e-3, "gradient_norm": 1.0,
    "tokens_per_second": 900.0, "progress": 0.25,
}  # fmt: skip


def lines(*events: Event) -> list[str]:
    written = io.StringIO()
    display = PlainDisplay(Console(file=written, highlight=False, soft_wrap=True))
    for event in events:
        display(event)
    return written.getvalue().splitlines()


def test_the_last_line_of_a_run_that_learned_nothing_is_no_success() -> None:
    end = EndEvent(42, 211.0, "reached the limit of 3.5 minutes after 42 steps", 0, 42, 42, "it is too short")
    assert lines(end) == [
        "done: reached the limit of 3.5 minutes after 42 steps; took 3:31",
        "warning: it is too short",
    ]


def test_a_run_that_was_over_has_nothing_to_do() -> None:
    end = EndEvent(102, 17.0, "102 steps done, train.max_steps=50", 0, 42, 0)
    assert lines(end) == ["nothing to do: 102 steps done, train.max_steps=50"]


def test_a_step_that_is_skipped_has_its_learning_rate() -> None:
    skipped = SkippedEvent(3, 1.0, float("nan"), 2.0, 0.5, [1], "skipped.tsv")
    assert lines(skipped) == [
        "warning: step 3 is skipped: at learning rate 5.00e-01, its loss (nan) or its gradient (2) is not "
        "finite; its sentences are in skipped.tsv"
    ]


@pytest.mark.parametrize("kind", [StepEvent, ProgressEvent])
def test_a_step_is_a_line_whether_it_is_logged_or_not(kind: type[StepEvent]) -> None:
    [line] = lines(kind(7, 60.0, **STEP))  # type: ignore[arg-type]
    assert line == "step 7 · epoch 1 · loss 5.000 · 900 tokens/s · lr 1.00e-03 · 3:00 left"


def test_a_step_that_was_shown_is_not_shown_again_when_it_is_logged() -> None:
    shown, logged = ProgressEvent(2, 60.0, **STEP), StepEvent(2, 61.0, **STEP)  # type: ignore[arg-type]
    assert len(lines(shown, logged)) == 1
    assert len(lines(shown, StepEvent(3, 61.0, **STEP))) == 2  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("scores", "end"),
    [
        ({"bleu": 0.0}, "bleu 0.00 · best so far · does not translate yet"),
        ({"bleu": 3.0}, "bleu 3.00 · best so far"),
        ({"nll": 3.0}, "nll 3.00 · best so far"),
        ({"perplexity": 1e304}, "perplexity 1.00e+304 · best so far"),
    ],
)
def test_the_best_so_far_may_not_translate_yet(scores: dict[str, float], end: str) -> None:
    [line] = lines(ValidationEvent(42, 60.0, scores, is_best=True))
    assert line.endswith(end)
